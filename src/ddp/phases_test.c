/* SPDX-License-Identifier: BSD-3-Clause
 * Which rank is named as straggler, with what cost, from tables of times; and the words of the
 * report. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddp/phases.h"

enum { MS = 1000000, COLUMNS = 4, RANKS = 4 };

static const char *const names[COLUMNS] = {"backward", "data/image", "data", "forward"};

/* Own time and waiting of each rank, in milliseconds; the span is their sum unless it is given. */
struct row {
	int own[COLUMNS];
	int waited; /* in backward */
	int outside, outside_waited;
};

static struct ddp_phases *table(const struct row *rows, int ranks)
{
	struct ddp_phases *phases = ddp_phases_new(ranks);
	assert_non_null(phases);
	for (int rank = 0; rank < ranks; rank++) {
		const struct row *row = &rows[rank];
		struct trace_phases of = {0};
		of.outside_ns = (uint64_t)row->outside_waited * MS;
		of.span_ns = (uint64_t)(row->outside + row->outside_waited + row->waited) * MS;
		for (int i = 0; i < COLUMNS; i++) {
			int column = (i + rank) % COLUMNS; /* each rank met them in another order */
			if (!row->own[column])
				continue;
			uint64_t waited = column == 0 ? (uint64_t)row->waited * MS : 0;
			uint64_t own = (uint64_t)row->own[column] * MS;
			of.span_ns += own;
			of.phases[of.count].ns = own + waited;
			of.phases[of.count].waited_ns = waited;
			of.phases[of.count].count = 10;
			snprintf(of.phases[of.count++].name, TRACE_PHASE_BYTES, "%s", names[column]);
		}
		ddp_phases_add(phases, rank, &of);
	}
	return phases;
}

static const struct {
	const char *what;
	struct row rows[RANKS];
	int count;
	const char *sentences[2];
} cases[] = {
	{"all alike: nobody",
	 {{{50, 20, 5, 25}, 0, 0, 0},
	  {{50, 20, 5, 25}, 0, 0, 0},
	  {{50, 20, 5, 25}, 0, 0, 0},
	  {{50, 20, 5, 25}, 0, 0, 0}},
	 0,
	 {NULL}},
	{"what waiting adds to a phase is nobody's fault",
	 {{{50, 20, 5, 25}, 64, 0, 0},
	  {{50, 20, 5, 25}, 64, 0, 0},
	  {{50, 20, 5, 25}, 64, 0, 0},
	  {{50, 84, 5, 25}, 0, 0, 0}},
	 1,
	 {"rank 3 spends 4.2x the median in data/image, which costs 39 % of the step"}},
	{"the slow half is measured by the other one",
	 {{{50, 10, 5, 25}, 30, 0, 0},
	  {{50, 40, 5, 25}, 0, 0, 0},
	  {{50, 10, 5, 25}, 30, 0, 0},
	  {{50, 38, 5, 25}, 2, 0, 0}},
	 1,
	 {"ranks 1 and 3 spend 3.8x to 4.0x the median in data/image, which costs 25 % of the step"}},
	{"slow in one phase and fast in another costs nothing",
	 {{{50, 20, 5, 25}, 0, 0, 0},
	  {{50, 20, 5, 25}, 0, 0, 0},
	  {{50, 20, 5, 25}, 0, 0, 0},
	  {{30, 40, 5, 25}, 0, 0, 0}},
	 0,
	 {NULL}},
	{"within 1.2x: nobody",
	 {{{50, 20, 5, 25}, 9, 0, 0},
	  {{50, 20, 5, 25}, 9, 0, 0},
	  {{50, 20, 5, 25}, 9, 0, 0},
	  {{59, 20, 5, 25}, 0, 0, 0}},
	 0,
	 {NULL}},
	{"half a percent: nobody",
	 {{{50, 45, 2, 102}, 1, 0, 0},
	  {{50, 45, 2, 102}, 1, 0, 0},
	  {{50, 45, 2, 102}, 1, 0, 0},
	  {{50, 45, 3, 102}, 0, 0, 0}},
	 0,
	 {NULL}},
	{"two phases, the costlier one first",
	 {{{50, 20, 5, 25}, 90, 0, 0},
	  {{50, 20, 5, 25}, 90, 0, 0},
	  {{50, 20, 5, 25}, 90, 0, 0},
	  {{80, 80, 5, 25}, 0, 0, 0}},
	 2,
	 {"rank 3 spends 4.0x the median in data/image, which costs 32 % of the step",
	  "rank 3 spends 1.6x the median in backward, which costs 16 % of the step"}},
	{"a phase that only one rank has",
	 {{{50, 20, 5, 25}, 0, 0, 0},
	  {{50, 20, 0, 25}, 5, 0, 0},
	  {{50, 20, 0, 25}, 5, 0, 0},
	  {{50, 20, 0, 25}, 5, 0, 0}},
	 1,
	 {"rank 0 spends 5.0 ms in data, where the median rank spends nothing, which costs 5 % of the step"}},
	{"the median is next to nothing",
	 {{{50, 20, 1, 25}, 119, 0, 0},
	  {{50, 20, 1, 25}, 119, 0, 0},
	  {{50, 20, 1, 25}, 119, 0, 0},
	  {{50, 20, 120, 25}, 0, 0, 0}},
	 1,
	 {"rank 3 spends 120 ms in data, where the median rank spends 1.0 ms, which costs 55 % of the step"}},
	{"the same, of two ranks",
	 {{{50, 20, 1, 25}, 119, 0, 0},
	  {{50, 20, 110, 25}, 10, 0, 0},
	  {{50, 20, 1, 25}, 119, 0, 0},
	  {{50, 20, 120, 25}, 0, 0, 0}},
	 1,
	 {"ranks 1 and 3 spend up to 120 ms in data, where the median rank spends 1.0 ms, which costs 55 % "
	  "of the step"}},
	{"outside of all phases",
	 {{{50, 20, 5, 25}, 0, 10, 40},
	  {{50, 20, 5, 25}, 0, 50, 0},
	  {{50, 20, 5, 25}, 0, 10, 40},
	  {{50, 20, 5, 25}, 0, 10, 40}},
	 1,
	 {"rank 1 spends 5.0x the median outside of phases, which costs 27 % of the step"}},
	{"only who is far ahead of the others is named",
	 {{{50, 20, 5, 25}, 80, 0, 0},
	  {{50, 20, 5, 25}, 80, 0, 0},
	  {{50, 30, 5, 25}, 70, 0, 0},
	  {{50, 100, 5, 25}, 0, 0, 0}},
	 1,
	 {"rank 3 spends 5.0x the median in data/image, which costs 39 % of the step"}},
};

static void stragglers_are_named(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ddp_phases *phases = table(cases[i].rows, RANKS);
		struct ddp_stragglers found;
		ddp_phases_judge(phases, &found);
		if (found.count != cases[i].count)
			fail_msg("%s: %d stragglers", cases[i].what, found.count);
		for (int s = 0; s < found.count; s++) {
			char sentence[256];
			ddp_phases_sentence(phases, &found.stragglers[s], sentence, sizeof sentence);
			assert_string_equal(sentence, cases[i].sentences[s]);
		}
		free(phases);
	}
}

static void two_ranks_and_one(void **state)
{
	(void)state;
	const struct row rows[] = {{{50, 60, 5, 25}, 0, 0, 0}, {{50, 20, 5, 25}, 40, 0, 0}};
	struct ddp_phases *phases = table(rows, 2);
	struct ddp_stragglers found;
	ddp_phases_judge(phases, &found);
	assert_int_equal(found.count, 1);
	assert_true(ranks_are_equal(&found.stragglers[0].ranks, &(struct ranks){{1}}));
	assert_true(found.stragglers[0].share > 0.285 && found.stragglers[0].share < 0.286);
	free(phases);
	phases = table(rows, 1);
	ddp_phases_judge(phases, &found);
	assert_int_equal(found.count, 0);
	free(phases);
}

/* A rank without phases, or that cannot be read, is not what others are measured by. */
static void absent_ranks_do_not_count(void **state)
{
	(void)state;
	static const struct row rows[] = {{{50, 60, 5, 25}, 0, 0, 0}, {{50, 20, 5, 25}, 40, 0, 0}};
	struct ddp_phases *two = table(rows, 2), *phases = ddp_phases_new(5);
	char text[4096];
	assert_non_null(phases);
	*phases = *two;
	phases->rank_count = 5;
	const struct trace_phases none = {.span_ns = 0};
	ddp_phases_add(phases, 2, &none);
	ddp_phases_add(phases, 4, &none);
	struct ddp_stragglers found;
	ddp_phases_judge(phases, &found);
	assert_int_equal(found.count, 1);
	assert_true(ranks_are_equal(&found.stragglers[0].ranks, &(struct ranks){{1}}));
	assert_true(found.stragglers[0].most == 3);
	ddp_phases_text(phases, text, sizeof text);
	assert_non_null(strstr(text, "\n     2  has not begun a phase\n"));
	assert_non_null(strstr(text, "\n     3  cannot be read\n"));
	free(two);
	free(phases);
}

/* Eight threads of rank 1 load ahead. Only what rank 0 waits for can be gained. */
static void threads_cost_what_others_wait(void **state)
{
	(void)state;
	static const int waited[] = {0, 30, 150}; /* the last one is nonsense */
	for (size_t i = 0; i < sizeof waited / sizeof waited[0]; i++) {
		struct ddp_phases *phases = ddp_phases_new(2);
		struct ddp_stragglers found;
		assert_non_null(phases);
		for (int rank = 0; rank < 2; rank++) {
			struct trace_phases of = {.span_ns = 100 * MS, .count = 1};
			memcpy(of.phases[0].name, "data", 5);
			of.phases[0].ns = rank ? 800 * MS : 50 * MS;
			of.outside_ns = rank ? 0 : (uint64_t)waited[i] * MS;
			ddp_phases_add(phases, rank, &of);
		}
		ddp_phases_judge(phases, &found);
		assert_int_equal(found.count, waited[i] > 0);
		if (found.count)
			assert_true(found.stragglers[0].share == (i == 1 ? 0.3 : 1));
		assert_true(phases->own[1][DDP_OUTSIDE] == 0);
		free(phases);
	}
}

static void report_is_whole(void **state)
{
	(void)state;
	static const struct row rows[RANKS] = {{{50, 20, 5, 25}, 64, 3, 0},
					       {{50, 20, 5, 25}, 64, 3, 1},
					       {{50, 20, 5, 25}, 64, 3, 0},
					       {{50, 84, 5, 25}, 0, 3, 0}};
	static const char expected[] =
		"rank 3 spends 4.2x the median in data/image, which costs 38 % of the step\n"
		"milliseconds of own work in each phase, of 168.00 in all; skew: work beyond the median rank's\n"
		"  rank      data  data/image   forward  backward   outside   waiting      skew\n"
		"     0      5.00       20.00     25.00     50.00      3.00     64.00      +0 %\n"
		"     1      5.00       20.00     25.00     50.00      3.00     65.00      +0 %\n"
		"     2      5.00       20.00     25.00     50.00      3.00     64.00      +0 %\n"
		"     3      5.00       84.00     25.00     50.00      3.00      0.00     +38 %  in forward\n";
	struct ddp_phases *phases = table(rows, RANKS);
	char text[sizeof expected + 8];
	for (int column = 1; column < phases->column_count; column++)
		if (strcmp(phases->names[column], "forward") == 0)
			phases->running[3] = column;
	ddp_phases_text(phases, text, sizeof text);
	assert_string_equal(text, expected);
	/* Of any smaller buffer whole lines come first, and nothing behind its end is touched. */
	for (size_t bytes = 0; bytes < sizeof expected; bytes++) {
		memset(text, '#', sizeof text);
		ddp_phases_text(phases, text, bytes);
		assert_int_equal(text[bytes], '#');
		size_t length = bytes ? strlen(text) : 0;
		assert_true(length < bytes || !bytes);
		assert_memory_equal(text, expected, length);
		assert_true(!length || text[length - 1] == '\n');
		/* No more fits. */
		assert_true(length + strcspn(expected + length, "\n") + 2 > bytes);
	}
	free(phases);
}

static void many_columns_are_wrapped(void **state)
{
	(void)state;
	struct ddp_phases *phases = ddp_phases_new(2);
	struct trace_phases of = {.span_ns = 1000 * MS, .count = TRACE_PHASE_MAX};
	static char text[65536];
	assert_non_null(phases);
	for (int i = 0; i < TRACE_PHASE_MAX; i++) {
		snprintf(of.phases[i].name, TRACE_PHASE_BYTES, "%c%0*d", 'a' + i % 26, i % 60, i);
		of.phases[i].ns = MS;
	}
	ddp_phases_add(phases, 0, &of);
	of.phases[0].name[0] = 'Z';
	ddp_phases_add(phases, 1, &of);
	assert_int_equal(phases->left_out, 1);
	ddp_phases_text(phases, text, sizeof text);
	int lines = 0;
	for (const char *line = text; *line; line += strcspn(line, "\n") + 1, lines++)
		assert_true(strcspn(line, "\n") <= 100);
	for (int column = 0; column < phases->column_count; column++)
		assert_non_null(strstr(text, phases->names[column]));
	assert_true(lines > 3 * 10);
	assert_non_null(strstr(text, "left out"));
	free(phases);
}

static void nothing_recorded_is_said(void **state)
{
	(void)state;
	struct ddp_phases *phases = ddp_phases_new(1);
	char text[64];
	assert_non_null(phases);
	ddp_phases_text(phases, text, sizeof text);
	assert_string_equal(text, "no rank has begun a phase\n");
	free(phases);
}

static void order_is_that_of_a_step(void **state)
{
	(void)state;
	static const char *const met[] = {
		"optimizer", "zeta", "database", "backward/head", "data/image/jpeg",
		"forward",   "data", "backward", "alpha",         "data/text"};
	static const char *const order[] = {
		"data",      "data/image/jpeg", "data/text", "forward", "backward", "backward/head",
		"optimizer", "alpha",           "database",  "zeta",    "outside"};
	struct ddp_phases *phases = ddp_phases_new(1);
	struct trace_phases of = {.count = sizeof met / sizeof met[0]};
	int columns[DDP_COLUMN_MAX];
	assert_non_null(phases);
	for (uint32_t i = 0; i < of.count; i++)
		snprintf(of.phases[i].name, TRACE_PHASE_BYTES, "%s", met[i]);
	ddp_phases_add(phases, 0, &of);
	assert_int_equal(ddp_phases_order(phases, columns), sizeof order / sizeof order[0]);
	for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
		assert_string_equal(phases->names[columns[i]], order[i]);
	free(phases);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stragglers_are_named),
		cmocka_unit_test(two_ranks_and_one),
		cmocka_unit_test(absent_ranks_do_not_count),
		cmocka_unit_test(threads_cost_what_others_wait),
		cmocka_unit_test(report_is_whole),
		cmocka_unit_test(many_columns_are_wrapped),
		cmocka_unit_test(nothing_recorded_is_said),
		cmocka_unit_test(order_is_that_of_a_step),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
