/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: a call of the driver is announced, as each must be, while the pool's lock is held. */
#include "device.h"

int test(struct pool *pool, struct pool_gate *gate, struct waiter *waiter, struct pool_due *due)
{
	(void)gate;
	lock_pool_acquire(&pool->lock);
	wait_foreign_call_begin(waiter, "cuMemFree");
	ls_status status = due->driver->ops->give(due->driver, &due->segment);
	wait_foreign_call_end(waiter);
	lock_pool_release(&pool->lock);
	return (int)status;
}
