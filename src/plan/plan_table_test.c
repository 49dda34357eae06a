/* SPDX-License-Identifier: BSD-3-Clause
 * The table of choices: its defaults, that text can be read and written back, that the first line
 * that fits is taken, and that each wrong line is refused by its number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan_table.h"

enum { INLINE_BYTES = 4096 };

static struct plan_table table;

static void read_good(const char *text)
{
	struct plan_table_error error;
	if (!plan_table_parse(text, &table, &error))
		fail_msg("line %d: %s", error.line, error.text);
	for (int i = 0; i < table.total; i++)
		assert_true(plan_table_line_is_valid(&table.lines[i]));
}

static struct plan_table_choice choose(enum coll_id collective, uint64_t bytes, int size)
{
	struct plan_table_choice choice;
	plan_table_choose(&table, collective, bytes, INLINE_BYTES, size, PLAN_NONE, &choice);
	return choice;
}

/* What the default table says: inline where the payload fits, else direct; a caller that wants
 * another algorithm gets it where the collective has it. */
static enum plan_algorithm expected(enum coll_id collective, uint64_t bytes,
				    enum plan_algorithm wanted)
{
	bool fits = bytes != UINT64_MAX && bytes <= INLINE_BYTES;
	if (plan_has(collective, wanted) && (wanted != PLAN_INLINE || fits))
		return wanted;
	return fits && plan_has(collective, PLAN_INLINE) ? PLAN_INLINE : PLAN_DIRECT;
}

static void the_choice_follows_size_and_wish(void **state)
{
	(void)state;
	static const struct {
		enum coll_id collective;
		uint64_t bytes;
		enum plan_algorithm wanted, chosen;
	} cases[] = {
		{COLL_ALLREDUCE, 0, PLAN_NONE, PLAN_INLINE},
		{COLL_ALLREDUCE, 4096, PLAN_NONE, PLAN_INLINE},
		{COLL_ALLREDUCE, 4097, PLAN_NONE, PLAN_DIRECT},
		{COLL_ALLREDUCE, 4, PLAN_DIRECT, PLAN_DIRECT},
		{COLL_ALLREDUCE, 4, PLAN_RING, PLAN_RING},
		{COLL_ALLREDUCE, 4097, PLAN_INLINE, PLAN_DIRECT},
		{COLL_ALLREDUCE, UINT64_MAX, PLAN_NONE, PLAN_DIRECT},
		{COLL_ALLREDUCE, UINT64_MAX, PLAN_TREE, PLAN_TREE},
		{COLL_ALLREDUCE, 4, PLAN_PULL, PLAN_PULL},
		{COLL_REDUCE, 4, PLAN_PULL, PLAN_INLINE},
		{COLL_ALLTOALL, 4, PLAN_NONE, PLAN_INLINE},
		{COLL_ALLTOALL, 5000, PLAN_RING, PLAN_DIRECT},
		{COLL_ALLTOALL, 5000, PLAN_PAIRWISE, PLAN_PAIRWISE},
		{COLL_REDUCE_SCATTER, UINT64_MAX, PLAN_INLINE, PLAN_DIRECT},
		{COLL_BROADCAST, 4096, PLAN_NONE, PLAN_INLINE},
		{COLL_BROADCAST, 4097, PLAN_NONE, PLAN_DIRECT},
		{COLL_BROADCAST, 4, PLAN_TREE, PLAN_TREE},
		{COLL_BROADCAST, 4, PLAN_DOUBLING, PLAN_INLINE},
		{COLL_BARRIER, 0, PLAN_NONE, PLAN_DIRECT},
		{COLL_BARRIER, 0, PLAN_RING, PLAN_DIRECT},
		{COLL_BARRIER, 0, PLAN_DOUBLING, PLAN_DOUBLING},
	};
	struct plan_table_choice choice;
	plan_table_default(&table);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		plan_table_choose(&table, cases[i].collective, cases[i].bytes, INLINE_BYTES, 4,
				  cases[i].wanted, &choice);
		assert_int_equal(choice.algorithm, cases[i].chosen);
		assert_false(choice.is_given);
	}
	plan_table_choose(&table, COLL_ALLGATHER, UINT64_MAX, UINT64_MAX, 4, PLAN_NONE, &choice);
	assert_int_equal(choice.algorithm, PLAN_DIRECT);
}

/* Where one algorithm ends and the next begins, with a processor for each rank and without. */
static void defaults_depend_on_processors(void **state)
{
	(void)state;
	static const struct {
		enum coll_id collective;
		uint64_t roomy, oversubscribed; /* the longest inline payloads */
	} cases[] = {
		{COLL_ALLREDUCE, 4 << 10, 8 << 10},       {COLL_ALLGATHER, 4 << 10, 8 << 10},
		{COLL_REDUCE_SCATTER, 4 << 10, 16 << 10}, {COLL_ALLTOALL, 4 << 10, 16 << 10},
		{COLL_REDUCE, 6 << 10, 16 << 10},         {COLL_BROADCAST, 6 << 10, 16 << 10},
		{COLL_GATHER, 6 << 10, 16 << 10},         {COLL_SCATTER, 6 << 10, 16 << 10},
	};
	for (int oversubscribed = 0; oversubscribed < 2; oversubscribed++)
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
			for (int above = 0; above < 2; above++) {
				struct plan_table_choice choice;
				uint64_t most =
					oversubscribed ? cases[i].oversubscribed : cases[i].roomy;
				read_good("barrier any max tree 64K auto copy");
				if (oversubscribed)
					plan_table_oversubscribe(&table);
				plan_table_choose(&table, cases[i].collective, most + above,
						  16 << 10, 4, PLAN_NONE, &choice);
				assert_int_equal(choice.algorithm,
						 above ? PLAN_DIRECT : PLAN_INLINE);
				/* The lines of the text stay. */
				plan_table_choose(&table, COLL_BARRIER, 0, 16 << 10, 4, PLAN_NONE,
						  &choice);
				assert_int_equal(choice.algorithm, PLAN_TREE);
			}
}

static struct plan_table_choice choice_of(enum coll_id collective, uint64_t bytes, int size)
{
	struct plan_table_choice choice;
	plan_table_choose(&table, collective, bytes, 16 << 10, size, PLAN_NONE, &choice);
	return choice;
}

/* Plain payloads that are read by address, at once up to `at_once` bytes, are longer than `copied`,
 * and not longer than `longest`. at_once 0: none. */
struct reading {
	uint64_t copied, longest, at_once;
};

static void check_reading(enum coll_id collective, int size, const struct reading *reading)
{
	uint64_t at_once = reading->at_once, beyond = reading->longest + 1;
	assert_int_equal(choice_of(collective, reading->copied, size).read_bytes, 0);
	assert_int_equal(choice_of(collective, reading->copied + 1, size).read_bytes, at_once);
	assert_int_equal(choice_of(collective, reading->longest, size).read_bytes, at_once);
	if (beyond)
		assert_int_equal(choice_of(collective, beyond, size).read_bytes, 0);
}

/* Two ranks have borders of their own; where they share a processor, all is as for more ranks. */
static void two_ranks_have_defaults_of_their_own(void **state)
{
	(void)state;
	enum { K = 1 << 10, M = 1 << 20 };
	static const struct {
		enum coll_id collective;
		uint64_t most; /* the longest inline payload of two ranks */
		struct reading of_two, of_more;
	} cases[] = {
		{COLL_ALLREDUCE, 4 * K, {0}, {0}},
		{COLL_REDUCE, 6 * K, {0}, {0}},
		{COLL_BROADCAST, 4 * K, {16 * K, M, 256 * K}, {0}},
		{COLL_GATHER, 4 * K, {16 * K, 256 * K, 256 * K}, {0}},
		{COLL_SCATTER, 6 * K, {16 * K, UINT64_MAX, 512 * K}, {128 * K, UINT64_MAX, 512 * K}},
		{COLL_ALLGATHER, 2 * K, {16 * K, UINT64_MAX, 512 * K}, {0}},
		{COLL_REDUCE_SCATTER, 2 * K, {16 * K, M, 256 * K}, {0}},
		{COLL_ALLTOALL, 2 * K, {16 * K, UINT64_MAX, 512 * K}, {512 * K, UINT64_MAX, 512 * K}},
	};
	for (int oversubscribed = 0; oversubscribed < 2; oversubscribed++)
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
			enum coll_id collective = cases[i].collective;
			read_good("");
			assert_int_equal(table.total, PLAN_TABLE_DEFAULT_LINES);
			for (int again = 0; oversubscribed && again < 2; again++) {
				plan_table_oversubscribe(&table);
				assert_int_equal(table.total, PLAN_TABLE_OVERSUBSCRIBED_LINES);
			}
			for (int size = 1; size <= 4; size++) {
				bool pair = size == 2 && !oversubscribed;
				uint64_t most = cases[i].most;
				if (pair) {
					assert_int_equal(choice_of(collective, most, size).algorithm,
							 PLAN_INLINE);
					assert_int_equal(
						choice_of(collective, most + 1, size).algorithm,
						PLAN_DIRECT);
				}
				check_reading(collective, size,
					      pair ? &cases[i].of_two : &cases[i].of_more);
			}
		}
}

/* By five ranks. */
static uint64_t expected_read(enum coll_id collective, uint64_t bytes)
{
	bool reads = (collective == COLL_SCATTER && bytes > 128 << 10) ||
		     (collective == COLL_ALLTOALL && bytes > 512 << 10);
	return reads ? 512 << 10 : 0;
}

static void the_default_is_the_choice_without_a_table(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {0,
					 1,
					 8,
					 INLINE_BYTES - 1,
					 INLINE_BYTES,
					 INLINE_BYTES + 1,
					 64 << 10,
					 16 << 20,
					 UINT64_MAX - 1,
					 UINT64_MAX};
	for (int empty = 0; empty < 2; empty++) {
		if (empty)
			read_good("");
		else
			plan_table_default(&table);
		for (int c = 0; c < COLL_COUNT; c++)
			for (int a = PLAN_NONE; a < PLAN_ALGORITHM_COUNT; a++)
				for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
					struct plan_table_choice choice;
					plan_table_choose(&table, (enum coll_id)c, sizes[i],
							  INLINE_BYTES, 5, (enum plan_algorithm)a,
							  &choice);
					assert_int_equal(choice.algorithm,
							 expected((enum coll_id)c, sizes[i],
								  (enum plan_algorithm)a));
					assert_int_equal(choice.stores, PLAN_STORES_AUTO);
					assert_int_equal(choice.chunk_bytes, 64 << 10);
					assert_int_equal(choice.read_bytes,
							 expected_read((enum coll_id)c, sizes[i]));
				}
	}
}

static const char good[] = "# a comment\n"
			   "\n"
			   "  allreduce 2 1000 tree 4K plain 4K # and one behind\n"
			   "allreduce\t2-4  64K  doubling  32K nontemporal 128K\n"
			   "barrier   3-64 max tree 64K plain 256K\n"
			   "any any 1M ring 16K auto copy\n"
			   "any 7 max inline 8K plain 256K";

static void the_first_line_that_fits_is_taken(void **state)
{
	(void)state;
	read_good(good);
	assert_int_equal(table.count, 5);
	struct plan_table_choice choice = choose(COLL_ALLREDUCE, 1000, 2);
	assert_int_equal(choice.algorithm, PLAN_TREE);
	assert_true(choice.is_given);
	assert_int_equal(choice.chunk_bytes, 4096);
	assert_int_equal(choice.read_bytes, 4096);
	choice = choose(COLL_ALLREDUCE, 1001, 2);
	assert_int_equal(choice.algorithm, PLAN_DOUBLING);
	assert_int_equal(choice.stores, PLAN_STORES_NONTEMPORAL);
	assert_int_equal(choice.chunk_bytes, 32 << 10);
	assert_int_equal(choice.read_bytes, 128 << 10);
	assert_int_equal(choose(COLL_ALLREDUCE, 1000, 4).algorithm, PLAN_DOUBLING);
	assert_int_equal(choose(COLL_ALLREDUCE, 64 << 10, 4).algorithm, PLAN_DOUBLING);
	assert_int_equal(choose(COLL_ALLREDUCE, (64 << 10) + 1, 4).algorithm, PLAN_RING);
	assert_int_equal(choose(COLL_ALLREDUCE, 8, 5).algorithm, PLAN_RING);
	assert_int_equal(choose(COLL_BARRIER, 0, 64).algorithm, PLAN_TREE);
	choice = choose(COLL_BARRIER, 0, 2);
	assert_int_equal(choice.algorithm, PLAN_DIRECT);
	assert_false(choice.is_given);
	/* A line for any collective is not for one that lacks the algorithm. */
	assert_int_equal(choose(COLL_ALLTOALL, 100, 2).algorithm, PLAN_INLINE);
	assert_int_equal(choose(COLL_ALLTOALL, 100, 7).chunk_bytes, 8192);
	assert_int_equal(choose(COLL_ALLTOALL, INLINE_BYTES + 1, 7).algorithm, PLAN_DIRECT);
	/* What is not known to all ranks is more than any number. */
	assert_int_equal(choose(COLL_ALLREDUCE, UINT64_MAX, 2).algorithm, PLAN_DIRECT);
	assert_int_equal(choose(COLL_COUNT, 8, 2).algorithm, PLAN_NONE);
	assert_int_equal(choose(COLL_ALLREDUCE, 8, 0).algorithm, PLAN_NONE);
}

static void a_wish_wins_where_it_can(void **state)
{
	(void)state;
	struct plan_table_choice choice;
	read_good(good);
	plan_table_choose(&table, COLL_ALLREDUCE, 1000, INLINE_BYTES, 2, PLAN_RING, &choice);
	assert_int_equal(choice.algorithm, PLAN_RING);
	assert_int_equal(choice.chunk_bytes, 4096);
	plan_table_choose(&table, COLL_ALLREDUCE, 8192, INLINE_BYTES, 2, PLAN_INLINE, &choice);
	assert_int_equal(choice.algorithm, PLAN_DOUBLING);
	plan_table_choose(&table, COLL_ALLTOALL, 8192, INLINE_BYTES, 2, PLAN_RING, &choice);
	assert_int_equal(choice.algorithm, PLAN_DIRECT);
}

static void narrowing_changes_no_choice(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {8, 1000, 1001, 64 << 10, 1 << 20, 2 << 20};
	for (int size = 1; size <= 8; size++)
		for (int c = 0; c < COLL_COUNT; c++)
			for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
				read_good(good);
				struct plan_table_choice before =
					choose((enum coll_id)c, sizes[i], size);
				plan_table_narrow(&table, size);
				struct plan_table_choice after =
					choose((enum coll_id)c, sizes[i], size);
				assert_int_equal(before.algorithm, after.algorithm);
				assert_int_equal(before.chunk_bytes, after.chunk_bytes);
			}
	read_good(good);
	plan_table_narrow(&table, 2);
	assert_int_equal(table.count, 3);
	assert_int_equal(table.total, 3 + PLAN_TABLE_DEFAULT_LINES);
}

static void what_is_written_can_be_read(void **state)
{
	(void)state;
	char text[4096] = "", line[PLAN_TABLE_TEXT_BYTES];
	read_good(good);
	uint64_t hash = plan_table_hash(&table);
	for (int i = -1; i < table.count; i++) {
		size_t used = strlen(text);
		plan_table_text(&table, i, line);
		snprintf(text + used, sizeof text - used, "%s\n", line);
	}
	struct plan_table before = table;
	read_good(text);
	assert_int_equal(table.count, before.count);
	assert_true(plan_table_hash(&table) == hash);
	for (int i = 0; i < table.count; i++) {
		const struct plan_table_line *a = &table.lines[i], *b = &before.lines[i];
		assert_true(a->bytes_max == b->bytes_max && a->collective == b->collective &&
			    a->algorithm == b->algorithm && a->stores == b->stores &&
			    a->ranks_min == b->ranks_min && a->ranks_max == b->ranks_max &&
			    a->chunk_bytes == b->chunk_bytes && a->read_bytes == b->read_bytes);
	}
	plan_table_text(&table, 1, line);
	assert_string_equal(line,
			    "all-reduce      2-4    64K       doubling   32K    nontemporal  128K");
	plan_table_text(&table, -1, line);
	assert_string_equal(line,
			    "# collective    ranks  up to     algorithm  chunk  stores       read");
	plan_table_text(&table, table.count, line);
	assert_string_equal(line, "");
}

static void the_hash_tells_tables_apart(void **state)
{
	(void)state;
	read_good("allreduce 2 64K ring 64K plain 256K\n");
	uint64_t one = plan_table_hash(&table);
	read_good("# the same\nallreduce 2-2   65536 ring 65536  plain 256K\n\n");
	assert_true(plan_table_hash(&table) == one);
	static const char *const others[] = {"",
					     "reduce    2 64K tree 64K plain 256K",
					     "allreduce 3 64K ring 64K plain 256K",
					     "allreduce 2 32K ring 64K plain 256K",
					     "allreduce 2 64K tree 64K plain 256K",
					     "allreduce 2 64K ring 32K plain 256K",
					     "allreduce 2 64K ring 64K nontemporal 256K",
					     "allreduce 2 64K ring 64K plain 128K"};
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		read_good(others[i]);
		assert_true(plan_table_hash(&table) != one);
		assert_true(plan_table_hash(&table) != 0);
	}
}

static void what_is_wrong_is_refused(void **state)
{
	(void)state;
	static const struct {
		const char *line, *error;
	} wrong[] = {
		{"allreduce 2 64K ring 64K plain", "6 words instead of 7"},
		{"allreduce 2 64K ring 64K plain 256K more", "8 words instead of 7"},
		{"allreduc 2 64K ring 64K plain 256K", "no collective 'allreduc'"},
		{"allreduce 0 64K ring 64K plain 256K", "ranks are such as"},
		{"allreduce 4-2 64K ring 64K plain 256K", "ranks are such as"},
		{"allreduce 2-4097 64K ring 64K plain 256K", "ranks are such as"},
		{"allreduce 2- 64K ring 64K plain 256K", "ranks are such as"},
		{"allreduce -2 64K ring 64K plain 256K", "ranks are such as"},
		{"allreduce 2x 64K ring 64K plain 256K", "ranks are such as"},
		{"allreduce 2 64Q ring 64K plain 256K", "'up to' is such as"},
		{"allreduce 2 0 ring 64K plain 256K", "'up to' is such as"},
		{"allreduce 2 99999999999999999999 ring 64K plain 256K", "'up to' is such as"},
		{"allreduce 2 64K rings 64K plain 256K", "no algorithm 'rings'"},
		{"any 2 64K none 64K plain 256K", "no algorithm 'none'"},
		{"alltoall 2 64K ring 64K plain 256K", "all-to-all has no algorithm 'ring'"},
		{"allreduce 2 64K ring 128K plain 256K", "'chunk' is a multiple of 4K up to 64K"},
		{"allreduce 2 64K ring 0 plain 256K", "'chunk' is a multiple of 4K"},
		{"allreduce 2 64K ring 5000 plain 256K", "'chunk' is a multiple of 4K"},
		{"allreduce 2 64K ring 64K fast 256K",
		 "stores are auto, plain or nontemporal, not 'fast'"},
		{"allreduce 2 64K ring 64K plain 1M", "'read' is a multiple of 4K up to 512K"},
		{"\033[31m 2 64K ring 64K plain 1M", "no collective '?[31m'"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		char text[256];
		struct plan_table_error error;
		snprintf(text, sizeof text, "any any max direct 64K plain 256K\n\n%s\nx",
			 wrong[i].line);
		assert_false(plan_table_parse(text, &table, &error));
		assert_int_equal(error.line, 3);
		if (!strstr(error.text, wrong[i].error))
			fail_msg("'%s' is refused with: %s", wrong[i].line, error.text);
		assert_int_equal(table.count, PLAN_TABLE_DEFAULT_LINES);
		assert_int_equal(table.total, PLAN_TABLE_DEFAULT_LINES);
	}
}

static void a_table_has_an_end(void **state)
{
	(void)state;
	static char text[PLAN_TABLE_FILE_BYTES];
	static const char line[] = "any any max direct 64K plain 256K\n";
	struct plan_table_error error;
	for (int i = 0; i < PLAN_TABLE_LINES_MAX; i++)
		memcpy(text + (size_t)i * (sizeof line - 1), line, sizeof line);
	read_good(text);
	assert_int_equal(table.count, PLAN_TABLE_LINES_MAX);
	memcpy(text + PLAN_TABLE_LINES_MAX * (sizeof line - 1), line, sizeof line);
	assert_false(plan_table_parse(text, &table, &error));
	assert_int_equal(error.line, PLAN_TABLE_LINES_MAX + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_choice_follows_size_and_wish),
		cmocka_unit_test(defaults_depend_on_processors),
		cmocka_unit_test(two_ranks_have_defaults_of_their_own),
		cmocka_unit_test(the_default_is_the_choice_without_a_table),
		cmocka_unit_test(the_first_line_that_fits_is_taken),
		cmocka_unit_test(a_wish_wins_where_it_can),
		cmocka_unit_test(narrowing_changes_no_choice),
		cmocka_unit_test(what_is_written_can_be_read),
		cmocka_unit_test(the_hash_tells_tables_apart),
		cmocka_unit_test(what_is_wrong_is_refused),
		cmocka_unit_test(a_table_has_an_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
