/* SPDX-License-Identifier: BSD-3-Clause
 * A short collective from its call to its end. The entry is published first; the record is written
 * while the others' entries are on their way. All other cases continue on the general path:
 * continue_general. */
#include "progress/inline_call.h"

#include "engine/inline.h"
#include "progress/lane.h"
#include "trace/trace_write.h"

/* The progress of the call. */
struct inline_state {
	uint64_t seq;
	bool published;
	uint64_t record, history; /* valid once the entry is published */
};

/* The operation that the call becomes on the general path. An operation that may outlive the call
 * comes from the pool, and needs the progress thread. Without either the call blocks until the
 * operation is complete, because its entry cannot be revoked. */
static struct ls_request *operation_for(ls_group *group, const struct op_call *call,
					const struct ls_call_options *options,
					struct ls_request *own)
{
	struct ls_request *op = options->request ? progress_op_new(group, true) : NULL;
	if (op && progress_thread_start(group->world) == LS_OK) {
		op->base.call = *call;
		return op;
	}
	if (op)
		progress_op_discard(op);
	progress_op_prepare(own, group, call);
	return own;
}

/* Continues the call on the general path, before or after its entry was published. */
__attribute__((noinline)) static ls_status continue_general(ls_group *group,
							    const struct op_call *call,
							    const struct ls_call_options *options,
							    const struct inline_state *state,
							    const void *site)
{
	struct ls_request own, *op = operation_for(group, call, options, &own);
	op->base.seq = state->seq;
	if (!state->published) {
		progress_op_record(op, options, site);
	} else {
		progress_op_limit(op, options);
		op->base.record = state->record;
		engine_inline_resume(&group->engine, &op->base, &group->lane.workspace,
				     state->history);
		atomic_store_explicit(&op->begun, true, memory_order_relaxed);
	}
	if (op == &own)
		return progress_lane_run_taken(op, &progress_no_pause);
	struct progress_pause pause = progress_op_pause(op, 0);
	ls_status status = progress_lane_run_taken(op, &pause);
	if (status == LS_PENDING)
		*options->request = op;
	else
		progress_op_free_handle(op);
	return status;
}

static uint64_t record_call(ls_group *group, const struct op_call *call,
			    const struct engine_inline_plan *plan, uint64_t seq, const char *label,
			    const void *site)
{
	struct trace_begin begin = progress_record(group, call, seq, label, site);
	begin.algorithm = plan->algorithm;
	begin.step_count = plan->step_count;
	return trace_begin_inline(&group->world->trace, &begin);
}

bool progress_inline_call(ls_group *group, const struct op_call *call,
			  const struct ls_call_options *options, const void *site, ls_status *status)
{
	struct engine *engine = &group->engine;
	struct inline_state state = {.published = false};
	if (!progress_lane_take(&group->lane, &state.seq))
		return false;
	const struct engine_inline_plan *plan =
		engine_inline_find(engine, call, &group->waiter, state.seq);
	if (!plan) {
		*status = continue_general(group, call, options, &state, site);
		return true;
	}
	state.history = engine_inline_publish(engine, plan, call->send.address, state.seq);
	state.published = true;
	state.record = record_call(group, call, plan, state.seq, options->label, site);
	atomic_store_explicit(&group->trace_entry->entered, state.seq, memory_order_release);
	engine_inline_prefetch(engine, plan);
	if (!engine_inline_poll(engine, plan, &group->waiter, state.seq, state.history)) {
		*status = continue_general(group, call, options, &state, site);
		return true;
	}
	engine_inline_finish(engine, plan, call->send.address, call->recv.address, state.seq);
	atomic_store_explicit(&group->trace_entry->finished, state.seq, memory_order_release);
	trace_end(&group->world->trace, state.record, LS_OK);
	progress_lane_release(group);
	*status = LS_OK;
	return true;
}
