/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: a field of the gate is written without its lock. */
#include "device.h"

int test(struct pool *pool, struct pool_gate *gate, struct waiter *waiter, struct pool_due *due)
{
	(void)pool;
	(void)waiter;
	gate->first = due;
	return 0;
}
