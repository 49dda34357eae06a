/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: a field of the pool is written without its lock. */
#include "device.h"

int test(struct pool *pool, struct pool_gate *gate, struct waiter *waiter, struct pool_due *due)
{
	(void)gate;
	(void)waiter;
	(void)due;
	pool->puts = 1;
	return 0;
}
