/* SPDX-License-Identifier: BSD-3-Clause
 * Takes segments from the driver, and gives them back. */
#include <stdlib.h>

#include "base/clock.h"
#include "pool/pool_private.h"

/* ---- from the driver ---- */

void pool_count_offered(struct pool *pool, size_t bytes)
{
	trace_memory_add(&pool->counters->put_off, bytes);
	atomic_fetch_add(&pool->offered, bytes);
}

/* Counts bytes that the driver or the pool gets back from the gate. */
static void count_returned(struct pool *pool, size_t bytes, size_t reserved)
{
	lock_pool_acquire(&pool->lock);
	trace_memory_sub(&pool->counters->put_off, bytes);
	pool->reserved += reserved; /* these of the bytes count until they are in blocks again */
	lock_pool_release(&pool->lock);
	atomic_fetch_add(&pool->returned, bytes); /* the last access: pool_close waits for it */
}

static void on_given(struct pool_due *due, ls_status status)
{
	struct pool_segment *segment = (struct pool_segment *)due;
	struct pool *pool = segment->pool;
	size_t bytes = due->segment.bytes;
	(void)status; /* if the driver fails, it has said why, and the memory is lost */
	free(segment);
	count_returned(pool, bytes, 0);
}

static size_t owned_bytes(const struct pool *pool) LOCK_REQUIRES(pool)
{
	return trace_memory_get(&pool->counters->owned);
}

/* Reserves bytes that the driver is about to be asked for, so that the limit holds for all threads
 * together. */
static bool reserve_bytes(struct pool *pool, size_t bytes)
{
	lock_pool_acquire(&pool->lock);
	size_t limit = pool->options.limit_bytes;
	size_t taken = owned_bytes(pool) + pool->reserved + pool_put_off(pool);
	bool fits = limit == 0 || (bytes <= limit && taken <= limit - bytes);
	if (fits)
		pool->reserved += bytes;
	lock_pool_release(&pool->lock);
	return fits;
}

static ls_status ask_driver(struct pool *pool, size_t bytes, struct pool_segment **out)
{
	struct driver *driver = pool->options.driver;
	struct pool_segment *segment = calloc(1, sizeof *segment);
	if (!segment)
		return LS_OUT_OF_MEMORY;
	segment->pool = pool;
	segment->due.driver = driver;
	segment->due.owner = pool;
	segment->due.given = on_given;
	wait_foreign_call_begin(pool->options.waiter, driver->ops->take_call);
	ls_status status = driver->ops->take(driver, bytes, &segment->due.segment);
	wait_foreign_call_end(pool->options.waiter);
	if (status != LS_OK) {
		free(segment);
		segment = NULL;
	}
	*out = segment;
	return status;
}

/* Adds the segment, for which `held` bytes are reserved. False: the host has no memory for it. */
static bool add_segment(struct pool *pool, struct pool_segment *segment, int stream, size_t held)
{
	lock_pool_acquire(&pool->lock);
	pool->reserved -= held;
	bool prepared = pool_prepare(pool);
	if (prepared)
		pool_add_segment(pool, segment, stream);
	else /* the segment goes back */
		pool_count_offered(pool, segment->due.segment.bytes);
	trace_memory_raise(&pool->counters->peak_reserved, owned_bytes(pool) + pool_put_off(pool));
	lock_pool_release(&pool->lock);
	return prepared;
}

/* The segment, for which `held` bytes are reserved, becomes part of the pool, for a request of
 * `bytes`. */
static ls_status enter_segment(struct pool *pool, struct pool_segment *segment, size_t bytes,
			       int stream, size_t held)
{
	struct pool_gate *gate = pool->options.gate;
	segment->small =
		bytes <= POOL_SMALL_BYTES && segment->due.segment.bytes == POOL_SEGMENT_BYTES;
	bool added = add_segment(pool, segment, stream, held);
	if (!added)
		pool_gate_give(gate, pool->options.waiter, &segment->due);
	pool_gate_tell(gate); /* a waiting thread may use or reserve the rest */
	return added ? LS_OK : LS_OUT_OF_MEMORY;
}

ls_status pool_take_back(struct pool *pool, size_t bytes, size_t most, int stream)
{
	struct pool_due *due = pool_gate_take_back(pool->options.gate, pool, bytes, most);
	if (!due)
		return LS_OUT_OF_MEMORY;
	size_t has = due->segment.bytes;
	count_returned(pool, has, has);
	return enter_segment(pool, (struct pool_segment *)due, bytes, stream, has);
}

ls_status pool_take(struct pool *pool, size_t bytes, int stream)
{
	size_t wanted = pool_segment_bytes(bytes);
	struct pool_segment *segment;
	if (pool_take_back(pool, bytes, wanted + wanted / 4, stream) == LS_OK)
		return LS_OK;
	if (!reserve_bytes(pool, wanted))
		return LS_OUT_OF_MEMORY;
	ls_status status = ask_driver(pool, wanted, &segment);
	if (status == LS_OK)
		return enter_segment(pool, segment, bytes, stream, wanted);
	lock_pool_acquire(&pool->lock);
	pool->reserved -= wanted;
	lock_pool_release(&pool->lock);
	pool_gate_tell(pool->options.gate); /* a waiting thread may reserve these bytes */
	return status;
}

/* ---- back to the driver ---- */

/* Wants marks for all that is cached. Neighbours merge once their streams have done their work. */
static void want_marks(struct pool *pool, const struct pool_segment *segment) LOCK_REQUIRES(pool)
{
	for (const struct pool_block *block = segment->first; block; block = block->right)
		if (block->state == POOL_CACHED &&
		    !pool_stream_has_reached(pool, block->stream, block->number))
			pool_want(pool, block->stream, block->number);
}

/* Whether all of the segment is cached. *done: and its streams have done their work. */
static bool is_idle(const struct pool *pool, const struct pool_segment *segment, bool *done)
	LOCK_REQUIRES(pool)
{
	*done = true;
	for (const struct pool_block *block = segment->first; block; block = block->right) {
		if (block->state != POOL_CACHED)
			return false;
		*done = *done && pool_stream_has_reached(pool, block->stream, block->number);
	}
	return true;
}

/* Takes out the next segment that can be given back. */
static struct pool_segment *take_unwanted(struct pool *pool) LOCK_REQUIRES(pool)
{
	for (struct pool_segment *segment = pool->segments; segment; segment = segment->next) {
		bool done;
		if (!segment->unwanted || !is_idle(pool, segment, &done))
			continue;
		if (!done) {
			want_marks(pool, segment);
			continue;
		}
		pool_merge_segment(pool, segment);
		pool_remove_segment(pool, segment);
		pool_count_offered(pool, segment->due.segment.bytes);
		return segment;
	}
	return NULL;
}

void pool_give_unwanted(struct pool *pool)
{
	for (;;) {
		lock_pool_acquire(&pool->lock);
		struct pool_segment *segment = take_unwanted(pool);
		lock_pool_release(&pool->lock);
		if (!segment)
			break;
		pool_gate_give(pool->options.gate, pool->options.waiter, &segment->due);
	}
	pool_put_marks(pool);
	if (!pool_gate_is_open_here() && !pool_gate_is_in_callback())
		pool_gate_give_due(pool->options.gate, pool->options.waiter);
}

/* The smallest segment with `bytes` that can be given back; else the largest. Segments whose
 * streams have done their work come first. */
static struct pool_segment *choose_idle(struct pool *pool, size_t bytes) LOCK_REQUIRES(pool)
{
	struct pool_segment *best = NULL;
	size_t best_has = 0;
	bool best_done = false;
	for (struct pool_segment *segment = pool->segments; segment; segment = segment->next) {
		size_t has = segment->due.segment.bytes;
		bool done;
		if (segment->unwanted || !is_idle(pool, segment, &done))
			continue;
		bool better = best_has < bytes ? has > best_has : has >= bytes && has < best_has;
		if (done == best_done ? !better : best_done)
			continue;
		best = segment;
		best_has = has;
		best_done = done;
	}
	return best;
}

void pool_trim_to(struct pool *pool, size_t keep_bytes)
{
	lock_pool_acquire(&pool->lock);
	pool_settle(pool);
	pool_merge(pool);
	size_t kept = owned_bytes(pool);
	struct pool_segment *segment = pool->segments;
	for (; segment; segment = segment->next) {
		bool done;
		if (segment->has_unmerged)
			want_marks(pool, segment);
		if (segment->unwanted && is_idle(pool, segment, &done))
			kept -= segment->due.segment.bytes;
	}
	while (kept > keep_bytes && (segment = choose_idle(pool, kept - keep_bytes)) != NULL) {
		segment->unwanted = true;
		kept -= segment->due.segment.bytes;
	}
	lock_pool_release(&pool->lock);
	pool_give_unwanted(pool);
}

/* The most that is reserved for this request, if idle segments can be given back instead. */
static size_t most_reserved(const struct pool *pool, size_t bytes) LOCK_REQUIRES(pool)
{
	size_t peak = trace_memory_get(&pool->counters->live) + bytes;
	if (peak < trace_memory_get(&pool->counters->peak_live))
		peak = trace_memory_get(&pool->counters->peak_live);
	size_t most =
		peak + (peak / 16 > POOL_SLACK_BYTES ? peak / 16 : POOL_SLACK_BYTES) + pool->slack;
	size_t limit = pool->options.limit_bytes;
	return limit > 0 && limit < most ? limit : most;
}

/* A program of steps would take again in each step what was given back in the last one. So a 256th
 * of the bytes that this function gives back is added to what may be reserved. With a driver whose
 * give waits for the device it gives nothing back: that happens only when there is no memory. */
bool pool_make_room(struct pool *pool, size_t bytes)
{
	size_t wanted = pool_segment_bytes(bytes);
	if (pool->options.driver->ops->give_waits)
		return false;
	lock_pool_acquire(&pool->lock);
	size_t most = most_reserved(pool, bytes), before = owned_bytes(pool);
	lock_pool_release(&pool->lock);
	bool fits = before + wanted <= most;
	/* The first trim puts marks behind streams, and idle streams store them at once. */
	for (int i = 0; i < 2 && !fits; i++) {
		pool_trim_to(pool, most > wanted ? most - wanted : 0);
		lock_pool_acquire(&pool->lock);
		fits = owned_bytes(pool) + wanted <= most;
		lock_pool_release(&pool->lock);
	}
	lock_pool_acquire(&pool->lock);
	size_t after = owned_bytes(pool);
	if (after < before)
		pool->slack += (before - after) / 256;
	lock_pool_release(&pool->lock);
	return fits;
}

/* ---- waiting ---- */

enum { WORDS = 64, GATE_WORDS = 32, AGAIN_NS = 10000000 };

/* Adds words whose change may free something, after the gate's. Returns how many words there are
 * then. *again: nobody wakes the thread when the device of another rank is done, or when the driver
 * takes a mark that it has refused, or that a capture prevents. */
static int add_words(struct pool *pool, struct wait_word *words, int count, bool *again)
{
	const _Atomic uint64_t *broken = &pool->options.driver->broken;
	*again = pool_gate_is_unheard(pool->options.gate, pool->options.waiter->bell);
	if (atomic_load(broken) == 0)
		words[count++] = (struct wait_word){.word = broken,
						    .edge = {.value = 1, .owner = -1, .peer = -1}};
	lock_pool_acquire(&pool->lock);
	for (int i = 0; i < pool->stream_count && count < WORDS; i++) {
		const struct pool_stream *stream = &pool->streams[i];
		uint64_t done = atomic_load(&stream->done);
		if (stream->forgotten)
			continue;
		/* Another thread may be about to put the mark. */
		if (stream->wanted > done || stream->issued > done)
			words[count++] = (struct wait_word){
				.word = &stream->done,
				.edge = {.value = done + 1, .owner = -1, .peer = -1}};
		*again |= stream->wanted > stream->issued && stream->issued == done &&
			  !stream->putting;
	}
	lock_pool_release(&pool->lock);
	return count;
}

uint64_t pool_moment(struct pool *pool)
{
	lock_pool_acquire(&pool->lock);
	uint64_t moment = pool->puts + atomic_load(&pool->returned) +
			  atomic_load(&pool->options.driver->broken);
	for (int i = 0; i < pool->stream_count; i++)
		moment += atomic_load(&pool->streams[i].done);
	lock_pool_release(&pool->lock);
	return moment;
}

ls_status pool_wait_for_any(struct pool *pool, uint64_t moment, struct pool_patience *patience)
{
	uint64_t deadline_ns = patience->deadline_ns;
	struct pool_gate *gate = pool->options.gate;
	struct pool_waiting waiting;
	struct wait_word words[WORDS];
	ls_status status = LS_OK;
	bool again;
	int peer;
	pool_gate_wait_begin(gate, &waiting, pool->options.waiter->bell);
	int count = pool_gate_words(gate, words, GATE_WORDS);
	bool partial = count > GATE_WORDS;
	count = add_words(pool, words, partial ? GATE_WORDS : count, &again);
	again |= partial || count == WORDS; /* nobody says when a word changes that has no place */
	uint64_t now_ns = clock_now_ns(), again_ns = again ? now_ns + AGAIN_NS : CLOCK_NEVER;
	if (!patience->since_ns)
		patience->since_ns = now_ns;
	struct wait_call call = {.words = words,
				 .count = count,
				 .any = true,
				 .has_own_limit = true,
				 .partial = again,
				 .foreign = patience->call,
				 .since_ns = patience->since_ns,
				 .deadline_ns = again_ns < deadline_ns ? again_ns : deadline_ns};
	if (pool_moment(pool) == moment && !pool_gate_give_due(gate, pool->options.waiter))
		status = wait_words(pool->options.waiter, &call, &peer);
	pool_gate_wait_end(gate, &waiting);
	/* The caller looks again, and waits again. */
	bool comes_back =
		status == LS_INTERRUPTED || (status == LS_TIMED_OUT && again_ns < deadline_ns);
	return comes_back ? LS_OK : status;
}

/* Whether all streams that use the block may still tell that they are done. One that the program
 * has destroyed never does. */
static bool may_come(const struct pool *pool, const struct pool_block *block) LOCK_REQUIRES(pool)
{
	for (const struct pool_use *use = block->uses; use; use = use->next)
		if (pool->streams[use->stream].is_gone &&
		    !pool_stream_has_reached(pool, use->stream, use->number))
			return false;
	return true;
}

/* Whether memory is to come back without a call of the program, or another thread is just taking a
 * segment, of which it may need only a part. */
static bool is_some_to_come(struct pool *pool)
{
	bool some = pool_put_off(pool) > 0;
	lock_pool_acquire(&pool->lock);
	some |= pool->reserved > 0;
	for (const struct pool_block *block = pool->pending; block && !some; block = block->next)
		some = may_come(pool, block);
	for (int i = 0; i < pool->stream_count && !some; i++) {
		const struct pool_stream *stream = &pool->streams[i];
		some = !stream->forgotten && !stream->is_gone &&
		       stream->wanted > atomic_load(&stream->done);
	}
	lock_pool_release(&pool->lock);
	return some && atomic_load(&pool->options.driver->broken) == 0;
}

static ls_status broken_status(const struct pool *pool)
{
	return (ls_status)atomic_load(&pool->options.driver->broken);
}

ls_status pool_await_memory(struct pool *pool, uint64_t moment, struct pool_patience *patience)
{
	if (broken_status(pool) != LS_OK)
		return broken_status(pool);
	bool some = is_some_to_come(pool);
	/* Some memory may have come back just before that look. */
	if (pool_moment(pool) != moment)
		return broken_status(pool);
	if (pool_gate_is_open_here() || !some)
		return LS_OUT_OF_MEMORY;
	if (pool_gate_is_in_callback())
		return LS_TIMED_OUT;
	ls_status status = pool_wait_for_any(pool, moment, patience);
	if (broken_status(pool) != LS_OK)
		return broken_status(pool);
	return status == LS_TIMED_OUT ? LS_OUT_OF_MEMORY : status;
}
