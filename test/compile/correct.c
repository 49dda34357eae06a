/* SPDX-License-Identifier: BSD-3-Clause
 * Accepted: locks in their order, released, data under their lock, a wait with no lock held. */
#include "common.h"

int test(struct object *object, struct waiter *waiter, const struct wait_call *call)
{
	lock_rank_acquire(&object->outer);
	object->counter++;
	lock_memory_acquire(&object->inner);
	lock_memory_release(&object->inner);
	lock_rank_release(&object->outer);
	int peer;
	return (int)wait_words(waiter, call, &peer);
}
