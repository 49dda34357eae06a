/* SPDX-License-Identifier: BSD-3-Clause
 * Refused: guarded data are written without their lock. */
#include "common.h"

int test(struct object *object, struct waiter *waiter, const struct wait_call *call)
{
	(void)waiter;
	(void)call;
	object->counter = 1;
	return 0;
}
