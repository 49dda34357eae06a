/* SPDX-License-Identifier: BSD-3-Clause
 * A driver is closed while its device has stored the last word, and has yet to wake the sleepers:
 * the bell must stay until then. */
#include "sim_fixture.h"

#include "sim_driver.h"

static struct wait_bell bell;
static _Atomic bool is_waking, may_wake;

void __real_wait_wake(struct wait_bell *rung);
void __wrap_wait_wake(struct wait_bell *rung);

void __wrap_wait_wake(struct wait_bell *rung)
{
	while (rung == &bell && !atomic_load(&may_wake)) {
		atomic_store(&is_waking, true);
		sched_yield();
	}
	__real_wait_wake(rung);
}

static enum sim_error call_close(void *data)
{
	sim_driver_close(data);
	return SIM_OK;
}

static void a_close_waits_for_a_device_that_wakes(void **state)
{
	(void)state;
	static _Atomic uint64_t word;
	struct sim *sim = open_sim((struct sim_options){.devices = 1});
	struct sim_stream *stream = open_stream(sim, 0);
	struct sim_driver driver;
	assert_true(sim_driver_open(&driver, sim, 0, &bell));
	assert_int_equal(driver.ops.store(&driver.driver, stream, &word, 1), LS_OK);
	while (!atomic_load(&is_waking))
		sched_yield();
	assert_int_equal(atomic_load(&word), 1);
	struct blocked blocked = {.call = call_close, .data = &driver};
	assert_int_equal(pthread_create(&blocked.thread, NULL, blocked_main, &blocked), 0);
	int tid = 0;
	while (!atomic_load(&blocked.returned) && state_of(tid) != 'S') {
		sched_yield();
		tid = atomic_load(&blocked.tid);
	}
	assert_false(atomic_load(&blocked.returned));
	atomic_store(&may_wake, true);
	OK(end_blocked(&blocked));
	OK(sim_stream_close(stream));
	sim_close(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_close_waits_for_a_device_that_wakes)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
