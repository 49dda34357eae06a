/* SPDX-License-Identifier: BSD-3-Clause
 * How a wait begins when the machine has more to do than it has cores: a yield may then take as
 * long as the time slices of all others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/wait_fixture.h"

enum { SPIN_NS = 100000, LIMIT_MS = 20 };

static int slow_yields = -1; /* how many took longer than a wait may spin; -1: none is to */

/* Replaces the function of the C library. */
int sched_yield(void)
{
	uint64_t until_ns = clock_now_ns() + 2 * SPIN_NS;
	if (slow_yields < 0)
		return (int)syscall(SYS_sched_yield);
	slow_yields++;
	while (clock_now_ns() < until_ns)
		wait_relax();
	return 0;
}

static int setup(void **state)
{
	struct fixture *fixture = malloc(sizeof *fixture);
	assert_non_null(fixture);
	fixture_init(fixture);
	fixture->waiter.spin_ns = SPIN_NS;
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	slow_yields = -1;
	fixture_fini(*state);
	free(*state);
	return 0;
}

/* None if the thread itself had no core for this long. */
static void assert_at_most_one(void)
{
	assert_in_range(slow_yields, 0, 1);
}

/* A thread that spins publishes no wait. */
static void test_words(void **state)
{
	struct fixture *fixture = *state;
	for (int i = 0; i < 2; i++) {
		struct wait_call call = fixture_call(fixture, 1, false);
		int peer;
		fixture->waiter.yield = i == 1;
		call.deadline_ns = clock_deadline_ns(LIMIT_MS);
		slow_yields = 0;
		assert_int_equal(wait_words(&fixture->waiter, &call, &peer), LS_TIMED_OUT);
		assert_at_most_one();
	}
}

static void test_set(void **state)
{
	struct fixture *fixture = *state;
	struct wait_item item = {.waiter = &fixture->waiter,
				 .call = fixture_call(fixture, 1, false)};
	struct wait_item *items[] = {&item};
	wait_item_show(&item);
	for (int i = 0; i < 2; i++) {
		slow_yields = 0;
		wait_for_set(&(struct wait_set){.items = items,
						.count = 1,
						.bell = &fixture->shared->bell,
						.until_ns = clock_deadline_ns(LIMIT_MS),
						.spin_ns = SPIN_NS,
						.yield = i == 1});
		assert_at_most_one();
	}
	wait_item_hide(&item);
}

/* A poll for one word shows nothing, so it yields less than a wait: twice. */
static void test_word_briefly(void **state)
{
	struct fixture *fixture = *state;
	_Atomic uint64_t word = 1;
	fixture->waiter.yield = true;
	slow_yields = 0;
	assert_true(wait_word_briefly(&fixture->waiter, &word, 1));
	assert_int_equal(slow_yields, 0);
	assert_false(wait_word_briefly(&fixture->waiter, &word, 2));
	assert_int_equal(slow_yields, 2);
	fixture->waiter.spin_ns = 0;
	assert_false(wait_word_briefly(&fixture->waiter, &word, 2));
	fixture->waiter.spin_ns = SPIN_NS;
	fixture->waiter.yield = false;
	assert_false(wait_word_briefly(&fixture->waiter, &word, 2));
	assert_int_equal(slow_yields, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_words, setup, teardown),
		cmocka_unit_test_setup_teardown(test_set, setup, teardown),
		cmocka_unit_test_setup_teardown(test_word_briefly, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
