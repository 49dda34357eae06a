/* SPDX-License-Identifier: BSD-3-Clause
 * How much memory of its device a rank holds, as its pool (src/pool) counts it. The counters lie in
 * the trace, so that other processes can read them when the rank is stopped or dead. */
#ifndef TRACE_TRACE_MEMORY_H
#define TRACE_TRACE_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	TRACE_DEVICE_BYTES = 32, /* of its name, with its NUL */
	TRACE_MEMORY_BINS = 8 * 44,
	TRACE_MEMORY_UNIT_BYTES = 512, /* sizes of blocks are multiples */
	TRACE_MEMORY_COUNT_BIT = 40,
};
struct trace;
struct trace_view;

/* One thread at a time writes the counters, with the pool's lock. Relaxed: a reader gets each
 * counter as it was at some moment, and not all of the same moment. The first four, and one
 * bin, change in each call, so there are no more such counters:
 *   bytes in cached blocks == owned - live - pending; blocks in use == allocs - frees;
 *   allocations without the driver == allocs - (misses - failed) */
struct trace_memory {
	_Atomic uint64_t live; /* bytes in blocks that are in use */
	_Atomic uint64_t peak_live;
	_Atomic uint64_t allocs, frees;
	_Atomic uint64_t pending; /* bytes in blocks that are freed and that streams still use */
	_Atomic uint64_t owned;   /* bytes of all segments of the pool */
	_Atomic uint64_t put_off; /* bytes that the driver gets back when it may wait */
	_Atomic uint64_t peak_reserved; /* the most that owned + put_off has been */
	_Atomic uint64_t segments;
	/* allocations that asked the driver, and those of them that failed */
	_Atomic uint64_t misses, failed;
	/* Cached blocks by size, the smallest first (pool_bin_of says how): how many there are,
	 * times 2^TRACE_MEMORY_COUNT_BIT, plus the units of all of them. The last bin that has some
	 * tells how large the largest is; for a counter of that each call would have to search. */
	_Atomic uint64_t bins[TRACE_MEMORY_BINS];
};

static inline uint64_t trace_memory_get(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline void trace_memory_set(_Atomic uint64_t *counter, uint64_t value)
{
	atomic_store_explicit(counter, value, memory_order_relaxed);
}

static inline void trace_memory_add(_Atomic uint64_t *counter, uint64_t value)
{
	trace_memory_set(counter, trace_memory_get(counter) + value);
}

static inline void trace_memory_sub(_Atomic uint64_t *counter, uint64_t value)
{
	trace_memory_set(counter, trace_memory_get(counter) - value);
}

static inline void trace_memory_raise(_Atomic uint64_t *peak, uint64_t value)
{
	if (trace_memory_get(peak) < value)
		trace_memory_set(peak, value);
}

/* What one cached block adds to its bin. */
static inline uint64_t trace_memory_one_cached(uint64_t bytes)
{
	return (UINT64_C(1) << TRACE_MEMORY_COUNT_BIT) + bytes / TRACE_MEMORY_UNIT_BYTES;
}

/* The bytes of all blocks of a bin; *count: how many there are. */
static inline uint64_t trace_memory_bin_bytes(const _Atomic uint64_t *bin, uint64_t *count)
{
	uint64_t word = trace_memory_get(bin);
	*count = word >> TRACE_MEMORY_COUNT_BIT;
	return (word & ((UINT64_C(1) << TRACE_MEMORY_COUNT_BIT) - 1)) * TRACE_MEMORY_UNIT_BYTES;
}

static inline void trace_memory_empty_bins(struct trace_memory *memory)
{
	for (int i = 0; i < TRACE_MEMORY_BINS; i++)
		trace_memory_set(&memory->bins[i], 0);
}

/* ---- in a trace ---- */

/* The device of the trace's owner. */
struct trace_device {
	struct trace_memory memory;
	_Atomic uint32_t present; /* 1: the rank has one; written last */
	uint32_t reserved;
	char name[TRACE_DEVICE_BYTES]; /* "cuda:0" */
};

/* Notes that the rank has a device of this name. Call once, before any other process reads the
 * trace. */
void trace_set_device(struct trace *trace, const char *name);

/* A device's memory at one moment, in bytes. */
struct trace_memory_seen {
	char name[TRACE_DEVICE_BYTES]; /* ends with NUL; its text is the writer's */
	uint64_t live, cached, pending, put_off;
	uint64_t reserved; /* all of these, if consistent */
	uint64_t peak_live, peak_reserved;
	/* Exact if the largest cached blocks have one size; else up to an eighth too small. */
	uint64_t largest_cached;
	uint64_t live_blocks, segments, hits, misses, failed;
	/* The figures fit together. Else a call was changing them while they were read, or when
	 * their owner was stopped or ended, or they are damaged. */
	bool consistent;
};
/* Copies what the trace says of the device's memory; false: the rank has no device. Tries a few
 * times for figures that fit together. */
bool trace_read_memory(const struct trace_view *view, struct trace_memory_seen *out);

#endif
