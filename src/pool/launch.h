/* SPDX-License-Identifier: BSD-3-Clause
 * Launches: work that Lockstep puts behind streams of the program. One launch is some calls of the
 * driver on one stream. The last one stores the launch's number, so words say how far it is:
 *
 *   pool_launch_begin ── driver calls … ── store(launch.done, launch.number) ── pool_launch_end
 *
 * Launches on one stream happen one after the other, so the stored numbers only grow, and a launch
 * is over when *done >= number. No lock is held meanwhile, as the driver may make a launch wait for
 * room in the stream's queue. Whoever waits for its turn waits only for what the stream would make
 * it wait for in any case. Memory is not given back while a launch is open or in flight: gate.h. */
#ifndef POOL_LAUNCH_H
#define POOL_LAUNCH_H

#include "pool/pool.h"

/* Whether the driver knows the stream, and does what is put behind it. Errors: LS_BAD_ARGUMENT,
 * LS_UNSUPPORTED (it is being captured), LS_SYSTEM, with a message. */
LS_CHECKED ls_status pool_stream_check(struct pool *pool, void *stream) LOCK_AVOIDS_ALL;

struct pool_launcher; /* a stream that launches have been put behind */

struct pool_launch {
	struct pool_launcher *launcher;
	/* Stays in memory, and its numbers go on, until the pool is closed. */
	_Atomic uint64_t *done;
	uint64_t number;
};

/* The stream was checked. Waits while memory is given back or another thread launches on the
 * stream. Errors: LS_OUT_OF_MEMORY, with a message (launches are in flight on as many other streams
 * as can be); LS_TIMED_OUT and what else ends a wait. Then nothing has begun. */
LS_CHECKED ls_status pool_launch_begin(struct pool *pool, void *stream, uint64_t deadline_ns,
				       struct pool_launch *out) LOCK_AVOIDS_ALL;
/* stored: the store has been put behind the stream. Otherwise the number means nothing. */
void pool_launch_end(struct pool *pool, const struct pool_launch *launch, bool stored)
	LOCK_AVOIDS_ALL;

#endif
