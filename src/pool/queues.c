/* SPDX-License-Identifier: BSD-3-Clause
 * Room in the queues of a device. Lockstep counts what it has put there and the device has not
 * done, so that no call of the driver has to wait for room. Launches leave an eighth to marks and
 * copies. */
#include "base/clock.h"
#include "pool/pool_private.h"
#include "trace/trace.h"

void pool_queue_find(const struct pool *pool, const void *handle, struct driver_queue *out)
{
	const struct driver *driver = pool->options.driver;
	*out = (struct driver_queue){.depth = 0};
	if (driver->ops->queue)
		driver->ops->queue(driver, handle, out);
}

bool pool_has_room(const struct pool *pool)
{
	struct driver_queue queue;
	pool_queue_find(pool, pool->options.driver->stream, &queue);
	return pool_queue_is_certain(&queue);
}

/* Launches count as if each had all its entries: they are few beside the depth of real queues. */
static uint64_t entries_in(const struct pool *pool, uint64_t id) LOCK_REQUIRES(pool)
{
	uint64_t entries = 0;
	for (int i = 0; i < POOL_STREAMS; i++) {
		const struct pool_launch_stream *launched = &pool->launch_streams[i];
		const struct pool_stream *stream = &pool->streams[i];
		if (launched->inflight && launched->queue.id == id) {
			uint64_t done = atomic_load(&launched->inflight->done);
			entries += POOL_LAUNCH_ENTRIES *
				   (atomic_load(&launched->inflight->issued) - done);
		}
		if (i < pool->stream_count && stream->queue.id == id && !stream->forgotten)
			entries += stream->issued - atomic_load(&stream->done);
	}
	return entries;
}

bool pool_queue_has_room(const struct pool *pool, const struct driver_queue *queue, uint64_t entries)
{
	return !pool_queue_is_certain(queue) ||
	       entries_in(pool, queue->id) + entries <= queue->depth ||
	       atomic_load(&pool->options.driver->broken) != 0;
}

/* ---- waiting ---- */

enum { WORDS = 2 + 2 * POOL_STREAMS };

static bool issue_number(struct pool *pool, const struct pool_launch_stream *launched,
			 const struct pool_launch_op *op, uint64_t *number)
{
	lock_pool_acquire(&pool->lock);
	uint64_t spare = launched->queue.depth / 8;
	bool has_room = pool_queue_has_room(pool, &launched->queue, POOL_LAUNCH_ENTRIES + spare);
	if (has_room) {
		*number = pool_gate_issue(launched->inflight);
		/* If a launch fails without this record, its room comes back and no proof knows
		 * it. The failure of an operation is seen in its group. */
		if (launched->records)
			launched->records[*number % POOL_LAUNCH_RECORDS] =
				op->is_put ? op->record : 0;
	}
	lock_pool_release(&pool->lock);
	return has_room;
}

/* What was launched on the stream with this number, which is not done; 0: unknown. */
static uint64_t record_of(const struct pool_launch_stream *launched, uint64_t number)
	LOCK_REQUIRES(pool)
{
	uint64_t newer = atomic_load(&launched->inflight->issued) - number;
	return launched->records && newer < POOL_LAUNCH_RECORDS
		       ? launched->records[number % POOL_LAUNCH_RECORDS]
		       : 0;
}

/* offset: as WAIT_SEGMENT_DEVICE says. */
static int add_word(struct wait_word *words, int count, const _Atomic uint64_t *word,
		    uint64_t value, uint64_t offset)
{
	words[count] = (struct wait_word){.word = word,
					  .edge = {.value = value,
						   .offset = offset,
						   .owner = -1,
						   .peer = -1,
						   .segment = WAIT_SEGMENT_DEVICE}};
	return count + 1;
}

/* The words that the device stores when something in the queue is done. No record says what a mark
 * is behind. */
static int add_words(struct pool *pool, const struct pool_launch_stream *mine,
		     struct wait_word *words, int count)
{
	lock_pool_acquire(&pool->lock);
	uint64_t id = mine->queue.id;
	for (int i = 0; i < POOL_STREAMS; i++) {
		const struct pool_launch_stream *launched = &pool->launch_streams[i];
		const struct pool_stream *stream = &pool->streams[i];
		uint64_t done;
		if (launched->inflight && launched->queue.id == id) {
			done = atomic_load(&launched->inflight->done);
			if (done < atomic_load(&launched->inflight->issued))
				count = add_word(words, count, &launched->inflight->done, done + 1,
						 record_of(launched, done + 1));
		}
		done = atomic_load(&stream->done);
		if (i < pool->stream_count && stream->queue.id == id && done < stream->issued)
			count = add_word(words, count, &stream->done, done + 1, 0);
	}
	lock_pool_release(&pool->lock);
	return add_word(words, count, &pool->options.driver->broken, 1, WAIT_DEVICE_BROKEN);
}

ls_status pool_queue_issue(struct pool *pool, struct pool_launch_stream *launched,
			   struct waiter *waiter, uint64_t deadline_ns,
			   const struct pool_launch_op *op, uint64_t *number)
{
	struct pool_gate *gate = pool->options.gate;
	struct pool_waiting waiting;
	struct wait_word words[WORDS];
	ls_status status = LS_OK;
	uint64_t since_ns = 0;
	bool has_room = issue_number(pool, launched, op, number);
	int peer;
	if (!has_room && op->trace && op->is_put)
		trace_stream(op->trace, op->record, TRACE_NO_ROOM);
	while (!has_room && (status == LS_OK || status == LS_INTERRUPTED)) {
		since_ns = since_ns ? since_ns : clock_now_ns();
		pool_gate_wait_begin(gate, &waiting, waiter->bell);
		/* The gate tells of launches that took a number, but were not put into the
		 * queue. */
		pool_gate_words(gate, words, 1);
		words[0].edge.segment = WAIT_SEGMENT_DEVICE;
		words[0].edge.offset = WAIT_DEVICE_ROOM;
		struct wait_call call = {.words = words,
					 .count = add_words(pool, launched, words, 1),
					 .any = true,
					 .has_own_limit = op->has_own_limit,
					 .since_ns = since_ns,
					 .deadline_ns = deadline_ns,
					 .group = op->group,
					 .record = op->record};
		has_room = issue_number(pool, launched, op, number);
		if (!has_room)
			status = wait_words(waiter, &call, &peer);
		pool_gate_wait_end(gate, &waiting);
	}
	return has_room ? LS_OK : status;
}
