/* SPDX-License-Identifier: BSD-3-Clause
 * The parts of blocks.c that an allocation from the cache and its free run through. */
#ifndef POOL_BINS_H
#define POOL_BINS_H

#include "pool/pool_private.h"

static inline size_t pool_slot_of(const struct pool *pool, const void *address) LOCK_REQUIRES(pool)
{
	uint64_t key = (uint64_t)(uintptr_t)address / POOL_UNIT_BYTES;
	return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & pool->table_mask;
}

static inline struct pool_block *pool_lookup(const struct pool *pool, const void *address)
	LOCK_REQUIRES(pool)
{
	if (!pool->table)
		return NULL;
	for (size_t at = pool_slot_of(pool, address); pool->table[at];
	     at = (at + 1) & pool->table_mask)
		if (pool->table[at]->address == address)
			return pool->table[at];
	return NULL;
}

/* The bin of blocks with these bytes: exact up to 15 units, then eight bins to a doubling. */
static inline int pool_bin_of(size_t bytes)
{
	uint64_t units = bytes / POOL_UNIT_BYTES;
	if (units < 16)
		return (int)units;
	int log = 63 - __builtin_clzll(units);
	return 8 * (log - 2) + (int)(units >> (log - 3) & 7);
}

static inline struct pool_bins *pool_bins_of(struct pool *pool, int stream, bool small)
	LOCK_REQUIRES(pool)
{
	return &pool->streams[stream].bins[!small];
}

static inline void pool_link(struct pool *pool, struct pool_block *block) LOCK_REQUIRES(pool)
{
	struct pool_bins *bins = pool_bins_of(pool, block->stream, block->segment->small);
	int bin = block->bin;
	block->next = bins->lists[bin];
	block->link = &bins->lists[bin];
	if (block->next)
		block->next->link = &block->next;
	bins->lists[bin] = block;
	bins->has[bin / 64] |= UINT64_C(1) << bin % 64;
	trace_memory_add(&pool->counters->bins[bin], trace_memory_one_cached(block->bytes));
}

/* Leaves the bit of the list set: next_bin finds out whether the list has become empty. */
static inline void pool_unlink(struct pool *pool, struct pool_block *block) LOCK_REQUIRES(pool)
{
	*block->link = block->next;
	if (block->next)
		block->next->link = block->link;
	trace_memory_sub(&pool->counters->bins[block->bin], trace_memory_one_cached(block->bytes));
}

/* The smallest of the first blocks of this bin that has room. */
static inline struct pool_block *pool_scan(struct pool_block *block, size_t bytes)
{
	struct pool_block *best = NULL;
	for (int i = 0; block && i < POOL_SCAN; block = block->next, i++) {
		if (block->bytes == bytes)
			return block;
		if (block->bytes > bytes && (!best || block->bytes < best->bytes))
			best = block;
	}
	return best;
}

/* The block is cached from now on. */
static inline void pool_put(struct pool *pool, struct pool_block *block) LOCK_REQUIRES(pool)
{
	block->state = POOL_CACHED;
	block->segment->has_unmerged = true;
	pool->puts++;
	pool_link(pool, block);
}

#endif
