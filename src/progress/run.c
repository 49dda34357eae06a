/* SPDX-License-Identifier: BSD-3-Clause
 * One operation from its record to its end: advance, wait, advance. If a wait ends without success,
 * this file makes the reason the group's first cause, and makes sure that no peer touches the
 * caller's buffers. */
#include <string.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "op/stream.h"
#include "races/races.h"
#include "trace/trace_write.h"
#include "world/registry.h"
#include "failure/failure.h"
#include "progress/progress.h"
#include "progress/warn.h"

/* How long a failed call waits until peers have stopped using its buffers. Ranks of one host lose
 * only their access then. Ranks of different hosts lose their connection, and with it all their
 * groups, so a payload that is on its way between them gets more time; but not after a time limit,
 * when it is rather stuck than slow. */
enum { REVOKE_MS = 250, REVOKE_REMOTE_MS = 1500 };

void progress_op_prepare(struct ls_request *op, ls_group *group, const struct op_call *call)
{
	op->base.call = *call;
	op->base.peer_sends = op->base.peer_expected =
		0; /* valid also if the operation never begins */
	op->base.p2p.detached = op->base.p2p.hands_over_block = op->base.p2p.receives_block = false;
	op->base.p2p.cancellable = op->base.p2p.uses_cells = op->base.p2p.ends_quietly = false;
	op->base.p2p.is_blocking = true;
	op->base.p2p.batch = NULL;
	op->base.stream.on = op->base.stream.by_engine = false;
	op->group = group;
	op->next = NULL;
	op->deadline_ns = 0;
	op->has_own_limit = op->pooled = op->on_stream = false;
	op->access = 0;
	op->failing = LS_OK;
	atomic_init(&op->begun, false);
	op->callback = NULL;
	op->callback_data = NULL;
	atomic_init(&op->references, 1);
	atomic_init(&op->status_read, false);
	atomic_init(&op->complete, 0);
	op->counts = NULL;
}

void progress_op_limit(struct ls_request *op, const struct ls_call_options *options)
{
	op->timeout_ms = options->timeout_ms ? options->timeout_ms : op->group->timeout_ms;
	op->has_own_limit = options->timeout_ms != 0;
}

void progress_op_record(struct ls_request *op, const struct ls_call_options *options,
			const void *site)
{
	progress_op_limit(op, options);
	if (op->access)
		races_number(op->group->world->races, op->access, op->base.seq);
	struct trace_begin begin =
		progress_record(op->group, &op->base.call, op->base.seq, options->label, site);
	begin.stream = op->on_stream ? TRACE_ON_STREAM : 0;
	op->base.record = trace_begin(&op->group->world->trace, &begin);
}

/* The engine runs collectives; the mailbox all others. */
static enum op_progress abandon_op(struct ls_request *op, const struct ranks *gone, bool force)
{
	return op_is_collective(op->base.call.kind)
		       ? engine_abandon(&op->group->engine, &op->base, gone, force)
		       : mailbox_abandon(op->group->mailbox, &op->base, gone, force);
}

/* Whether the operation may be left while a peer or the link uses its buffer (mailbox_linger). */
static bool may_linger(const struct ls_request *op)
{
	const struct op *base = &op->base;
	return !op_is_collective(base->call.kind) && base->p2p.detached && !op_is_on_stream(base) &&
	       base->device.state == OP_DEVICE_NONE;
}

/* Until when a thread waits for a device to complete its work for a failed operation, or for a peer
 * that uses the buffer of a message. A progress thread that another one has replaced may wait
 * without limit; any other thread waits until the pause, if it can come back to the operation
 * later. */
static uint64_t patience_of(const struct ls_request *op, const struct progress_pause *pause)
{
	bool waits = pause->checks_only && !progress_thread_is_me(op->group->world);
	bool comes_back = op_is_on_stream(&op->base) || may_linger(op);
	return waits || !comes_back ? CLOCK_NEVER : pause->at_ns;
}

/* One deadline for all operations of the group. */
static uint64_t revoke_deadline(struct ls_group *group)
{
	bool gives_time = group->team.host_count > 1 && failure_status(group) != LS_TIMED_OUT;
	uint64_t limit_ms = gives_time ? REVOKE_REMOTE_MS : REVOKE_MS;
	uint64_t none = 0, mine = clock_deadline_ns(limit_ms);
	return atomic_compare_exchange_strong(&group->revoke_at_ns, &none, mine) ? mine : none;
}

/* Call after the operation has failed and the cause is set: waits until neither peers nor devices
 * use the caller's buffers (OP_DONE). A peer that does not stop in time loses its access. For a
 * device the wait has no limit, and prints a message; OP_BLOCKED: at until_ns one of them still
 * used the buffers. OP_FAILED, after a message: the system refuses to revoke the access. */
static enum op_progress await_abandoned(struct ls_request *op, uint64_t until_ns)
{
	struct ls_group *group = op->group;
	struct op *base = &op->base;
	uint64_t deadline = revoke_deadline(group);
	bool warned = false;
	struct ranks room;
	if (op_is_on_stream(base))
		progress_stream_resume_failed(group->world);
	for (;;) {
		uint64_t now = clock_now_ns();
		bool force = now >= deadline;
		enum op_progress progress = abandon_op(op, world_gone(group, &room), force);
		bool may_leave = op_stream_is_device_busy(base) || may_linger(op);
		if (progress != OP_BLOCKED || (now >= until_ns && may_leave))
			return progress;
		/* Without a device the wait is for the thread that makes progress on the link. */
		bool on_device = op_is_on_stream(base) || group->engine.ops ||
				 base->device.state != OP_DEVICE_NONE;
		if (force && !warned && on_device)
			progress_warn_device(op);
		warned = force;
		struct wait_call call = {.words = base->words,
					 .count = base->word_count,
					 .any = base->any_suffices,
					 .deadline_ns = clock_deadline_ns(PROGRESS_SLICE_MS)};
		int peer;
		ls_status status = wait_words(&group->quiet, &call, &peer);
		(void)status; /* in any case the condition is tested again */
	}
}

/* The world ranks that the operation still needed. Only its words show them: the wait has ended, so
 * the wait table has these words no longer. */
static struct ranks awaited_peers(const struct op *op)
{
	struct ranks peers = {{0}};
	for (int i = 0; i < op->word_count; i++) {
		struct wait_call call = {.words = &op->words[i], .count = 1};
		if (op->words[i].edge.peer >= 0 && !wait_satisfied(&call))
			ranks_add(&peers, op->words[i].edge.peer);
	}
	return peers;
}

static bool has_begun(const struct ls_request *op)
{
	return atomic_load_explicit(&op->begun, memory_order_relaxed);
}

/* Fails the operation. LS_PENDING: at the pause a device, a peer or the link still uses its buffer;
 * call again. */
static ls_status fail_op(struct ls_request *op, ls_status reason, int peer,
			 const struct progress_pause *pause)
{
	if (op->failing == LS_OK) {
		struct ranks needs = {{0}};
		if (reason == LS_TIMED_OUT && has_begun(op))
			needs = awaited_peers(&op->base);
		op->failing = progress_op_fail(op, reason, peer, &needs);
		failure_note(op->group);
	} else if (!may_linger(op)) {
		progress_thread_replace(op->group->world); /* as progress_op_fail does */
	}
	ls_status status = op->failing;
	if (has_begun(op) || op_is_on_stream(&op->base)) {
		enum op_progress progress = await_abandoned(op, patience_of(op, pause));
		if (progress == OP_BLOCKED)
			return LS_PENDING;
		if (progress == OP_FAILED)
			status = LS_SYSTEM; /* the process cannot trust its memory any more */
	}
	trace_end(&op->group->world->trace, op->base.record, status);
	return status;
}

static ls_status complete_op(struct ls_request *op)
{
	if (op_is_collective(op->base.call.kind))
		atomic_store_explicit(&op->group->trace_entry->finished, op->base.seq,
				      memory_order_release);
	trace_end(&op->group->world->trace, op->base.record, LS_OK);
	return LS_OK;
}

/* The source of a receive with a wildcard is known only now. */
static void record_matched(struct ls_request *op)
{
	const struct op *base = &op->base;
	const struct match_entry *asked = &base->p2p.entry;
	if (base->call.kind == TRACE_RECV && (asked->source == MATCH_ANY || asked->tag == MATCH_ANY))
		trace_matched(&op->group->world->trace, base->record, base->call.peer,
			      base->call.tag);
}

static ls_status settle_op(struct ls_request *op, ls_status reason, int peer,
			   const struct progress_pause *pause)
{
	struct op *base = &op->base;
	if (reason != LS_OK || op->failing != LS_OK)
		return fail_op(op, reason, peer, pause);
	if (base->status == LS_OK) {
		record_matched(op);
		return complete_op(op);
	}
	if (base->status == LS_CANCELLED) {
		trace_end(&op->group->world->trace, base->record, LS_CANCELLED);
		return LS_CANCELLED;
	}
	record_matched(op);
	return fail_op(op, base->status, world_rank_of(op->group, base->culprit), pause);
}

void progress_op_succeed(struct ls_request *op, uint64_t ticks)
{
	record_matched(op);
	trace_end_at(&op->group->world->trace, op->base.record, LS_OK, ticks);
}

ls_status progress_op_settle(struct ls_request *op, ls_status reason, int peer, bool waits)
{
	static const struct progress_pause at_once = {.at_ns = 0};
	struct op *base = &op->base;
	struct wait_word words[RANKS_WORLD_MAX];
	base->words = words;
	base->word_count = 0;
	ls_status status = settle_op(op, reason, peer, waits ? &progress_no_pause : &at_once);
	base->words = NULL; /* the words are this call's own */
	base->word_count = 0;
	return status;
}

/* Submits the operation. False: the group has failed before, and the operation never begins. */
static bool begin_op(struct ls_request *op, struct op_workspace *workspace)
{
	struct ls_group *group = op->group;
	if (failure_status(group) != LS_OK) {
		op->base.words = workspace->words;
		return false;
	}
	if (op_is_collective(op->base.call.kind))
		atomic_store_explicit(&group->trace_entry->entered, op->base.seq,
				      memory_order_release);
	if (op_is_collective(op->base.call.kind))
		engine_submit(&group->engine, &op->base, workspace);
	else
		mailbox_submit(group->mailbox, &op->base, workspace);
	atomic_store_explicit(&op->begun, true, memory_order_relaxed);
	return true;
}

/* Keeps only one word of a receive from any source: the one that announces messages of this rank to
 * itself. */
static void keep_self(struct ls_request *op)
{
	struct op *base = &op->base;
	int count = 0;
	for (int i = 0; i < base->word_count; i++) {
		if (base->words[i].edge.peer != op->group->world->rank)
			continue;
		base->words[count] = base->words[i];
		base->words[count++].edge.record = 0;
	}
	base->word_count = count;
}

/* When the operation began to wait for its current word. */
static uint64_t waiting_since(struct ls_request *op)
{
	uint64_t word = 0;
	if (op->base.word_count > 0) {
		const struct wait_edge *edge = &op->base.words[0].edge;
		word = (edge->offset + ((uint64_t)edge->owner << 40)) ^ edge->value << 20;
	}
	if (word != op->waited_word)
		atomic_store(&op->waited_ns, 0);
	op->waited_word = word;
	return progress_op_since(op);
}

/* One wait; phases count its time as waiting. */
static ls_status wait_for(struct ls_request *op, struct waiter *waiter,
			  const struct progress_pause *pause,
			  const struct progress_self_only *self_only, int *peer)
{
	if (self_only->slice_ns)
		keep_self(op);
	struct trace *trace = &op->group->world->trace;
	struct wait_call call = {
		.words = op->base.words,
		.count = op->base.word_count,
		.any = op->base.any_suffices,
		.group = op->group->id,
		.record = op->base.record,
	};
	if (wait_briefly(waiter, &call))
		return LS_OK;
	if (op->deadline_ns == 0)
		op->deadline_ns = clock_deadline_ns(op->timeout_ms);
	call.has_own_limit = progress_pause_has_own_limit(pause, op);
	call.deadline_ns = progress_self_only_until(
		self_only, pause->at_ns < op->deadline_ns ? pause->at_ns : op->deadline_ns);
	if (pause->since_ns || pause->checks_only)
		call.since_ns = waiting_since(op);
	if (pause->checks_only) {
		ls_status found;
		call.deadline_ns = op->deadline_ns;
		return wait_check(waiter, &call, &found, peer) ? found : LS_PENDING;
	}
	/* All ranks may reach their limits at the same time, and one of them looks who is to blame.
	 * So this rank shows what it needs until its group has failed. */
	call.remains_shown = call.deadline_ns == op->deadline_ns;
	uint64_t start = clock_ticks();
	ls_status status = wait_words(waiter, &call, peer);
	trace_waited(trace, clock_ticks() - start);
	return status;
}

/* After the wait of a send, receive or probe has failed. True: it may wait once more, because its
 * message has arrived, or may come from another thread of this rank. Otherwise *waited and *peer
 * say why not. */
static bool may_wait_again(struct ls_request *op, struct progress_self_only *self_only,
			   ls_status *waited, int *peer)
{
	bool gone = progress_says_gone(*waited);
	bool again =
		self_only->slice_ns && *waited == LS_TIMED_OUT && clock_now_ns() < op->deadline_ns;
	int whom;
	if (op_is_collective(op->base.call.kind) || !(gone || again))
		return false;
	struct ranks room;
	const struct ranks *members = world_gone_now(op->group, &room);
	enum mailbox_need need = progress_op_need(op, members, &whom);
	if (need == MAILBOX_NEEDS_NOBODY)
		self_only->slice_ns = 0;
	if (gone) {
		self_only->status = *waited;
		self_only->peer = *peer;
	}
	if (need == MAILBOX_NEEDS_NOBODY ||
	    (need == MAILBOX_NEEDS_SELF && progress_self_only_goes_on(op, members, self_only)))
		return true;
	*waited = self_only->status;
	*peer = self_only->peer;
	return false;
}

bool progress_op_run(struct ls_request *op, struct op_workspace *workspace, struct waiter *waiter,
		     const struct progress_pause *pause, ls_status *status)
{
	struct progress_self_only self_only = {0};
	int peer = -1;
	if (op->failing != LS_OK) {
		*status = fail_op(op, op->failing, -1, pause);
		return *status != LS_PENDING;
	}
	if (!has_begun(op) && !begin_op(op, workspace)) {
		*status = fail_op(op, LS_ABORTED, -1, pause);
		return *status != LS_PENDING;
	}
	for (;;) {
		enum op_progress progress = op_is_collective(op->base.call.kind)
						    ? engine_advance(&op->group->engine, &op->base)
						    : mailbox_advance(op->group->mailbox, &op->base);
		if (progress != OP_BLOCKED)
			record_matched(op);
		if (progress == OP_DONE)
			*status = complete_op(op);
		if (progress == OP_FAILED)
			*status = fail_op(op, op->base.status,
					  world_rank_of(op->group, op->base.culprit), pause);
		if (progress != OP_BLOCKED)
			return *status != LS_PENDING;
		if (pause->at_ns == 0 && !pause->checks_only)
			return false;
		ls_status waited = wait_for(op, waiter, pause, &self_only, &peer);
		if (waited == LS_PENDING)
			return false;
		if (waited == LS_OK || may_wait_again(op, &self_only, &waited, &peer))
			continue;
		bool resumes = waited == LS_INTERRUPTED && op->group->world->resumes;
		if (resumes && pause->at_ns == CLOCK_NEVER)
			continue;
		if (resumes || (waited == LS_TIMED_OUT && clock_now_ns() < op->deadline_ns))
			return false;
		*status = fail_op(op, waited, peer, pause);
		if (waited == LS_TIMED_OUT)
			wait_hide(waiter);
		return *status != LS_PENDING;
	}
}
