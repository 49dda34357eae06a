/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: a launch, which may wait for a give, begins while a lock is held. */
#include "device.h"

int test(struct pool *pool, struct pool_gate *gate, struct waiter *waiter, struct pool_due *due)
{
	(void)due;
	lock_pool_acquire(&pool->lock);
	ls_status status = pool_gate_begin(gate, waiter, CLOCK_NEVER);
	lock_pool_release(&pool->lock);
	return (int)status;
}
