/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: memory is given back, for which the driver may wait, while a lock is held. */
#include "device.h"

int test(struct pool *pool, struct pool_gate *gate, struct waiter *waiter, struct pool_due *due)
{
	lock_pool_acquire(&pool->lock);
	pool_gate_give(gate, waiter, due);
	lock_pool_release(&pool->lock);
	return 0;
}
