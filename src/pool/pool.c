/* SPDX-License-Identifier: BSD-3-Clause
 * The calls of the pool: each chooses blocks under the lock, and calls the driver without it. */
#include "pool/pool.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/messages.h"
#include "pool/bins.h"

enum {
	TRIES = 3,         /* tries of an allocation that its time limit does not prevent */
	SOON_NS = 1000000, /* a stream without work has stored its mark by then */
};

/* For code that a hit does not need. Inlined into the calls, that code would cost them
 * registers. */
#define COLD __attribute__((noinline, cold))

ls_status pool_open(struct pool **out, const struct pool_options *options)
{
	struct pool *pool = calloc(1, sizeof *pool);
	*out = pool;
	if (!pool) {
		MESSAGE_SAY(MESSAGE_DEVICE_OPEN, "ls_group_open", options->name, "out of memory");
		return LS_OUT_OF_MEMORY;
	}
	pool->options = *options;
	snprintf(pool->name, sizeof pool->name, "%s", options->name);
	pool->options.name = pool->name;
	lock_pool_init(&pool->lock);
	lock_pool_acquire(&pool->lock);
	pool->streams[pool->last_stream].forgotten = true;
	pool->counters = options->counters ? options->counters : &pool->own_counters;
	lock_pool_release(&pool->lock);
	return LS_OK;
}

/* ---- alloc ---- */

/* The block is the program's from now on. */
static void *hand_out(struct pool *pool, const struct pool_block *block) LOCK_REQUIRES(pool)
{
	struct trace_memory *counters = pool->counters;
	uint64_t live = trace_memory_get(&counters->live) + block->bytes;
	trace_memory_set(&counters->live, live);
	trace_memory_add(&counters->allocs, 1);
	trace_memory_raise(&counters->peak_live, live);
	return block->address;
}

/* A cached block of about the request's size. */
static void *alloc_fast(struct pool *pool, size_t bytes, const void *handle)
{
	void *address = NULL;
	lock_pool_acquire(&pool->lock);
	int stream = pool_stream_find(pool, handle);
	struct pool_block *block = NULL;
	if (stream >= 0)
		block = pool_scan(pool_bins_of(pool, stream, bytes <= POOL_SMALL_BYTES)
					  ->lists[pool_bin_of(bytes)],
				  bytes);
	/* The block is of the request's own bin. A rest this small is not split off. */
	if (block && block->bytes - bytes < POOL_SMALL_BYTES) {
		pool_unlink(pool, block);
		block->state = POOL_LIVE;
		block->segment->unwanted = false;
		address = hand_out(pool, block);
	}
	lock_pool_release(&pool->lock);
	return address;
}

/* A cached block. *status: LS_OUT_OF_MEMORY if the host has no memory. */
static void *alloc_cached(struct pool *pool, size_t bytes, int stream, enum pool_choice choice,
			  ls_status *status)
{
	void *address = NULL;
	lock_pool_acquire(&pool->lock);
	*status = pool_prepare(pool) ? LS_OK : LS_OUT_OF_MEMORY;
	if (*status == LS_OK) {
		pool_settle(pool);
		pool_merge(pool);
		struct pool_block *block = pool_pick(pool, stream, bytes, choice);
		if (block)
			address = hand_out(pool, block);
	}
	lock_pool_release(&pool->lock);
	return address;
}

/* Memory is at its limit: any block that is large enough, and then any segment that is still to be
 * given back, which may last as long as operations are in flight. */
static void *alloc_any(struct pool *pool, size_t bytes, int stream, ls_status *status)
{
	void *address = alloc_cached(pool, bytes, stream, POOL_ANY, status);
	if (!address && *status == LS_OK && pool_take_back(pool, bytes, SIZE_MAX, stream) == LS_OK)
		address = alloc_cached(pool, bytes, stream, POOL_ANY, status);
	pool_put_marks(pool); /* for blocks that other streams may use later */
	return address;
}

/* The driver has no more memory. Idle segments go back to it whole, if their streams are seen to be
 * done soon. Otherwise the request may cut any block. Waits only if there is none. */
static ls_status reclaim(struct pool *pool, size_t bytes, int stream, uint64_t moment,
			 struct pool_patience *patience, void **out)
{
	uint64_t now_ns = clock_now_ns();
	ls_status status = LS_OK;
	pool_trim_to(pool, 0);
	if (!patience->soon_ns)
		patience->soon_ns = now_ns + SOON_NS;
	if (now_ns < patience->soon_ns) {
		struct pool_patience brief = *patience;
		if (brief.deadline_ns > brief.soon_ns)
			brief.deadline_ns = brief.soon_ns;
		status = pool_await_memory(pool, moment, &brief);
		patience->since_ns = brief.since_ns;
		if (status != LS_OUT_OF_MEMORY && status != LS_TIMED_OUT)
			return status;
	}
	*out = alloc_any(pool, bytes, stream, &status);
	if (*out || status != LS_OK)
		return status;
	return pool_await_memory(pool, moment, patience);
}

static ls_status alloc_slowly(struct pool *pool, size_t bytes, int stream, uint64_t deadline_ns,
			      void **out)
{
	ls_status status;
	bool asked = false;
	enum pool_choice choice = POOL_GOOD;
	struct pool_patience patience = {.call = "ls_device_alloc (waiting for device memory)",
					 .deadline_ns = deadline_ns};
	uint64_t moment = pool_moment(pool);
	int tries = 0;
	while ((*out = alloc_cached(pool, bytes, stream, choice, &status)) == NULL &&
	       status == LS_OK) {
		pool_put_marks(pool);
		bool first = choice == POOL_GOOD;
		choice = POOL_LARGER;
		if (first && !pool_make_room(pool, bytes))
			continue;
		asked = true;
		status = pool_take(pool, bytes, stream);
		if (status == LS_OUT_OF_MEMORY && first) {
			status = LS_OK;
		} else if (status == LS_OUT_OF_MEMORY && !pool_can_never_have(pool, bytes)) {
			status = reclaim(pool, bytes, stream, moment, &patience, out);
			if (*out)
				break;
			/* Other threads may free something all the time, and none of it of use
			 * here. */
			if (status == LS_OK && ++tries > TRIES && clock_now_ns() >= deadline_ns)
				status = LS_OUT_OF_MEMORY;
		}
		if (status != LS_OK)
			break;
		moment = pool_moment(pool);
	}
	lock_pool_acquire(&pool->lock);
	trace_memory_add(&pool->counters->misses, asked);
	trace_memory_add(&pool->counters->failed, asked && !*out);
	lock_pool_release(&pool->lock);
	bool broken = atomic_load(&pool->options.driver->broken) != 0;
	if (status == LS_SYSTEM || (status != LS_OK && broken))
		pool_say_failed(pool, status);
	else if (status == LS_OUT_OF_MEMORY)
		pool_say_exhausted(pool, bytes);
	return status;
}

static ls_status alloc_checked(struct pool *pool, size_t bytes, void *handle, uint64_t deadline_ns,
			       void **out)
{
	int stream;
	ls_status status = pool_stream_check(pool, handle);
	if (status == LS_OK)
		status = pool_stream_enter(pool, handle, true, &stream);
	if (status != LS_OK)
		return status;
	lock_pool_acquire(&pool->lock);
	pool->streams[stream].allocates = true;
	lock_pool_release(&pool->lock);
	status = alloc_slowly(pool, bytes, stream, deadline_ns, out);
	lock_pool_acquire(&pool->lock);
	pool->streams[stream].blocks--;
	lock_pool_release(&pool->lock);
	return status;
}

COLD static ls_status alloc_counted(struct pool *pool, size_t bytes, void *handle,
				    uint64_t deadline_ns, void **out)
{
	struct pool_caller caller;
	pool_caller_enter(pool, &caller, "ls_device_alloc");
	ls_status status = alloc_checked(pool, bytes, handle, deadline_ns, out);
	pool_caller_leave(pool, &caller);
	return status;
}

ls_status pool_alloc(struct pool *pool, size_t bytes, void *handle, uint64_t deadline_ns, void **out)
{
	if (bytes > SIZE_MAX >> 11) {
		*out = NULL;
		pool_say_exhausted(pool, bytes);
		return LS_OUT_OF_MEMORY;
	}
	size_t rounded = pool_round(bytes > 0 ? bytes : 1, POOL_UNIT_BYTES);
	*out = alloc_fast(pool, rounded, handle);
	return *out ? LS_OK : alloc_counted(pool, rounded, handle, deadline_ns, out);
}

/* ---- free and record ---- */

static ls_status refuse_block(const char *function, const struct pool *pool, const void *address,
			      bool is_free, void (*called)(char *out, size_t bytes))
{
	char where[256] = "";
	if (called)
		called(where, sizeof where);
	if (is_free)
		MESSAGE_SAY(MESSAGE_DEVICE_FREED, function, address, pool->name, where);
	else
		MESSAGE_SAY(MESSAGE_DEVICE_NO_BLOCK, function, address, pool->name, where);
	return LS_BAD_ARGUMENT;
}

static void put_pending(struct pool *pool, struct pool_block *block) LOCK_REQUIRES(pool)
{
	for (struct pool_use *use = block->uses; use; use = use->next) {
		use->number = pool_stream_number(pool, use->stream);
		pool_want(pool, use->stream, use->number);
	}
	block->state = POOL_PENDING;
	block->next = pool->pending;
	block->link = &pool->pending;
	if (block->next)
		block->next->link = &block->next;
	pool->pending = block;
	trace_memory_add(&pool->counters->pending, block->bytes);
}

/* The block is the pool's from now on. */
static inline void take_back(struct pool *pool, struct pool_block *block) LOCK_REQUIRES(pool)
{
	struct trace_memory *counters = pool->counters;
	trace_memory_sub(&counters->live, block->bytes);
	trace_memory_add(&counters->frees, 1);
	block->number = pool_stream_number(pool, block->stream);
}

/* The block has been recorded for other streams, or there is no such live block. */
COLD static ls_status free_slowly(struct pool *pool, void *address,
				  void (*called)(char *out, size_t bytes))
{
	struct pool_caller caller;
	pool_caller_enter(pool, &caller, "ls_device_free");
	lock_pool_acquire(&pool->lock);
	struct pool_block *block = pool_lookup(pool, address);
	bool is_live = block && block->state == POOL_LIVE;
	if (is_live) {
		take_back(pool, block);
		put_pending(pool, block);
	}
	lock_pool_release(&pool->lock);
	ls_status status = LS_OK;
	if (is_live) {
		pool_put_marks(pool);
		pool_gate_tell(pool->options.gate);
	} else {
		status = refuse_block("ls_device_free", pool, address, block != NULL, called);
	}
	pool_caller_leave(pool, &caller);
	return status;
}

ls_status pool_free(struct pool *pool, void *address, void (*called)(char *out, size_t bytes))
{
	lock_pool_acquire(&pool->lock);
	struct pool_block *block = pool_lookup(pool, address);
	bool is_plain = block && block->state == POOL_LIVE && !block->uses;
	if (is_plain) {
		take_back(pool, block);
		pool_put(pool, block);
	}
	lock_pool_release(&pool->lock);
	if (!is_plain)
		return free_slowly(pool, address, called);
	pool_gate_tell(pool->options.gate); /* a thread may wait for memory */
	return LS_OK;
}

static void add_use(struct pool *pool, struct pool_block *block, int stream) LOCK_REQUIRES(pool)
{
	for (const struct pool_use *use = block->uses; use; use = use->next)
		if (use->stream == stream)
			return;
	if (stream == block->stream)
		return;
	struct pool_use *use = pool->spare_uses;
	pool->spare_uses = use->next;
	*use = (struct pool_use){.next = block->uses, .stream = stream};
	block->uses = use;
	pool->streams[stream].blocks++;
}

static ls_status record(struct pool *pool, void *address, void *handle,
			void (*called)(char *out, size_t bytes))
{
	int stream;
	ls_status status = pool_stream_enter(pool, handle, false, &stream);
	if (status != LS_OK)
		return status;
	lock_pool_acquire(&pool->lock);
	struct pool_block *block = pool_lookup(pool, address);
	bool is_live = block && block->state == POOL_LIVE;
	bool has_room = is_live && pool_prepare(pool);
	if (has_room)
		add_use(pool, block, stream);
	pool->streams[stream].blocks--;
	lock_pool_release(&pool->lock);
	if (!is_live)
		return refuse_block("ls_device_record", pool, address, block != NULL, called);
	if (!has_room)
		MESSAGE_SAY(MESSAGE_DEVICE_OPEN, "ls_device_record", pool->name, "out of memory");
	return has_room ? LS_OK : LS_OUT_OF_MEMORY;
}

ls_status pool_record(struct pool *pool, void *address, void *handle,
		      void (*called)(char *out, size_t bytes))
{
	struct pool_caller caller;
	pool_caller_enter(pool, &caller, "ls_device_record");
	ls_status status = record(pool, address, handle, called);
	pool_caller_leave(pool, &caller);
	return status;
}

/* ---- trim and limit ---- */

void pool_trim(struct pool *pool, size_t keep_bytes)
{
	struct pool_caller caller;
	pool_caller_enter(pool, &caller, "ls_device_trim");
	pool_trim_to(pool, keep_bytes);
	pool_caller_leave(pool, &caller);
}

void pool_limit(struct pool *pool, size_t bytes)
{
	lock_pool_acquire(&pool->lock);
	pool->options.limit_bytes = bytes;
	pool->puts++; /* a thread that waits for memory tries again */
	lock_pool_release(&pool->lock);
	pool_gate_tell(pool->options.gate);
}

/* ---- what there is ---- */

/* The block of the segment with the first byte behind `at` that no live block has; NULL: none. */
static const struct pool_block *free_behind(const struct pool_segment *segment,
					    const unsigned char *at)
{
	const struct pool_block *block = segment->first;
	while (block && (block->state == POOL_LIVE || block->address + block->bytes <= at))
		block = block->right;
	return block;
}

const void *pool_find_free(struct pool *pool, const void *address, size_t bytes, size_t *piece)
{
	const unsigned char *begin = address, *end = begin + bytes, *first = end;
	*piece = 0;
	lock_pool_acquire(&pool->lock);
	for (const struct pool_segment *one = pool->segments; one; one = one->next) {
		const struct pool_block *block = free_behind(one, begin);
		const unsigned char *at = block && block->address > begin ? block->address : begin;
		if (!block || at >= first)
			continue;
		const unsigned char *behind = block->address + block->bytes;
		*piece = (size_t)((behind < end ? behind : end) - at);
		first = at;
	}
	lock_pool_release(&pool->lock);
	return *piece > 0 ? first : NULL;
}

int pool_uses(struct pool *pool, const void *address, size_t *bytes, void **streams, int max)
{
	int count = -1;
	lock_pool_acquire(&pool->lock);
	const struct pool_block *block = pool_lookup(pool, address);
	if (block && block->state == POOL_LIVE && max > 0) {
		*bytes = block->bytes;
		count = 1;
		streams[0] = pool->streams[block->stream].handle;
		for (const struct pool_use *use = block->uses; use && count < max; use = use->next)
			streams[count++] = pool->streams[use->stream].handle;
	}
	lock_pool_release(&pool->lock);
	return count;
}
