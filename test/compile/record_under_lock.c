/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: which stream uses a block is recorded with the gate's lock held, as by a launch that
 * keeps frees away. */
#include "device.h"

int test(struct pool *pool, struct pool_gate *gate, struct waiter *waiter, struct pool_due *due)
{
	(void)waiter;
	(void)due;
	lock_gate_acquire(&gate->lock);
	ls_status status = pool_record(pool, pool, NULL, NULL);
	lock_gate_release(&gate->lock);
	return status != LS_OK;
}
