/* SPDX-License-Identifier: BSD-3-Clause
 * What the pool promises, one promise a test. */
#include "pool/pool_fixture.h"

#include <pthread.h>
#include <sched.h>

#include "base/capture.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

static void a_freed_block_is_used_again_by_its_stream(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *first = take_block(device, 100 * KIB, 0);
	device_launch(device, 0, first, 100 * KIB);
	free_block(device, first);
	assert_ptr_equal(take_block(device, 100 * KIB, 0), first);
	struct pool_stats stats = stats_of(device);
	assert_int_equal(stats.hits, 1);
	assert_int_equal(stats.misses, 1);
	assert_int_equal(stats.live_blocks, 1);
	assert_int_equal(stats.live, 100 * KIB);
	assert_int_equal(device->stores, 0); /* the driver was not asked anything */
	device_end(device);
}

static void assert_is_free(struct device *device, const char *address, size_t bytes,
			   const char *first, size_t piece)
{
	size_t found;
	assert_ptr_equal(pool_find_free(device->pool, address, bytes, &found), first);
	assert_int_equal(found, piece);
}

static void freed_memory_is_found_anywhere_in_a_range(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	char *first = take_block(device, 2 * KIB, 0), *second = take_block(device, 2 * KIB, 0);
	char *third = take_block(device, 2 * KIB, 0);
	assert_ptr_equal(second, first + 2 * KIB);
	assert_ptr_equal(third, second + 2 * KIB);
	assert_is_free(device, first, 6 * KIB, NULL, 0);
	free_block(device, second);
	assert_is_free(device, first, 6 * KIB, second, 2 * KIB);
	assert_is_free(device, first + 1, 2 * KIB, second, 1);
	assert_is_free(device, second + 100, 1, second + 100, 1);
	assert_is_free(device, second + 100, 4 * KIB, second + 100, 2 * KIB - 100);
	assert_is_free(device, first, 2 * KIB, NULL, 0);
	assert_is_free(device, third, 2 * KIB, NULL, 0);
	assert_is_free(device, second, 0, NULL, 0);
	assert_is_free(device, (char *)&first, sizeof first, NULL, 0);
	/* Behind it: what was never handed out. */
	assert_is_free(device, third, 4 * KIB, third + 2 * KIB, 2 * KIB);
	device_end(device);
}

static void another_stream_waits_for_nothing_and_gets_other_memory(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *first = take_block(device, 4 * MIB, 0);
	device_launch(device, 0, first, 4 * MIB);
	free_block(device, first);
	void *second = take_block(device, 4 * MIB, 1);
	assert_ptr_not_equal(second, first);
	device_run(device, 0); /* with the mark that the miss has put behind it */
	assert_ptr_equal(take_block(device, 4 * MIB, 2), first);
	assert_int_equal(device->takes, 2);
	device_end(device);
}

static void a_recorded_block_comes_back_after_all_its_streams(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *block = take_block(device, 4 * MIB, 0);
	record_block(device, block, 1);
	record_block(device, block, 2);
	record_block(device, block, 1);
	record_block(device, block, 0);
	device_launch(device, 1, block, 4 * MIB);
	device_launch(device, 2, block, 4 * MIB);
	free_block(device, block);
	assert_int_equal(stats_of(device).pending, 4 * MIB);
	device_run(device, 1);
	assert_ptr_not_equal(take_block(device, 4 * MIB, 0), block);
	device_run(device, 2);
	assert_ptr_equal(take_block(device, 4 * MIB, 0), block);
	assert_int_equal(stats_of(device).pending, 0);
	device_end(device);
}

static void small_blocks_share_a_segment_and_merge(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *blocks[8];
	for (int i = 0; i < 8; i++)
		blocks[i] = take_block(device, 256 * KIB, 0);
	assert_int_equal(device->takes, 1);
	for (int i = 0; i < 8; i++)
		free_block(device, blocks[7 * i % 8]);
	take_block(device, MIB, 0);
	take_block(device, MIB, 0);
	assert_int_equal(device->takes, 1);
	device_end(device);
}

static void blocks_of_two_streams_merge_once_both_are_done(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *one = take_block(device, MIB, 0);
	device_launch(device, 0, one, MIB);
	void *two = take_block(device, MIB, 1); /* which stream 0 has never used */
	free_block(device, one);
	assert_ptr_equal(two, (char *)one + MIB);
	device_launch(device, 1, two, MIB);
	free_block(device, two);
	pool_trim(device->pool, 0);
	device_run(device, 0);
	pool_trim(device->pool, 0);
	assert_int_equal(device->segment_count, 1);
	device_run(device, 1);
	pool_trim(device->pool, 0);
	assert_int_equal(device->segment_count, 0);
	device_end(device);
}

static void trim_keeps_what_is_used_and_gives_the_rest(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *blocks[3];
	for (int i = 0; i < 3; i++)
		blocks[i] = take_block(device, 4 * MIB, 0);
	free_block(device, blocks[0]);
	device_launch(device, 0, blocks[1], 4 * MIB);
	free_block(device, blocks[1]);
	pool_trim(device->pool, 8 * MIB);
	device_run_all(device);
	pool_trim(device->pool, 8 * MIB);
	assert_int_equal(stats_of(device).reserved, 8 * MIB);
	pool_trim(device->pool, 0);
	device_run_all(device);
	pool_trim(device->pool, 0);
	assert_int_equal(stats_of(device).reserved, 4 * MIB);
	free_block(device, blocks[2]);
	device_end(device);
}

static void memory_is_not_given_back_under_a_kernel(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *block = take_block(device, 4 * MIB, 0);
	device_launch(device, 0, block, 4 * MIB);
	free_block(device, block);
	pool_trim(device->pool, 0);
	assert_int_equal(device->gives, 0);
	device_run_all(device);
	take_block(device, 512, 1); /* any call that has to ask the driver sees it */
	pool_trim(device->pool, 0);
	assert_int_equal(device->gives, 1);
	device_end(device);
}

static void without_memory_idle_segments_are_given_back_first(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	device->runs_in_wait = true;
	void *block = take_block(device, 30 * MIB, 0);
	free_block(device, block);
	take_block(device, 40 * MIB, 0);
	assert_int_equal(device->gives, 1);
	device_end(device);
}

static void without_memory_it_waits_for_streams(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	device->runs_in_wait = true;
	void *block = take_block(device, 30 * MIB, 0), *other;
	record_block(device, block, 1);
	device->runs_in_wait = false;
	device_launch(device, 1, block, 30 * MIB);
	free_block(device, block);
	/* The device does nothing: the wait ends at its deadline, and says who holds what. */
	assert_int_equal(pool_alloc(device->pool, 40 * MIB, &device->streams[0],
				    clock_now_ns() + 20000000, &other),
			 LS_OUT_OF_MEMORY);
	assert_null(other);
	device_run_all(device);
	device->runs_in_wait = true;
	take_block(device, 40 * MIB, 0);
	device_end(device);
}

static void nobody_waits_with_a_launch_open(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	void *block = take_block(device, 30 * MIB, 0), *other;
	free_block(device, block);
	assert_int_equal(pool_gate_begin(&device->gate, &device->waiter, CLOCK_NEVER), LS_OK);
	assert_int_equal(pool_alloc(device->pool, 40 * MIB, &device->streams[0], CLOCK_NEVER, &other),
			 LS_OUT_OF_MEMORY);
	assert_int_equal(device->gives, 0);
	pool_gate_end(&device->gate);
	device_run_all(device);
	take_block(device, 40 * MIB, 0);
	device_end(device);
}

/* A block whose return to the driver was put off is used again before the driver is asked for
 * memory. */
static void memory_that_was_put_off_is_taken_back(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	struct pool_inflight *inflight = pool_inflight_open(&device->gate, &device->driver);
	void *block = take_block(device, 8 * MIB, 0);
	free_block(device, block);
	assert_int_equal(pool_gate_begin(&device->gate, &device->waiter, CLOCK_NEVER), LS_OK);
	uint64_t number = pool_gate_issue(inflight);
	pool_gate_end(&device->gate);
	pool_trim(device->pool, 0);
	device_run_all(device);
	pool_trim(device->pool, 0);
	assert_int_equal(stats_of(device).put_off, 8 * MIB);
	assert_int_equal(device->gives, 0);
	take_block(device, 8 * MIB, 3);
	assert_int_equal(device->takes, 1);
	assert_int_equal(stats_of(device).put_off, 0);
	atomic_store(&inflight->done, number);
	pool_inflight_close(inflight);
	device_end(device);
}

static void bad_use_gets_a_status(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *block = take_block(device, 3 * KIB, 0), *other;
	assert_int_equal(pool_free(device->pool, (char *)block + 512, NULL), LS_BAD_ARGUMENT);
	assert_int_equal(pool_free(device->pool, device, NULL), LS_BAD_ARGUMENT);
	assert_int_equal(pool_record(device->pool, device, &device->streams[0], NULL),
			 LS_BAD_ARGUMENT);
	free_block(device, block);
	assert_int_equal(pool_free(device->pool, block, NULL), LS_BAD_ARGUMENT);
	assert_int_equal(pool_record(device->pool, block, &device->streams[1], NULL),
			 LS_BAD_ARGUMENT);
	assert_int_equal(pool_alloc(device->pool, 512, device, 0, &other), LS_BAD_ARGUMENT);
	assert_int_equal(pool_alloc(device->pool, SIZE_MAX, &device->streams[0], 0, &other),
			 LS_OUT_OF_MEMORY);
	assert_int_equal(pool_alloc(device->pool, DEVICE_BYTES + 1, &device->streams[0], 0, &other),
			 LS_OUT_OF_MEMORY);
	device->streams[4].captured = true;
	assert_int_equal(pool_alloc(device->pool, 512, &device->streams[4], 0, &other),
			 LS_UNSUPPORTED);
	free_block(device, take_block(device, 0, 0));
	assert_true(pool_is_valid(device->pool));
	device_end(device);
}

static void the_limit_holds(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	struct pool *limited;
	struct pool_options options = {.driver = &device->driver,
				       .gate = &device->gate,
				       .waiter = &device->waiter,
				       .name = "test:1",
				       .limit_bytes = 6 * MIB};
	struct trace_memory counters = {0};
	options.counters = &counters;
	void *block, *other;
	assert_int_equal(pool_open(&limited, &options), LS_OK);
	assert_int_equal(pool_alloc(limited, 4 * MIB, &device->streams[0], 0, &block), LS_OK);
	assert_int_equal(pool_alloc(limited, 3 * MIB, &device->streams[0], 0, &other),
			 LS_OUT_OF_MEMORY);
	assert_int_equal(counters.live, 4 * MIB);
	assert_int_equal(counters.misses, 2);
	assert_int_equal(counters.failed, 1);
	pool_detach(limited);
	assert_int_equal(pool_free(limited, block, NULL), LS_OK);
	assert_int_equal(counters.live, 4 * MIB); /* not its own any more */
	device->runs_in_wait = true;
	assert_int_equal(pool_alloc(limited, 6 * MIB, &device->streams[1], CLOCK_NEVER, &other),
			 LS_OK);
	device_run_all(device);
	assert_int_equal(pool_close(limited, CLOCK_NEVER), LS_OK);
	device_end(device);
}

/* A mark that the driver refuses is put again by a later call. */
static void a_refused_mark_is_tried_again(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *block = take_block(device, 4 * MIB, 0);
	record_block(device, block, 1);
	device_launch(device, 1, block, 4 * MIB);
	device->store_fails_at = 1;
	free_block(device, block);
	device_run_all(device);
	take_block(device, 4 * MIB, 0);
	device_run_all(device);
	assert_ptr_equal(take_block(device, 4 * MIB, 0), block);
	device_end(device);
}

/* No mark is captured, even if the capture begins between the look at the stream and the mark. */
static void a_mark_is_not_captured(void **state)
{
	(void)state;
	for (int late = 0; late < 2; late++) {
		struct device *device = device_new(false);
		void *block = take_block(device, 4 * MIB, 0);
		record_block(device, block, 1);
		device->streams[1].captured = !late;
		device->streams[1].captured_after_look = late;
		free_block(device, block);
		assert_int_equal(device->stores, 0);
		device->streams[1].captured = device->streams[1].captured_after_look = false;
		take_block(device, 4 * MIB, 0);
		device_run_all(device);
		assert_ptr_equal(take_block(device, 4 * MIB, 0), block);
		device_end(device);
	}
}

static void a_stream_that_is_forgotten_gets_no_marks(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *block = take_block(device, 4 * MIB, 0);
	record_block(device, block, 1);
	device_launch(device, 1, block, 4 * MIB);
	device->streams[1].captured = true; /* so that its mark is not put yet */
	free_block(device, block);
	device_run_all(device);
	assert_int_equal(pool_forget(device->pool, &device->streams[1]), LS_OK);
	assert_ptr_equal(take_block(device, 4 * MIB, 0), block);
	device_end(device);
}

static void a_broken_device_uses_nothing(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *block = take_block(device, 4 * MIB, 0);
	record_block(device, block, 1);
	device_launch(device, 1, block, 4 * MIB);
	free_block(device, block);
	driver_broke(&device->driver, LS_SYSTEM);
	void *again;
	assert_int_equal(pool_alloc(device->pool, 4 * MIB, &device->streams[0], 0, &again), LS_OK);
	assert_ptr_equal(again, block);
	device_end(device);
}

static void assert_message_names(const void *stream)
{
	char name[32];
	snprintf(name, sizeof name, "%p", stream);
	assert_non_null(strstr(message_last(), name));
}

static void more_streams_than_a_pool_follows(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *block, *blocks[POOL_STREAMS];
	for (int i = 0; i < POOL_STREAMS; i++)
		assert_int_equal(pool_alloc(device->pool, 512, &device->idle[i], 0, &blocks[i]),
				 LS_OK);
	assert_int_equal(pool_alloc(device->pool, 512, &device->idle[POOL_STREAMS], 0, &block),
			 LS_OUT_OF_MEMORY);
	assert_message_names(&device->idle[POOL_STREAMS]);
	assert_int_equal(pool_free(device->pool, blocks[7], NULL), LS_OK);
	pool_trim(device->pool, 0); /* puts its mark */
	assert_int_equal(pool_alloc(device->pool, 512, &device->idle[POOL_STREAMS], 0, &block),
			 LS_OK);
	device_end(device);
}

static void what_keeps_a_pool_open_is_named(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	struct capture capture;
	char names[128];
	void *block = take_block(device, MIB, 2);
	take_block(device, MIB, 1);
	device_launch(device, 2, block, MIB);
	capture_begin(&capture);
	assert_int_equal(pool_close(device->pool, clock_now_ns()), LS_TIMED_OUT);
	const char *text = capture_end(&capture);
	snprintf(names, sizeof names,
		 "(LS_TIMED_OUT), because the device does not finish its work "
		 "on streams %p, %p [",
		 (void *)&device->streams[2], (void *)&device->streams[1]);
	assert_non_null(strstr(text, names));
	device_end(device);
}

/* ---- a thread that waits for memory ---- */

struct waiting {
	struct device *device;
	pthread_t thread;
	_Atomic bool begun;
	ls_status status;
};

static void *wait_for_memory(void *argument)
{
	struct waiting *waiting = argument;
	void *block;
	atomic_store(&waiting->begun, true);
	waiting->status = pool_alloc(waiting->device->pool, 40 * MIB, &waiting->device->streams[1],
				     CLOCK_NEVER, &block);
	return NULL;
}

/* It waits for the end of a launch; what another thread frees meanwhile is seen, too. */
static void a_free_of_another_thread_ends_the_wait(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	device->runs_in_wait = true;
	void *put_off = take_block(device, 4 * MIB, 0), *block = take_block(device, 42 * MIB, 1);
	struct pool_inflight *inflight = pool_inflight_open(&device->gate, &device->driver);
	assert_int_equal(pool_gate_begin(&device->gate, &device->waiter, CLOCK_NEVER), LS_OK);
	uint64_t number = pool_gate_issue(inflight);
	pool_gate_end(&device->gate);
	free_block(device, put_off);
	pool_trim(device->pool, 0);
	struct waiting waiting = {.device = device};
	assert_int_equal(pthread_create(&waiting.thread, NULL, wait_for_memory, &waiting), 0);
	while (atomic_load(&device->bell.sleepers) == 0)
		sched_yield();
	assert_int_equal(pool_free(device->pool, block, NULL), LS_OK);
	pthread_join(waiting.thread, NULL);
	assert_int_equal(waiting.status, LS_OK);
	atomic_store(&inflight->done, number);
	pool_inflight_close(inflight);
	device_end(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_freed_block_is_used_again_by_its_stream),
		cmocka_unit_test(freed_memory_is_found_anywhere_in_a_range),
		cmocka_unit_test(another_stream_waits_for_nothing_and_gets_other_memory),
		cmocka_unit_test(a_recorded_block_comes_back_after_all_its_streams),
		cmocka_unit_test(small_blocks_share_a_segment_and_merge),
		cmocka_unit_test(blocks_of_two_streams_merge_once_both_are_done),
		cmocka_unit_test(trim_keeps_what_is_used_and_gives_the_rest),
		cmocka_unit_test(memory_is_not_given_back_under_a_kernel),
		cmocka_unit_test(without_memory_idle_segments_are_given_back_first),
		cmocka_unit_test(without_memory_it_waits_for_streams),
		cmocka_unit_test(nobody_waits_with_a_launch_open),
		cmocka_unit_test(memory_that_was_put_off_is_taken_back),
		cmocka_unit_test(bad_use_gets_a_status),
		cmocka_unit_test(the_limit_holds),
		cmocka_unit_test(a_refused_mark_is_tried_again),
		cmocka_unit_test(a_mark_is_not_captured),
		cmocka_unit_test(a_stream_that_is_forgotten_gets_no_marks),
		cmocka_unit_test(a_broken_device_uses_nothing),
		cmocka_unit_test(more_streams_than_a_pool_follows),
		cmocka_unit_test(what_keeps_a_pool_open_is_named),
		cmocka_unit_test(a_free_of_another_thread_ends_the_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
