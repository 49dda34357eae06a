/* SPDX-License-Identifier: BSD-3-Clause
 * Begins an operation, and takes care that some thread makes progress on it. */
#include "world/registry.h"
#include "failure/failure.h"
#include "p2p/p2p_private.h"

ls_status p2p_start(struct ls_request *op)
{
	ls_group *group = op->group;
	bool wakes = p2p_wakes(op);
	ls_status status = p2p_begin(op);
	/* What has happened before does not wake an armed progress thread, so it counts as work. */
	bool ends = failure_status(group) != LS_OK || (wakes && world_any_gone(group));
	if (p2p_pending(group) > 0 || group->world->p2p.serial)
		p2p_arm(group->world, ends || mailbox_has_work(group->mailbox));
	return status;
}
