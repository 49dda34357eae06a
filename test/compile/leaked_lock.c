/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: one way out keeps the lock. */
#include "common.h"

int test(struct object *object, struct waiter *waiter, const struct wait_call *call)
{
	(void)waiter;
	lock_rank_acquire(&object->outer);
	if (call->any)
		return 1;
	lock_rank_release(&object->outer);
	return 0;
}
