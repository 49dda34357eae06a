/* SPDX-License-Identifier: BSD-3-Clause
 * A short collective from its call to its end. The entry is published first; the record is written
 * while the others' entries are on their way. Whatever is not usual leaves by one door, go_on. */
#include "engine/slot.h"

#include "progress/lane.h"

/* How far the call has come. */
struct slot_state {
	uint64_t seq;
	bool published;
	uint64_t record, history; /* once it is published */
};

/* The door to the general path, which goes on from where the call is. */
__attribute__((noinline)) static ls_status go_on(ls_group *group, const struct engine_call *call,
						 const struct slot_state *state, const void *site)
{
	const struct ls_op_options none = {.size = sizeof none};
	struct ls_op op;
	progress_op_prepare(&op, group, call);
	op.engine.seq = state->seq;
	if (!state->published) {
		progress_op_open(&op, &none, site);
	} else {
		op.timeout_ms = group->timeout_ms;
		op.engine.record = state->record;
		engine_slot_resume(&group->engine, &op.engine, &group->lane.room, state->history);
		atomic_store_explicit(&op.begun, true, memory_order_relaxed);
	}
	return progress_lane_run(&op, &progress_no_pause);
}

static uint64_t record(ls_group *group, const struct engine_call *call,
		       const struct engine_slot *slot, uint64_t seq, const void *site)
{
	struct trace_begin begin = progress_record(group, call, seq, NULL, site);
	begin.algorithm = slot->algorithm;
	begin.step_count = slot->step_count;
	return trace_begin(&group->world->trace, &begin);
}

bool progress_slot_call(ls_group *group, const struct engine_call *call, const void *site,
			ls_status *status)
{
	struct engine *engine = &group->engine;
	struct slot_state state = {.published = false};
	if (!progress_lane_take(&group->lane, &state.seq))
		return false;
	const struct engine_slot *slot = engine_slot_find(engine, call, state.seq);
	if (!slot) {
		*status = go_on(group, call, &state, site);
		return true;
	}
	state.history = engine_slot_publish(engine, slot, call->send.address, state.seq);
	state.published = true;
	state.record = record(group, call, slot, state.seq, site);
	atomic_store_explicit(&group->entry->entered, state.seq, memory_order_release);
	engine_slot_ahead(engine, slot, state.seq);
	if (!engine_slot_await(engine, slot, &group->waiter, state.seq, state.history)) {
		*status = go_on(group, call, &state, site);
		return true;
	}
	engine_slot_finish(engine, slot, call->send.address, call->recv.address, state.seq);
	atomic_store_explicit(&group->entry->finished, state.seq, memory_order_release);
	trace_end(&group->world->trace, state.record, LS_OK);
	progress_lane_leave(group);
	*status = LS_OK;
	return true;
}
