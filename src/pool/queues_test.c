/* SPDX-License-Identifier: BSD-3-Clause
 * Nothing is put into a queue of the device that launches may have filled. */
#include <pthread.h>
#include <sched.h>

#include "pool/launch.h"
#include "pool/pool_fixture.h"
#include "trace/trace.h"

/* The first two streams share a queue. */
static uint32_t depth;
static void queue(const struct driver *driver, const void *stream, struct driver_queue *out)
{
	const struct device *device = driver->state;
	*out = (struct driver_queue){.id = stream_of(device, stream) < 2, .depth = depth};
}

static struct device *begin(uint32_t entries)
{
	struct device *device = device_new(false);
	device->ops.queue = queue;
	depth = entries;
	return device;
}

static const struct pool_launch_op shown_nowhere = {.trace = NULL};

/* Begins a launch whose time limit has passed, so it does not wait. */
static ls_status try_launch(struct device *device, int stream, struct pool_launch *out)
{
	ls_status status =
		pool_launch_claim(device->pool, &device->waiter, &device->streams[stream], 1, out);
	return status == LS_OK
		       ? pool_launch_begin(device->pool, &device->waiter, 1, &shown_nowhere, out)
		       : status;
}

/* Behind the stream until device_run. */
static void end_launch(struct device *device, int stream, const struct pool_launch *launch)
{
	assert_int_equal(device->ops.store(&device->driver, &device->streams[stream], launch->done,
					   launch->number),
			 LS_OK);
	pool_launch_end(device->pool, launch, true);
}

static void launch_on(struct device *device, int stream)
{
	struct pool_launch launch;
	assert_int_equal(try_launch(device, stream, &launch), LS_OK);
	assert_true(launch.has_room);
	end_launch(device, stream, &launch);
}

/* ---- launches ---- */

static void a_launch_waits_for_room_in_its_queue(void **state)
{
	(void)state;
	struct device *device = begin(2 * POOL_LAUNCH_ENTRIES + 1);
	struct pool_launch launch;
	launch_on(device, 0);
	launch_on(device, 1);
	assert_int_equal(try_launch(device, 0, &launch), LS_TIMED_OUT);
	assert_int_equal(try_launch(device, 1, &launch), LS_TIMED_OUT);
	launch_on(device, 2); /* it has another one */
	device_run(device, 1);
	launch_on(device, 0);
	assert_int_equal(try_launch(device, 1, &launch), LS_TIMED_OUT);
	device_end(device);
}

/* The time limit only ends the test if the thread is not told. */
static void *launch_second(void *argument)
{
	struct device *device = argument;
	struct pool_launch launch;
	uint64_t limit = clock_now_ns() + UINT64_C(3000000000);
	assert_int_equal(pool_launch_claim(device->pool, &device->waiter, &device->streams[1],
					   limit, &launch),
			 LS_OK);
	assert_int_equal(
		pool_launch_begin(device->pool, &device->waiter, limit, &shown_nowhere, &launch),
		LS_OK);
	pool_launch_end(device->pool, &launch, false);
	return NULL;
}

static void a_launch_that_is_open_has_its_room(void **state)
{
	(void)state;
	struct device *device = begin(POOL_LAUNCH_ENTRIES);
	struct pool_launch launch;
	pthread_t thread;
	assert_int_equal(try_launch(device, 0, &launch), LS_OK);
	assert_int_equal(pthread_create(&thread, NULL, launch_second, device), 0);
	while (atomic_load(&device->gate.waiting_count) == 0)
		sched_yield();
	pool_launch_end(device->pool, &launch, false); /* nothing was put there */
	pthread_join(thread, NULL);
	device_end(device);
}

static void a_broken_device_ends_the_wait(void **state)
{
	(void)state;
	struct device *device = begin(POOL_LAUNCH_ENTRIES);
	struct pool_launch launch;
	pthread_t thread;
	assert_int_equal(try_launch(device, 0, &launch), LS_OK);
	end_launch(device, 0, &launch);
	assert_int_equal(pthread_create(&thread, NULL, launch_second, device), 0);
	while (atomic_load(&device->gate.waiting_count) == 0)
		sched_yield();
	driver_broke(&device->driver, LS_SYSTEM);
	pthread_join(thread, NULL);
	device_end(device);
}

/* The caller must wait itself for what a launch would wait for. */
static void a_queue_that_is_too_short_has_no_room(void **state)
{
	(void)state;
	struct device *device = begin(POOL_LAUNCH_ENTRIES - 1);
	struct pool_launch launch;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(try_launch(device, i, &launch), LS_OK);
		assert_false(launch.has_room);
		end_launch(device, i, &launch);
	}
	device_end(device);
}

/* ---- places ---- */

static ls_status launch_idle(struct device *device, struct pool *pool, int stream)
{
	struct pool_launch launch;
	void *handle = &device->idle[stream];
	ls_status status = pool_launch_claim(pool, &device->waiter, handle, 1, &launch);
	if (status == LS_OK)
		status = pool_launch_begin(pool, &device->waiter, 1, &shown_nowhere, &launch);
	if (status != LS_OK)
		return status;
	assert_int_equal(device->ops.store(&device->driver, handle, launch.done, launch.number),
			 LS_OK);
	pool_launch_end(pool, &launch, true);
	return LS_OK;
}

/* Pools of several ranks, with one gate: each has places for as many streams as it has. */
static void each_rank_has_places_for_its_streams(void **state)
{
	enum { OTHERS = 8 };
	(void)state;
	struct device *device = begin(64);
	struct pool *others[OTHERS];
	struct pool_options options = {.driver = &device->driver,
				       .gate = &device->gate,
				       .waiter = &device->waiter,
				       .name = "test:1"};
	for (int i = 0; i < OTHERS; i++) {
		assert_int_equal(pool_open(&others[i], &options), LS_OK);
		for (int j = 0; j < POOL_STREAMS; j++)
			assert_int_equal(launch_idle(device, others[i], j), LS_OK);
	}
	assert_int_equal(launch_idle(device, device->pool, 0), LS_OK);
	for (int i = 0; i < OTHERS; i++)
		assert_int_equal(pool_close(others[i], CLOCK_NEVER), LS_OK);
	device_end(device);
}

static void a_stream_without_a_place_is_refused(void **state)
{
	(void)state;
	struct device *device = begin(64);
	struct pool_launch launches[POOL_STREAMS], more;
	for (int i = 0; i < POOL_STREAMS; i++)
		assert_int_equal(pool_launch_claim(device->pool, &device->waiter, &device->idle[i],
						   1, &launches[i]),
				 LS_OK);
	void *next = &device->idle[POOL_STREAMS];
	assert_int_equal(pool_launch_claim(device->pool, &device->waiter, next, 1, &more),
			 LS_OUT_OF_MEMORY);
	assert_non_null(strstr(message_last(), "64 other streams have operations in flight"));
	pool_launch_unclaim(device->pool, &launches[7]);
	assert_int_equal(pool_launch_claim(device->pool, &device->waiter, next, 1, &launches[7]),
			 LS_OK);
	for (int i = 0; i < POOL_STREAMS; i++)
		pool_launch_unclaim(device->pool, &launches[i]);
	device_end(device);
}

/* The pool names the thread that is in a launch, so that nobody closes the pool meanwhile. */
static void a_thread_that_launches_is_found(void **state)
{
	(void)state;
	struct device *device = begin(64);
	struct pool_launch launch;
	const char *call = NULL;
	assert_int_equal(pool_find_caller(device->pool, &call), 0);
	assert_int_equal(
		pool_launch_claim(device->pool, &device->waiter, &device->streams[0], 1, &launch),
		LS_OK);
	assert_int_equal(pool_find_caller(device->pool, &call), trace_thread_id());
	assert_string_equal(call, "a call that enqueues work on a stream");
	assert_int_equal(
		pool_launch_begin(device->pool, &device->waiter, 1, &shown_nowhere, &launch), LS_OK);
	assert_int_equal(pool_find_caller(device->pool, &call), trace_thread_id());
	end_launch(device, 0, &launch);
	assert_int_equal(pool_find_caller(device->pool, &call), 0);
	device_run(device, 0);
	device_end(device);
}

/* A note of the caller about a stream does not pass to another stream that gets its handle or its
 * place. */
static void what_was_put_there_last(void **state)
{
	(void)state;
	struct device *device = begin(64);
	for (int turn = 0; turn < 3; turn++) {
		struct pool_launch launch;
		assert_int_equal(try_launch(device, 0, &launch), LS_OK);
		assert_int_equal(atomic_exchange(launch.recent, 17), turn == 1 ? 17 : 0);
		end_launch(device, 0, &launch);
		if (turn == 1)
			assert_int_equal(pool_forget(device->pool, &device->streams[0]), LS_OK);
	}
	device_run(device, 0);
	for (int i = 0; i < POOL_STREAMS; i++) {
		struct pool_launch launch;
		assert_int_equal(pool_launch_claim(device->pool, &device->waiter, &device->idle[i],
						   1, &launch),
				 LS_OK);
		assert_int_equal(pool_launch_begin(device->pool, &device->waiter, 1, &shown_nowhere,
						   &launch),
				 LS_OK);
		assert_int_equal(atomic_load(launch.recent), 0);
		pool_launch_end(device->pool, &launch, false);
	}
	device_end(device);
}

/* ---- marks ---- */

static void a_mark_is_put_when_there_is_room(void **state)
{
	(void)state;
	struct device *device = begin(POOL_LAUNCH_ENTRIES);
	void *block = take_block(device, 1 << 20, 2);
	assert_int_equal(pool_record(device->pool, block, &device->streams[1], NULL), LS_OK);
	launch_on(device, 0);
	uint64_t stores = device->stores;
	free_block(device, block); /* wants a mark behind stream 1 */
	assert_int_equal(device->stores, stores);
	assert_int_equal(stats_of(device).pending, 1 << 20);
	device_run(device, 0);
	pool_trim(device->pool, SIZE_MAX);
	assert_int_equal(device->stores, stores + 1);
	device_run(device, 1);
	pool_trim(device->pool, SIZE_MAX);
	assert_int_equal(stats_of(device).pending, 0);
	device_end(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_launch_waits_for_room_in_its_queue),
					   cmocka_unit_test(a_launch_that_is_open_has_its_room),
					   cmocka_unit_test(a_broken_device_ends_the_wait),
					   cmocka_unit_test(a_queue_that_is_too_short_has_no_room),
					   cmocka_unit_test(each_rank_has_places_for_its_streams),
					   cmocka_unit_test(a_stream_without_a_place_is_refused),
					   cmocka_unit_test(a_thread_that_launches_is_found),
					   cmocka_unit_test(what_was_put_there_last),
					   cmocka_unit_test(a_mark_is_put_when_there_is_room)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
