/* SPDX-License-Identifier: BSD-3-Clause
 * From times to a table: only a clearly faster algorithm is chosen; borders lie between sizes; the
 * lines can be read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tune/tune.h"

enum { INLINE_BYTES = 4096, SIZES = 5 };
static const uint64_t sizes[SIZES] = {64, 2048, 64 << 10, 1 << 20, 16 << 20};

static struct tune_times times;
static struct plan_table table;

/* Every candidate that is tried takes as long as the default. */
static int set_up(void **state)
{
	(void)state;
	times.size_count = SIZES;
	memcpy(times.sizes, sizes, sizeof sizes);
	free(times.seconds);
	times.seconds = calloc((size_t)tune_candidates() * COLL_COUNT * TUNE_SIZES_MAX,
			       sizeof *times.seconds);
	for (int k = 0; k < tune_candidates(); k++)
		for (int c = 0; c < COLL_COUNT; c++)
			for (int i = 0; i < SIZES; i++)
				if (tune_fits(k, (enum coll_id)c, sizes[i], INLINE_BYTES))
					*tune_at(&times, k, (enum coll_id)c, i) = 1;
	table.count = 0;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	free(times.seconds);
	times.seconds = NULL;
	return 0;
}

static int find(enum plan_algorithm algorithm, enum plan_stores stores, uint32_t chunk,
		uint32_t read, bool plain)
{
	for (int k = 0; k < tune_candidates(); k++) {
		const struct tune_candidate *c = tune_candidate(k);
		if (c->algorithm == algorithm && c->stores == stores && c->chunk_bytes == chunk &&
		    c->read_bytes == read && c->plain == plain)
			return k;
	}
	fail_msg("there is no such candidate");
	return -1;
}

static void takes(enum plan_algorithm algorithm, enum coll_id collective, int size, double seconds)
{
	*tune_at(&times, find(algorithm, PLAN_STORES_AUTO, 64 << 10, 0, false), collective, size) =
		seconds;
}

/* The lines of one collective, as text. */
static void expect(enum coll_id collective, const char *wanted)
{
	char text[4096] = "", line[PLAN_TABLE_TEXT_BYTES];
	table.count = 0;
	assert_true(tune_choose(&times, INLINE_BYTES, 3, 4, &table));
	for (int i = 0; i < table.count; i++) {
		size_t used = strlen(text);
		assert_true(plan_table_line_is_valid(&table.lines[i]));
		plan_table_text(&table, i, line);
		if (table.lines[i].collective == collective)
			snprintf(text + used, sizeof text - used, "%s\n", line);
	}
	assert_string_equal(text, wanted);
}

static void the_default_stays_unless_it_is_clearly_slower(void **state)
{
	(void)state;
	static const char usual[] =
		"all-reduce      3-4    max       inline     64K    auto         copy\n"
		"all-reduce      3-4    max       direct     64K    auto         copy\n";
	expect(COLL_ALLREDUCE, usual);
	expect(COLL_BARRIER,
	       "barrier         3-4    max       direct     64K    auto         copy\n");
	takes(PLAN_RING, COLL_ALLREDUCE, 3, 0.96);
	takes(PLAN_TREE, COLL_ALLREDUCE, 0, 1.5);
	expect(COLL_ALLREDUCE, usual);
	takes(PLAN_TREE, COLL_BARRIER, 0, 0.5);
	expect(COLL_BARRIER,
	       "barrier         3-4    max       tree       64K    auto         copy\n");
}

static void the_fastest_algorithm_is_chosen(void **state)
{
	(void)state;
	takes(PLAN_RING, COLL_ALLREDUCE, 2, 0.8);
	takes(PLAN_DOUBLING, COLL_ALLREDUCE, 2, 0.7);
	takes(PLAN_TREE, COLL_ALLREDUCE, 2, 0.9);
	takes(PLAN_RING, COLL_ALLREDUCE, 4, 0.9);
	expect(COLL_ALLREDUCE,
	       "all-reduce      3-4    max       inline     64K    auto         copy\n"
	       "all-reduce      3-4    256K      doubling   64K    auto         copy\n"
	       "all-reduce      3-4    4M        direct     64K    auto         copy\n"
	       "all-reduce      3-4    max       ring       64K    auto         copy\n");
	/* An inline algorithm that loses below its end has a border. */
	takes(PLAN_DIRECT, COLL_ALLREDUCE, 1, 0.5);
	takes(PLAN_DOUBLING, COLL_ALLREDUCE, 2, 1);
	takes(PLAN_RING, COLL_ALLREDUCE, 2, 1);
	takes(PLAN_TREE, COLL_ALLREDUCE, 2, 1);
	takes(PLAN_RING, COLL_ALLREDUCE, 4, 1);
	expect(COLL_ALLREDUCE,
	       "all-reduce      3-4    512       inline     64K    auto         copy\n"
	       "all-reduce      3-4    max       direct     64K    auto         copy\n");
}

static void chunk_stores_and_reads_are_chosen(void **state)
{
	(void)state;
	int small = find(PLAN_DIRECT, PLAN_STORES_AUTO, 16 << 10, 0, false);
	int nontemporal = find(PLAN_DIRECT, PLAN_STORES_NONTEMPORAL, 64 << 10, 0, false);
	int read = find(PLAN_NONE, PLAN_STORES_AUTO, 64 << 10, 512 << 10, true);
	*tune_at(&times, small, COLL_ALLREDUCE, 3) = 0.9;
	*tune_at(&times, small, COLL_ALLREDUCE, 4) = 0.9;
	*tune_at(&times, nontemporal, COLL_ALLREDUCE, 4) = 0.8;
	*tune_at(&times, read, COLL_ALLREDUCE, 4) = 0.5;
	expect(COLL_ALLREDUCE,
	       "all-reduce      3-4    max       inline     64K    auto         copy\n"
	       "all-reduce      3-4    256K      direct     64K    auto         copy\n"
	       "all-reduce      3-4    4M        direct     16K    auto         copy\n"
	       "all-reduce      3-4    max       direct     64K    nontemporal  512K\n");
	/* They do not matter to an algorithm that does not move data from buffer to buffer; and the
	 * default is compared with what it would be at its best only if it is the fastest as it
	 * is. */
	takes(PLAN_RING, COLL_ALLREDUCE, 4, 0.7);
	expect(COLL_ALLREDUCE,
	       "all-reduce      3-4    max       inline     64K    auto         copy\n"
	       "all-reduce      3-4    256K      direct     64K    auto         copy\n"
	       "all-reduce      3-4    4M        direct     16K    auto         copy\n"
	       "all-reduce      3-4    max       ring       64K    auto         copy\n");
}

/* The choice without a table: inline where the payload fits into an entry, else direct. */
static enum plan_algorithm usual(enum coll_id collective, uint64_t bytes)
{
	return bytes <= INLINE_BYTES && plan_has(collective, PLAN_INLINE) ? PLAN_INLINE
									  : PLAN_DIRECT;
}

static void what_was_chosen_is_what_is_chosen(void **state)
{
	(void)state;
	char text[8192] = "", line[PLAN_TABLE_TEXT_BYTES];
	struct plan_table_error error;
	struct plan_table_choice choice;
	takes(PLAN_DOUBLING, COLL_ALLREDUCE, 2, 0.7);
	takes(PLAN_PAIRWISE, COLL_ALLTOALL, 4, 0.7);
	assert_true(tune_choose(&times, INLINE_BYTES, 1, 2, &table));
	for (int i = 0; i < table.count; i++) {
		size_t used = strlen(text);
		plan_table_text(&table, i, line);
		snprintf(text + used, sizeof text - used, "%s\n", line);
	}
	assert_true(plan_table_parse(text, &table, &error));
	for (int c = 0; c < COLL_COUNT; c++)
		for (int i = 0; i < SIZES; i++) {
			plan_table_choose(&table, (enum coll_id)c, sizes[i], INLINE_BYTES, 2,
					  PLAN_NONE, &choice);
			enum plan_algorithm wanted = c == COLL_ALLREDUCE && i == 2 ? PLAN_DOUBLING
						     : c == COLL_ALLTOALL && i == 4
							     ? PLAN_PAIRWISE
							     : usual((enum coll_id)c, sizes[i]);
			assert_int_equal(choice.algorithm, wanted);
		}
}

static void candidates_are_tried_where_they_can_win(void **state)
{
	(void)state;
	for (int c = 0; c < COLL_COUNT; c++)
		for (int i = 0; i < SIZES; i++) {
			bool tried[PLAN_ALGORITHM_COUNT] = {false};
			assert_true(tune_fits(0, (enum coll_id)c, sizes[i], INLINE_BYTES));
			for (int k = 1; k < tune_candidates(); k++) {
				enum plan_algorithm a = tune_candidate(k)->algorithm;
				bool fits = tune_fits(k, (enum coll_id)c, sizes[i], INLINE_BYTES);
				assert_true(!fits || a == PLAN_NONE || plan_has((enum coll_id)c, a));
				tried[a] |= fits;
			}
			tried[usual((enum coll_id)c, sizes[i])] = true;
			/* They are tried on one host, where PLAN_RAILS is PLAN_DIRECT, and
			 * PLAN_LEADERS is PLAN_TREE. */
			for (int a = PLAN_INLINE; a < PLAN_ALGORITHM_COUNT; a++)
				assert_int_equal(
					tried[a],
					plan_has((enum coll_id)c, (enum plan_algorithm)a) &&
						a != PLAN_RAILS && a != PLAN_LEADERS &&
						(a != PLAN_INLINE || sizes[i] <= INLINE_BYTES));
		}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(the_default_stays_unless_it_is_clearly_slower),
		T(the_fastest_algorithm_is_chosen),
		T(chunk_stores_and_reads_are_chosen),
		T(what_was_chosen_is_what_is_chosen),
		T(candidates_are_tried_where_they_can_win),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
