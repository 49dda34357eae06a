/* SPDX-License-Identifier: BSD-3-Clause
 * The device of a rank (world->device), and what the rooms above keep for it. */
#ifndef WORLD_DEVICE_H
#define WORLD_DEVICE_H

#include "base/lock.h"
#include "device/driver.h"
#include "pool/pool.h"

struct ls_request;
struct memory_region;
struct op_stream_words;

/* The device of a rank: option `device` of ls_group_open. */
struct world_device {
	struct pool_deferred_free deferred;
	struct driver driver;
	struct pool_gate *gate;
	struct pool *pool;
	struct memory_region *region; /* the device's memory; NULL: the processor may touch it */
	struct lock_rank lock;
	struct ls_request *operations LOCK_GUARDED(rank); /* on streams, not complete */
	struct op_stream_words *words LOCK_GUARDED(rank); /* of groups that are closed */
	struct driver_observer observer;                  /* if world->races is not NULL */
	char name[32];                                    /* "sim:0" */
};

#endif
