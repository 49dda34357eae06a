/* SPDX-License-Identifier: BSD-3-Clause
 * Accepted: the gate's lock inside the pool's, fields under their locks, and calls with no lock
 * held. */
#include "device.h"

int test(struct pool *pool, struct pool_gate *gate, struct waiter *waiter, struct pool_due *due)
{
	void *block;
	lock_pool_acquire(&pool->lock);
	pool->puts++;
	lock_gate_acquire(&gate->lock);
	gate->first = NULL;
	lock_gate_release(&gate->lock);
	lock_pool_release(&pool->lock);
	ls_status status = pool_gate_begin(gate, waiter, CLOCK_NEVER);
	if (status != LS_OK)
		return (int)status;
	pool_gate_end(gate);
	pool_gate_give(gate, waiter, due);
	return (int)pool_alloc(pool, 512, NULL, CLOCK_NEVER, &block);
}
