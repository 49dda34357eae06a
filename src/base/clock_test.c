/* SPDX-License-Identifier: BSD-3-Clause
 * The clock: monotony, deadlines that do not overflow, and a rate that agrees with the clock. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"

static void test_now(void **state)
{
	(void)state;
	uint64_t last = clock_now_ns();
	uint64_t first = last;
	for (int i = 0; i < 1000; i++) {
		uint64_t now = clock_now_ns();
		assert_true(now >= last);
		last = now;
	}
	assert_true(last > first && last - first < UINT64_C(10000000000));
}

static void test_deadline(void **state)
{
	(void)state;
	uint64_t before = clock_now_ns();
	uint64_t deadline = clock_deadline_ns(999);
	uint64_t after = clock_now_ns();
	assert_true(deadline >= before + 999000000 && deadline <= after + 999000000);
	assert_int_equal(clock_deadline_ns(UINT64_MAX), CLOCK_NEVER);
	assert_int_equal(clock_deadline_ns(UINT64_MAX / 1000000), CLOCK_NEVER);
	assert_true(clock_deadline_ns(UINT32_MAX) > after);
}

/* The kernel may be late in advancing the coarse clock; it is not late each time. */
static void test_coarse_deadline(void **state)
{
	(void)state;
	uint64_t deadline, before;
	int tries = 0;
	do {
		before = clock_now_ns();
		deadline = clock_deadline_ns(1500);
		assert_true(deadline <= clock_now_ns() + 1510000000);
	} while (deadline < before + 1500000000 && ++tries < 1000000);
	assert_true(tries < 1000000);
}

static void test_rate(void **state)
{
	(void)state;
	struct clock_rate rate;
	uint64_t begin = clock_now_ns();
	clock_calibrate(&rate);
	assert_true(clock_now_ns() - begin >= 2000000);
	assert_true(rate.ns_per_tick > 0);
	for (int i = 0; i < 100; i++) {
		uint64_t before = clock_now_ns();
		uint64_t ticks = clock_ticks();
		uint64_t after = clock_now_ns();
		uint64_t said = clock_ticks_to_ns(&rate, ticks);
		/* Over less than a second since the calibration the rate errs by far less. */
		assert_true(said + 1000000 >= before && said <= after + 1000000);
	}
}

static void test_convert(void **state)
{
	(void)state;
	struct clock_rate rate = {.ticks = 1000, .ns = 5000, .ns_per_tick = 0.5};
	assert_int_equal(clock_ticks_to_ns(&rate, 1000), 5000);
	assert_int_equal(clock_ticks_to_ns(&rate, 1100), 5050);
	assert_int_equal(clock_ticks_to_ns(&rate, 900), 4950);
	rate.ns_per_tick = 100;
	assert_int_equal(clock_ticks_to_ns(&rate, 0), 0);
	/* A rate from another process may be anything. */
	rate.ns_per_tick = NAN;
	assert_int_equal(clock_ticks_to_ns(&rate, 2000), 5000);
	rate.ns_per_tick = INFINITY;
	assert_int_equal(clock_ticks_to_ns(&rate, 2000), 5000);
	rate.ns_per_tick = 1e300;
	assert_int_equal(clock_ticks_to_ns(&rate, 0), 5000);
	rate.ns = UINT64_MAX - 10;
	rate.ns_per_tick = 1;
	assert_int_equal(clock_ticks_to_ns(&rate, 2000), UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_now),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_coarse_deadline),
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_convert),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
