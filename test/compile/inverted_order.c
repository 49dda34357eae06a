/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: an outer lock is taken inside an inner one. */
#include "common.h"

int test(struct object *object, struct waiter *waiter, const struct wait_call *call)
{
	(void)waiter;
	(void)call;
	lock_memory_acquire(&object->inner);
	lock_rank_acquire(&object->outer);
	lock_rank_release(&object->outer);
	lock_memory_release(&object->inner);
	return 0;
}
