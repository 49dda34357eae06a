/* SPDX-License-Identifier: BSD-3-Clause
 * A thread that waits for memory gets it, whatever other threads do at the worst moment. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "pool/pool_fixture.h"
#include "base/wait_fixture.h"

enum { MIB = 1 << 20 };

/* The time limit only ends the test if the thread is not told. */
static uint64_t limit(void)
{
	return clock_now_ns() + UINT64_C(10000000000);
}

static struct scene {
	struct device *device;
	struct pool_inflight *inflight;
	uint64_t number;
	void *block;
	pthread_t thread;
	_Atomic uint32_t tid; /* of the thread that allocates */
	bool met, says_broken;
	_Atomic bool ended;
	ls_status status;
} scene;

static void begin(bool give_waits)
{
	scene = (struct scene){.device = device_new(give_waits)};
	scene.device->runs_in_wait = true;
}

static void launch_on(struct driver *driver)
{
	struct device *device = scene.device;
	scene.inflight = pool_inflight_open(&device->gate, driver);
	assert_int_equal(pool_gate_begin(&device->gate, &device->waiter, CLOCK_NEVER), LS_OK);
	scene.number = pool_gate_issue(scene.inflight);
	pool_gate_end(&device->gate);
}

static void *alloc_more(void *unused)
{
	void *block;
	uint64_t until_ns = limit();
	atomic_store(&scene.tid, (uint32_t)gettid());
	scene.status = pool_alloc(scene.device->pool, 44 * MIB, &scene.device->streams[1], until_ns,
				  &block);
	scene.says_broken = strstr(message_last(), "The device cannot be used again");
	assert_int_equal(block == NULL, scene.status != LS_OK);
	if (clock_now_ns() >= until_ns) /* what has come is seen then, too */
		scene.status = LS_TIMED_OUT;
	return unused;
}

/* A block that must be given back to have a larger one. */
static void put_off(void)
{
	struct device *device = scene.device;
	void *block = take_block(device, 40 * MIB, 0);
	launch_on(&device->driver);
	free_block(device, block);
	pool_trim(device->pool, 0);
	pool_trim(device->pool, 0);
	assert_int_equal(stats_of(device).put_off, 40 * MIB);
}

/* ---- another thread gives it, just after the driver had none ---- */

static void *give_due(void *unused)
{
	struct device *device = scene.device;
	driver_stored(&device->driver, &scene.inflight->done, scene.number);
	assert_true(pool_gate_give_due(&device->gate, &device->waiter));
	return unused;
}

static ls_status take_and_be_late(struct driver *driver, size_t bytes, struct driver_segment *out)
{
	ls_status status = device_take(driver, bytes, out);
	if (status == LS_OUT_OF_MEMORY && !scene.met) {
		scene.met = true;
		assert_int_equal(pthread_create(&scene.thread, NULL, give_due, NULL), 0);
		pthread_join(scene.thread, NULL);
	}
	return status;
}

static void memory_that_was_just_given_back_is_had(void **state)
{
	(void)state;
	begin(true);
	put_off();
	scene.device->ops.take = take_and_be_late;
	alloc_more(NULL);
	assert_true(scene.met);
	assert_int_equal(scene.device->gives, 1);
	assert_int_equal(scene.status, LS_OK);
	pool_inflight_close(scene.inflight);
	device_end(scene.device);
}

/* ---- another thread is taking a segment, and needs a part of it ---- */

static void *alloc_little(void *unused)
{
	atomic_store(&scene.tid, (uint32_t)gettid());
	scene.status = pool_alloc(scene.device->pool, 512, &scene.device->streams[0], limit(),
				  &scene.block);
	atomic_store(&scene.ended, true);
	return unused;
}

static ls_status take_while_another_asks(struct driver *driver, size_t bytes,
					 struct driver_segment *out)
{
	struct device *device = scene.device;
	if (!scene.met) {
		scene.met = true;
		assert_int_equal(pthread_create(&scene.thread, NULL, alloc_little, NULL), 0);
		while (atomic_load(&device->bell.sleepers) == 0 && !atomic_load(&scene.ended))
			sched_yield();
	}
	return device_take(driver, bytes, out);
}

static void the_rest_of_a_segment_is_waited_for(void **state)
{
	(void)state;
	begin(false);
	struct device *device = scene.device;
	pool_limit(device->pool, 2 * MIB);
	device->ops.take = take_while_another_asks;
	void *mine = take_block(device, 512, 0);
	pthread_join(scene.thread, NULL);
	assert_int_equal(scene.status, LS_OK);
	assert_int_equal(stats_of(device).segments, 1);
	free_block(device, mine);
	free_block(device, scene.block);
	device_end(device);
}

/* ---- another thread is putting the mark before ---- */

static void *free_and_alloc_more(void *unused)
{
	free_block(scene.device, scene.block);
	return alloc_more(unused);
}

static ls_status store_slowly(struct driver *driver, void *stream, _Atomic uint64_t *word,
			      uint64_t value)
{
	struct device *device = scene.device;
	ls_status status = device_store(driver, stream, word, value);
	if (!scene.met) { /* the mark is stored, but the call has not returned */
		scene.met = true;
		assert_int_equal(pthread_create(&scene.thread, NULL, free_and_alloc_more, NULL), 0);
		while (atomic_load(&device->bell.sleepers) == 0)
			sched_yield();
	}
	return status;
}

static void a_mark_that_was_in_the_way_is_followed_by_another(void **state)
{
	(void)state;
	begin(false);
	struct device *device = scene.device;
	void *other = take_block(device, 4 * MIB, 0);
	scene.block = take_block(device, 40 * MIB, 0);
	device->ops.store = store_slowly;
	free_block(device, other);
	pool_trim(device->pool, 0); /* puts a mark */
	assert_true(scene.met);
	pthread_join(scene.thread, NULL);
	assert_int_equal(scene.status, LS_OK);
	device_end(device);
}

/* ---- the driver refuses a mark ---- */

static void a_mark_that_was_refused_is_put_while_it_waits(void **state)
{
	(void)state;
	begin(false);
	struct device *device = scene.device;
	free_block(device, take_block(device, 40 * MIB, 0));
	device->store_fails_at = 1;
	alloc_more(NULL);
	assert_int_equal(scene.status, LS_OK);
	device_end(device);
}

/* ---- the device breaks ---- */

/* While a thread waits for memory. */
static void break_while_waiting(struct device *device)
{
	assert_int_equal(pthread_create(&scene.thread, NULL, alloc_more, NULL), 0);
	while (atomic_load(&device->bell.sleepers) == 0)
		sched_yield();
	driver_broke(&device->driver, LS_SYSTEM);
	pthread_join(scene.thread, NULL);
	assert_int_equal(scene.status, LS_SYSTEM);
	assert_true(scene.says_broken);
}

static void a_broken_device_ends_the_wait(void **state)
{
	(void)state;
	begin(true);
	struct device *device = scene.device;
	put_off();
	break_while_waiting(device);
	pool_inflight_close(scene.inflight);
	device_end(device);
}

/* A block seems free because the device touches nothing any more. */
static void a_broken_device_gives_no_block_to_a_waiting_thread(void **state)
{
	(void)state;
	begin(false);
	struct device *device = scene.device;
	void *block = take_block(device, 44 * MIB, 0);
	device->runs_in_wait = false;
	record_block(device, block, 1);
	device_launch(device, 1, block, 44 * MIB);
	free_block(device, block);
	break_while_waiting(device);
	device_end(device);
}

/* ---- another device of the gate, whose launch was in flight ---- */

/* The device is one of another rank, which has a bell of its own. It completes the launch, or
 * breaks. */
static void another_device_ends_the_wait(bool breaks)
{
	begin(true);
	struct device *device = scene.device;
	struct wait_bell bell = {0};
	struct driver other = {.ops = &device->ops, .bell = &bell, .state = device};
	free_block(device, take_block(device, 40 * MIB, 0));
	launch_on(&other);
	pool_trim(device->pool, 0);
	pool_trim(device->pool, 0);
	assert_int_equal(stats_of(device).put_off, 40 * MIB);
	assert_int_equal(pthread_create(&scene.thread, NULL, alloc_more, NULL), 0);
	EVENTUALLY(atomic_load(&device->bell.sleepers) > 0 && is_asleep(scene.tid));
	if (breaks)
		driver_broke(&other, LS_SYSTEM);
	else
		driver_stored(&other, &scene.inflight->done, scene.number);
	pthread_join(scene.thread, NULL);
	assert_int_equal(scene.status, LS_OK);
	pool_inflight_close(scene.inflight);
	device_end(device);
}

static void a_launch_of_another_rank_ends_the_wait(void **state)
{
	(void)state;
	another_device_ends_the_wait(false);
	another_device_ends_the_wait(true);
}

/* ---- signal handlers run ---- */

static _Atomic int handled;
static _Atomic bool ended;

static void handle(int number)
{
	(void)number;
	atomic_fetch_add(&handled, 1);
}

/* Many handlers, each as good as always in the middle of the sleep. Under TSan a handler runs late,
 * perhaps after the wait, so this does not insist on each. */
static void interrupt_often(void)
{
	struct sigaction action = {.sa_handler = handle};
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	for (int i = 0; i < 100 && !atomic_load(&ended); i++) {
		int before = atomic_load(&handled);
		while (atomic_load(&scene.device->bell.sleepers) == 0 && !atomic_load(&ended))
			sched_yield();
		assert_int_equal(pthread_kill(scene.thread, SIGUSR1), 0);
		for (int k = 0; k < 1000 && atomic_load(&handled) == before; k++)
			sched_yield();
	}
}

static void *alloc_until_ended(void *unused)
{
	alloc_more(NULL);
	atomic_store(&ended, true);
	return unused;
}

static void a_signal_handler_does_not_end_the_wait_for_memory(void **state)
{
	(void)state;
	begin(true);
	struct device *device = scene.device;
	atomic_store(&ended, false);
	put_off();
	assert_int_equal(pthread_create(&scene.thread, NULL, alloc_until_ended, NULL), 0);
	interrupt_often();
	driver_stored(&device->driver, &scene.inflight->done, scene.number);
	pthread_join(scene.thread, NULL);
	assert_int_equal(scene.status, LS_OK);
	pool_inflight_close(scene.inflight);
	device_end(device);
}

static void *close_until_ended(void *unused)
{
	scene.status = pool_close(scene.device->pool, limit());
	atomic_store(&ended, true);
	return unused;
}

/* It waits for a stream first, and for gives behind a launch then. */
static void close_interrupted(bool put_off_gives)
{
	begin(put_off_gives);
	struct device *device = scene.device;
	struct driver other = {.ops = &device->ops, .bell = &device->bell, .state = device};
	atomic_store(&ended, false);
	device->runs_in_wait = put_off_gives;
	void *block = take_block(device, 4 * MIB, 0);
	if (put_off_gives)
		launch_on(&other);
	else
		device_launch(device, 0, block, 4 * MIB);
	assert_int_equal(pthread_create(&scene.thread, NULL, close_until_ended, NULL), 0);
	interrupt_often();
	if (put_off_gives)
		driver_stored(&other, &scene.inflight->done, scene.number);
	else
		device_run_all(device);
	pthread_join(scene.thread, NULL);
	assert_int_equal(scene.status, LS_OK);
	assert_int_equal(device->taken, 0);
	if (put_off_gives)
		pool_inflight_close(scene.inflight);
	pool_gate_fini(&device->gate);
	free(device);
}

static void a_signal_handler_does_not_end_the_close(void **state)
{
	(void)state;
	close_interrupted(false);
	close_interrupted(true);
}

/* Nobody says any more that a stream is done which was destroyed, so nobody waits for that. */
static void a_destroyed_stream_is_not_waited_for(void **state)
{
	(void)state;
	for (int recorded = 0; recorded < 2; recorded++) {
		struct device *device = device_new(false);
		void *block = take_block(device, 40 * MIB, !recorded), *more;
		uint64_t until_ns = limit();
		device_launch(device, 1, block, 40 * MIB);
		if (recorded)
			record_block(device, block, 1);
		device->streams[1].gone = true;
		free_block(device, block);
		pool_trim(device->pool, 0); /* tries to learn how far it is */
		assert_int_equal(
			pool_alloc(device->pool, 44 * MIB, &device->streams[0], until_ns, &more),
			LS_OUT_OF_MEMORY);
		assert_true(clock_now_ns() < until_ns);
		device_run_all(device);
		assert_int_equal(pool_forget(device->pool, &device->streams[1]), LS_OK);
		device_end(device);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_that_was_just_given_back_is_had),
		cmocka_unit_test(the_rest_of_a_segment_is_waited_for),
		cmocka_unit_test(a_mark_that_was_in_the_way_is_followed_by_another),
		cmocka_unit_test(a_mark_that_was_refused_is_put_while_it_waits),
		cmocka_unit_test(a_broken_device_ends_the_wait),
		cmocka_unit_test(a_broken_device_gives_no_block_to_a_waiting_thread),
		cmocka_unit_test(a_launch_of_another_rank_ends_the_wait),
		cmocka_unit_test(a_signal_handler_does_not_end_the_wait_for_memory),
		cmocka_unit_test(a_signal_handler_does_not_end_the_close),
		cmocka_unit_test(a_destroyed_stream_is_not_waited_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
