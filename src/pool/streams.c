/* SPDX-License-Identifier: BSD-3-Clause
 * The streams that a pool knows: each has a slot until nothing is left of it. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/messages.h"
#include "trace/trace.h"
#include "pool/bins.h"

int pool_stream_search(struct pool *pool, const void *handle)
{
	for (int i = 0; i < pool->stream_count; i++)
		if (pool->streams[i].handle == handle && !pool->streams[i].forgotten)
			return pool->last_stream = i;
	return -1;
}

static bool is_idle(const struct pool_stream *stream)
{
	return stream->blocks == 0 && !stream->putting &&
	       (stream->forgotten || stream->wanted <= stream->issued) &&
	       atomic_load(&stream->done) >= stream->issued;
}

/* A slot of a stream that has nothing, or only memory that any stream may use; another stream gets
 * that memory. -1: there is no such slot. */
static int clear_slot(struct pool *pool) LOCK_REQUIRES(pool)
{
	for (int slot = 0; slot < pool->stream_count; slot++) {
		pool_hand_over(pool, slot, slot > 0 ? 0 : 1);
		if (is_idle(&pool->streams[slot]))
			return slot;
	}
	return -1;
}

/* A slot that nobody uses; its numbers go on. -1: none, or no memory. */
static int take_slot(struct pool *pool) LOCK_REQUIRES(pool)
{
	int slot = 0;
	while (slot < pool->stream_count && !is_idle(&pool->streams[slot]))
		slot++;
	if (slot == POOL_STREAMS)
		slot = clear_slot(pool);
	if (slot < 0)
		return -1;
	struct pool_stream *stream = &pool->streams[slot];
	if (!stream->bins)
		stream->bins = calloc(2, sizeof *stream->bins);
	if (!stream->bins)
		return -1;
	if (slot == pool->stream_count)
		pool->stream_count++;
	stream->forgotten = stream->is_gone = stream->allocates = false;
	stream->wanted = stream->issued;
	return slot;
}

void pool_say_failed(const struct pool *pool, ls_status status)
{
	bool broken = atomic_load(&pool->options.driver->broken) != 0;
	char from[TRACE_CALLER_BYTES];
	trace_caller_text(from, sizeof from);
	MESSAGE_SAY(MESSAGE_DEVICE_FAILED, pool->name, ls_status_name(status), from,
		    broken ? "The device cannot be used again: end the process"
			   : "The message before this one has the reason");
}

ls_status pool_stream_check(struct pool *pool, void *handle)
{
	struct driver *driver = pool->options.driver;
	bool captured = false;
	wait_foreign_call_begin(pool->options.waiter, "the driver, about a stream");
	ls_status status = driver->ops->capturing(driver, handle, &captured);
	wait_foreign_call_end(pool->options.waiter);
	if (status != LS_BAD_ARGUMENT && (status != LS_OK || !captured)) {
		if (status != LS_OK)
			pool_say_failed(pool, status);
		return status;
	}
	char from[TRACE_CALLER_BYTES];
	trace_caller_text(from, sizeof from);
	if (status == LS_BAD_ARGUMENT) {
		MESSAGE_SAY(MESSAGE_DEVICE_STREAM, handle, pool->name, from);
		return LS_BAD_ARGUMENT;
	}
	MESSAGE_SAY(MESSAGE_DEVICE_CAPTURED, handle, pool->name, from);
	return LS_UNSUPPORTED;
}

static int enter_slot(struct pool *pool, void *handle)
{
	lock_pool_acquire(&pool->lock);
	int slot = pool_stream_find(pool, handle); /* another thread may have been faster */
	if (slot < 0)
		slot = take_slot(pool);
	if (slot >= 0) {
		pool->streams[slot].handle = handle;
		pool_queue_find(pool, handle, &pool->streams[slot].queue);
		pool->streams[slot].blocks++;
	}
	lock_pool_release(&pool->lock);
	return slot;
}

ls_status pool_stream_enter(struct pool *pool, void *handle, bool checked, int *out)
{
	lock_pool_acquire(&pool->lock);
	*out = pool_stream_find(pool, handle);
	if (*out >= 0)
		pool->streams[*out].blocks++;
	lock_pool_release(&pool->lock);
	if (*out >= 0)
		return LS_OK;
	ls_status status = checked ? LS_OK : pool_stream_check(pool, handle);
	if (status != LS_OK)
		return status;
	*out = enter_slot(pool, handle);
	if (*out < 0) { /* streams whose work is done may be known as such now */
		pool_put_marks(pool);
		*out = enter_slot(pool, handle);
	}
	if (*out >= 0)
		return LS_OK;
	char from[TRACE_CALLER_BYTES];
	trace_caller_text(from, sizeof from);
	MESSAGE_SAY(MESSAGE_DEVICE_STREAMS, pool->name, handle, (int)POOL_STREAMS, from);
	return LS_OUT_OF_MEMORY;
}

static bool is_putting(struct pool *pool, const struct pool_stream *stream)
{
	lock_pool_acquire(&pool->lock);
	bool putting = stream->putting;
	lock_pool_release(&pool->lock);
	return putting;
}

/* Another thread may be in the driver with this stream. */
static void await_put(struct pool *pool, const struct pool_stream *stream)
{
	struct pool_gate *gate = pool->options.gate;
	struct pool_waiting waiting;
	struct wait_word word;
	int peer;
	while (is_putting(pool, stream)) {
		pool_gate_wait_begin(gate, &waiting, pool->options.waiter->bell);
		pool_gate_words(gate, &word, 1);
		struct wait_call call = {.words = &word,
					 .count = 1,
					 .deadline_ns = CLOCK_NEVER,
					 .foreign = "the driver, in another thread"};
		ls_status status = LS_OK;
		if (is_putting(pool, stream))
			status = wait_words(pool->options.waiter, &call, &peer);
		(void)status; /* whatever ended the wait: that thread comes back */
		pool_gate_wait_end(gate, &waiting);
	}
}

ls_status pool_forget(struct pool *pool, const void *handle)
{
	struct pool_caller caller;
	pool_caller_enter(pool, &caller, "ls_device_forget");
	lock_pool_acquire(&pool->lock);
	int slot = pool_stream_find(pool, handle);
	bool waits = slot >= 0 && pool->streams[slot].putting;
	bool refused = waits && pool_gate_is_in_callback();
	if (!refused)
		pool_launches_forget(pool, handle);
	if (slot >= 0 && !refused) {
		pool->streams[slot].forgotten = true;
		pool->puts++; /* its blocks can be used */
	}
	lock_pool_release(&pool->lock);
	if (waits && !refused)
		await_put(pool, &pool->streams[slot]);
	pool_gate_tell(pool->options.gate);
	pool_caller_leave(pool, &caller);
	return refused ? LS_TIMED_OUT : LS_OK;
}
