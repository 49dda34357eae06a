/* SPDX-License-Identifier: BSD-3-Clause
 * How far streams are, by marks that the device stores. The pool does not ask the driver, because
 * an answer may take as long as a kernel. */
#include "base/messages.h"
#include "pool/bins.h"

bool pool_stream_has_reached(const struct pool *pool, int stream, uint64_t number)
{
	if (pool->streams[stream].forgotten)
		return true;
	/* A broken device touches no memory any more. */
	return atomic_load_explicit(&pool->streams[stream].done, memory_order_acquire) >= number ||
	       atomic_load(&pool->options.driver->broken) != 0;
}

void pool_want(struct pool *pool, int stream, uint64_t number)
{
	if (pool->streams[stream].wanted < number)
		pool->streams[stream].wanted = number;
}

/* Claims the next mark of the first stream from *stream on that wants one. */
static bool claim_mark(struct pool *pool, int *stream, uint64_t *number) LOCK_REQUIRES(pool)
{
	for (; *stream < pool->stream_count; ++*stream) {
		struct pool_stream *here = &pool->streams[*stream];
		if (here->wanted <= here->issued || here->putting || here->forgotten ||
		    atomic_load(&here->done) < here->issued ||
		    !pool_queue_has_room(pool, &here->queue, 1))
			continue;
		here->putting = true;
		*number = ++here->issued;
		return true;
	}
	return false;
}

static ls_status put_mark(struct pool *pool, struct pool_stream *stream, void *handle,
			  uint64_t number)
{
	struct driver *driver = pool->options.driver;
	bool captured = false;
	wait_foreign_call_begin(pool->options.waiter, "the driver, behind a stream");
	ls_status status = driver->ops->capturing(driver, handle, &captured);
	if (status == LS_OK && captured)
		status = LS_UNSUPPORTED;
	if (status == LS_OK)
		status = driver->ops->store(driver, handle, &stream->done, number);
	wait_foreign_call_end(pool->options.waiter);
	return status;
}

void pool_put_marks(struct pool *pool)
{
	uint64_t number;
	for (int i = 0; i < POOL_STREAMS; i++) {
		lock_pool_acquire(&pool->lock);
		bool claimed = claim_mark(pool, &i, &number);
		struct pool_stream *stream = &pool->streams[i < POOL_STREAMS ? i : 0];
		void *handle = stream->handle;
		lock_pool_release(&pool->lock);
		if (!claimed)
			return;
		ls_status status = put_mark(pool, stream, handle, number);
		lock_pool_acquire(&pool->lock);
		stream->putting = false;
		if (status != LS_OK)
			stream->issued--;
		bool says = status == LS_BAD_ARGUMENT && !stream->is_gone;
		stream->is_gone = status == LS_BAD_ARGUMENT;
		lock_pool_release(&pool->lock);
		if (says) /* once: a thread that waits for memory tries again all the time */
			MESSAGE_SAY(MESSAGE_DEVICE_STREAM_GONE, handle, pool->name);
		if (status == LS_OK)
			i--; /* another thread may have wanted the next mark meanwhile */
		/* A thread that waits for that number tries again; another one may wait for this
		 * put to end. */
		pool_gate_tell(pool->options.gate);
	}
}

/* Removes the uses that are done. True: none is left. */
static bool settle_uses(struct pool *pool, struct pool_block *block) LOCK_REQUIRES(pool)
{
	struct pool_use **at = &block->uses;
	while (*at) {
		struct pool_use *use = *at;
		if (!pool_stream_has_reached(pool, use->stream, use->number)) {
			pool_want(pool, use->stream, use->number);
			at = &use->next;
			continue;
		}
		*at = use->next;
		pool->streams[use->stream].blocks--;
		use->next = pool->spare_uses;
		pool->spare_uses = use;
	}
	return !block->uses;
}

bool pool_settle(struct pool *pool)
{
	bool any = false;
	struct pool_block *next;
	for (struct pool_block *block = pool->pending; block; block = next) {
		next = block->next;
		if (!settle_uses(pool, block))
			continue;
		*block->link = next;
		if (next)
			next->link = block->link;
		trace_memory_sub(&pool->counters->pending, block->bytes);
		pool_put(pool, block);
		any = true;
	}
	return any;
}
