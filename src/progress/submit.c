/* SPDX-License-Identifier: BSD-3-Clause
 * One operation from its record to its end: advance, wait, advance. If a wait ends without success,
 * this file makes the reason the group's first cause, and makes sure that no peer touches the
 * caller's buffers. */
#include <string.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "engine/stream.h"
#include "races/races.h"
#include "world/registry.h"
#include "failure/failure.h"
#include "progress.h"
#include "warn.h"

/* how long a failed call waits until peers have stopped using its buffers */
enum { REVOKE_MS = 250 };

struct trace_begin progress_record(ls_group *group, const struct engine_call *call, uint64_t seq,
				   const char *label, const void *site)
{
	return (struct trace_begin){
		.seq = seq,
		.count = call->count,
		.shape = call->shape,
		.site = (uint64_t)(uintptr_t)site,
		.label = label ? trace_label(&group->world->trace, label) : 0,
		.group = group->id,
		.peer = call->peer,
		.tag = call->tag,
		.kind = (uint16_t)call->kind,
		.dtype = (uint8_t)call->dtype,
		.reduce_op = (uint8_t)call->reduce,
		.wildcards = progress_wildcards(call->kind, call->peer, call->tag),
	};
}

void progress_op_prepare(struct ls_op *op, ls_group *group, const struct engine_call *call)
{
	op->engine.call = *call;
	op->engine.peer_sends = op->engine.peer_expected =
		0; /* valid also if the operation never begins */
	op->engine.p2p.detached = op->engine.p2p.hands_over_block = op->engine.p2p.receives_block =
		false;
	op->engine.p2p.cancellable = op->engine.p2p.uses_cells = false;
	op->engine.p2p.is_blocking = true;
	op->engine.stream.on = false;
	op->group = group;
	op->next = NULL;
	op->deadline_ns = 0;
	op->has_own_limit = op->pooled = op->on_stream = false;
	op->access = 0;
	op->failing = LS_OK;
	atomic_init(&op->begun, false);
	op->callback = NULL;
	op->callback_data = NULL;
	atomic_init(&op->holders, 1);
	atomic_init(&op->status_read, false);
	atomic_init(&op->complete, 0);
	op->counts = NULL;
}

void progress_op_limit(struct ls_op *op, const struct ls_op_options *options)
{
	op->timeout_ms = options->timeout_ms ? options->timeout_ms : op->group->timeout_ms;
	op->has_own_limit = options->timeout_ms != 0;
}

void progress_op_open(struct ls_op *op, const struct ls_op_options *options, const void *site)
{
	progress_op_limit(op, options);
	if (op->access)
		races_number(op->group->world->races, op->access, op->engine.seq);
	struct trace_begin begin =
		progress_record(op->group, &op->engine.call, op->engine.seq, options->label, site);
	begin.stream = op->on_stream ? TRACE_ON_STREAM : 0;
	op->engine.record = trace_begin(&op->group->world->trace, &begin);
}

/* The engine runs collectives; the mailbox all others. */
static enum engine_progress advance(struct ls_op *op)
{
	return engine_is_collective(op->engine.call.kind)
		       ? engine_advance(&op->group->engine, &op->engine)
		       : mailbox_advance(op->group->mailbox, &op->engine);
}

static enum engine_progress abandon(struct ls_op *op, const struct ranks *gone, bool force)
{
	return engine_is_collective(op->engine.call.kind)
		       ? engine_abandon(&op->group->engine, &op->engine, gone, force)
		       : mailbox_abandon(op->group->mailbox, &op->engine, gone, force);
}

/* Until when a thread waits for a device to complete its work for a failed operation. The progress
 * thread has been replaced by then, so it may wait; not if it can come back to the operation
 * later. */
static uint64_t patience_of(const struct ls_op *op, const struct progress_pause *pause)
{
	bool waits = pause->checks_only && !progress_thread_is_me(op->group->world);
	return waits || !engine_is_on_stream(&op->engine) ? CLOCK_NEVER : pause->at_ns;
}

/* One deadline for all operations of the group. */
static uint64_t revoke_deadline(struct ls_group *group)
{
	uint64_t none = 0, mine = clock_deadline_ns(REVOKE_MS);
	return atomic_compare_exchange_strong(&group->revoke_at_ns, &none, mine) ? mine : none;
}

/* Call after the operation has failed and the cause is set: waits until neither peers nor devices
 * use the caller's buffers (ENGINE_DONE). A peer that does not say so in time loses its access. A
 * device is waited for without limit, with a message; ENGINE_BLOCKED: at until_ns it still used
 * them. ENGINE_FAILED, after a message: the system refuses to revoke the access. */
static enum engine_progress await_abandoned(struct ls_op *op, uint64_t until_ns)
{
	struct ls_group *group = op->group;
	struct engine_op *engine_op = &op->engine;
	uint64_t deadline = revoke_deadline(group);
	bool warned = false;
	struct ranks room;
	if (engine_is_on_stream(engine_op))
		progress_stream_resume_failed(group->world);
	for (;;) {
		uint64_t now = clock_now_ns();
		bool force = now >= deadline;
		enum engine_progress progress = abandon(op, world_gone(group, &room), force);
		if (progress != ENGINE_BLOCKED ||
		    (now >= until_ns && engine_stream_is_device_busy(engine_op)))
			return progress;
		/* Without a device it waits for the thread that makes progress on the link to other
		 * hosts. */
		bool on_device = engine_is_on_stream(engine_op) || group->engine.ops ||
				 engine_op->device.stage != ENGINE_DEVICE_NONE;
		if (force && !warned && on_device)
			progress_warn_device(op);
		warned = force;
		struct wait_call call = {.words = engine_op->words,
					 .count = engine_op->word_count,
					 .any = engine_op->any,
					 .deadline_ns = clock_deadline_ns(PROGRESS_SLICE_MS)};
		int peer;
		ls_status status = wait_words(&group->quiet, &call, &peer);
		(void)status; /* in any case the condition is tested again */
	}
}

/* The world ranks that the operation still needed. Nothing else shows them any more: its wait has
 * ended, and its words are no longer in the wait table. */
static struct ranks awaited_peers(const struct engine_op *op)
{
	struct ranks peers = {{0}};
	for (int i = 0; i < op->word_count; i++) {
		struct wait_call call = {.words = &op->words[i], .count = 1};
		if (op->words[i].edge.peer >= 0 && !wait_satisfied(&call))
			ranks_add(&peers, op->words[i].edge.peer);
	}
	return peers;
}

static bool has_begun(const struct ls_op *op)
{
	return atomic_load_explicit(&op->begun, memory_order_relaxed);
}

/* LS_PENDING: at the pause a device still works on it; call it again. */
static ls_status fail(struct ls_op *op, ls_status reason, int peer,
		      const struct progress_pause *pause)
{
	if (op->failing == LS_OK) {
		struct ranks needs = {{0}};
		if (reason == LS_TIMED_OUT && has_begun(op))
			needs = awaited_peers(&op->engine);
		op->failing = progress_op_fail(op, reason, peer, &needs);
		failure_note(op->group);
	} else {
		progress_thread_replace(op->group->world); /* as progress_op_fail does */
	}
	ls_status status = op->failing;
	if (has_begun(op) || engine_is_on_stream(&op->engine)) {
		enum engine_progress progress = await_abandoned(op, patience_of(op, pause));
		if (progress == ENGINE_BLOCKED)
			return LS_PENDING;
		if (progress == ENGINE_FAILED)
			status = LS_SYSTEM; /* the process cannot trust its memory any more */
	}
	trace_end(&op->group->world->trace, op->engine.record, status);
	return status;
}

static ls_status succeed(struct ls_op *op)
{
	if (engine_is_collective(op->engine.call.kind))
		atomic_store_explicit(&op->group->trace_entry->finished, op->engine.seq,
				      memory_order_release);
	trace_end(&op->group->world->trace, op->engine.record, LS_OK);
	return LS_OK;
}

/* The source of a receive with a wildcard is known only now. */
static void record_matched(struct ls_op *op)
{
	const struct engine_op *engine_op = &op->engine;
	const struct match_entry *asked = &engine_op->p2p.entry;
	if (engine_op->call.kind == TRACE_RECV &&
	    (asked->source == MATCH_ANY || asked->tag == MATCH_ANY))
		trace_matched(&op->group->world->trace, engine_op->record, engine_op->call.peer,
			      engine_op->call.tag);
}

static ls_status settle(struct ls_op *op, ls_status reason, int peer,
			const struct progress_pause *pause)
{
	struct engine_op *engine_op = &op->engine;
	if (reason != LS_OK || op->failing != LS_OK)
		return fail(op, reason, peer, pause);
	if (engine_op->status == LS_OK) {
		record_matched(op);
		return succeed(op);
	}
	if (engine_op->status == LS_CANCELLED) {
		trace_end(&op->group->world->trace, engine_op->record, LS_CANCELLED);
		return LS_CANCELLED;
	}
	record_matched(op);
	return fail(op, engine_op->status, world_rank_of(op->group, engine_op->culprit), pause);
}

ls_status progress_op_settle(struct ls_op *op, ls_status reason, int peer, bool waits)
{
	static const struct progress_pause at_once = {.at_ns = 0};
	struct engine_op *engine_op = &op->engine;
	struct wait_word words[RANKS_WORLD_MAX];
	engine_op->words = words;
	engine_op->word_count = 0;
	ls_status status = settle(op, reason, peer, waits ? &progress_no_pause : &at_once);
	engine_op->words = NULL; /* they are this call's own */
	engine_op->word_count = 0;
	return status;
}

/* False if the group failed before the operation could begin: then it never begins. */
static bool begin(struct ls_op *op, struct engine_workspace *workspace)
{
	struct ls_group *group = op->group;
	if (failure_status(group) != LS_OK) {
		op->engine.words = workspace->words;
		return false;
	}
	if (engine_is_collective(op->engine.call.kind))
		atomic_store_explicit(&group->trace_entry->entered, op->engine.seq,
				      memory_order_release);
	if (engine_is_collective(op->engine.call.kind))
		engine_submit(&group->engine, &op->engine, workspace);
	else
		mailbox_submit(group->mailbox, &op->engine, workspace);
	atomic_store_explicit(&op->begun, true, memory_order_relaxed);
	return true;
}

/* Keeps only one word of a receive from any source: the one that announces messages of this rank to
 * itself. */
static void keep_self(struct ls_op *op)
{
	struct engine_op *engine_op = &op->engine;
	int count = 0;
	for (int i = 0; i < engine_op->word_count; i++) {
		if (engine_op->words[i].edge.peer != op->group->world->rank)
			continue;
		engine_op->words[count] = engine_op->words[i];
		engine_op->words[count++].edge.record = 0;
	}
	engine_op->word_count = count;
}

/* When the operation began to wait for its current word. */
static uint64_t since(struct ls_op *op)
{
	uint64_t word = 0;
	if (op->engine.word_count > 0) {
		const struct wait_edge *edge = &op->engine.words[0].edge;
		word = (edge->offset + ((uint64_t)edge->owner << 40)) ^ edge->value << 20;
	}
	if (word != op->waited_word)
		atomic_store(&op->waited_ns, 0);
	op->waited_word = word;
	return progress_op_since(op);
}

/* One wait; phases count its time as waiting. */
static ls_status wait_for(struct ls_op *op, struct waiter *waiter,
			  const struct progress_pause *pause,
			  const struct progress_self_only *self_only, int *peer)
{
	if (self_only->slice_ns)
		keep_self(op);
	struct trace *trace = &op->group->world->trace;
	struct wait_call call = {
		.words = op->engine.words,
		.count = op->engine.word_count,
		.any = op->engine.any,
		.group = op->group->id,
		.record = op->engine.record,
	};
	if (wait_briefly(waiter, &call))
		return LS_OK;
	if (op->deadline_ns == 0)
		op->deadline_ns = clock_deadline_ns(op->timeout_ms);
	call.has_own_limit = progress_pause_has_own_limit(pause, op);
	call.deadline_ns = progress_self_only_until(
		self_only, pause->at_ns < op->deadline_ns ? pause->at_ns : op->deadline_ns);
	if (pause->since_ns || pause->checks_only)
		call.since_ns = since(op);
	if (pause->checks_only) {
		ls_status found;
		call.deadline_ns = op->deadline_ns;
		return wait_check(waiter, &call, &found, peer) ? found : LS_PENDING;
	}
	uint64_t start = clock_ticks();
	ls_status status = wait_words(waiter, &call, peer);
	trace_waited(trace, clock_ticks() - start);
	return status;
}

/* After the wait of a send, receive or probe has failed. True: it may wait once more, because its
 * message has arrived, or may come from another thread of this rank. Otherwise *waited and *peer
 * say why not. */
static bool may_wait_again(struct ls_op *op, struct progress_self_only *self_only,
			   ls_status *waited, int *peer)
{
	bool gone = *waited == LS_PEER_DIED || *waited == LS_PEER_LEFT;
	bool again =
		self_only->slice_ns && *waited == LS_TIMED_OUT && clock_now_ns() < op->deadline_ns;
	int whom;
	if (engine_is_collective(op->engine.call.kind) || !(gone || again))
		return false;
	struct ranks room;
	const struct ranks *members = world_gone_now(op->group, &room);
	enum engine_need need = progress_op_need(op, members, &whom);
	if (need == ENGINE_NEEDS_NOBODY)
		self_only->slice_ns = 0;
	if (gone) {
		self_only->status = *waited;
		self_only->peer = *peer;
	}
	if (need == ENGINE_NEEDS_NOBODY ||
	    (need == ENGINE_NEEDS_SELF && progress_self_only_goes_on(op, members, self_only)))
		return true;
	*waited = self_only->status;
	*peer = self_only->peer;
	return false;
}

bool progress_op_run(struct ls_op *op, struct engine_workspace *workspace, struct waiter *waiter,
		     const struct progress_pause *pause, ls_status *status)
{
	struct progress_self_only self_only = {0};
	int peer = -1;
	if (op->failing != LS_OK) {
		*status = fail(op, op->failing, -1, pause);
		return *status != LS_PENDING;
	}
	if (!has_begun(op) && !begin(op, workspace)) {
		*status = fail(op, LS_ABORTED, -1, pause);
		return *status != LS_PENDING;
	}
	for (;;) {
		enum engine_progress progress = advance(op);
		if (progress != ENGINE_BLOCKED)
			record_matched(op);
		if (progress == ENGINE_DONE)
			*status = succeed(op);
		if (progress == ENGINE_FAILED)
			*status = fail(op, op->engine.status,
				       world_rank_of(op->group, op->engine.culprit), pause);
		if (progress != ENGINE_BLOCKED)
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
		*status = fail(op, waited, peer, pause);
		return *status != LS_PENDING;
	}
}
