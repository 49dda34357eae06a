/* SPDX-License-Identifier: BSD-3-Clause
 * One operation from its number to its end: advance, wait, advance. Whatever ends a wait other than
 * success is turned into the group's first cause here, and the caller's buffers are made safe. */
#include <string.h>

#include "base/fork.h"
#include "base/messages.h"
#include "group_private.h"

ls_status group_usable(const ls_group *group)
{
	if (group->world->fork_generation != fork_generation())
		return LS_FORKED;
	return group_cause_status(group->world);
}

static void number(ls_group *group, struct engine_op *op)
{
	_Atomic uint64_t *counter = op->kind == TRACE_SEND   ? &group->sends[op->peer]
				    : op->kind == TRACE_RECV ? &group->receives[op->peer]
							     : &group->numbered;
	op->seq = atomic_fetch_add_explicit(counter, 1, memory_order_relaxed) + 1;
}

static uint64_t record(ls_group *group, const struct engine_op *op, const char *label,
		       const void *site)
{
	struct trace *trace = &group->world->trace;
	struct trace_begin begin = {
		.seq = op->seq,
		.count = op->count,
		.site = (uint64_t)(uintptr_t)site,
		.label = label ? trace_label(trace, label) : 0,
		.group = group->id,
		.peer = op->peer,
		.tag = op->tag,
		.kind = (uint16_t)op->kind,
		.dtype = (uint8_t)op->dtype,
		.reduce_op = (uint8_t)op->reduce,
	};
	return trace_begin(trace, &begin);
}

static uint64_t gone_peers(const struct group_world *world)
{
	uint64_t gone = 0;
	for (int q = 0; q < world->size; q++)
		if (atomic_load_explicit(&world->peers[q].dead, memory_order_acquire) ||
		    atomic_load_explicit(world->peers[q].left, memory_order_acquire))
			gone |= UINT64_C(1) << q;
	return gone;
}

/* The operation has failed and the cause is set: when this returns no peer touches the caller's
 * buffers any more. A peer that does not say so in time is stopped; then the pages are swapped. False,
 * after a message, if the system refuses that. */
static bool retreat(struct group_world *world, struct engine_op *op)
{
	uint64_t deadline = clock_deadline_ns(GROUP_RETREAT_MS);
	for (;;) {
		bool force = clock_now_ns() >= deadline;
		enum engine_progress progress =
			engine_abandon(&world->engine, op, gone_peers(world), force);
		if (progress != ENGINE_BLOCKED)
			return progress == ENGINE_DONE;
		struct wait_call call = {.words = op->words,
					 .count = op->word_count,
					 .deadline_ns = clock_deadline_ns(GROUP_SLICE_MS)};
		int peer;
		ls_status status = wait_words(&world->quiet, &call, &peer);
		(void)status; /* whatever it was, the condition is looked at again */
	}
}

static struct diagnose_hint hint_for(const ls_group *group, const struct engine_op *op,
				     ls_status status, int peer)
{
	return (struct diagnose_hint){.status = status,
				      .rank = group->rank,
				      .peer = peer,
				      .group = group->id,
				      .seq = op->seq,
				      .record = op->record};
}

/* Collectives of one group run one after the other, in the order of their numbers. */
static ls_status await_turn(ls_group *group, const struct engine_op *op,
			    const struct wait_call *limits, int *peer)
{
	struct wait_word word = {
		.word = &group->served,
		.edge = {.value = op->seq - 1,
			 .owner = group->rank,
			 .peer = group->rank,
			 .segment = WAIT_SEGMENT_NONE},
	};
	struct wait_call call = *limits;
	call.words = &word;
	call.count = 1;
	*peer = -1;
	if (wait_satisfied(&call))
		return LS_OK;
	return wait_words(&group->world->waiter, &call, peer);
}

/* Advances and waits until done. On failure *peer is whom it was seen on, -1 for nobody. */
static ls_status drive(ls_group *group, struct engine_op *op, struct wait_call *call, int *peer)
{
	struct group_world *world = group->world;
	for (;;) {
		enum engine_progress progress = engine_advance(&world->engine, op);
		*peer = op->culprit;
		if (progress == ENGINE_DONE)
			return LS_OK;
		if (progress == ENGINE_FAILED)
			return op->status;
		call->words = op->words;
		call->count = op->word_count;
		ls_status status = wait_words(&world->waiter, call, peer);
		if (status != LS_OK)
			return status;
	}
}

static void succeed(ls_group *group, const struct engine_op *op)
{
	struct group_world *world = group->world;
	if (engine_is_collective(op->kind)) {
		atomic_store_explicit(&group->entry->finished, op->seq, memory_order_release);
		wait_store(&group->served, op->seq);
		wait_ring(world->waiter.bell); /* another thread of mine may be next */
	}
	trace_end(&world->trace, op->record, LS_OK);
}

ls_status group_submit(ls_group *group, struct engine_op *op, const struct ls_op_options *options,
		       const void *site)
{
	struct group_world *world = group->world;
	wait_thread_enter(&world->waiter);
	number(group, op);
	op->record = record(group, op, options->label, site);
	uint32_t limit_ms = options->timeout_ms ? options->timeout_ms : group->timeout_ms;
	struct wait_call call = {
		.may_leave = options->timeout_ms != 0,
		.deadline_ns = clock_deadline_ns(limit_ms),
		.group = group->id,
		.record = op->record,
	};
	struct engine_room room;
	int peer = -1;
	bool my_turn = true;
	ls_status status = LS_OK;
	if (engine_is_collective(op->kind)) {
		status = await_turn(group, op, &call, &peer);
		my_turn = status == LS_OK;
		if (my_turn)
			atomic_store_explicit(&group->entry->entered, op->seq, memory_order_release);
	}
	if (my_turn) {
		engine_submit(&world->engine, op, &room);
		status = drive(group, op, &call, &peer);
	}
	if (status == LS_OK) {
		succeed(group, op);
		return LS_OK;
	}
	struct diagnose_hint hint = hint_for(group, op, status, peer);
	status = group_cause_raise(world, &hint, engine_is_collective(op->kind));
	if (my_turn && !retreat(world, op))
		status = LS_SYSTEM; /* the process cannot trust its memory any more */
	trace_end(&world->trace, op->record, status);
	return status;
}
