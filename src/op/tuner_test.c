/* SPDX-License-Identifier: BSD-3-Clause
 * Which stores are chosen, with costs that the test makes up: it sets the begin of each use back by
 * its cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "op/tuner.h"

enum { SIZE = 1 << 20, BYTES = 1 << 16 };

/* Ticks a byte: of plain stores, and of nontemporal ones. So many that the clock's own are
 * nothing. */
struct costs {
	uint64_t plain, nontemporal;
};

static bool use_once(struct op_tuner *tuner, uint64_t size, struct costs costs)
{
	struct op_tuner_use use;
	bool nontemporal =
		op_tuner_begin(tuner, OP_CHOICE_COPY_IN, PLAN_STORES_AUTO, size, BYTES, &use);
	assert_non_null(use.at);
	use.start = clock_ticks() - BYTES * (nontemporal ? costs.nontemporal : costs.plain);
	op_tuner_end(&use);
	return nontemporal;
}

/* How many of `uses` were nontemporal. */
static int count_nontemporal(struct op_tuner *tuner, struct costs costs, int uses)
{
	int count = 0;
	for (int i = 0; i < uses; i++)
		count += use_once(tuner, SIZE, costs);
	return count;
}

static void the_faster_is_used(void **state)
{
	(void)state;
	struct op_tuner tuner = {0};
	const struct costs near = {1000, 3000}, far = {9000, 1000};
	assert_in_range(count_nontemporal(&tuner, near, 1000), 1, 10);
	/* The ranks have moved to other cores; it takes a few uses to see it. */
	assert_in_range(count_nontemporal(&tuner, far, 1000), 900, 995);
	assert_in_range(count_nontemporal(&tuner, near, 1000), 1, 100);
}

static void a_little_faster_is_not_enough(void **state)
{
	(void)state;
	struct op_tuner tuner = {0};
	const struct costs same = {1000, 800};
	assert_in_range(count_nontemporal(&tuner, same, 1000), 1, 10);
}

/* A way that did not pay is tried ever more seldom, but never given up. */
static void tries_become_rare(void **state)
{
	(void)state;
	struct op_tuner tuner = {0};
	const struct costs near = {1000, 3000};
	int first = count_nontemporal(&tuner, near, 100);
	count_nontemporal(&tuner, near, 10000);
	int late = count_nontemporal(&tuner, near, 10000);
	assert_in_range(first, 2, 4);
	assert_in_range(late, 5, 15);
}

/* A use that lasted long because the rank lost its core does not turn the choice. */
static void an_outlier_changes_nothing(void **state)
{
	(void)state;
	struct op_tuner tuner = {0};
	const struct costs near = {1000, 3000}, lost = {1000000, 1000000};
	count_nontemporal(&tuner, near, 100);
	use_once(&tuner, SIZE, lost);
	assert_in_range(count_nontemporal(&tuner, near, 1000), 0, 10);
}

static void sizes_are_apart(void **state)
{
	(void)state;
	struct op_tuner tuner = {0};
	const struct costs near = {1000, 3000}, far = {9000, 1000};
	for (int i = 0; i < 100; i++) {
		use_once(&tuner, SIZE, far);
		use_once(&tuner, SIZE / 4, near);
	}
	assert_true(use_once(&tuner, SIZE, far));
	assert_false(use_once(&tuner, SIZE / 4, near));
	assert_true(use_once(&tuner, SIZE + 1, far));
	use_once(&tuner, UINT64_MAX, near); /* there is a case for each */
}

/* Many messages begin before the first one ends: one of them tries the other way. The time that the
 * receiver needs counts too. */
static void many_at_once_try_once(void **state)
{
	(void)state;
	enum { WINDOW = 64 };
	struct op_tuner tuner = {0};
	struct op_tuner_use uses[WINDOW];
	const struct costs costs = {1000, 350};
	int tries = 0, windows = 0;
	do {
		for (int i = 0; i < WINDOW; i++)
			tries += op_tuner_begin(&tuner, OP_CHOICE_STAGE, PLAN_STORES_AUTO, SIZE,
						BYTES, &uses[i]);
		for (int i = 0; i < WINDOW; i++)
			op_tuner_record(&uses[i],
					BYTES * (uses[i].second ? costs.nontemporal : costs.plain));
		if (windows == 0)
			assert_in_range(tries, 1, WINDOW / 8);
	} while (!uses[WINDOW - 2].second && ++windows < 10);
	assert_true(uses[WINDOW - 2].second);
}

/* How many of `uses` were staged. */
static int count_staged(struct op_tuner *tuner, uint64_t read, uint64_t staged, int uses)
{
	int count = 0;
	for (int i = 0; i < uses; i++) {
		struct op_tuner_use use;
		bool stages = op_tuner_begin(tuner, OP_CHOICE_SEND_BLOCKING, PLAN_STORES_AUTO,
					     BYTES, BYTES, &use);
		op_tuner_record(&use, stages ? staged : read);
		count += stages;
	}
	return count;
}

/* The times are those of decision 039: a Xeon, an EPYC, and a processor that is as fast each
 * way. */
static void messages_take_the_way_that_was_faster(void **state)
{
	(void)state;
	struct op_tuner tuner = {0};
	assert_in_range(count_staged(&tuner, 3300, 10300, 1000), 1, 10);
	assert_in_range(count_staged(&tuner, 7200, 5100, 1000), 900, 995);
	assert_in_range(count_staged(&tuner, 5000, 5000, 1000), 1, 100);
	/* a choice of its own */
	assert_int_equal(tuner.cases[OP_CHOICE_SEND][BYTES >> 16].count, 0);
}

static void what_is_wanted_or_short_is_not_measured(void **state)
{
	(void)state;
	struct op_tuner tuner = {0};
	struct op_tuner_use use;
	assert_true(op_tuner_begin(&tuner, OP_CHOICE_REDUCE, PLAN_STORES_NONTEMPORAL, SIZE, BYTES,
				   &use));
	assert_null(use.at);
	op_tuner_end(&use);
	assert_false(op_tuner_begin(&tuner, OP_CHOICE_REDUCE, PLAN_STORES_CACHED, SIZE, BYTES, &use));
	assert_null(use.at);
	assert_false(op_tuner_begin(&tuner, OP_CHOICE_REDUCE, PLAN_STORES_AUTO, 1000, 1000, &use));
	assert_null(use.at);
	assert_false(op_tuner_begin(&tuner, OP_CHOICE_REDUCE, PLAN_STORES_AUTO, SIZE, 0, &use));
	assert_null(use.at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_faster_is_used),
		cmocka_unit_test(a_little_faster_is_not_enough),
		cmocka_unit_test(tries_become_rare),
		cmocka_unit_test(an_outlier_changes_nothing),
		cmocka_unit_test(sizes_are_apart),
		cmocka_unit_test(many_at_once_try_once),
		cmocka_unit_test(messages_take_the_way_that_was_faster),
		cmocka_unit_test(what_is_wanted_or_short_is_not_measured),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
