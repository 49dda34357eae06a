/* SPDX-License-Identifier: BSD-3-Clause
 * The operation that represents another one in a wait: a part represents its batch; with the
 * setting P2P=serial the send that has begun represents those behind it. */
#include "progress/progress.h"

struct ls_request *progress_first_ordered(struct world_p2p *p2p)
{
	struct ls_request *op = p2p->first;
	while (op && (!op->ordered || atomic_load(&op->base.p2p.lingers)))
		op = op->next;
	return op;
}

/* A batch waits for all its parts, so any part that is not complete represents it. */
const struct ls_request *progress_representative(const struct ls_request *op)
{
	const struct ls_request *part = op->is_batch ? op->next_part : NULL;
	while (part && progress_op_is_complete(part))
		part = part->next_part;
	return part ? part : op;
}

bool progress_waits_for_sends(const struct ls_request *op)
{
	const struct ls_request *part = op->is_batch ? op->next_part : op;
	if (!op->group->world->p2p.serial)
		return false;
	for (; part; part = op->is_batch ? part->next_part : NULL)
		if (progress_op_is_p2p(part) && !progress_op_is_complete(part) &&
		    !atomic_load_explicit(&part->begun, memory_order_acquire))
			return true;
	return false;
}

const struct ls_request *progress_shown_for(const struct ls_request *op,
					    const struct ls_request *head)
{
	return head && progress_waits_for_sends(op) ? head : progress_representative(op);
}
