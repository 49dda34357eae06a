/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: one way out keeps the pool's lock. */
#include "device.h"

int test(struct pool *pool, struct pool_gate *gate, struct waiter *waiter, struct pool_gift *gift)
{
	(void)gate;
	(void)waiter;
	(void)gift;
	lock_pool_acquire(&pool->lock);
	if (pool->pending)
		return 1;
	lock_pool_release(&pool->lock);
	return 0;
}
