/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: the pool's lock is taken inside the gate's. */
#include "device.h"

int test(struct pool *pool, struct pool_gate *gate, struct waiter *waiter, struct pool_due *due)
{
	(void)waiter;
	(void)due;
	lock_gate_acquire(&gate->lock);
	lock_pool_acquire(&pool->lock);
	lock_pool_release(&pool->lock);
	lock_gate_release(&gate->lock);
	return 0;
}
