/* SPDX-License-Identifier: BSD-3-Clause
 * The end of a pool: waits until the device uses none of its memory, and gives all of it back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "pool/pool_private.h"

/* How many streams have not reached their numbers. A stream may have work for any block of the
 * pool, also for one that the program has not recorded for it. *gone: how many of these streams the
 * program has destroyed, so that nobody can tell when they have reached them. */
static int count_unfinished(struct pool *pool, const uint64_t *numbers, int *gone)
{
	int count = 0;
	*gone = 0;
	lock_pool_acquire(&pool->lock);
	for (int i = 0; i < pool->stream_count; i++) {
		if (pool_stream_has_reached(pool, i, numbers[i]))
			continue;
		pool_want(pool, i, numbers[i]);
		*gone += pool->streams[i].is_gone;
		count++;
	}
	lock_pool_release(&pool->lock);
	return count;
}

static ls_status await_streams(struct pool *pool, struct pool_patience *patience)
{
	uint64_t numbers[POOL_STREAMS];
	ls_status status = LS_OK;
	lock_pool_acquire(&pool->lock);
	for (int i = 0; i < pool->stream_count; i++)
		numbers[i] = pool->streams[i].bins ? pool_stream_number(pool, i) : 0;
	lock_pool_release(&pool->lock);
	while (status == LS_OK) {
		int gone;
		uint64_t moment = pool_moment(pool);
		int count = count_unfinished(pool, numbers, &gone);
		if (pool_launches_are_done(pool) && count == gone)
			return count == 0 ? LS_OK : LS_BAD_ARGUMENT;
		pool_put_marks(pool);
		status = pool_wait_for_any(pool, moment, patience);
	}
	return status;
}

/* Call when no block is left. */
static void clear_counters(struct pool *pool) LOCK_REQUIRES(pool)
{
	struct trace_memory *counters = pool->counters;
	trace_memory_set(&counters->live, 0);
	trace_memory_set(&counters->pending, 0);
	trace_memory_set(&counters->owned, 0);
	trace_memory_set(&counters->segments, 0);
	trace_memory_empty_bins(counters);
	trace_memory_set(&counters->frees, trace_memory_get(&counters->allocs));
}

/* The next segment, whatever its blocks are: nobody asks for them any more. */
static struct pool_segment *take_any(struct pool *pool) LOCK_REQUIRES(pool)
{
	struct pool_segment *segment = pool->segments;
	if (segment) {
		pool->segments = segment->next;
		pool_count_offered(pool, segment->due.segment.bytes);
	} else {
		clear_counters(pool);
	}
	return segment;
}

static ls_status await_gives(struct pool *pool, struct pool_patience *patience)
{
	ls_status status = LS_OK;
	for (;;) {
		lock_pool_acquire(&pool->lock);
		struct pool_segment *segment = take_any(pool);
		lock_pool_release(&pool->lock);
		if (!segment)
			break;
		pool_gate_give(pool->options.gate, pool->options.waiter, &segment->due);
	}
	for (;;) {
		uint64_t moment = pool_moment(pool);
		if (status != LS_OK || pool_put_off(pool) == 0)
			return status;
		status = pool_wait_for_any(pool, moment, patience);
	}
}

void pool_detach(struct pool *pool)
{
	if (!pool)
		return;
	lock_pool_acquire(&pool->lock);
	if (pool->counters != &pool->own_counters)
		memcpy(&pool->own_counters, pool->counters, sizeof pool->own_counters);
	pool->counters = &pool->own_counters;
	lock_pool_release(&pool->lock);
}

/* Names the streams whose work is not known to be done, and that are gone, or are not. Returns how
 * many bytes it has written. */
static size_t list_streams(struct pool *pool, bool gone, const char *first, char *out, size_t bytes)
{
	size_t used = 0;
	out[0] = '\0';
	lock_pool_acquire(&pool->lock);
	for (int i = 0; i < pool->stream_count && used < bytes; i++) {
		const struct pool_stream *stream = &pool->streams[i];
		if (!stream->bins || stream->is_gone != gone ||
		    pool_stream_has_reached(pool, i, stream->wanted))
			continue;
		used += (size_t)snprintf(out + used, bytes - used, "%s %p", used ? "," : first,
					 stream->handle);
	}
	lock_pool_release(&pool->lock);
	return used;
}

/* Names the streams and launches for which the end of the pool has waited in vain, or could not
 * wait. */
static void say_unfinished(struct pool *pool, ls_status status)
{
	char what[512];
	if (list_streams(pool, false, "the device does not finish its work on streams", what,
			 sizeof what) == 0 &&
	    list_streams(pool, true,
			 "the program has destroyed streams without ls_device_forget, and nobody "
			 "can tell when their work is done:",
			 what, sizeof what) == 0)
		snprintf(what, sizeof what, "%s",
			 "the device does not finish operations that are in flight");
	MESSAGE_SAY(MESSAGE_DEVICE_CLOSE, pool->name, ls_status_name(status), what);
}

ls_status pool_close(struct pool *pool, uint64_t deadline_ns)
{
	if (!pool)
		return LS_OK;
	struct pool_patience patience = {.call = "ls_group_close (waiting for the device)",
					 .deadline_ns = deadline_ns};
	ls_status status = await_streams(pool, &patience);
	if (status == LS_OK) {
		lock_pool_acquire(&pool->lock);
		pool->pending = NULL; /* settled, because all streams are done */
		lock_pool_release(&pool->lock);
		status = await_gives(pool, &patience);
	}
	if (status != LS_OK) { /* the device may still store its marks */
		say_unfinished(pool, status);
		return status;
	}
	pool_launches_close(pool);
	for (int i = 0; i < POOL_STREAMS; i++)
		free(pool->streams[i].bins);
	lock_pool_acquire(&pool->lock);
	pool_free_chunks(pool);
	lock_pool_release(&pool->lock);
	lock_pool_fini(&pool->lock);
	free(pool);
	return LS_OK;
}
