/* SPDX-License-Identifier: BSD-3-Clause
 * A capture that another thread begins while a call is putting something behind the stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "job_fixture.h"
#include "world/device.h"
#include "world/ls_group.h"

/* The calls that put an all-reduce behind a stream: copy, store, await, copy, store. */
enum { PUTS = 5, COUNT = 100 };

/* The driver of rank 0. Before its call number `begins_at` that puts something behind the stream,
 * from 0, a capture begins. */
static const struct driver_ops *real;
static struct driver_ops ops;
static int begins_at;
static _Atomic int put_count; /* -1: calls do not count */

static void maybe_begin(void *stream)
{
	if (atomic_load(&put_count) >= 0 && atomic_fetch_add(&put_count, 1) == begins_at)
		MUST(sim_capture_begin(stream) == SIM_OK);
}

static ls_status copy(struct driver *driver, void *stream, void *to, const void *from, size_t bytes)
{
	maybe_begin(stream);
	return real->copy(driver, stream, to, from, bytes);
}

static ls_status store(struct driver *driver, void *stream, _Atomic uint64_t *word, uint64_t value)
{
	maybe_begin(stream);
	return real->store(driver, stream, word, value);
}

static ls_status await(struct driver *driver, void *stream, const _Atomic uint64_t *word,
		       uint64_t value)
{
	maybe_begin(stream);
	return real->await(driver, stream, word, value);
}

/* Call before the first operation: then the progress thread reads the table. */
static void watch_calls(const struct rank *rank)
{
	struct driver *driver = &rank->group->world->device->driver;
	atomic_store(&put_count, -1);
	real = driver->ops;
	ops = *real;
	ops.copy = copy;
	ops.store = store;
	ops.await = await;
	driver->ops = &ops;
}

static bool has_said(const char *text)
{
	char said[1024];
	return ls_last_error(said, sizeof said) > 0 && strstr(said, text) != NULL;
}

/* The graph gets nothing of the operation, which fails at once, and no rank waits for it. */
static void a_capture_in_a_call(struct rank *rank)
{
	int32_t *block = device_block(rank, COUNT * sizeof *block);
	struct ls_call_options options = on(rank, 0);
	ls_request *op;
	uint64_t captured;
	ls_group *group;
	options.request = &op;
	if (rank->rank == 0)
		watch_calls(rank);
	/* A group of its own fails, and the world stays. */
	MUST(ls_group_split(rank->group, 0, rank->rank, &group) == LS_OK);
	if (rank->rank == 0) {
		atomic_store(&put_count, 0);
		MUST(ls_allreduce(group, block, block, COUNT, LS_INT32, LS_SUM, &options) ==
		     LS_ABORTED);
		MUST(!op);
		atomic_store(&put_count, -1);
		MUST(sim_capture_end(rank->streams[0], &captured) == SIM_OK && captured == 0);
	} else {
		ls_status status =
			ls_allreduce(group, block, block, COUNT, LS_INT32, LS_SUM, &options);
		MUST(status == LS_OK || status == LS_ABORTED);
		/* What rank 0 has given before the capture suffices for the other ranks. */
		ls_status ended = status == LS_OK ? ls_wait(op, 0) : status;
		MUST(ended == LS_ABORTED || (ended == LS_OK && begins_at >= 2));
		ls_request_free(op);
	}
	ls_group_close(group);
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK);
	MUST(ls_device_free(rank->group, block) == LS_OK);
}

static void an_operation_is_not_captured(void **state)
{
	(void)state;
	for (begins_at = 0; begins_at < PUTS; begins_at++)
		run_job(a_capture_in_a_call, "");
}

/* ls_request_follow puts an await and a store. */
static void a_capture_in_a_follow(struct rank *rank)
{
	int32_t *block = device_block(rank, COUNT * sizeof *block);
	struct ls_call_options options = on(rank, 0);
	ls_request *op;
	uint64_t captured;
	static _Atomic uint64_t held;
	options.request = &op;
	if (rank->rank == 0) {
		watch_calls(rank);
		atomic_store(&held, 0);
		MUST(sim_await(rank->streams[0], &held, 1) == SIM_OK);
	}
	MUST(ls_allreduce(rank->group, block, block, COUNT, LS_INT32, LS_SUM, &options) == LS_OK);
	if (rank->rank == 0) {
		atomic_store(&put_count, 0);
		MUST(ls_request_follow(op, rank->streams[1]) == LS_UNSUPPORTED);
		MUST(has_said("a capture for a graph has begun there"));
		atomic_store(&put_count, -1);
		MUST(sim_capture_end(rank->streams[1], &captured) == SIM_OK && captured == 0);
		sim_board_store(rank->sim, &held, 1);
	}
	MUST(ls_wait(op, 0) == LS_OK);
	ls_request_free(op);
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
	MUST(ls_device_free(rank->group, block) == LS_OK);
}

static void a_follow_is_not_captured(void **state)
{
	(void)state;
	for (begins_at = 0; begins_at < 2; begins_at++)
		run_job(a_capture_in_a_follow, "");
}

/* Lockstep takes memory and gives memory back meanwhile. */
static void memory_in_a_capture(struct rank *rank)
{
	struct ls_device_stats stats = {.size = sizeof stats};
	uint64_t captured;
	void *block;
	MUST(sim_capture_begin(rank->streams[0]) == SIM_OK);
	MUST(ls_device_alloc(rank->group, 4 << 20, rank->streams[1], &block) == LS_OK);
	MUST(ls_device_free(rank->group, block) == LS_OK);
	MUST(ls_device_forget(rank->group, rank->streams[1]) == LS_OK);
	MUST(ls_device_trim(rank->group, 0) == LS_OK);
	MUST(ls_device_stats(rank->group, &stats) == LS_OK && stats.reserved == 0);
	MUST(sim_capture_end(rank->streams[0], &captured) == SIM_OK && captured == 0);
}

static void a_capture_stays_valid(void **state)
{
	(void)state;
	run_job(memory_in_a_capture, "free=at_once");
	run_job(memory_in_a_capture, "free=waits");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(an_operation_is_not_captured),
					   cmocka_unit_test(a_follow_is_not_captured),
					   cmocka_unit_test(a_capture_stays_valid)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
