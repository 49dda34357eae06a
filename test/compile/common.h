/* SPDX-License-Identifier: BSD-3-Clause
 * What the compile-time tests of the lock order share: an object with two locks and guarded
 * data. */
#ifndef TEST_COMPILE_COMMON_H
#define TEST_COMPILE_COMMON_H

#include "base/lock.h"
#include "base/wait.h"

struct object {
	struct lock_rank outer;
	struct lock_memory inner; /* not next to `rank` in the table: the order is transitive */
	int counter LOCK_GUARDED(rank);
};

int test(struct object *object, struct waiter *waiter, const struct wait_call *call);

#endif
