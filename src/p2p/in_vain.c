/* SPDX-License-Identifier: BSD-3-Clause
 * Operations that can never complete because a member is dead or has left. Calls that do not block,
 * such as ls_test, find and fail them here. */
#include "world/registry.h"
#include "failure/failure.h"
#include "progress/progress.h"
#include "p2p.h"

/* Whether the operation can never complete. Does not block. */
static bool is_lost(const struct ls_op *op, uint64_t gone, int *peer)
{
	struct progress_self_only self_only = {0};
	enum engine_need need = progress_op_need(op, gone, peer);
	return need == ENGINE_NEEDS_GONE ||
	       (need == ENGINE_NEEDS_SELF && !progress_self_only_goes_on(op, gone, &self_only));
}

bool p2p_poll_gone(const struct ls_op *op)
{
	uint64_t gone = world_gone(op->group);
	int peer;
	if (!gone || failure_status(op->group) != LS_OK)
		return false;
	const struct ls_op *part = op->is_batch ? op->next_part : op;
	while (part && (progress_op_is_complete(part) || !is_lost(part, gone, &peer)))
		part = part->next_part;
	if (!part)
		return false;
	ls_status status = progress_op_fail_gone(part, gone, peer);
	(void)status; /* the group ends with it */
	return true;
}

ls_status p2p_probe_gone(ls_group *group, const struct engine_call *call, uint64_t gone,
			 const struct ls_op_options *options, const void *site)
{
	struct ls_op op;
	int peer;
	progress_op_prepare(&op, group, call);
	if (!is_lost(&op, gone, &peer))
		return LS_PENDING;
	op.engine.seq = 0;
	progress_op_open(&op, options, site);
	ls_status status = progress_op_fail_gone(&op, gone, peer);
	trace_end(&group->world->trace, op.engine.record, status);
	return status;
}

/* A nonblocking send of the group that can never be received, with a reference; NULL: none. */
static struct ls_op *find_lost_send(ls_group *group, uint64_t gone, int *peer)
{
	struct world_p2p *p2p = &group->world->p2p;
	lock_group_acquire(&p2p->lock);
	struct ls_op *op = p2p->first;
	while (op && (op->group != group || op->engine.call.kind != TRACE_SEND ||
		      progress_op_need(op, gone, peer) != ENGINE_NEEDS_GONE))
		op = op->next;
	if (op)
		progress_op_ref(op);
	lock_group_release(&p2p->lock);
	return op;
}

void p2p_fail_gone(ls_group *group)
{
	uint64_t gone = engine_p2p_pending(&group->engine) ? world_gone(group) : 0;
	int peer;
	if (!gone || failure_status(group) != LS_OK)
		return;
	struct ls_op *op = find_lost_send(group, gone, &peer);
	if (!op)
		return;
	ls_status status = progress_op_fail_gone(op, gone, peer);
	(void)status; /* the caller's own call learns it */
	progress_op_unref(op);
	/* If no thread makes progress, a call that asks for one of the operations ends it. */
	p2p_look_again(group->world);
}
