/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: a mark is enqueued on a stream, a call of the driver, while the pool's lock is held. */
#include "device.h"

int test(struct pool *pool, struct pool_gate *gate, struct waiter *waiter, struct pool_due *due)
{
	(void)gate;
	(void)waiter;
	(void)due;
	lock_pool_acquire(&pool->lock);
	pool_put_marks(pool);
	lock_pool_release(&pool->lock);
	return 0;
}
