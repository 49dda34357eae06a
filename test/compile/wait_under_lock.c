/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: a wait while a lock is held. */
#include "common.h"

int test(struct object *object, struct waiter *waiter, const struct wait_call *call)
{
	int peer;
	lock_rank_acquire(&object->outer);
	ls_status status = wait_words(waiter, call, &peer);
	lock_rank_release(&object->outer);
	return (int)status;
}
