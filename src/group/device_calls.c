/* SPDX-License-Identifier: BSD-3-Clause
 * The device of a rank: opened with the world group; the calls of lockstep/device.h on its
 * memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/messages.h"
#include "op/stream.h"
#include "pool/launch.h"
#include "pool/pool.h"
#include "trace/trace.h"
#include "world/device.h"
#include "world/registry.h"
#include "group/group_private.h"
#include "group/arguments.h"
#include "group/group.h"

/* ---- the life of the device ---- */

static ls_status open_driver(struct world *world, struct world_device *device, const char *name)
{
	wait_foreign_call_begin(&world->waiter, "the driver, to open a device");
	ls_status status = device_driver_find(name, &device->driver);
	if (status == LS_OK) {
		snprintf(device->name, sizeof device->name, "%.*s", (int)strcspn(name, ","), name);
		status = device->driver.ops->open(&device->driver);
	}
	wait_foreign_call_end(&world->waiter);
	return status;
}

static ls_status open_pool(struct world *world, struct world_device *device)
{
	struct pool_options options = {.driver = &device->driver,
				       .waiter = &world->waiter,
				       .name = device->name,
				       .counters = &world->trace.device->memory};
	trace_set_device(&world->trace, device->name);
	device->gate = options.gate = pool_gate_join(device->name, device->driver.domain);
	return device->gate ? pool_open(&device->pool, &options) : LS_OUT_OF_MEMORY;
}

ls_status group_device_open(struct world *world, const char *name)
{
	if (!name || !*name)
		return LS_OK;
	struct world_device *device = calloc(1, sizeof *device);
	if (!device) {
		MESSAGE_SAY(MESSAGE_DEVICE_OPEN, "ls_group_open", name, "out of memory");
		return LS_OUT_OF_MEMORY;
	}
	ls_status status = open_driver(world, device, name);
	if (status != LS_OK) {
		free(device);
		return status;
	}
	lock_rank_init_unbiased(&device->lock);
	world->device = device;
	return open_pool(world, device);
}

ls_status group_device_register(struct world *world)
{
	struct world_device *device = world->device;
	if (!device)
		return LS_OK;
	struct driver *driver = &device->driver;
	driver->bell = world->waiter.bell;
	driver->waiter = &world->waiter;
	if (driver->bytes == 0)
		return LS_OK;
	device->region =
		memory_region_add_device(&world->memory, driver->address, driver->bytes, driver);
	return device->region ? LS_OK : LS_OUT_OF_MEMORY;
}

static void free_words(struct world_device *device)
{
	lock_rank_acquire(&device->lock);
	while (device->words) {
		struct op_stream_words *words = device->words;
		device->words = words->next;
		free(words);
	}
	lock_rank_release(&device->lock);
}

bool group_device_refuses_close(struct world *world)
{
	const char *call;
	uint32_t tid = world->device ? pool_find_caller(world->device->pool, &call) : 0;
	if (tid == 0)
		return false;
	char state[96];
	snprintf(state, sizeof state, "in use: thread %u is in %s", tid, call);
	(void)group_bad_state("ls_group_close", "group", state,
			      "without calls: wait until this thread has returned");
	return true;
}

/* Memory that could not be given back stays with the driver, which is not closed then. */
void group_device_close(struct world *world, uint32_t timeout_ms)
{
	struct world_device *device = world->device;
	uint64_t deadline_ns = clock_deadline_ns(timeout_ms);
	if (!device)
		return;
	bool unused =
		!device->region || memory_region_remove(&world->memory, device->driver.address);
	if (!unused || pool_close(device->pool, deadline_ns) != LS_OK) {
		pool_detach(device->pool); /* the trace ends, the pool does not */
		return;
	}
	wait_foreign_call_begin(&world->waiter, "the driver, to close a device");
	device->driver.ops->close(&device->driver);
	wait_foreign_call_end(&world->waiter);
	free_words(device);
	lock_rank_fini(&device->lock);
	world->device = NULL;
	if (device->gate)
		pool_gate_leave(device->gate, &device->deferred);
	else
		free(device);
}

/* ---- the calls ---- */

static ls_status check_usable(const char *function, const ls_group *group)
{
	if (!group)
		return group_bad_state(function, "group", "NULL", "a group from ls_group_open");
	return world_is_usable(group) ? LS_OK : group_not_open(function, group);
}

static ls_status check_device(const char *function, const ls_group *group)
{
	ls_status status = check_usable(function, group);
	if (status != LS_OK || group->world->device)
		return status;
	MESSAGE_SAY(MESSAGE_DEVICE_NONE, function);
	return LS_BAD_ARGUMENT;
}

static void *stream_of(const ls_group *group, void *stream)
{
	return stream ? stream : group->world->device->driver.stream;
}

ls_status ls_device_alloc(ls_group *group, size_t bytes, void *stream, void **out)
{
	if (out)
		*out = NULL;
	ls_status status = out ? check_device("ls_device_alloc", group)
			       : group_bad_state("ls_device_alloc", "out", "NULL", "not NULL");
	if (status != LS_OK)
		return status;
	if (bytes > SIZE_MAX / 2)
		return group_bad_state("ls_device_alloc", "bytes", "2^63 or more", "below 2^63");
	wait_thread_enter(&group->waiter);
	struct pool *pool = group->world->device->pool;
	/* A block from the cache costs no call of the driver, so only this asks. */
	if (group->world->races && stream)
		status = pool_stream_check(pool, stream);
	if (status == LS_OK)
		status = pool_alloc(pool, bytes, stream_of(group, stream),
				    clock_deadline_ns(group->timeout_ms), out);
	return status == LS_TIMED_OUT ? group_check_may_wait("ls_device_alloc") : status;
}

ls_status ls_device_free(ls_group *group, void *block)
{
	ls_status status = check_device("ls_device_free", group);
	if (status != LS_OK || !block)
		return status;
	wait_thread_enter(&group->waiter);
	status = group_races_free_device(group, block, GROUP_SITE);
	if (status != LS_OK)
		return status;
	return pool_free(group->world->device->pool, block, trace_caller_text);
}

ls_status ls_device_record(ls_group *group, void *block, void *stream)
{
	ls_status status = check_device("ls_device_record", group);
	if (status != LS_OK)
		return status;
	if (!block || !stream)
		return group_bad_state("ls_device_record", block ? "stream" : "block", "NULL",
				       "not NULL");
	wait_thread_enter(&group->waiter);
	return pool_record(group->world->device->pool, block, stream, trace_caller_text);
}

ls_status ls_device_trim(ls_group *group, size_t keep_bytes)
{
	ls_status status = check_device("ls_device_trim", group);
	if (status != LS_OK)
		return status;
	wait_thread_enter(&group->waiter);
	pool_trim(group->world->device->pool, keep_bytes);
	return LS_OK;
}

ls_status ls_device_limit(ls_group *group, size_t bytes)
{
	ls_status status = check_device("ls_device_limit", group);
	if (status != LS_OK)
		return status;
	wait_thread_enter(&group->waiter);
	pool_limit(group->world->device->pool, bytes);
	return LS_OK;
}

ls_status ls_device_forget(ls_group *group, void *stream)
{
	ls_status status = check_device("ls_device_forget", group);
	if (status != LS_OK)
		return status;
	if (!stream)
		return group_bad_state("ls_device_forget", "stream", "NULL", "not NULL");
	wait_thread_enter(&group->waiter);
	if (pool_forget(group->world->device->pool, stream) == LS_TIMED_OUT)
		return group_check_may_wait("ls_device_forget");
	group_races_forget(group, stream);
	return LS_OK;
}

ls_status ls_device_stats(ls_group *group, struct ls_device_stats *out)
{
	struct pool_stats stats;
	ls_status status = check_device("ls_device_stats", group);
	if (status != LS_OK)
		return status;
	if (!out || out->size < sizeof out->size || out->size > sizeof *out)
		return group_bad("ls_device_stats", out ? "out->size" : "out",
				 out ? (long long)out->size : 0, "sizeof(struct ls_device_stats)");
	pool_stats(group->world->device->pool, &stats);
	struct ls_device_stats all = {.size = out->size,
				      .live = stats.live,
				      .cached = stats.cached,
				      .pending = stats.pending,
				      .put_off = stats.put_off,
				      .reserved = stats.reserved,
				      .peak_live = stats.peak_live,
				      .peak_reserved = stats.peak_reserved,
				      .largest_cached = stats.largest_cached,
				      .live_blocks = stats.live_blocks,
				      .segments = stats.segments,
				      .hits = stats.hits,
				      .misses = stats.misses};
	memcpy(out, &all, out->size);
	return LS_OK;
}

ls_status ls_device_snapshot(ls_group *group, struct ls_device_block *out, size_t max, size_t *count)
{
	ls_status status = check_device("ls_device_snapshot", group);
	if (status != LS_OK)
		return status;
	if (!count || (!out && max > 0))
		return group_bad_state("ls_device_snapshot", count ? "out" : "count", "NULL",
				       "not NULL");
	*count = pool_snapshot(group->world->device->pool, out, max);
	return LS_OK;
}

/* ---- streams ---- */

static ls_status check_follow(const ls_request *op, void *stream)
{
	ls_status status = group_check_handle("ls_request_follow", op);
	if (status != LS_OK)
		return status;
	if (!stream)
		return group_bad_state("ls_request_follow", "stream", "NULL", "not NULL");
	if (!op->on_stream)
		return group_bad_state("ls_request_follow", "request", "on no stream",
				       "a handle of an operation on a stream");
	return LS_OK;
}

ls_status ls_request_follow(ls_request *op, void *stream)
{
	ls_status status = check_follow(op, stream);
	if (status != LS_OK)
		return status;
	wait_thread_enter(&op->group->waiter);
	uint32_t complete = atomic_load_explicit(&op->complete, memory_order_acquire);
	if (complete)
		return ls_test(op);
	status = progress_stream_follow(op, stream);
	if (status == LS_OK)
		group_races_follow(op, stream);
	return status;
}

/* ---- calls of the program ---- */

ls_status ls_foreign_begin(ls_group *group, const char *call)
{
	ls_status status = check_usable("ls_foreign_begin", group);
	if (status != LS_OK)
		return status;
	if (!call)
		return group_bad_state("ls_foreign_begin", "call", "NULL", "the name of a call");
	wait_foreign_call_begin(&group->world->waiter, call);
	return LS_OK;
}

ls_status ls_foreign_end(ls_group *group)
{
	ls_status status = check_usable("ls_foreign_end", group);
	if (status == LS_OK)
		wait_foreign_call_end(&group->world->waiter);
	return status;
}
