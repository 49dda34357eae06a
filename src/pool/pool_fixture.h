/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: a device whose streams do their work when the test says so, one piece at a time, and
 * that knows which memory each piece uses. So it sees a block that is handed out, or given back,
 * while a stream still uses it. */
#ifndef POOL_POOL_FIXTURE_H
#define POOL_POOL_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/messages.h"
#include "pool/pool.h"

enum {
	DEVICE_STREAMS = 5,
	DEVICE_BYTES = 48 << 20,
	DEVICE_UNIT = 512,
	DEVICE_UNITS = DEVICE_BYTES / DEVICE_UNIT,
	DEVICE_MARKS = 256,
	DEVICE_SEGMENTS = 64,
	DEVICE_IDLE_STREAMS = 80, /* further ones, that never have work */
};

struct device_mark {
	uint64_t at; /* behind this many pieces of work */
	_Atomic uint64_t *word;
	uint64_t value;
};

struct device_stream {
	uint64_t put, done; /* pieces of work */
	struct device_mark marks[DEVICE_MARKS];
	int mark_count;
	bool captured;
	bool gone;                /* the program has destroyed it */
	bool captured_after_look; /* a capture begins when the pool has seen that there is none */
};

struct device {
	struct driver driver;
	struct driver_ops ops;
	struct pool_gate gate;
	struct trace_memory counters;
	struct wait_bell bell;
	struct waiter waiter;
	struct pool *pool;
	struct device_stream streams[DEVICE_STREAMS];
	char idle[DEVICE_IDLE_STREAMS];
	unsigned char *base; /* addresses only */
	struct driver_segment segments[DEVICE_SEGMENTS];
	int segment_count;
	size_t taken;
	uint64_t takes, gives, stores;
	uint64_t store_fails_at;
	bool runs_in_wait; /* a give, and each wait of the pool, lets the streams go on */
	/* The last piece of each stream that uses this unit. */
	uint64_t uses[DEVICE_UNITS][DEVICE_STREAMS];
};

static inline struct device *device_of(struct driver *driver)
{
	return driver->state;
}

static inline int stream_of(const struct device *device, const void *stream)
{
	for (int i = 0; i < DEVICE_STREAMS; i++)
		if (stream == &device->streams[i])
			return i;
	return -1;
}

static inline void store_reached(struct device *device, struct device_stream *stream)
{
	int kept = 0;
	for (int i = 0; i < stream->mark_count; i++) {
		struct device_mark mark = stream->marks[i];
		if (mark.at <= stream->done)
			driver_stored(&device->driver, mark.word, mark.value);
		else
			stream->marks[kept++] = mark;
	}
	stream->mark_count = kept;
}

static inline bool is_idle_stream(const struct device *device, const void *stream)
{
	const char *at = stream;
	return at >= device->idle && at < device->idle + DEVICE_IDLE_STREAMS;
}

/* The stream does one piece of its work. */
static inline void device_step(struct device *device, int stream)
{
	struct device_stream *here = &device->streams[stream];
	if (here->done < here->put)
		here->done++;
	store_reached(device, here);
}

static inline void device_run(struct device *device, int stream)
{
	while (device->streams[stream].done < device->streams[stream].put)
		device_step(device, stream);
	store_reached(device, &device->streams[stream]);
}

static inline void device_run_all(struct device *device)
{
	for (int i = 0; i < DEVICE_STREAMS; i++)
		device_run(device, i);
}

/* A kernel of that stream uses the memory. */
static inline void device_launch(struct device *device, int stream, const void *address,
				 size_t bytes)
{
	size_t first = (size_t)((const unsigned char *)address - device->base) / DEVICE_UNIT;
	uint64_t piece = ++device->streams[stream].put;
	for (size_t i = first; i <= first + (bytes - 1) / DEVICE_UNIT; i++)
		device->uses[i][stream] = piece;
}

/* Whether no stream but `except` has work for this memory. */
static inline bool device_is_unused(const struct device *device, const void *address, size_t bytes,
				    int except)
{
	size_t first = (size_t)((const unsigned char *)address - device->base) / DEVICE_UNIT;
	for (size_t i = first; i <= first + (bytes - 1) / DEVICE_UNIT; i++)
		for (int s = 0; s < DEVICE_STREAMS; s++)
			if (s != except && device->uses[i][s] > device->streams[s].done)
				return false;
	return true;
}

/* ---- the driver ---- */

static inline bool is_taken(const struct device *device, size_t offset, size_t bytes, size_t *next)
{
	for (int i = 0; i < device->segment_count; i++) {
		const struct driver_segment *one = &device->segments[i];
		size_t begin = (size_t)((unsigned char *)one->address - device->base);
		*next = begin + one->bytes;
		if (offset < *next && begin < offset + bytes)
			return true;
	}
	return false;
}

static inline ls_status device_take(struct driver *driver, size_t bytes, struct driver_segment *out)
{
	struct device *device = device_of(driver);
	size_t offset = 0;
	assert_int_equal(lock_held_mask(), 0);
	device->takes++;
	for (size_t next; offset + bytes <= DEVICE_BYTES && is_taken(device, offset, bytes, &next);)
		offset = next;
	if (offset + bytes > DEVICE_BYTES || device->segment_count == DEVICE_SEGMENTS)
		return LS_OUT_OF_MEMORY;
	*out = (struct driver_segment){.address = device->base + offset, .bytes = bytes};
	device->segments[device->segment_count++] = *out;
	device->taken += bytes;
	return LS_OK;
}

static inline ls_status device_give(struct driver *driver, const struct driver_segment *segment)
{
	struct device *device = device_of(driver);
	int at = 0;
	assert_int_equal(lock_held_mask(), 0);
	device->gives++;
	if (driver->ops->give_waits)
		device_run_all(device);
	assert_true(device_is_unused(device, segment->address, segment->bytes, -1));
	while (device->segments[at].address != segment->address) {
		at++;
		assert_true(at < device->segment_count);
	}
	assert_int_equal(device->segments[at].bytes, segment->bytes);
	device->segments[at] = device->segments[--device->segment_count];
	device->taken -= segment->bytes;
	return LS_OK;
}

static inline ls_status device_store(struct driver *driver, void *stream, _Atomic uint64_t *word,
				     uint64_t value)
{
	struct device *device = device_of(driver);
	int number = stream_of(device, stream);
	assert_int_equal(lock_held_mask(), 0);
	if (is_idle_stream(device, stream)) {
		driver_stored(driver, word, value);
		return LS_OK;
	}
	assert_true(number >= 0);
	struct device_stream *here = &device->streams[number];
	assert_true(!here->captured || here->captured_after_look);
	if (here->captured)
		return LS_UNSUPPORTED;
	if (++device->stores == device->store_fails_at)
		return LS_SYSTEM;
	assert_true(here->mark_count < DEVICE_MARKS);
	here->marks[here->mark_count++] = (struct device_mark){here->put, word, value};
	if (device->runs_in_wait)
		device_run(device, number);
	return LS_OK;
}

static inline ls_status device_capturing(struct driver *driver, void *stream, bool *out)
{
	struct device *device = device_of(driver);
	int number = stream_of(device, stream);
	assert_int_equal(lock_held_mask(), 0);
	if (number < 0 ? !is_idle_stream(device, stream) : device->streams[number].gone)
		return LS_BAD_ARGUMENT;
	*out = number >= 0 && device->streams[number].captured;
	if (number >= 0 && device->streams[number].captured_after_look)
		device->streams[number].captured = true;
	return LS_OK;
}

static inline struct device *device_new(bool give_waits)
{
	struct device *device = calloc(1, sizeof *device);
	assert_non_null(device);
	device->base = (unsigned char *)(uintptr_t)(UINT64_C(1) << 40);
	device->ops = (struct driver_ops){.take = device_take,
					  .give = device_give,
					  .store = device_store,
					  .capturing = device_capturing,
					  .give_waits = give_waits,
					  .take_call = "take",
					  .give_call = "give"};
	device->waiter = (struct waiter){.bell = &device->bell, .look_fd = -1};
	device->driver =
		(struct driver){.ops = &device->ops, .bell = &device->bell, .state = device};
	pool_gate_init(&device->gate);
	struct pool_options options = {.driver = &device->driver,
				       .gate = &device->gate,
				       .waiter = &device->waiter,
				       .name = "test:0",
				       .counters = &device->counters};
	assert_int_equal(pool_open(&device->pool, &options), LS_OK);
	return device;
}

static inline void device_end(struct device *device)
{
	device->runs_in_wait = true;
	device_run_all(device);
	assert_int_equal(pool_close(device->pool, CLOCK_NEVER), LS_OK);
	assert_int_equal(device->taken, 0);
	const struct trace_memory *counters = &device->counters;
	assert_int_equal(counters->live | counters->pending | counters->owned, 0);
	assert_int_equal(counters->put_off | counters->segments, 0);
	assert_int_equal(counters->allocs, counters->frees);
	pool_gate_fini(&device->gate);
	free(device);
}

/* ---- calls ---- */

static inline void *take_block(struct device *device, size_t bytes, int stream)
{
	void *block;
	assert_int_equal(pool_alloc(device->pool, bytes, &device->streams[stream], 0, &block),
			 LS_OK);
	assert_non_null(block);
	assert_int_equal((uintptr_t)block % DEVICE_UNIT, 0);
	assert_true(device_is_unused(device, block, bytes > 0 ? bytes : 1, stream));
	assert_true(pool_is_valid(device->pool));
	return block;
}

static inline void free_block(struct device *device, void *block)
{
	assert_int_equal(pool_free(device->pool, block, NULL), LS_OK);
	assert_true(pool_is_valid(device->pool));
}

static inline void record_block(struct device *device, void *block, int stream)
{
	assert_int_equal(pool_record(device->pool, block, &device->streams[stream], NULL), LS_OK);
}

static inline struct pool_stats stats_of(struct device *device)
{
	struct pool_stats stats;
	pool_stats(device->pool, &stats);
	assert_int_equal(stats.reserved, device->taken);
	/* As other processes see it. */
	const struct trace_memory *counters = &device->counters;
	assert_int_equal(counters->live, stats.live);
	assert_int_equal(counters->pending, stats.pending);
	assert_int_equal(counters->owned, stats.live + stats.cached + stats.pending);
	assert_int_equal(counters->put_off, stats.put_off);
	assert_int_equal(counters->peak_live, stats.peak_live);
	assert_int_equal(counters->peak_reserved, stats.peak_reserved);
	assert_int_equal(counters->allocs - counters->frees, stats.live_blocks);
	assert_int_equal(counters->allocs + counters->failed, stats.hits + stats.misses);
	return stats;
}

#endif
