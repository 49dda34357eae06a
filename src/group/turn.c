/* SPDX-License-Identifier: BSD-3-Clause
 * What an operation waits for in place of itself: a part of a batch; with the setting P2P=serial
 * the send before it. */
#include "p2p.h"

struct ls_op *group_p2p_first_send(struct group_p2p *p2p)
{
	struct ls_op *op = p2p->first;
	while (op && op->engine.call.kind != TRACE_SEND)
		op = op->next;
	return op;
}

/* What a batch waits for is any part of it that is not over, as it waits for all. */
const struct ls_op *group_p2p_face(const struct ls_op *op)
{
	const struct ls_op *part = op->is_batch ? op->next_part : NULL;
	while (part && group_op_is_over(part))
		part = part->next_part;
	return part ? part : op;
}

bool group_p2p_waits_turn(const struct ls_op *op)
{
	const struct ls_op *part = op->is_batch ? op->next_part : op;
	if (!op->group->world->p2p.serial)
		return false;
	for (; part; part = op->is_batch ? part->next_part : NULL)
		if (group_op_is_p2p(part) && !group_op_is_over(part) &&
		    !atomic_load_explicit(&part->begun, memory_order_acquire))
			return true;
	return false;
}

const struct ls_op *group_p2p_stand_in(const struct ls_op *op, const struct ls_op *head)
{
	return head && group_p2p_waits_turn(op) ? head : group_p2p_face(op);
}
