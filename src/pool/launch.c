/* SPDX-License-Identifier: BSD-3-Clause
 * Launches behind streams of the program: which launcher a stream has, and the order in which
 * threads launch on it. The rules are in launch.h. */
#include "pool/launch.h"

#include "base/messages.h"
#include "pool_private.h"
#include "trace/trace.h"

/* ---- the launcher of a stream ---- */

static bool is_idle(const struct pool_launch_queue *launcher)
{
	const struct pool_lane *lane = launcher->lane;
	return launcher->users == 0 &&
	       (!lane || atomic_load(&lane->done) >= atomic_load(&lane->issued));
}

/* The launcher of this stream, else one that nobody uses; its numbers go on. NULL: none. */
static struct pool_launch_queue *find_launcher(struct pool *pool, const void *stream)
	LOCK_REQUIRES(pool)
{
	struct pool_launch_queue *found = NULL;
	for (int i = 0; i < POOL_STREAMS; i++) {
		struct pool_launch_queue *one = &pool->launchers[i];
		if (one->lane && one->handle == stream)
			return one;
		if (!found && is_idle(one))
			found = one;
	}
	return found;
}

static struct pool_launch_queue *enter_launcher(struct pool *pool, void *stream)
{
	lock_pool_acquire(&pool->lock);
	struct pool_launch_queue *launcher = find_launcher(pool, stream);
	if (launcher && !launcher->lane)
		launcher->lane = pool_lane_open(pool->options.gate, pool->options.driver);
	if (launcher && !launcher->lane)
		launcher = NULL;
	if (launcher) {
		launcher->handle = stream;
		pool_queue_find(pool, stream, &launcher->queue);
		launcher->users++;
	}
	lock_pool_release(&pool->lock);
	if (!launcher) {
		char from[TRACE_CALLER_BYTES];
		trace_caller_text(from, sizeof from);
		MESSAGE_SAY(MESSAGE_DEVICE_LAUNCHES, pool->name, stream, (int)POOL_STREAMS, from);
	}
	return launcher;
}

static void leave_launcher(struct pool *pool, struct pool_launch_queue *launcher)
{
	lock_pool_acquire(&pool->lock);
	launcher->users--;
	lock_pool_release(&pool->lock);
}

bool pool_launchers_are_done(struct pool *pool)
{
	bool done = true;
	lock_pool_acquire(&pool->lock);
	for (int i = 0; i < POOL_STREAMS; i++)
		done &= is_idle(&pool->launchers[i]);
	lock_pool_release(&pool->lock);
	return done || atomic_load(&pool->options.driver->broken) != 0;
}

void pool_launchers_close(struct pool *pool)
{
	for (int i = 0; i < POOL_STREAMS; i++)
		if (pool->launchers[i].lane)
			pool_lane_close(pool->launchers[i].lane);
}

/* ---- turns ---- */

/* One thread at a time launches on a stream: `turns` is odd meanwhile. */
static ls_status take_turn(struct pool_launch_queue *launcher, struct waiter *waiter,
			   uint64_t deadline_ns)
{
	ls_status status = LS_OK;
	while (status == LS_OK || status == LS_INTERRUPTED) {
		uint64_t turns = atomic_load(&launcher->turns);
		if (turns % 2 == 0) {
			if (atomic_compare_exchange_strong(&launcher->turns, &turns, turns + 1))
				return LS_OK;
			continue;
		}
		struct wait_word word = {.word = &launcher->turns,
					 .edge = {.value = turns + 1, .owner = -1, .peer = -1}};
		struct wait_call call = {.words = &word, .count = 1, .deadline_ns = deadline_ns};
		int peer;
		status = wait_words(waiter, &call, &peer);
	}
	return status;
}

static void end_turn(struct pool *pool, struct pool_launch_queue *launcher)
{
	wait_store(&launcher->turns, atomic_load(&launcher->turns) + 1);
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

/* Call with the turn. No launch is open while this thread waits for room. */
static ls_status begin_launch(struct pool *pool, struct pool_launch_queue *launcher,
			      struct waiter *waiter, uint64_t deadline_ns, struct pool_launch *out)
{
	uint64_t number;
	ls_status status = pool_queue_issue(pool, launcher, waiter, deadline_ns, &number);
	if (status != LS_OK)
		return status;
	status = open_gate(pool, waiter, deadline_ns);
	if (status != LS_OK) {
		pool_gate_retract(launcher->lane);
		pool_gate_tell(pool->options.gate);
		return status;
	}
	lock_pool_acquire(&pool->lock);
	bool has_room = pool_queue_is_certain(&launcher->queue);
	lock_pool_release(&pool->lock);
	*out = (struct pool_launch){.launcher = launcher,
				    .has_room = has_room,
				    .done = &launcher->lane->done,
				    .number = number};
	return LS_OK;
}

ls_status pool_launch_begin(struct pool *pool, struct waiter *waiter, void *stream,
			    uint64_t deadline_ns, struct pool_launch *out)
{
	struct pool_launch_queue *launcher = enter_launcher(pool, stream);
	if (!launcher)
		return LS_OUT_OF_MEMORY;
	ls_status status = take_turn(launcher, waiter, deadline_ns);
	if (status == LS_OK) {
		status = begin_launch(pool, launcher, waiter, deadline_ns, out);
		if (status != LS_OK)
			end_turn(pool, launcher);
	}
	if (status != LS_OK)
		leave_launcher(pool, launcher);
	return status;
}

void pool_launch_end(struct pool *pool, const struct pool_launch *launch, bool stored)
{
	if (!stored)
		pool_gate_retract(launch->launcher->lane);
	pool_gate_end(pool->options.gate);
	end_turn(pool, launch->launcher);
	leave_launcher(pool, launch->launcher);
}
