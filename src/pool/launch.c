/* SPDX-License-Identifier: BSD-3-Clause
 * Launches behind streams of the program: which entry of launch_streams a stream has, and the order
 * in which threads launch on it. The rules are in launch.h. */
#include "pool/launch.h"

#include <stdlib.h>

#include "base/messages.h"
#include "pool/pool_private.h"
#include "trace/trace.h"

/* ---- a stream ---- */

static bool is_idle(const struct pool_launch_stream *launched)
{
	const struct pool_inflight *inflight = launched->inflight;
	return launched->users == 0 &&
	       (!inflight || atomic_load(&inflight->done) >= atomic_load(&inflight->issued));
}

/* The entry of this stream, else one that nobody uses; its numbers go on. NULL: none. */
static struct pool_launch_stream *find_stream(struct pool *pool, const void *stream)
	LOCK_REQUIRES(pool)
{
	struct pool_launch_stream *found = NULL;
	for (int i = 0; i < POOL_STREAMS; i++) {
		struct pool_launch_stream *one = &pool->launch_streams[i];
		if (one->inflight && one->handle == stream)
			return one;
		if (!found && is_idle(one))
			found = one;
	}
	return found;
}

static void forget_operations(struct pool_launch_stream *launched)
{
	atomic_store(&launched->recent, 0);
	atomic_store(&launched->follows, 0);
}

static struct pool_launch_stream *enter_stream(struct pool *pool, void *stream)
{
	lock_pool_acquire(&pool->lock);
	struct pool_launch_stream *launched = find_stream(pool, stream);
	if (launched && !launched->inflight)
		launched->inflight = pool_inflight_open(pool->options.gate, pool->options.driver);
	if (launched && launched->inflight && !launched->records)
		launched->records = calloc(POOL_LAUNCH_RECORDS, sizeof *launched->records);
	if (launched && !launched->inflight)
		launched = NULL;
	if (launched) {
		if (launched->handle != stream)
			forget_operations(launched);
		launched->handle = stream;
		pool_queue_find(pool, stream, &launched->queue);
		launched->users++;
		launched->user_tid = trace_thread_id();
	}
	lock_pool_release(&pool->lock);
	if (!launched) {
		char from[TRACE_CALLER_BYTES];
		trace_caller_text(from, sizeof from);
		MESSAGE_SAY(MESSAGE_DEVICE_LAUNCHES, pool->name, stream, (int)POOL_STREAMS, from);
	}
	return launched;
}

static void leave_stream(struct pool *pool, struct pool_launch_stream *launched)
{
	lock_pool_acquire(&pool->lock);
	launched->users--;
	lock_pool_release(&pool->lock);
}

void pool_launches_forget(struct pool *pool, const void *stream)
{
	for (int i = 0; i < POOL_STREAMS; i++)
		if (pool->launch_streams[i].handle == stream)
			forget_operations(&pool->launch_streams[i]);
}

bool pool_launches_are_done(struct pool *pool)
{
	bool done = true;
	lock_pool_acquire(&pool->lock);
	for (int i = 0; i < POOL_STREAMS; i++)
		done &= is_idle(&pool->launch_streams[i]);
	lock_pool_release(&pool->lock);
	return done || atomic_load(&pool->options.driver->broken) != 0;
}

void pool_launches_close(struct pool *pool)
{
	for (int i = 0; i < POOL_STREAMS; i++)
		if (pool->launch_streams[i].inflight) {
			pool_inflight_close(pool->launch_streams[i].inflight);
			free(pool->launch_streams[i].records);
			pool->launch_streams[i].records = NULL;
		}
}

/* ---- one thread at a time ---- */

/* `claims` is odd while a thread has claimed the stream. */
static ls_status claim_stream(struct pool_launch_stream *launched, struct waiter *waiter,
			      uint64_t deadline_ns)
{
	ls_status status = LS_OK;
	while (status == LS_OK || status == LS_INTERRUPTED) {
		uint64_t claims = atomic_load(&launched->claims);
		if (claims % 2 == 0) {
			if (atomic_compare_exchange_strong(&launched->claims, &claims, claims + 1))
				return LS_OK;
			continue;
		}
		struct wait_word word = {.word = &launched->claims,
					 .edge = {.value = claims + 1, .owner = -1, .peer = -1}};
		struct wait_call call = {.words = &word,
					 .count = 1,
					 .deadline_ns = deadline_ns,
					 .foreign = "a launch (another thread launches there)"};
		int peer;
		status = wait_words(waiter, &call, &peer);
	}
	return status;
}

static void unclaim_stream(struct pool *pool, struct pool_launch_stream *launched)
{
	wait_store(&launched->claims, atomic_load(&launched->claims) + 1);
	wait_wake(pool->options.waiter->bell);
}

static ls_status open_gate(struct pool *pool, struct waiter *waiter, uint64_t deadline_ns)
{
	ls_status status;
	do
		status = pool_gate_begin(pool->options.gate, waiter, deadline_ns);
	while (status == LS_INTERRUPTED);
	return status;
}

/* ---- the calls ---- */

ls_status pool_launch_claim(struct pool *pool, struct waiter *waiter, void *stream,
			    uint64_t deadline_ns, struct pool_launch *out)
{
	struct pool_launch_stream *launched = enter_stream(pool, stream);
	if (!launched)
		return LS_OUT_OF_MEMORY;
	ls_status status = claim_stream(launched, waiter, deadline_ns);
	if (status == LS_OK)
		*out = (struct pool_launch){.launched = launched,
					    .recent = &launched->recent,
					    .follows = &launched->follows};
	else
		leave_stream(pool, launched);
	return status;
}

void pool_launch_unclaim(struct pool *pool, const struct pool_launch *launch)
{
	unclaim_stream(pool, launch->launched);
	leave_stream(pool, launch->launched);
}

/* No launch is open while this thread waits for room. */
ls_status pool_launch_begin(struct pool *pool, struct waiter *waiter, uint64_t deadline_ns,
			    const struct pool_launch_op *op, struct pool_launch *launch)
{
	struct pool_launch_stream *launched = launch->launched;
	uint64_t number;
	ls_status status = pool_queue_issue(pool, launched, waiter, deadline_ns, op, &number);
	if (status == LS_OK) {
		status = open_gate(pool, waiter, deadline_ns);
		if (status != LS_OK) {
			pool_gate_retract(launched->inflight);
			pool_gate_tell(pool->options.gate);
		}
	}
	if (status != LS_OK) {
		pool_launch_unclaim(pool, launch);
		return status;
	}
	lock_pool_acquire(&pool->lock);
	launch->has_room = pool_queue_is_certain(&launched->queue);
	lock_pool_release(&pool->lock);
	launch->done = &launched->inflight->done;
	launch->number = number;
	return LS_OK;
}

void pool_launch_end(struct pool *pool, const struct pool_launch *launch, bool stored)
{
	if (!stored)
		pool_gate_retract(launch->launched->inflight);
	pool_gate_end(pool->options.gate);
	pool_launch_unclaim(pool, launch);
}
