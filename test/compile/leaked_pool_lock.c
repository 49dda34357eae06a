/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: one way out keeps the pool's lock. */
#include "device.h"

int test(struct pool *pool, struct pool_gate *gate, struct waiter *waiter, struct pool_due *due)
{
	(void)gate;
	(void)waiter;
	(void)due;
	lock_pool_acquire(&pool->lock);
	if (pool->pending)
		return 1;
	lock_pool_release(&pool->lock);
	return 0;
}
