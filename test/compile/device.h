/* SPDX-License-Identifier: BSD-3-Clause
 * What the compile-time tests of the locks of the pool and the gate share. */
#ifndef TEST_COMPILE_DEVICE_H
#define TEST_COMPILE_DEVICE_H

#include "base/clock.h"
#include "pool/gate.h"
#include "pool/pool_private.h"

int test(struct pool *pool, struct pool_gate *gate, struct waiter *waiter, struct pool_due *due);

#endif
