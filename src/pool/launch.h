/* SPDX-License-Identifier: BSD-3-Clause
 * Launches: work that Lockstep enqueues on streams of the program. One launch is some calls of the
 * driver on one stream. The last call stores the launch's number, so a word shows how far the
 * stream is:
 *
 *   pool_launch_claim ── pool_launch_begin ── driver calls … ── store(launch.done, launch.number)
 *                                                                             └── pool_launch_end
 *
 * Launches on one stream happen one after the other, so the stored numbers only grow, and a launch
 * is complete when *done >= number. One thread at a time claims a stream. A launch that waits for
 * this claim waits only for what the stream would make it wait for anyway. Memory is not given back
 * while a launch is open or in flight: gate.h.
 *
 * A driver whose queue is full makes a call wait, perhaps with its locks held. Then all other
 * threads of the process that need the driver stand still, and one of them may have to send what
 * the work in the queue waits for. So a launch begins only when the entries that Lockstep has in
 * that queue leave room for all of the launch, and waits for that itself. If the driver does not
 * say how much room there is, Lockstep puts nothing there that waits for other ranks before what it
 * waits for has come (has_room). Entries of the program do not count. */
#ifndef POOL_LAUNCH_H
#define POOL_LAUNCH_H

#include "pool/pool.h"

/* Whether the driver knows the stream, and does what is put behind it. Errors: LS_BAD_ARGUMENT,
 * LS_UNSUPPORTED (it is being captured), LS_SYSTEM, with a message. */
LS_CHECKED ls_status pool_stream_check(struct pool *pool, void *stream) LOCK_AVOIDS_ALL;

/* Whether launches have room (has_room), as far as the device's own stream tells. */
bool pool_has_room(const struct pool *pool);

struct pool_launch_stream; /* a stream that launches have been put behind */

enum { POOL_LAUNCH_ENTRIES = 5 }; /* calls of the driver between begin and end, at most */

/* For which operation a thread launches, as its waits show it. */
struct pool_launch_op {
	struct trace *trace; /* of its rank; NULL: no operation is shown */
	uint64_t record;
	uint32_t group;
	bool is_put; /* it is put on the stream itself; false: the stream is to follow it */
	bool has_own_limit;
};

struct pool_launch {
	struct pool_launch_stream *launched;
	bool has_room; /* for all entries, whether or not they can be done */
	/* For the caller, from the claim on: the trace record of what it has put on the stream
	 * last; 0: nothing yet, or the stream has been forgotten since. */
	_Atomic uint64_t *recent;
	/* The same of the operation on another stream that this stream waits for since then. */
	_Atomic uint64_t *follows;
	/* Stays in memory, and its numbers go on, until the pool is closed. */
	_Atomic uint64_t *done;
	uint64_t number;
};

/* The caller has checked the stream. Waits, as `waiter`, while another thread launches on it. From
 * then on no other thread does, until pool_launch_end, or until pool_launch_begin fails. So what
 * the caller does in between is in the order of the stream. Errors: LS_OUT_OF_MEMORY, with a
 * message (launches are in flight on as many other streams as can be); LS_TIMED_OUT and what else
 * ends a wait. Then nothing has begun. */
LS_CHECKED ls_status pool_launch_claim(struct pool *pool, struct waiter *waiter, void *stream,
				       uint64_t deadline_ns, struct pool_launch *out)
	LOCK_AVOIDS_ALL;
/* The caller has claimed the launch. Waits, as `waiter`, while memory is given back or the stream's
 * queue has no room. Errors: LS_TIMED_OUT and what else ends a wait. Then nothing has begun, and
 * the claim is given up. */
LS_CHECKED ls_status pool_launch_begin(struct pool *pool, struct waiter *waiter,
				       uint64_t deadline_ns, const struct pool_launch_op *op,
				       struct pool_launch *launch) LOCK_AVOIDS_ALL;
/* Gives up a claim without a launch. */
void pool_launch_unclaim(struct pool *pool, const struct pool_launch *launch) LOCK_AVOIDS_ALL;
/* stored: the store has been enqueued on the stream. Otherwise the number is never stored. */
void pool_launch_end(struct pool *pool, const struct pool_launch *launch, bool stored)
	LOCK_AVOIDS_ALL;

#endif
