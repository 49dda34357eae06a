/* SPDX-License-Identifier: BSD-3-Clause
 * Blocks, the segments that they lie in, and the bins in which cached blocks are found. */
#include <stdlib.h>
#include <string.h>

#include "pool/bins.h"

enum { CHUNK = 64 };

/* Memory of blocks and uses, which the pool keeps until it is closed. */
struct pool_chunk {
	struct pool_chunk *next;
	struct pool_block blocks[CHUNK];
	struct pool_use uses[CHUNK];
};

/* ---- the table of addresses ---- */

static void add_to_table(struct pool *pool, struct pool_block *block) LOCK_REQUIRES(pool)
{
	size_t at = pool_slot_of(pool, block->address);
	while (pool->table[at])
		at = (at + 1) & pool->table_mask;
	pool->table[at] = block;
	pool->table_count++;
}

/* Removes the block. Moves up the entries that follow without a gap, because a search would not
 * find them behind one. */
static void remove_from_table(struct pool *pool, const struct pool_block *block) LOCK_REQUIRES(pool)
{
	size_t mask = pool->table_mask, hole = pool_slot_of(pool, block->address);
	while (pool->table[hole] != block)
		hole = (hole + 1) & mask;
	for (size_t at = (hole + 1) & mask; pool->table[at]; at = (at + 1) & mask) {
		size_t home = pool_slot_of(pool, pool->table[at]->address);
		if (((at - home) & mask) < ((at - hole) & mask))
			continue;
		pool->table[hole] = pool->table[at];
		hole = at;
	}
	pool->table[hole] = NULL;
	pool->table_count--;
}

static bool grow_table(struct pool *pool) LOCK_REQUIRES(pool)
{
	size_t slots = pool->table ? 2 * (pool->table_mask + 1) : 1024;
	struct pool_block **old = pool->table, **table = calloc(slots, sizeof(struct pool_block *));
	size_t old_slots = old ? pool->table_mask + 1 : 0;
	if (!table)
		return false;
	pool->table = table;
	pool->table_mask = slots - 1;
	pool->table_count = 0;
	for (size_t i = 0; i < old_slots; i++)
		if (old[i])
			add_to_table(pool, old[i]);
	free(old);
	return true;
}

/* ---- memory of blocks ---- */

bool pool_prepare(struct pool *pool)
{
	/* A call makes at most two blocks: that of a segment, and what is split off. */
	bool fits = pool->table && 2 * (pool->table_count + 2) <= pool->table_mask;
	if (!fits && !grow_table(pool))
		return false;
	if (pool->spare_blocks && pool->spare_blocks->right && pool->spare_uses)
		return true;
	struct pool_chunk *chunk = calloc(1, sizeof *chunk);
	if (!chunk)
		return false;
	chunk->next = pool->chunks;
	pool->chunks = chunk;
	for (int i = 0; i < CHUNK; i++) {
		chunk->blocks[i].right = pool->spare_blocks;
		pool->spare_blocks = &chunk->blocks[i];
		chunk->uses[i].next = pool->spare_uses;
		pool->spare_uses = &chunk->uses[i];
	}
	return true;
}

void pool_free_chunks(struct pool *pool)
{
	while (pool->chunks) {
		struct pool_chunk *next = pool->chunks->next;
		free(pool->chunks);
		pool->chunks = next;
	}
	free(pool->table);
}

static struct pool_block *new_block(struct pool *pool, int stream) LOCK_REQUIRES(pool)
{
	struct pool_block *block = pool->spare_blocks;
	pool->spare_blocks = block->right;
	*block = (struct pool_block){.stream = (uint8_t)stream};
	pool->streams[stream].blocks++;
	return block;
}

static void set_bytes(struct pool_block *block, size_t bytes)
{
	block->bytes = bytes;
	block->bin = (uint16_t)pool_bin_of(bytes);
}

static void drop_block(struct pool *pool, struct pool_block *block) LOCK_REQUIRES(pool)
{
	pool->streams[block->stream].blocks--;
	block->right = pool->spare_blocks;
	pool->spare_blocks = block;
}

/* ---- segments ---- */

void pool_add_segment(struct pool *pool, struct pool_segment *segment, int stream)
{
	struct pool_block *block = new_block(pool, stream);
	block->address = segment->due.segment.address;
	set_bytes(block, segment->due.segment.bytes);
	block->segment = segment;
	segment->first = block;
	segment->unwanted = segment->has_unmerged = false;
	segment->next = pool->segments;
	segment->link = &pool->segments;
	if (segment->next)
		segment->next->link = &segment->next;
	pool->segments = segment;
	trace_memory_add(&pool->counters->owned, block->bytes);
	trace_memory_add(&pool->counters->segments, 1);
	add_to_table(pool, block);
	pool_put(pool, block);
	segment->has_unmerged = false;
}

void pool_remove_segment(struct pool *pool, struct pool_segment *segment)
{
	struct pool_block *block = segment->first;
	if (block->state == POOL_CACHED)
		pool_unlink(pool, block);
	remove_from_table(pool, block);
	trace_memory_sub(&pool->counters->owned, block->bytes);
	trace_memory_sub(&pool->counters->segments, 1);
	drop_block(pool, block);
	*segment->link = segment->next;
	if (segment->next)
		segment->next->link = segment->link;
}

size_t pool_largest_cached(const struct pool *pool)
{
	size_t largest = 0;
	for (const struct pool_segment *one = pool->segments; one; one = one->next)
		for (const struct pool_block *block = one->first; block; block = block->right)
			if (block->state == POOL_CACHED && block->bytes > largest)
				largest = block->bytes;
	return largest;
}

/* ---- merging and splitting ---- */

/* Whether several streams have allocated blocks. */
static bool is_shared(const struct pool *pool) LOCK_REQUIRES(pool)
{
	int count = 0;
	for (int i = 0; i < pool->stream_count; i++)
		count += pool->streams[i].allocates && !pool->streams[i].forgotten;
	return count > 1;
}

/* Whether the same streams may use both blocks, now and later. If another stream could use one of
 * them earlier, it would have to wait for both. */
static bool may_merge(const struct pool *pool, const struct pool_block *a,
		      const struct pool_block *b) LOCK_REQUIRES(pool)
{
	if (a->stream == b->stream && (a->number == b->number || !is_shared(pool)))
		return true;
	return pool_stream_has_reached(pool, a->stream, a->number) &&
	       pool_stream_has_reached(pool, b->stream, b->number);
}

static void merge_right(struct pool *pool, struct pool_block *block) LOCK_REQUIRES(pool)
{
	struct pool_block *right = block->right;
	pool_unlink(pool, block);
	pool_unlink(pool, right);
	remove_from_table(pool, right);
	if (block->stream != right->stream)
		block->number = 0;
	else if (right->number > block->number)
		block->number = right->number;
	set_bytes(block, block->bytes + right->bytes);
	block->right = right->right;
	if (block->right)
		block->right->left = block;
	drop_block(pool, right);
	pool_link(pool, block);
}

void pool_merge_segment(struct pool *pool, struct pool_segment *segment)
{
	struct pool_block *block = segment->first;
	segment->has_unmerged = false;
	while (block && block->right) {
		bool both = block->state == POOL_CACHED && block->right->state == POOL_CACHED;
		if (both && may_merge(pool, block, block->right)) {
			merge_right(pool, block);
			continue;
		}
		segment->has_unmerged |= both;
		block = block->right;
	}
}

void pool_merge(struct pool *pool)
{
	for (struct pool_segment *segment = pool->segments; segment; segment = segment->next)
		if (segment->has_unmerged)
			pool_merge_segment(pool, segment);
}

static void split_block(struct pool *pool, struct pool_block *block, size_t bytes)
	LOCK_REQUIRES(pool)
{
	struct pool_block *rest = new_block(pool, block->stream);
	rest->address = block->address + bytes;
	set_bytes(rest, block->bytes - bytes);
	rest->segment = block->segment;
	rest->number = block->number;
	rest->left = block;
	rest->right = block->right;
	if (rest->right)
		rest->right->left = rest;
	block->right = rest;
	set_bytes(block, bytes);
	add_to_table(pool, rest);
	rest->state = POOL_CACHED;
	pool_link(pool, rest);
}

/* ---- finding ---- */

/* The first list that is not empty, from this bin on; -1: none. */
static int next_bin(struct pool_bins *bins, int bin)
{
	for (int word = bin / 64; word < POOL_BIN_WORDS; word++) {
		uint64_t has = bins->has[word];
		if (word == bin / 64)
			has &= ~UINT64_C(0) << bin % 64;
		for (; has; has &= has - 1) {
			int found = 64 * word + __builtin_ctzll(has);
			if (bins->lists[found])
				return found;
			bins->has[word] &= ~(has & -has);
		}
	}
	return -1;
}

/* all: looks at every block of the request's own bin. */
static struct pool_block *search_bins(struct pool_bins *bins, size_t bytes, bool all)
{
	int bin = pool_bin_of(bytes);
	struct pool_block *block = pool_scan(bins->lists[bin], bytes);
	for (struct pool_block *one = bins->lists[bin]; all && !block && one; one = one->next)
		if (one->bytes >= bytes)
			block = one;
	if (block)
		return block;
	bin = next_bin(bins, bin + 1);
	return bin < 0 ? NULL : pool_scan(bins->lists[bin], bytes);
}

/* Whether a request should rather use `has` bytes of this segment than more memory of the
 * driver. */
static bool fits_well(const struct pool *pool, const struct pool_segment *segment, size_t has,
		      size_t bytes) LOCK_REQUIRES(pool)
{
	size_t large = trace_memory_get(&pool->counters->peak_live) / 16;
	if (large < POOL_LARGE_BYTES)
		large = POOL_LARGE_BYTES;
	return segment->small || has <= large || has - bytes <= bytes / 4;
}

/* Takes a block out of its bin. A large request splits nothing off a large segment that only small
 * requests could use, because small requests look elsewhere. */
static void take_block(struct pool *pool, struct pool_block *block, size_t bytes) LOCK_REQUIRES(pool)
{
	bool finely = block->segment->small || bytes <= POOL_SMALL_BYTES;
	size_t rest = block->bytes - bytes, least = finely ? POOL_UNIT_BYTES : POOL_SMALL_BYTES;
	pool_unlink(pool, block);
	if (rest >= least && (!finely || rest > block->bytes / 16))
		split_block(pool, block, bytes);
	block->state = POOL_LIVE;
	block->segment->unwanted = false;
}

static void change_stream(struct pool *pool, struct pool_block *block, int stream)
	LOCK_REQUIRES(pool)
{
	pool->streams[block->stream].blocks--;
	pool->streams[stream].blocks++;
	block->stream = (uint8_t)stream;
	block->number = 0;
}

static void hand_over(struct pool *pool, struct pool_block *block, int to) LOCK_REQUIRES(pool)
{
	pool_unlink(pool, block);
	change_stream(pool, block, to);
	pool_link(pool, block);
}

void pool_hand_over(struct pool *pool, int stream, int to)
{
	for (struct pool_segment *one = pool->segments; one; one = one->next)
		for (struct pool_block *block = one->first; block; block = block->right) {
			if (block->stream != stream || block->state != POOL_CACHED)
				continue;
			if (pool_stream_has_reached(pool, stream, block->number))
				hand_over(pool, block, to);
			else
				pool_want(pool, stream, block->number);
		}
}

/* Makes one block of these neighbours, all cached, for a stream that may use each. */
static struct pool_block *join(struct pool *pool, struct pool_block *first,
			       const struct pool_block *last, int stream) LOCK_REQUIRES(pool)
{
	const struct pool_block *end = last->right;
	for (struct pool_block *block = first; block != end; block = block->right)
		if (block->stream != stream)
			hand_over(pool, block, stream);
	while (first->right != end)
		merge_right(pool, first);
	return first;
}

/* The first neighbours of a segment that have room together, as few as possible, as one block. */
static struct pool_block *join_in(struct pool *pool, struct pool_segment *segment, int stream,
				  size_t bytes, enum pool_choice choice) LOCK_REQUIRES(pool)
{
	struct pool_block *first = NULL;
	size_t has = 0;
	for (struct pool_block *block = segment->first; block; block = block->right) {
		if (block->state != POOL_CACHED ||
		    (block->stream != stream &&
		     !pool_stream_has_reached(pool, block->stream, block->number))) {
			first = NULL;
			continue;
		}
		has = first ? has + block->bytes : block->bytes;
		first = first ? first : block;
		for (; has - first->bytes >= bytes; first = first->right)
			has -= first->bytes;
		if (has >= bytes && (choice != POOL_GOOD || fits_well(pool, segment, has, bytes)))
			return join(pool, first, block, stream);
	}
	return NULL;
}

/* Neighbours are not merged if other streams may use only some of them; this stream may use more
 * of them. */
static struct pool_block *join_some(struct pool *pool, int stream, bool small, size_t bytes,
				    enum pool_choice choice) LOCK_REQUIRES(pool)
{
	struct pool_block *block = NULL;
	for (struct pool_segment *one = pool->segments; one && !block; one = one->next)
		if (one->has_unmerged && one->small == small)
			block = join_in(pool, one, stream, bytes, choice);
	return block;
}

/* As search_bins, for blocks of a stream that other streams may use. The stream wants marks for
 * those that they may use later. */
static struct pool_block *search_reached(struct pool *pool, int stream, bool small, size_t bytes,
					 enum pool_choice choice) LOCK_REQUIRES(pool)
{
	struct pool_bins *bins = pool_bins_of(pool, stream, small);
	int looks = 0;
	for (int bin = next_bin(bins, pool_bin_of(bytes)); bin >= 0; bin = next_bin(bins, bin + 1))
		for (struct pool_block *block = bins->lists[bin]; block; block = block->next) {
			if (++looks > 4 * POOL_SCAN && choice != POOL_ANY)
				return NULL;
			if (block->bytes < bytes ||
			    (choice == POOL_GOOD &&
			     !fits_well(pool, block->segment, block->bytes, bytes)))
				continue;
			if (pool_stream_has_reached(pool, stream, block->number))
				return block;
			pool_want(pool, stream, block->number);
		}
	return NULL;
}

/* A block of segments that are, or are not, for small requests. */
static struct pool_block *find(struct pool *pool, int stream, bool small, size_t bytes,
			       enum pool_choice choice) LOCK_REQUIRES(pool)
{
	struct pool_block *block =
		search_bins(pool_bins_of(pool, stream, small), bytes, choice == POOL_ANY);
	if (block && choice == POOL_GOOD && !fits_well(pool, block->segment, block->bytes, bytes))
		block = NULL;
	if (!block)
		block = join_some(pool, stream, small, bytes, choice);
	for (int i = 0; i < pool->stream_count && !block; i++)
		if (i != stream)
			block = search_reached(pool, i, small, bytes, choice);
	return block;
}

struct pool_block *pool_pick(struct pool *pool, int stream, size_t bytes, enum pool_choice choice)
{
	bool small = bytes <= POOL_SMALL_BYTES;
	struct pool_block *block = find(pool, stream, small, bytes, choice);
	if (!block && choice == POOL_ANY)
		block = find(pool, stream, !small, bytes, choice);
	if (!block)
		return NULL;
	take_block(pool, block, bytes);
	if (block->stream != stream)
		change_stream(pool, block, stream);
	return block;
}
