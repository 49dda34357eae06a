/* SPDX-License-Identifier: BSD-3-Clause
 * What the gate promises; the driver's give checks that nothing is open or in flight. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "pool/gate.h"

enum { LAUNCHERS = 2, GIVERS = 2, TURNS = 2000 };

struct device {
	struct driver driver;
	struct driver_ops ops;
	struct pool_gate gate;
	struct wait_bell bell;
	struct waiter waiter;
	struct pool_due due;
	_Atomic int gives, given_count;
	_Atomic int open; /* launches of the test, as it counts them */
	_Atomic bool hold_give, is_giving, stop;
	ls_status give_status;
	struct pool_inflight *inflight[LAUNCHERS];
	_Atomic uint64_t launched[LAUNCHERS], done[LAUNCHERS];
};

static ls_status give(struct driver *driver, const struct driver_segment *segment)
{
	struct device *device = driver->state;
	(void)segment;
	assert_int_equal(lock_held_mask(), 0);
	atomic_store(&device->is_giving, true);
	while (atomic_load(&device->hold_give))
		sched_yield();
	assert_int_equal(atomic_load(&device->open), 0);
	for (int i = 0; i < LAUNCHERS; i++)
		assert_true(atomic_load(&device->done[i]) == atomic_load(&device->launched[i]));
	atomic_store(&device->is_giving, false);
	atomic_fetch_add(&device->gives, 1);
	return device->give_status;
}

static void given(struct pool_due *due, ls_status status)
{
	struct device *device = due->driver->state;
	assert_int_equal(status, device->give_status);
	atomic_fetch_add(&device->given_count, 1);
}

static struct device *device_new(bool give_waits)
{
	struct device *device = calloc(1, sizeof *device);
	assert_non_null(device);
	device->ops =
		(struct driver_ops){.give = give, .give_waits = give_waits, .give_call = "give"};
	device->driver =
		(struct driver){.ops = &device->ops, .bell = &device->bell, .state = device};
	device->waiter = (struct waiter){.bell = &device->bell, .look_fd = -1};
	device->due = (struct pool_due){.driver = &device->driver,
					.owner = device,
					.segment = {.bytes = 4096},
					.given = given};
	pool_gate_init(&device->gate);
	return device;
}

static void device_end(struct device *device)
{
	pool_gate_fini(&device->gate);
	free(device);
}

static void begin(struct device *device)
{
	assert_int_equal(pool_gate_begin(&device->gate, &device->waiter, CLOCK_NEVER), LS_OK);
}

static void a_give_is_put_off_until_the_launch_is_done(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	struct pool_inflight *inflight = pool_inflight_open(&device->gate, &device->driver);
	begin(device);
	assert_true(pool_gate_is_open_here());
	pool_gate_give(&device->gate, &device->waiter, &device->due);
	assert_int_equal(device->gives, 0);
	uint64_t number = pool_gate_issue(inflight);
	pool_gate_end(&device->gate);
	assert_false(pool_gate_is_open_here());
	assert_false(pool_gate_give_due(&device->gate, &device->waiter));
	driver_stored(&device->driver, &inflight->done, number);
	assert_true(pool_gate_give_due(&device->gate, &device->waiter));
	assert_int_equal(device->gives, 1);
	assert_int_equal(device->given_count, 1);
	assert_false(pool_gate_give_due(&device->gate, &device->waiter));
	pool_inflight_close(inflight);
	device_end(device);
}

static void a_driver_that_does_not_wait_is_given_at_once(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	begin(device);
	begin(device); /* nested */
	atomic_store(&device->open, 0);
	pool_gate_give(&device->gate, &device->waiter, &device->due);
	assert_int_equal(device->gives, 1);
	pool_gate_end(&device->gate);
	pool_gate_end(&device->gate);
	device_end(device);
}

static void a_launch_that_failed_is_not_in_flight(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	struct pool_inflight *inflight = pool_inflight_open(&device->gate, &device->driver);
	begin(device);
	pool_gate_issue(inflight);
	pool_gate_retract(inflight);
	pool_gate_end(&device->gate);
	device->give_status = LS_SYSTEM;
	pool_gate_give(&device->gate, &device->waiter, &device->due);
	assert_int_equal(device->given_count, 1);
	pool_inflight_close(inflight);
	device_end(device);
}

static void nothing_is_in_flight_on_a_broken_device(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	struct pool_inflight *inflight = pool_inflight_open(&device->gate, &device->driver);
	begin(device);
	uint64_t number = pool_gate_issue(inflight);
	pool_gate_end(&device->gate);
	driver_broke(&device->driver, LS_SYSTEM);
	pool_gate_give(&device->gate, &device->waiter, &device->due);
	assert_int_equal(device->gives, 1);
	pool_inflight_close(inflight);
	inflight = pool_inflight_open(&device->gate, &device->driver);
	assert_int_equal(pool_gate_issue(inflight), number + 1);
	pool_inflight_close(inflight);
	device_end(device);
}

/* Each rank of a process may have many streams, and all of them one gate. */
static void there_are_as_many_as_streams_need(void **state)
{
	enum { STREAMS = 4 * POOL_INFLIGHT_TABLE + 1 };
	(void)state;
	struct device *device = device_new(true);
	struct pool_inflight *inflight[STREAMS];
	struct wait_word words[STREAMS + 2];
	for (int i = 0; i < STREAMS; i++)
		assert_non_null(inflight[i] = pool_inflight_open(&device->gate, &device->driver));
	begin(device);
	uint64_t number = pool_gate_issue(inflight[STREAMS - 1]);
	pool_gate_end(&device->gate);
	pool_gate_give(&device->gate, &device->waiter, &device->due);
	assert_int_equal(device->gives, 0);
	assert_int_equal(pool_gate_words(&device->gate, words, STREAMS + 2), 3);
	assert_ptr_equal(words[1].word, &inflight[STREAMS - 1]->done);
	driver_stored(&device->driver, &inflight[STREAMS - 1]->done, number);
	assert_true(pool_gate_give_due(&device->gate, &device->waiter));
	pool_inflight_close(inflight[77]);
	assert_ptr_equal(pool_inflight_open(&device->gate, &device->driver), inflight[77]);
	device_end(device);
}

static void the_smallest_that_has_room_is_taken_back(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	struct pool_due dues[4];
	static const size_t bytes[] = {8192, 2048, 4096, 4096};
	begin(device);
	for (int i = 0; i < 4; i++) {
		dues[i] = device->due;
		dues[i].segment.bytes = bytes[i];
		pool_gate_give(&device->gate, &device->waiter, &dues[i]);
	}
	assert_null(pool_gate_take_back(&device->gate, device, 9000, 10000));
	assert_null(pool_gate_take_back(&device->gate, device, 5000, 8000));
	assert_ptr_equal(pool_gate_take_back(&device->gate, device, 3000, 8192), &dues[2]);
	assert_ptr_equal(pool_gate_take_back(&device->gate, device, 3000, 8192), &dues[3]);
	assert_ptr_equal(pool_gate_take_back(&device->gate, device, 1, 8192), &dues[1]);
	pool_gate_end(&device->gate);
	assert_true(pool_gate_give_due(&device->gate, &device->waiter));
	assert_int_equal(device->gives, 1);
	device_end(device);
}

/* ---- threads ---- */

static void *launch_once(void *argument)
{
	struct device *device = argument;
	begin(device);
	atomic_fetch_add(&device->open, 1);
	atomic_fetch_sub(&device->open, 1);
	pool_gate_end(&device->gate);
	return NULL;
}

static void *give_once(void *argument)
{
	struct device *device = argument;
	pool_gate_give(&device->gate, &device->waiter, &device->due);
	return NULL;
}

static void a_launch_waits_for_a_give(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	pthread_t giver, launcher;
	atomic_store(&device->hold_give, true);
	assert_int_equal(pthread_create(&giver, NULL, give_once, device), 0);
	while (!atomic_load(&device->is_giving))
		sched_yield();
	assert_int_equal(pool_gate_begin(&device->gate, &device->waiter, clock_now_ns() + 1000000),
			 LS_TIMED_OUT);
	assert_false(pool_gate_is_open_here());
	assert_int_equal(pthread_create(&launcher, NULL, launch_once, device), 0);
	while (atomic_load(&device->bell.sleepers) == 0)
		sched_yield();
	atomic_store(&device->hold_give, false);
	pthread_join(launcher, NULL);
	pthread_join(giver, NULL);
	device_end(device);
}

struct thread {
	struct device *device;
	int number;
	pthread_t thread;
};

/* Each launch is open, then in flight, then done, by the device's store. */
static void *launch_many(void *argument)
{
	const struct thread *thread = argument;
	struct device *device = thread->device;
	struct pool_inflight *inflight = device->inflight[thread->number];
	for (int i = 0; i < TURNS; i++) {
		begin(device);
		atomic_fetch_add(&device->open, 1);
		atomic_fetch_add(&device->launched[thread->number], 1);
		uint64_t number = pool_gate_issue(inflight);
		atomic_fetch_sub(&device->open, 1);
		pool_gate_end(&device->gate);
		if (i % 3 == 0)
			sched_yield();
		atomic_fetch_add(&device->done[thread->number], 1);
		driver_stored(&device->driver, &inflight->done, number);
	}
	return NULL;
}

static void *give_many(void *argument)
{
	struct device *device = ((struct thread *)argument)->device;
	while (!atomic_load(&device->stop)) {
		struct pool_due due = device->due;
		int given_count = atomic_load(&device->given_count);
		pool_gate_give(&device->gate, &device->waiter, &due);
		/* The due is this function's: it is taken back, or given by somebody. */
		while (!pool_gate_take_back(&device->gate, device, 1, SIZE_MAX) &&
		       atomic_load(&device->given_count) == given_count)
			sched_yield();
	}
	return NULL;
}

static void threads_launch_and_give(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	struct thread launchers[LAUNCHERS], giver = {.device = device};
	for (int i = 0; i < LAUNCHERS; i++)
		device->inflight[i] = pool_inflight_open(&device->gate, &device->driver);
	assert_int_equal(pthread_create(&giver.thread, NULL, give_many, &giver), 0);
	for (int i = 0; i < LAUNCHERS; i++) {
		launchers[i] = (struct thread){.device = device, .number = i};
		assert_int_equal(
			pthread_create(&launchers[i].thread, NULL, launch_many, &launchers[i]), 0);
	}
	for (int i = 0; i < LAUNCHERS; i++)
		pthread_join(launchers[i].thread, NULL);
	atomic_store(&device->stop, true);
	pthread_join(giver.thread, NULL);
	device_end(device);
}

/* A thread that has looked up the driver of a launch in flight may still read it when its rank has
 * closed it. */
static void a_driver_stays_until_all_have_left(void **state)
{
	struct left {
		struct pool_deferred_free deferred;
		struct driver driver;
	} *left = calloc(1, sizeof *left), *other = calloc(1, sizeof *other);
	(void)state;
	assert_true(left && other);
	struct pool_gate *gate = pool_gate_join("one", left);
	assert_ptr_equal(pool_gate_join("two", left), gate);
	struct pool_inflight *inflight = pool_inflight_open(gate, &left->driver);
	assert_non_null(inflight);
	pool_gate_issue(inflight);
	struct wait_word words[4];
	assert_int_equal(pool_gate_words(gate, words, 4), 3); /* changes, done, broken */
	pool_inflight_close(inflight);
	pool_gate_leave(gate, &left->deferred);
	assert_int_equal(atomic_load(words[2].word), 0);
	pool_gate_leave(gate, &other->deferred);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_give_is_put_off_until_the_launch_is_done),
		cmocka_unit_test(a_driver_that_does_not_wait_is_given_at_once),
		cmocka_unit_test(a_launch_that_failed_is_not_in_flight),
		cmocka_unit_test(nothing_is_in_flight_on_a_broken_device),
		cmocka_unit_test(there_are_as_many_as_streams_need),
		cmocka_unit_test(a_driver_stays_until_all_have_left),
		cmocka_unit_test(the_smallest_that_has_room_is_taken_back),
		cmocka_unit_test(a_launch_waits_for_a_give),
		cmocka_unit_test(threads_launch_and_give),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
