/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of old_ways share: one rank of a training program, with devices. */
#ifndef TEST_MUSEUM_OLD_WAYS_H
#define TEST_MUSEUM_OLD_WAYS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <lockstep/lockstep.h>

#include "sim.h"

/* Reports name these functions, so they must not be inlined. */
#define SHOWN __attribute__((noinline)) static

enum { STREAMS = 2, WORDS = 16, DEVICE_BYTES = 8 << 20, HALF = DEVICE_BYTES / 2 };

/* Memory in which the devices of all ranks meet. */
struct shared {
	struct sim_board board;
	_Atomic uint64_t words[WORDS];
};
extern struct shared *shared;

extern ls_group *world;
extern int my_rank;
extern struct sim *sim;
extern struct sim_stream *streams[STREAMS]; /* the second is on the last device */
extern void *cached;                        /* a block that the allocator could give back */
extern int failing_launch;                  /* of rank 1, from 1; 0: none */
extern pthread_mutex_t allocator_lock;      /* that of PyTorch's caching allocator */

void must(enum sim_error error);
void must_status(ls_status status); /* otherwise the rank prints the status, and ends */
/* The threads of an exhibit, in this process, meet here. */
void meet(void);
/* Prints "at the edge": the caller's next call never returns. */
void edge(void);

/* ---- old_ways_device.c ---- */

void all_reduce_then_record(void);
void launch_on_both(void);
void exchange(void);
void retry_synchronises(void);
void opposite_order(void);
void failed_launch(void);
void abort_in_error_path(void);
void lazy_loading(void);
void callback_lock(void);
/* For second threads. */
void *empty_cache(void *unused);
void *malloc_with_retry(void *unused);
void *garbage_collect(void *unused);
void *free_with_lock(void *unused);

/* ---- old_ways_ranks.c ---- */

void lazy_pairs(void);
void serial_lane(void);
void opposite_groups(void);
/* Call before the group is opened. Continues in a child, in which no thread holds the locked
 * lock. */
void fork_with_lock_held(void);
void allocate(void);

/* ---- on_forks.c ---- */

void fork_on_lockstep(void);

#endif
