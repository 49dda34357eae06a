/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: an allocation, which may call the driver and wait, while a lock is held. */
#include "device.h"

int test(struct pool *pool, struct pool_gate *gate, struct waiter *waiter, struct pool_due *due)
{
	void *block;
	(void)waiter;
	(void)due;
	lock_gate_acquire(&gate->lock);
	ls_status status = pool_alloc(pool, 512, NULL, CLOCK_NEVER, &block);
	lock_gate_release(&gate->lock);
	return (int)status;
}
