/* SPDX-License-Identifier: BSD-3-Clause
 * Operations that can never be over, as members have gone, found by who only asks. */
#include "p2p.h"

/* Whether it can never be over; nothing is waited for. */
static bool is_lost(const struct ls_op *op, uint64_t gone, int *peer)
{
	struct group_lone lone = {0};
	enum engine_need need = group_gone_need(op, gone, peer);
	return need == ENGINE_NEEDS_GONE ||
	       (need == ENGINE_NEEDS_SELF && !group_lone_goes_on(op, gone, &lone));
}

bool group_gone_poll(const struct ls_op *op)
{
	uint64_t gone = group_gone_members(op->group);
	int peer;
	if (!gone || group_cause_status(op->group) != LS_OK)
		return false;
	const struct ls_op *part = op->is_batch ? op->next_part : op;
	while (part && (group_op_is_over(part) || !is_lost(part, gone, &peer)))
		part = part->next_part;
	if (!part)
		return false;
	ls_status status = group_gone_fail(part, gone, peer);
	(void)status; /* the group ends with it */
	return true;
}

ls_status group_gone_probe(ls_group *group, const struct engine_call *call, uint64_t gone,
			   const struct ls_op_options *options, const void *site)
{
	struct ls_op op;
	int peer;
	group_op_prepare(&op, group, call);
	if (!is_lost(&op, gone, &peer))
		return LS_PENDING;
	op.engine.seq = 0;
	group_op_open(&op, options, site);
	ls_status status = group_gone_fail(&op, gone, peer);
	trace_end(&group->world->trace, op.engine.record, status);
	return status;
}

/* One of the group's sends beside the caller that nobody will ever take, held; NULL. */
static struct ls_op *find_lost_send(ls_group *group, uint64_t gone, int *peer)
{
	struct group_p2p *p2p = &group->world->p2p;
	lock_group_acquire(&p2p->lock);
	struct ls_op *op = p2p->first;
	while (op && (op->group != group || op->engine.call.kind != TRACE_SEND ||
		      group_gone_need(op, gone, peer) != ENGINE_NEEDS_GONE))
		op = op->next;
	if (op)
		group_op_hold(op);
	lock_group_release(&p2p->lock);
	return op;
}

void group_gone_tell(ls_group *group)
{
	uint64_t gone = engine_p2p_pending(&group->engine) ? group_gone_members(group) : 0;
	int peer;
	if (!gone || group_cause_status(group) != LS_OK)
		return;
	struct ls_op *op = find_lost_send(group, gone, &peer);
	if (!op)
		return;
	ls_status status = group_gone_fail(op, gone, peer);
	(void)status; /* the caller's own call learns it */
	group_op_let_go(op);
	/* If nobody drives, whoever asks for one of them ends it. */
	group_p2p_call_driver(group->world);
}
