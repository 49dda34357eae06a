/* SPDX-License-Identifier: BSD-3-Clause
 * What a pool has: its counters, its blocks, and whether they are valid. Changes nothing. */
#include "pool/bins.h"

void pool_stats(struct pool *pool, struct pool_stats *out)
{
	lock_pool_acquire(&pool->lock);
	const struct trace_memory *counters = pool->counters;
	uint64_t allocs = trace_memory_get(&counters->allocs);
	*out = (struct pool_stats){
		.live = trace_memory_get(&counters->live),
		.cached = pool_cached(pool),
		.pending = trace_memory_get(&counters->pending),
		.put_off = pool_put_off(pool),
		.peak_live = trace_memory_get(&counters->peak_live),
		.peak_reserved = trace_memory_get(&counters->peak_reserved),
		.largest_cached = pool_largest_cached(pool),
		.live_blocks = allocs - trace_memory_get(&counters->frees),
		.segments = trace_memory_get(&counters->segments),
		.hits = allocs + trace_memory_get(&counters->failed),
		.misses = trace_memory_get(&counters->misses),
	};
	out->hits -= out->misses;
	lock_pool_release(&pool->lock);
	out->reserved = out->live + out->cached + out->pending + out->put_off;
}

/* ---- the snapshot ---- */

struct listing {
	struct ls_device_block *out;
	size_t max, count;
};

static void list_block(struct listing *listing, struct ls_device_block block)
{
	if (listing->count < listing->max)
		listing->out[listing->count] = block;
	listing->count++;
}

static void list_due(void *data, const struct pool_due *due)
{
	list_block(data, (struct ls_device_block){.address = due->segment.address,
						  .bytes = due->segment.bytes,
						  .segment = due->segment.address,
						  .state = LS_DEVICE_BLOCK_PUT_OFF});
}

static void *program_stream_of(const struct pool *pool, const struct pool_block *block)
	LOCK_REQUIRES(pool)
{
	const struct pool_stream *stream = &pool->streams[block->stream];
	bool is_own = stream->handle == pool->options.driver->stream;
	return stream->forgotten || is_own ? NULL : stream->handle;
}

size_t pool_snapshot(struct pool *pool, struct ls_device_block *out, size_t max)
{
	static const uint32_t states[] = {[POOL_LIVE] = LS_DEVICE_BLOCK_LIVE,
					  [POOL_CACHED] = LS_DEVICE_BLOCK_CACHED,
					  [POOL_PENDING] = LS_DEVICE_BLOCK_PENDING};
	struct listing listing = {.out = out, .max = max};
	lock_pool_acquire(&pool->lock);
	for (const struct pool_segment *one = pool->segments; one; one = one->next)
		for (const struct pool_block *block = one->first; block; block = block->right) {
			struct ls_device_block seen = {.address = block->address,
						       .bytes = block->bytes,
						       .segment = one->due.segment.address,
						       .stream = program_stream_of(pool, block),
						       .state = states[block->state]};
			for (const struct pool_use *use = block->uses; use; use = use->next)
				seen.recorded++;
			list_block(&listing, seen);
		}
	pool_gate_visit(pool->options.gate, pool, list_due, &listing);
	lock_pool_release(&pool->lock);
	return listing.count;
}

/* ---- whether it is valid ---- */

static bool is_segment_valid(const struct pool *pool, const struct pool_segment *segment,
			     size_t *bytes) LOCK_REQUIRES(pool)
{
	const unsigned char *at = segment->due.segment.address;
	const struct pool_block *left = NULL;
	for (struct pool_block *block = segment->first; block; block = block->right) {
		if (block->address != at || block->left != left || block->segment != segment ||
		    block->bytes == 0 || block->bytes % POOL_UNIT_BYTES != 0 ||
		    pool_lookup(pool, at) != block)
			return false;
		if (block->state == POOL_CACHED && *block->link != block)
			return false;
		bytes[block->state] += block->bytes;
		at += block->bytes;
		left = block;
	}
	return at == (unsigned char *)segment->due.segment.address + segment->due.segment.bytes;
}

static size_t bytes_in_bins(const struct trace_memory *counters)
{
	size_t bytes = 0;
	uint64_t count;
	for (int i = 0; i < TRACE_MEMORY_BINS; i++)
		bytes += trace_memory_bin_bytes(&counters->bins[i], &count);
	return bytes;
}

bool pool_is_valid(struct pool *pool)
{
	size_t bytes[3] = {0};
	bool valid = true;
	lock_pool_acquire(&pool->lock);
	for (struct pool_segment *one = pool->segments; one && valid; one = one->next)
		valid = is_segment_valid(pool, one, bytes);
	const struct trace_memory *counters = pool->counters;
	valid = valid && bytes[POOL_LIVE] == trace_memory_get(&counters->live) &&
		bytes[POOL_CACHED] == pool_cached(pool) &&
		bytes[POOL_CACHED] == bytes_in_bins(counters) &&
		bytes[POOL_PENDING] == trace_memory_get(&counters->pending);
	lock_pool_release(&pool->lock);
	return valid;
}
