/* SPDX-License-Identifier: BSD-3-Clause
 * The random schedules: the same on every rank, with the outcome that was asked for, and of every
 * sort. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "generator.h"
#include "schedule.h"

static struct schedule schedule, other;
static struct schedule_verdict verdict, other_verdict;

static void legal_sequences_end_well(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 5000; i++) {
		schedule_make_legal(generator_mix(i, 1), 2 + (int)(i % 5), 1 + (int)(i % 4),
				    &schedule);
		schedule_judge(&schedule, &verdict);
		assert_int_equal(verdict.outcome, SCHEDULE_ENDS_WELL);
		assert_true(verdict.unique);
		assert_false(verdict.leftover);
	}
}

static void are_equal(int ranks)
{
	char text[SCHEDULE_TEXT], other_text[SCHEDULE_TEXT];
	for (int r = 0; r < ranks; r++) {
		schedule_text(&schedule.programs[r], text, sizeof text);
		schedule_text(&other.programs[r], other_text, sizeof other_text);
		assert_string_equal(text, other_text);
	}
	assert_memory_equal(schedule.bytes, other.bytes, sizeof schedule.bytes);
	assert_int_equal(schedule.by_tag, other.by_tag);
	assert_int_equal(verdict.outcome, other_verdict.outcome);
	assert_int_equal(verdict.end_count, other_verdict.end_count);
	assert_memory_equal(verdict.ends[0].at, other_verdict.ends[0].at, sizeof verdict.ends[0].at);
}

/* Every rank of a test makes the schedule itself. */
static void the_same_seed_makes_the_same(void **state)
{
	(void)state;
	int outcomes[2] = {0}, places = 0, sources = 0, several = 0;
	for (uint64_t i = 0; i < 2000; i++) {
		int ranks = 2 + (int)(i % 5);
		schedule_make(i, ranks, 4, &schedule, &verdict);
		schedule_make(i, ranks, 4, &other, &other_verdict);
		are_equal(ranks);
		assert_true(verdict.outcome <= SCHEDULE_DEADLOCKS);
		outcomes[verdict.outcome]++;
		several += !verdict.unique;
		for (int r = 0; r < ranks; r++)
			for (int k = 0; k < schedule.programs[r].count; k++)
				sources += schedule.programs[r].actions[k].kind == SCHEDULE_RECV &&
					   schedule.programs[r].actions[k].peer == SCHEDULE_ANY;
		other.limit = 1000;
		schedule_judge(&other, &other_verdict);
		places += other_verdict.outcome != verdict.outcome;
	}
	assert_true(outcomes[SCHEDULE_ENDS_WELL] > 1000);
	assert_true(outcomes[SCHEDULE_DEADLOCKS] > 300);
	assert_true(several > 100); /* where timing decides which receive gets which message */
	assert_true(sources > 1000);
	assert_true(places > 10); /* where it matters that places are few */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(legal_sequences_end_well),
		cmocka_unit_test(the_same_seed_makes_the_same),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
