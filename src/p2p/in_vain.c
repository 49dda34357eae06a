/* SPDX-License-Identifier: BSD-3-Clause
 * Operations that can never complete because a member is dead or has left. Calls that do not block,
 * such as ls_test, find and fail them here, and so do threads that wait. */
#include "world/registry.h"
#include "failure/failure.h"
#include "progress/progress.h"
#include "p2p/p2p_private.h"

/* Whether the operation can never complete. Does not block. */
static bool is_lost(const struct ls_request *op, const struct ranks *gone, int *peer)
{
	struct progress_self_only self_only = {0};
	enum mailbox_need need = progress_op_need(op, gone, peer);
	return need == MAILBOX_NEEDS_GONE ||
	       (need == MAILBOX_NEEDS_SELF && !progress_self_only_goes_on(op, gone, &self_only));
}

bool p2p_poll_gone(const struct ls_request *op)
{
	struct ranks room;
	const struct ranks *gone = world_gone(op->group, &room);
	int peer;
	if (!gone || failure_status(op->group) != LS_OK)
		return false;
	const struct ls_request *part = op->is_batch ? op->next_part : op;
	while (part && (progress_op_is_complete(part) || !is_lost(part, gone, &peer)))
		part = part->next_part;
	if (!part)
		return false;
	ls_status status = progress_op_fail_gone(part, gone, peer);
	(void)status; /* the operations of the group end with this status */
	return true;
}

ls_status p2p_probe_gone(ls_group *group, const struct op_call *call, const struct ranks *gone,
			 const struct ls_call_options *options, const void *site)
{
	struct ls_request op;
	int peer;
	progress_op_prepare(&op, group, call);
	if (!is_lost(&op, gone, &peer))
		return LS_PENDING;
	op.base.seq = 0;
	progress_op_record(&op, options, site);
	ls_status status = progress_op_fail_gone(&op, gone, peer);
	trace_end(&group->world->trace, op.base.record, status);
	return status;
}

/* A nonblocking send of the group that can never be received, with a reference; NULL: none. */
static struct ls_request *find_lost_send(ls_group *group, const struct ranks *gone, int *peer)
{
	struct world_p2p *p2p = &group->world->p2p;
	lock_rank_acquire(&p2p->lock);
	struct ls_request *op = p2p->first;
	while (op && (op->group != group || op->base.call.kind != TRACE_SEND ||
		      progress_op_need(op, gone, peer) != MAILBOX_NEEDS_GONE))
		op = op->next;
	if (op)
		progress_op_ref(op);
	lock_rank_release(&p2p->lock);
	return op;
}

void p2p_fail_gone(ls_group *group)
{
	struct ranks room;
	const struct ranks *gone = mailbox_pending(group->mailbox) ? world_gone(group, &room) : NULL;
	int peer;
	if (!gone || failure_status(group) != LS_OK)
		return;
	struct ls_request *op = find_lost_send(group, gone, &peer);
	if (!op)
		return;
	ls_status status = progress_op_fail_gone(op, gone, peer);
	(void)status; /* the caller's own call returns it */
	progress_op_unref(op);
	/* If no thread makes progress, a call that asks for one of the operations ends it. */
	p2p_recheck(group->world);
}

/* ---- operations that a thread waits for ---- */

/* What one operation needs of the members that are gone from its group. Other operations may belong
 * to another group. */
static enum mailbox_need need_alone(const struct ls_request *op, int *peer)
{
	struct ranks room;
	const struct ranks *gone = progress_op_is_p2p(op) ? world_gone(op->group, &room) : NULL;
	*peer = -1;
	return gone ? progress_op_need(op, gone, peer) : MAILBOX_NEEDS_NOBODY;
}

/* A thread that waits for a part of a batch waits for all parts. *which: the part that needs
 * most. */
static enum mailbox_need need_of_one(const struct ls_request *op, const struct ls_request **which,
				     int *peer)
{
	const struct ls_request *batch = op->is_batch ? op : op->batch;
	enum mailbox_need most = MAILBOX_NEEDS_NOBODY;
	*which = op;
	*peer = -1;
	if (!world_any_gone(op->group))
		return most;
	for (const struct ls_request *part = batch ? batch->next_part : op; part;
	     part = batch ? part->next_part : NULL) {
		int whom;
		enum mailbox_need need = progress_op_is_complete(part) ? MAILBOX_NEEDS_NOBODY
								       : need_alone(part, &whom);
		if (need <= most)
			continue;
		*which = part;
		*peer = whom;
		most = need;
	}
	return most;
}

/* The least that one of the operations needs to complete, and which operation that is. */
static enum mailbox_need need_of(ls_request *const *ops, int count, const struct ls_request *head,
				 const struct ls_request **which, int *peer)
{
	enum mailbox_need least = MAILBOX_NEEDS_GONE;
	*which = NULL;
	*peer = -1;
	for (int i = 0; i < count; i++) {
		if (!ops[i])
			continue;
		const struct ls_request *one;
		int whom;
		enum mailbox_need need = need_of_one(ops[i], &one, &whom);
		/* An ordered send that waits also needs what the head needs. */
		if (need == MAILBOX_NEEDS_NOBODY && head && progress_waits_for_sends(ops[i])) {
			one = head;
			need = need_alone(head, &whom);
		}
		if (*which && need >= least)
			continue;
		*which = one;
		*peer = whom;
		least = need;
	}
	return least;
}

bool p2p_fail_without(ls_request *const *ops, int count, const struct ls_request *head,
		      struct progress_self_only *self_only)
{
	const struct ls_request *which;
	int peer;
	enum mailbox_need need = need_of(ops, count, head, &which, &peer);
	if (need == MAILBOX_NEEDS_NOBODY) {
		self_only->slice_ns = 0;
		return false;
	}
	struct ranks room;
	const struct ranks *gone = world_gone(which->group, &room);
	if (need == MAILBOX_NEEDS_SELF && progress_self_only_goes_on(which, gone, self_only))
		return false;
	ls_status status = progress_op_fail_gone(which, gone, peer);
	(void)status; /* the next pass ends all operations of the group with this status */
	return true;
}
