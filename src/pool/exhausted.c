/* SPDX-License-Identifier: BSD-3-Clause
 * Why an allocation fails: whether there can ever be so much memory, and who holds what there is.
 * Changes nothing. */
#include <stdio.h>

#include "base/messages.h"
#include "pool/bins.h"
#include "trace/trace.h"

/* ---- too much ---- */

/* The most that the driver can ever be asked for; 0: unknown. */
static size_t most_ever(const struct pool *pool) LOCK_REQUIRES(pool)
{
	size_t limit = pool->options.limit_bytes, all = pool->options.driver->bytes;
	return limit > 0 && (all == 0 || limit < all) ? limit : all;
}

static void raise_to_due(void *data, const struct pool_due *due)
{
	size_t *largest = data;
	if (due->segment.bytes > *largest)
		*largest = due->segment.bytes;
}

/* Whether the driver can never be asked for so much, and it has not handed it out before the limit
 * was set. */
static bool is_too_much(const struct pool *pool, size_t bytes) LOCK_REQUIRES(pool)
{
	/* Another thread may be taking a segment. */
	size_t most = most_ever(pool), largest = pool->reserved;
	if (most == 0 || (bytes <= most && pool_segment_bytes(bytes) <= most))
		return false;
	for (const struct pool_segment *one = pool->segments; one; one = one->next)
		raise_to_due(&largest, &one->due);
	pool_gate_visit(pool->options.gate, pool, raise_to_due, &largest);
	return bytes > largest;
}

bool pool_can_never_have(struct pool *pool, size_t bytes)
{
	lock_pool_acquire(&pool->lock);
	bool never = is_too_much(pool, bytes);
	lock_pool_release(&pool->lock);
	return never;
}

/* ---- who holds what ---- */

enum what { IN_USE, BUSY, PENDING, SPARE, WHATS };

/* Bytes of the blocks of one stream, or of all. */
struct holding {
	size_t bytes[WHATS], all;
	int stream;
	int user; /* a stream that still uses pending blocks; -1: none */
};

static enum what what_is(const struct pool *pool, const struct pool_block *block) LOCK_REQUIRES(pool)
{
	if (block->state == POOL_LIVE)
		return IN_USE;
	if (block->state == POOL_PENDING)
		return PENDING;
	return pool_stream_has_reached(pool, block->stream, block->number) ? SPARE : BUSY;
}

static void add_block(const struct pool *pool, struct holding *holding,
		      const struct pool_block *block) LOCK_REQUIRES(pool)
{
	holding->bytes[what_is(pool, block)] += block->bytes;
	holding->all += block->bytes;
	for (const struct pool_use *use = block->uses; use; use = use->next)
		if (block->state == POOL_PENDING)
			holding->user = use->stream;
}

/* What this stream holds; -1: all streams together. */
static struct holding sum_up(const struct pool *pool, int stream) LOCK_REQUIRES(pool)
{
	struct holding holding = {.stream = stream, .user = -1};
	for (const struct pool_segment *one = pool->segments; one; one = one->next)
		for (const struct pool_block *block = one->first; block; block = block->right)
			if (stream < 0 || block->stream == stream)
				add_block(pool, &holding, block);
	return holding;
}

static struct holding find_largest(const struct pool *pool) LOCK_REQUIRES(pool)
{
	struct holding largest = {.user = -1};
	for (int i = 0; i < pool->stream_count; i++) {
		struct holding one = sum_up(pool, i);
		if (one.all > largest.all)
			largest = one;
	}
	return largest;
}

static enum what largest_part(const struct holding *holding)
{
	enum what largest = IN_USE;
	for (enum what i = IN_USE; i < WHATS; i++)
		if (holding->bytes[i] > holding->bytes[largest])
			largest = i;
	return largest;
}

static void name_stream(const struct pool *pool, int slot, char *out, size_t bytes)
	LOCK_REQUIRES(pool)
{
	const struct pool_stream *stream = &pool->streams[slot];
	if (stream->forgotten || stream->handle == pool->options.driver->stream)
		snprintf(out, bytes, "no stream");
	else
		snprintf(out, bytes, "stream %p%s", stream->handle,
			 stream->is_gone ? " (which the program has destroyed)" : "");
}

/* A sentence about what the stream holds. Returns its length, as snprintf does. */
static size_t describe(const struct holding *holding, const char *who, char *out, size_t bytes)
{
	static const char *const names[WHATS] = {
		[IN_USE] = "in use",
		[BUSY] = "freed, but it may still have work for them",
		[PENDING] = "freed, but other streams may still have work for them",
		[SPARE] = "free"};
	size_t used = (size_t)snprintf(out, bytes, "Blocks of %s have most", who);
	char before = ':';
	for (enum what i = IN_USE; i < WHATS && used < bytes; i++) {
		if (holding->bytes[i] == 0)
			continue;
		used += (size_t)snprintf(out + used, bytes - used, "%c %zu %s", before,
					 holding->bytes[i], names[i]);
		before = ';';
	}
	if (used < bytes)
		used += (size_t)snprintf(out + used, bytes - used, ". ");
	return used;
}

/* Two sentences without the last full stop: who holds most, and what the program can do. */
static void advise(struct pool *pool, size_t put_off, char *out, size_t bytes)
{
	char who[96], user[96] = "";
	lock_pool_acquire(&pool->lock);
	struct holding most = find_largest(pool), all = sum_up(pool, -1);
	enum what part = largest_part(&all);
	size_t piece = pool_largest_cached(pool);
	name_stream(pool, most.stream, who, sizeof who);
	if (all.user >= 0)
		name_stream(pool, all.user, user, sizeof user);
	bool is_gone = pool->streams[most.stream].is_gone;
	lock_pool_release(&pool->lock);
	size_t used = most.all > 0 ? describe(&most, who, out, bytes) : 0;
	if (used >= bytes)
		return;
	out += used;
	bytes -= used;
	if (put_off > all.bytes[part])
		snprintf(out, bytes, "Wait for operations in flight before this call");
	else if (part == BUSY && is_gone)
		snprintf(out, bytes, "Call ls_device_forget for that stream");
	else if (part == BUSY)
		snprintf(out, bytes, "Wait for that stream before this call, or allocate for it");
	else if (part == PENDING)
		snprintf(out, bytes, "Wait for %s, which uses freed blocks, before this call", user);
	else if (part == SPARE)
		snprintf(out, bytes,
			 "What is free lies in pieces of at most %zu: use smaller blocks", piece);
	else
		snprintf(out, bytes, "Free blocks, or use smaller ones");
}

/* ---- the messages ---- */

static void say_too_much(const struct pool *pool, size_t bytes, size_t limit, const char *from)
{
	size_t all = pool->options.driver->bytes;
	bool by_limit = limit > 0 && (all == 0 || limit < all);
	char why[96];
	if (by_limit)
		snprintf(why, sizeof why, "the limit is %zu (ls_device_limit)", limit);
	else
		snprintf(why, sizeof why, "it has %zu", all);
	MESSAGE_SAY(MESSAGE_DEVICE_TOO_LARGE, bytes, pool->name, why, from,
		    by_limit ? ", or raise the limit" : "");
}

void pool_say_exhausted(struct pool *pool, size_t bytes)
{
	struct pool_stats stats;
	char from[TRACE_CALLER_BYTES], advice[512];
	size_t wanted = pool_segment_bytes(bytes);
	pool_stats(pool, &stats);
	trace_caller_text(from, sizeof from);
	lock_pool_acquire(&pool->lock);
	size_t limit = pool->options.limit_bytes;
	bool never = is_too_much(pool, bytes);
	lock_pool_release(&pool->lock);
	if (never) {
		say_too_much(pool, bytes, limit, from);
		return;
	}
	advise(pool, stats.put_off, advice, sizeof advice);
	if (limit > 0 && (bytes > limit || wanted > limit || stats.reserved > limit - wanted))
		MESSAGE_SAY(MESSAGE_DEVICE_LIMIT, bytes, pool->name, limit, stats.live,
			    stats.cached, stats.pending, stats.put_off, from, advice);
	else
		MESSAGE_SAY(MESSAGE_DEVICE_EXHAUSTED, bytes, pool->name, stats.live, stats.cached,
			    stats.pending, stats.put_off, from, advice);
}
