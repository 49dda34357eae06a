/* SPDX-License-Identifier: BSD-3-Clause
 * Two threads, two pools, or two calls that meet. */
#include <pthread.h>
#include <sched.h>

#include "pool/pool_fixture.h"
#include "pool/pool_private.h"

enum { MIB = 1 << 20, THREADS = 8 };

static struct scene {
	struct device *device;
	_Atomic bool is_giving, may_give, stop;
	_Atomic size_t taken;
	_Atomic uintptr_t next;
	_Atomic int got, in_driver, ended;
	int threads;
	size_t bytes;
} scene;

static void begin(void)
{
	scene = (struct scene){.device = device_new(false), .next = UINT64_C(1) << 41};
}

static void *alloc_one(void *unused)
{
	void *block;
	ls_status status =
		pool_alloc(scene.device->pool, scene.bytes, &scene.device->streams[0], 0, &block);
	if (status == LS_OK)
		atomic_fetch_add(&scene.got, 1);
	atomic_fetch_add(&scene.ended, 1);
	return unused;
}

/* ---- several threads come back from the driver at once ---- */

static ls_status take_together(struct driver *driver, size_t bytes, struct driver_segment *out)
{
	(void)driver;
	*out = (struct driver_segment){.address = (void *)atomic_fetch_add(&scene.next, bytes),
				       .bytes = bytes};
	atomic_fetch_add(&scene.taken, bytes);
	/* All leave the driver at once, unless one has found a block that was left over. */
	atomic_fetch_add(&scene.in_driver, 1);
	while (atomic_load(&scene.in_driver) < scene.threads && atomic_load(&scene.ended) == 0)
		sched_yield();
	return LS_OK;
}

static ls_status give_counted(struct driver *driver, const struct driver_segment *segment)
{
	(void)driver;
	atomic_fetch_sub(&scene.taken, segment->bytes);
	return LS_OK;
}

static void alloc_together(int threads)
{
	pthread_t ids[THREADS];
	scene.bytes = 2 * MIB;
	scene.threads = threads;
	scene.in_driver = scene.ended = 0;
	for (int i = 0; i < threads; i++)
		assert_int_equal(pthread_create(&ids[i], NULL, alloc_one, NULL), 0);
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
}

/* However many blocks the pool has prepared. */
static void segments_of_several_threads_at_once(void **state)
{
	(void)state;
	begin();
	scene.device->ops.take = take_together;
	scene.device->ops.give = give_counted;
	for (int i = 0; i < 40; i++) {
		alloc_together(1 + i % THREADS);
		assert_true(pool_is_valid(scene.device->pool));
	}
	assert_true(scene.taken >= (size_t)scene.got * 2 * MIB);
	scene.device->runs_in_wait = true;
	assert_int_equal(pool_close(scene.device->pool, CLOCK_NEVER), LS_OK);
	assert_int_equal(scene.taken, 0);
	pool_gate_fini(&scene.device->gate);
	free(scene.device);
}

/* Other threads use what was prepared, while this one is in the driver. */
static ls_status take_while_blocks_run_out(struct driver *driver, size_t bytes,
					   struct driver_segment *out)
{
	struct pool *pool = scene.device->pool;
	lock_pool_acquire(&pool->lock);
	pool->spare_blocks = NULL;
	lock_pool_release(&pool->lock);
	return device_take(driver, bytes, out);
}

static void blocks_are_prepared_where_they_are_used(void **state)
{
	(void)state;
	begin();
	scene.device->ops.take = take_while_blocks_run_out;
	take_block(scene.device, 100, 0);
	device_end(scene.device);
}

/* A thread that is in the driver counts. */
static ls_status take_while_another(struct driver *driver, size_t bytes, struct driver_segment *out)
{
	if (!atomic_exchange(&scene.stop, true)) {
		pthread_t other;
		assert_int_equal(pthread_create(&other, NULL, alloc_one, NULL), 0);
		pthread_join(other, NULL);
		assert_int_equal(scene.got, 0);
	}
	return device_take(driver, bytes, out);
}

static void the_limit_is_for_all_threads(void **state)
{
	(void)state;
	begin();
	struct pool *limited;
	struct pool_options options = {.driver = &scene.device->driver,
				       .gate = &scene.device->gate,
				       .waiter = &scene.device->waiter,
				       .name = "test:1",
				       .limit_bytes = 2 * MIB};
	struct pool *first = scene.device->pool;
	assert_int_equal(pool_open(&limited, &options), LS_OK);
	scene.device->pool = limited;
	scene.device->ops.take = take_while_another;
	scene.bytes = 2 * MIB;
	alloc_one(NULL);
	assert_int_equal(scene.got, 1);
	assert_int_equal(scene.device->taken, 2 * MIB);
	scene.device->runs_in_wait = true;
	assert_int_equal(pool_close(limited, CLOCK_NEVER), LS_OK);
	scene.device->pool = first;
	device_end(scene.device);
}

/* ---- one thread gives, another one waits ---- */

static ls_status give_slowly(struct driver *driver, const struct driver_segment *segment)
{
	atomic_store(&scene.is_giving, true);
	while (!atomic_load(&scene.may_give))
		sched_yield();
	return device_give(driver, segment);
}

static void *trim(void *unused)
{
	pool_trim(scene.device->pool, 0);
	pool_trim(scene.device->pool, 0);
	return unused;
}

static void *alloc_in_time(void *unused)
{
	void *block;
	if (pool_alloc(scene.device->pool, scene.bytes, &scene.device->streams[0],
		       clock_now_ns() + UINT64_C(5000000000), &block) == LS_OK)
		atomic_fetch_add(&scene.got, 1);
	return unused;
}

/* The driver's give takes long, but does not wait for the device. The time limit only ends the test
 * if the waiting thread is not woken. */
static void who_waits_for_a_give_has_its_memory(void **state)
{
	(void)state;
	pthread_t giver, other;
	begin();
	struct device *device = scene.device;
	device->runs_in_wait = true;
	free_block(device, take_block(device, 30 * MIB, 0));
	device->ops.give = give_slowly;
	assert_int_equal(pthread_create(&giver, NULL, trim, NULL), 0);
	while (!atomic_load(&scene.is_giving))
		sched_yield();
	scene.bytes = 30 * MIB;
	assert_int_equal(pthread_create(&other, NULL, alloc_in_time, NULL), 0);
	while (atomic_load(&device->bell.sleepers) == 0)
		sched_yield();
	atomic_store(&scene.may_give, true);
	pthread_join(other, NULL);
	pthread_join(giver, NULL);
	assert_int_equal(scene.got, 1);
	device_end(device);
}

/* ---- two pools of one driver ---- */

static void each_pool_takes_back_its_own(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	struct pool *second;
	struct pool_options options = {.driver = &device->driver,
				       .gate = &device->gate,
				       .waiter = &device->waiter,
				       .name = "test:1"};
	void *block;
	struct pool_stats stats;
	assert_int_equal(pool_open(&second, &options), LS_OK);
	struct pool_inflight *inflight = pool_inflight_open(&device->gate, &device->driver);
	assert_int_equal(pool_gate_begin(&device->gate, &device->waiter, CLOCK_NEVER), LS_OK);
	pool_gate_issue(inflight);
	pool_gate_end(&device->gate);
	assert_int_equal(pool_alloc(second, 8 * MIB, &device->streams[0], 0, &block), LS_OK);
	assert_int_equal(pool_free(second, block, NULL), LS_OK);
	pool_trim(second, 0);
	device_run_all(device);
	pool_trim(second, 0);
	assert_int_equal(pool_alloc(device->pool, 8 * MIB, &device->streams[0], 0, &block), LS_OK);
	pool_stats(second, &stats);
	assert_int_equal(stats.put_off, 8 * MIB);
	pool_stats(device->pool, &stats);
	assert_int_equal(stats.put_off, 0);
	pool_gate_retract(inflight);
	pool_inflight_close(inflight);
	device->runs_in_wait = true;
	device_run_all(device);
	assert_int_equal(pool_close(second, CLOCK_NEVER), LS_OK);
	device_end(device);
}

/* ---- two calls ---- */

static void a_stream_is_forgotten_while_its_mark_is_under_way(void **state)
{
	(void)state;
	begin();
	struct device *device = scene.device;
	void *block = take_block(device, 4 * MIB, 0), *other;
	record_block(device, block, 1);
	free_block(device, block); /* puts a mark */
	assert_int_equal(pool_forget(device->pool, &device->streams[1]), LS_OK);
	device_run_all(device); /* stores it */
	assert_ptr_equal(take_block(device, 4 * MIB, 0), block);
	for (int i = 0; i < POOL_STREAMS - 1; i++) /* its slot is another stream's, too */
		assert_int_equal(pool_alloc(device->pool, 512, &device->idle[i], 0, &other), LS_OK);
	device_end(device);
}

static void a_block_that_can_be_had_is_not_hidden(void **state)
{
	(void)state;
	begin();
	struct device *device = scene.device;
	void *none, *large = take_block(device, 10 * MIB, 1),
		    *small = take_block(device, 9 * MIB, 1);
	void *rest = take_block(device, 28 * MIB, 2);
	free_block(device, large);
	/* Only so that the mark is put. */
	assert_int_equal(pool_alloc(device->pool, 9 * MIB, &device->streams[0], 0, &none),
			 LS_OUT_OF_MEMORY);
	device_run_all(device);
	device_launch(device, 1, small, 9 * MIB);
	free_block(device, small); /* fits better, but its stream has work for it */
	uint64_t takes = device->takes;
	assert_ptr_equal(take_block(device, 9 * MIB, 0), large);
	assert_int_equal(device->takes, takes);
	free_block(device, rest);
	device_end(device);
}

/* Whenever the driver is asked, others have freed something. */
static ls_status take_while_others_free(struct driver *driver, size_t bytes,
					struct driver_segment *out)
{
	free_block(scene.device, take_block(scene.device, 512, 0));
	return device_take(driver, bytes, out);
}

/* Other threads free blocks that do not help the waiting one: its time limit holds all the same. */
static void a_time_limit_holds_while_others_free(void **state)
{
	(void)state;
	void *block;
	begin();
	struct device *device = scene.device;
	take_block(device, 512, 0);
	device->ops.take = take_while_others_free;
	assert_int_equal(pool_alloc(device->pool, DEVICE_BYTES + 1, &device->streams[1],
				    clock_now_ns() + 1000000, &block),
			 LS_OUT_OF_MEMORY);
	device_end(device);
}

/* ---- a stream is forgotten while a thread is in the driver with it ---- */

static ls_status store_late(struct driver *driver, void *stream, _Atomic uint64_t *word,
			    uint64_t value)
{
	atomic_store(&scene.is_giving, true);
	while (!atomic_load(&scene.may_give))
		sched_yield();
	return device_store(driver, stream, word, value);
}

static void *free_recorded(void *block)
{
	free_block(scene.device, block); /* puts a mark */
	return NULL;
}

static void *forget(void *unused)
{
	assert_int_equal(pool_forget(scene.device->pool, &scene.device->streams[1]), LS_OK);
	atomic_store(&scene.stop, true); /* the program destroys the stream */
	return unused;
}

static void a_stream_is_not_forgotten_under_a_call(void **state)
{
	(void)state;
	pthread_t marks, forgets;
	begin();
	struct device *device = scene.device;
	void *block = take_block(device, 4 * MIB, 0);
	record_block(device, block, 1);
	device->ops.store = store_late;
	assert_int_equal(pthread_create(&marks, NULL, free_recorded, block), 0);
	while (!atomic_load(&scene.is_giving))
		sched_yield();
	assert_int_equal(pthread_create(&forgets, NULL, forget, NULL), 0);
	while (atomic_load(&device->bell.sleepers) == 0 && !atomic_load(&scene.stop))
		sched_yield();
	assert_false(atomic_load(&scene.stop));
	atomic_store(&scene.may_give, true);
	pthread_join(marks, NULL);
	pthread_join(forgets, NULL);
	device_end(device);
}

static void new_memory_is_not_for_a_captured_stream(void **state)
{
	(void)state;
	begin();
	struct device *device = scene.device;
	void *block;
	free_block(device, take_block(device, 4096, 1));
	device->streams[1].captured = true;
	assert_int_equal(pool_alloc(device->pool, 5 * MIB, &device->streams[1], 0, &block),
			 LS_UNSUPPORTED);
	device->streams[1].captured = false;
	device_end(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(segments_of_several_threads_at_once),
		cmocka_unit_test(blocks_are_prepared_where_they_are_used),
		cmocka_unit_test(the_limit_is_for_all_threads),
		cmocka_unit_test(who_waits_for_a_give_has_its_memory),
		cmocka_unit_test(each_pool_takes_back_its_own),
		cmocka_unit_test(a_stream_is_forgotten_while_its_mark_is_under_way),
		cmocka_unit_test(a_block_that_can_be_had_is_not_hidden),
		cmocka_unit_test(a_time_limit_holds_while_others_free),
		cmocka_unit_test(a_stream_is_not_forgotten_under_a_call),
		cmocka_unit_test(new_memory_is_not_for_a_captured_stream),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
