/* SPDX-License-Identifier: BSD-3-Clause
 * The eight kinds of steps, executed. A step either completes, or changes nothing and returns the
 * words that it waits for; so it can be repeated. */
#include <string.h>

#include "base/ranks.h"
#include "kernel/kernel.h"
#include "engine/engine_private.h"
#include "hosts/hosts.h"

/* The caller's buffer, or a copy of all of it. */
static unsigned char *buffer_here(struct op *op, unsigned buffer)
{
	/* Only in-place plans write to INPUT, which is OUTPUT then. */
	return buffer == PLAN_OUTPUT ? op->output : (unsigned char *)(uintptr_t)op->input;
}

/* ---- entries of peers ---- */

bool engine_step_expects(struct op *op, int peer, uint64_t sends)
{
	if (sends == op->call.recv_counts[peer])
		return true;
	op->peer_sends = sends;
	op->peer_expected = op->call.recv_counts[peer];
	op->status = LS_MISMATCH;
	op->culprit = peer;
	return false;
}

/* In an all-to-allv each rank publishes how much it sends to each rank. */
static uint64_t peer_count(const struct engine *engine, const struct op *op, int peer, int to)
{
	const uint64_t *counts = (const uint64_t *)(const void *)transport_entry_payload(
		engine->team, peer, op->seq, engine_window_payload(op));
	return __atomic_load_n(&counts[to], __ATOMIC_RELAXED);
}

/* The block for this rank in peer's INPUT. False if peer has published nonsense. */
static bool range_for_me(const struct engine *engine, const struct op *op, int peer,
			 struct engine_range *out)
{
	int me = engine->team->rank;
	*out = engine_range_shown(engine, op, PLAN_INPUT, peer, (unsigned)me, 1);
	if (!op->call.recv_counts || peer == me)
		return true;
	uint64_t first = 0;
	for (int r = 0; r < me; r++)
		if (__builtin_add_overflow(first, peer_count(engine, op, peer, r), &first))
			return false;
	out->elements = op->call.recv_counts[peer];
	out->bytes = out->elements * op->element_bytes;
	return !__builtin_mul_overflow(first, op->element_bytes, &out->offset);
}

enum op_progress engine_step_check(struct engine *engine, struct op *op, int peer)
{
	if (op->checked[peer / 64] & ranks_bit(peer))
		return OP_DONE;
	const struct transport_entry *entry = transport_entry(engine->team, peer, op->seq);
	uint64_t need = transport_signal(op->seq, 0);
	uint64_t signal = atomic_load_explicit(&entry->signal, memory_order_acquire);
	if (!transport_signal_reached(signal, need)) {
		transport_wait_word(engine->team, peer, &entry->signal, need, peer,
				    &op->words[op->word_count++]);
		return OP_BLOCKED;
	}
	if (!transport_signal_is_of(signal, op->seq))
		return op_fail(op, LS_INTERNAL, peer); /* it cannot be this far ahead of me */
	if (entry->signature != op->signature || entry->count != engine_common_count(op) ||
	    entry->history != op->history)
		return op_fail(op, LS_MISMATCH, peer);
	/* What a rank on another host sends to me is known from its message: see step_recv. */
	if (op->call.recv_counts && transport_is_here(engine->team, peer) &&
	    !engine_step_expects(op, peer, peer_count(engine, op, peer, engine->team->rank)))
		return OP_FAILED;
	op->checked[peer / 64] |= ranks_bit(peer);
	return OP_DONE;
}

static enum op_progress check_signal(struct engine *engine, struct op *op, int peer, uint32_t round,
				     unsigned phase)
{
	enum op_progress progress = engine_step_check(engine, op, peer);
	if (progress != OP_DONE || (round == 0 && phase == 0))
		return progress;
	/* If peer shows no fragments, its whole buffer was ready when it entered, and its signals
	 * may not count rounds. */
	if (phase == 0 && !engine_window_shows_fragments(engine, op, peer))
		return OP_DONE;
	const _Atomic uint64_t *signal = &transport_entry(engine->team, peer, op->seq)->signal;
	uint64_t need = engine_fragment_signal(op, round, phase);
	if (transport_signal_reached(atomic_load_explicit(signal, memory_order_acquire), need))
		return OP_DONE;
	transport_wait_word(engine->team, peer, signal, need, peer, &op->words[op->word_count++]);
	return OP_BLOCKED;
}

/* Fills op->words: a word of the channel to a peer; first the peer's entry, because a peer in
 * another operation never takes anything. A peer on another host that has not entered may still
 * take what was sent before, or this rank's link may release the message: then either word ends the
 * wait. */
static enum op_progress block_on_channel(struct engine *engine, struct op *op, int peer,
					 const struct wait_word *blocked)
{
	enum op_progress progress = engine_step_check(engine, op, peer);
	bool is_here = transport_is_here(engine->team, peer);
	if (progress == OP_FAILED)
		return OP_FAILED;
	if (progress == OP_BLOCKED && !is_here) {
		op->words[0] = op->words[op->word_count - 1];
		op->word_count = 1;
		op->any_suffices = true;
	}
	if (progress == OP_DONE || !is_here)
		op->words[op->word_count++] = *blocked;
	return OP_BLOCKED;
}

enum op_progress engine_step_taken(struct engine *engine, struct op *op, int peer)
{
	struct wait_word blocked;
	ls_status refused;
	if (!(op->untaken[peer / 64] & ranks_bit(peer)))
		return OP_DONE;
	if (transport_channel_taken(engine->team, peer, op->tickets[peer], &refused, &blocked)) {
		op->untaken[peer / 64] &= ~ranks_bit(peer);
		return refused == LS_OK ? OP_DONE : op_fail(op, refused, peer);
	}
	return block_on_channel(engine, op, peer, &blocked);
}

static enum op_progress step_await(struct engine *engine, struct op *op,
				   const struct plan_step *step)
{
	uint32_t round = op->round;
	op->word_count = 0;
	if (step->flags & PLAN_UNTIL_TAKEN)
		return engine_step_taken(engine, op, step->peer);
	if (op->plan->last_await_guards && op->step + 1 == op->plan->plan.step_count) {
		if (!engine_window_is_shown(op))
			return OP_DONE; /* nobody touches my buffers */
		/* Until the last round, the await that protects my buffers lags by one round: the
		 * next slot must be free. */
		if (round + 1 < op->rounds && round + 1 < ENGINE_FRAGMENT_SLOTS)
			return OP_DONE;
		if (round + 1 < op->rounds)
			round -= ENGINE_FRAGMENT_SLOTS - 1;
	}
	if (step->peer != PLAN_ALL)
		return check_signal(engine, op, step->peer, round, step->phase);
	/* The members on my host. Only a plan for one host has all of them here. */
	for (int q = engine->team->first_here; q < engine->team->size; q++)
		if (q != engine->team->rank && transport_is_here(engine->team, q) &&
		    check_signal(engine, op, q, round, step->phase) == OP_FAILED)
			return OP_FAILED;
	if (op->word_count > 0)
		return OP_BLOCKED;
	if (op->plan->plan.hosts == 1 && engine->entered_by_all < op->seq)
		engine->entered_by_all = op->seq;
	return OP_DONE;
}

static enum op_progress step_signal(struct engine *engine, struct op *op,
				    const struct plan_step *step)
{
	struct transport_team *team = engine->team;
	struct transport_entry *entry = transport_entry(team, team->rank, op->seq);
	wait_store(&entry->signal, engine_fragment_signal(op, op->round, step->phase));
	/* Other hosts have no phases. */
	transport_notify_host(team);
	return OP_DONE;
}

/* The buffers of one reduction; each begins at the first byte that is used. */
struct reduction {
	struct engine_view from[RANKS_HOST_MAX];
	unsigned char *to[RANKS_HOST_MAX];
	uint64_t chunk; /* the bytes of one chunk */
	enum plan_stores stores;
	struct kernel_reduce reduce;
};

/* How many bytes of each source fit into the bounce buffer together: whole cache lines, and so
 * whole elements. */
static uint64_t bounce_chunk(const struct op *op, int sources)
{
	uint64_t chunk = ENGINE_BOUNCE_BYTES / (uint64_t)sources / 64 * 64;
	return chunk < engine_read_bytes(op) ? chunk : engine_read_bytes(op);
}

static enum op_progress open_reduction(struct engine *engine, struct op *op,
				       const struct plan_step *step, struct reduction *out)
{
	int size = engine->team->size, me = engine->team->rank, sources = 0;
	bool alone = step->flags & (PLAN_TO_SELF | PLAN_TO_PEER), reads = false;
	out->chunk = op->choice.chunk_bytes;
	for (int q = engine->team->first_here; q < size; q++) {
		if (!transport_is_here(engine->team, q))
			continue;
		struct engine_view *view = &out->from[sources++];
		struct engine_range from =
			engine_range_shown(engine, op, PLAN_INPUT, q, step->block, step->blocks);
		if (!engine_window_open(engine, op, q, PLAN_INPUT, from.offset, from.bytes, view))
			return op_fail(op, LS_INTERNAL, q);
		reads |= !view->at;
	}
	if (reads)
		out->chunk = bounce_chunk(op, sources);
	int first = step->flags & PLAN_TO_PEER ? step->peer : alone ? me : 0;
	int targets = alone ? 1 : size;
	for (int i = 0; i < targets; i++) {
		struct engine_range to = engine_range_shown(engine, op, PLAN_OUTPUT, first + i,
							    step->block, step->blocks);
		out->to[i] = engine_window_target(engine, op, first + i, to.offset, to.bytes);
		if (!out->to[i])
			return op_fail(op, LS_INTERNAL, first + i);
	}
	/* Except in PLAN_PULL, other ranks do not read what a rank reduces for itself, or the rank
	 * itself uses it first (PLAN_RAILS). Reading
	 * through the system takes as long with any stores. */
	bool shared = !(step->flags & PLAN_TO_SELF) || op->plan->plan.algorithm == PLAN_PULL;
	out->stores = op->choice.stores;
	if (!shared || (reads && out->stores == PLAN_STORES_AUTO))
		out->stores = PLAN_STORES_CACHED;
	out->reduce = (struct kernel_reduce){
		.dtype = op->call.dtype,
		.op = op->call.reduce,
		.source_count = sources,
		.target_count = targets,
		.divisor = op->call.reduce == LS_AVERAGE && !(step->flags & PLAN_PARTIAL)
				   ? (uint32_t)size
				   : 0,
		.cached = op->call.send.bytes <= ENGINE_CACHED_BYTES,
	};
	return OP_DONE;
}

/* The next bytes of all ranks: where they are, or a copy. False: the operation has failed. */
static bool sources_of(struct engine *engine, struct op *op, struct reduction *reduction,
		       uint64_t offset, uint64_t bytes, const void **sources)
{
	if (engine_has_failed_hint(engine)) {
		op_fail(op, LS_ABORTED, -1);
		return false;
	}
	for (int i = 0; i < reduction->reduce.source_count; i++) {
		sources[i] = engine_view_bytes(engine, op, &reduction->from[i], offset, bytes,
					       engine->bounce + (size_t)i * reduction->chunk);
		if (!sources[i])
			return false;
	}
	return true;
}

/* The core of direct algorithms: reduces blocks of the INPUT of all ranks into the OUTPUT of all
 * ranks, or of one. */
static enum op_progress step_reduce_all(struct engine *engine, struct op *op,
					const struct plan_step *step)
{
	struct reduction reduction;
	const void *sources[RANKS_HOST_MAX];
	void *targets[RANKS_HOST_MAX];
	uint64_t bytes = engine_range_own(op, PLAN_INPUT, step).bytes;
	if (bytes == 0)
		return OP_DONE;
	if (open_reduction(engine, op, step, &reduction) == OP_FAILED)
		return OP_FAILED;
	struct kernel_reduce *reduce = &reduction.reduce;
	reduce->sources = sources;
	reduce->targets = targets;
	for (uint64_t done = 0; done < bytes; done += reduction.chunk) {
		uint64_t left = bytes - done;
		uint64_t chunk = left < reduction.chunk ? left : reduction.chunk;
		struct op_tuner_use use;
		reduce->nontemporal =
			op_tuner_begin(&engine->tuner, OP_CHOICE_REDUCE, reduction.stores,
				       op->call.send.bytes, chunk, &use);
		if (!sources_of(engine, op, &reduction, done, chunk, sources))
			return OP_FAILED;
		for (int i = 0; i < reduce->target_count; i++)
			targets[i] = reduction.to[i] + done;
		reduce->count = chunk / op->element_bytes;
		kernel_reduce(reduce);
		op_tuner_end(&use);
	}
	return OP_DONE;
}

static enum op_progress step_copy(struct engine *engine, struct op *op, const struct plan_step *step)
{
	int me = op->plan->plan.rank;
	bool own = step->peer == me;
	struct engine_range to = own ? engine_range_kept(engine, op, step->to, step)
				     : engine_range_own(op, step->to, step);
	struct engine_range from;
	struct engine_view view;
	if (!(step->flags & PLAN_TRANSPOSE))
		from = engine_range_shown(engine, op, step->from, step->peer, step->block,
					  step->blocks);
	else if (!range_for_me(engine, op, step->peer, &from))
		return op_fail(op, LS_INTERNAL, step->peer);
	if (to.bytes == 0 && from.bytes == 0)
		return OP_DONE;
	unsigned char *target =
		own ? engine_window_own(op, (enum plan_buffer)step->to) : buffer_here(op, step->to);
	if (!target || from.bytes != to.bytes ||
	    !engine_window_open(engine, op, step->peer, (enum plan_buffer)step->from, from.offset,
				from.bytes, &view))
		return op_fail(op, LS_INTERNAL, step->peer);
	return engine_view_copy(engine, op, &view, target + to.offset, to.bytes);
}

/* Whether the part of a step between hosts is empty. Then only the first slice sends a message: its
 * entry shows that the ranks of both hosts run the same collective. */
static bool is_left_out(const struct op *op, const struct plan_step *step,
			const struct engine_range *range)
{
	return op->plan->plan.algorithm == PLAN_RAILS && range->bytes == 0 && step->block > 0;
}

static enum op_progress step_send(struct engine *engine, struct op *op, const struct plan_step *step)
{
	struct engine_range range = engine_range_kept(engine, op, step->from, step);
	op->word_count = 0;
	if (is_left_out(op, step, &range))
		return OP_DONE;
	if (!transport_inbox_open(engine->team, step->peer, engine->team->rank))
		return op_fail(op, LS_OUT_OF_MEMORY, -1);
	struct transport_envelope envelope = {
		.seq = op->seq, .count = range.elements, .bytes = range.bytes};
	const unsigned char *payload =
		range.bytes ? engine_window_own(op, (enum plan_buffer)step->from) + range.offset
			    : NULL;
	uint64_t window =
		range.offset + (step->from == PLAN_INPUT ? op->input_offset : op->output_offset);
	if (step->from == PLAN_OUTPUT && engine_fragment_shows_own(op))
		window += engine_fragment_slot(op, PLAN_OUTPUT);
	uint64_t ticket;
	struct wait_word blocked;
	if (!transport_channel_post(engine->team, step->peer, &envelope, payload, window, &ticket,
				    &blocked))
		return block_on_channel(engine, op, step->peer, &blocked);
	if (range.bytes > TRANSPORT_MESSAGE_INLINE_BYTES) {
		op->has_untaken = true;
		op->untaken[step->peer / 64] |= ranks_bit(step->peer);
		op->tickets[step->peer] = ticket;
	}
	return OP_DONE;
}

/* A message that this rank has matched is not what the plan expects. */
static enum op_progress refuse_message(struct engine *engine, struct op *op, int peer,
				       struct transport_message *message)
{
	uint64_t count = message->count;
	transport_channel_take(engine->team, peer, message, LS_OK);
	if (op->call.recv_counts && !transport_is_here(engine->team, peer) &&
	    !engine_step_expects(op, peer, count))
		return OP_FAILED;
	return op_fail(op, LS_INTERNAL, peer);
}

static enum op_progress end_receive(struct engine *engine, struct op *op, int peer,
				    struct transport_message *message, ls_status status)
{
	transport_channel_take(engine->team, peer, message, LS_OK);
	if (status == LS_OK)
		return OP_DONE;
	return op_fail(op, status, status == LS_PEER_DIED ? peer : -1);
}

enum op_progress engine_step_fetch(struct engine *engine, struct op *op)
{
	struct transport_message *message = op->fetching;
	ls_status status;
	if (!hosts_collect(engine->team, op->fetching_from, message, op->target, &status,
			   &op->words[op->word_count])) {
		op->word_count++;
		return OP_BLOCKED;
	}
	op->fetching = NULL;
	return end_receive(engine, op, op->fetching_from, message, status);
}

static enum op_progress step_recv(struct engine *engine, struct op *op, const struct plan_step *step)
{
	struct engine_range range = engine_range_kept(engine, op, step->to, step);
	op->word_count = 0;
	if (is_left_out(op, step, &range))
		return OP_DONE;
	if (op->fetching)
		return engine_step_fetch(engine, op);
	/* The entry of the peer first: a peer that is in another operation will never send. */
	enum op_progress progress = engine_step_check(engine, op, step->peer);
	if (progress != OP_DONE)
		return progress;
	if (!transport_inbox_open(engine->team, engine->team->rank, step->peer))
		return op_fail(op, LS_OUT_OF_MEMORY, -1);
	struct transport_message *message =
		transport_channel_match(engine->team, step->peer, op->seq, &op->words[0]);
	if (!message) {
		op->word_count = 1;
		return OP_BLOCKED;
	}
	/* The sender withdraws only after the cause is set; then it waits for a receiver that has
	 * matched the message. */
	bool whole = !engine_has_failed(engine);
	unsigned char *target =
		range.bytes ? engine_window_own(op, (enum plan_buffer)step->to) + range.offset
			    : NULL;
	if (whole && message->bytes != range.bytes)
		return refuse_message(engine, op, step->peer, message);
	if (whole && hosts_must_fetch(engine->team, step->peer, message)) {
		op->fetching = message;
		op->fetching_from = step->peer;
		op->target = target;
		return engine_step_fetch(engine, op);
	}
	const void *payload = whole && range.bytes
				      ? transport_channel_payload(engine->team, step->peer, message)
				      : "";
	if (!payload)
		return refuse_message(engine, op, step->peer, message);
	if (whole && range.bytes)
		whole = engine_copy(engine, target, payload, range.bytes, ENGINE_CHUNK_BYTES);
	return end_receive(engine, op, step->peer, message, whole ? LS_OK : LS_ABORTED);
}

/* PLAN_STEP_COMBINE; and PLAN_STEP_SCALE, which divides the sum for an average. */
static enum op_progress step_combine(struct engine *engine, struct op *op,
				     const struct plan_step *step)
{
	struct engine_range range = engine_range_kept(engine, op, PLAN_OUTPUT, step);
	struct engine_range other = engine_range_kept(engine, op, PLAN_SCRATCH, step);
	bool scale = step->kind == PLAN_STEP_SCALE;
	if (range.bytes == 0 || (scale && op->call.reduce != LS_AVERAGE))
		return OP_DONE;
	unsigned char *output = engine_window_own(op, PLAN_OUTPUT) + range.offset;
	const void *scratch = scale ? NULL : op->scratch + other.offset;
	bool swap = step->flags & PLAN_SCRATCH_FIRST;
	const void *sources[2] = {swap ? scratch : output, swap ? output : scratch};
	void *targets[1] = {output};
	struct kernel_reduce reduce = {
		.dtype = op->call.dtype,
		.op = op->call.reduce,
		.source_count = scale ? 1 : 2,
		.target_count = 1,
		.sources = sources,
		.targets = targets,
		.count = range.elements,
		.divisor = scale ? (uint32_t)engine->team->size : 0,
	};
	kernel_reduce(&reduce);
	return OP_DONE;
}

engine_step *const engine_steps[PLAN_STEP_KIND_COUNT] = {
	[PLAN_STEP_SIGNAL] = step_signal,     [PLAN_STEP_AWAIT] = step_await,
	[PLAN_STEP_REDUCE] = step_reduce_all, [PLAN_STEP_COPY] = step_copy,
	[PLAN_STEP_SEND] = step_send,         [PLAN_STEP_RECV] = step_recv,
	[PLAN_STEP_COMBINE] = step_combine,   [PLAN_STEP_SCALE] = step_combine,
};
