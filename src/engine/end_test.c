/* SPDX-License-Identifier: BSD-3-Clause
 * What two ranks that have closed a group find out from each other's numbers alone: they may have
 * no entry left to compare. */
#include "engine/end.h"
#include "engine/engine_fixture.h"

enum { SEQ = 40 };

static int open_pair(void **state)
{
	static const struct settings settings = {.messages = 16};
	*state = fixture_open(2, &settings);
	return 0;
}

static int close_pair(void **state)
{
	fixture_close(*state);
	return 0;
}

/* Rank 0 has closed the group after this many collectives with this hash, and then rank 1 after
 * SEQ. */
static bool compare(struct fixture *fixture, uint64_t seq, uint64_t history,
		    struct engine_difference *out)
{
	struct engine *first = fixture->units[0].engine, *second = fixture->units[1].engine;
	first->history = history;
	second->history = 7;
	engine_end_publish(first, seq);
	engine_end_publish(second, SEQ);
	return engine_end_compare(second, SEQ, NULL, out);
}

static void test_alike(void **state)
{
	struct engine_difference out;
	assert_false(compare(*state, SEQ, 7, &out));
}

/* They have called as many, but one of them was another one. */
static void test_other_history(void **state)
{
	struct engine_difference out;
	assert_true(compare(*state, SEQ, 8, &out));
	assert_int_equal(out.status, LS_MISMATCH);
	assert_int_equal(out.one, 1);
	assert_int_equal(out.other, 0);
	assert_int_equal(out.seq, SEQ);
}

static void test_fewer(void **state)
{
	struct engine_difference out;
	assert_true(compare(*state, SEQ - 1, 7, &out));
	assert_int_equal(out.status, LS_PEER_LEFT);
	assert_int_equal(out.one, 0);
	assert_int_equal(out.other, 1);
	assert_int_equal(out.seq, SEQ);
}

static void test_more(void **state)
{
	struct engine_difference out;
	assert_true(compare(*state, SEQ + 1, 7, &out));
	assert_int_equal(out.status, LS_PEER_LEFT);
	assert_int_equal(out.one, 1);
	assert_int_equal(out.other, 0);
	assert_int_equal(out.seq, SEQ + 1);
}

/* Rank 0 has closed the group after SEQ collectives, and rank 1 has entered this many, the last of
 * them with this count. */
static bool compare_inside(struct fixture *fixture, uint64_t entered, uint64_t count,
			   uint64_t history, struct engine_difference *out)
{
	const struct transport_team *team = fixture->units[1].engine->team;
	struct engine *first = fixture->units[0].engine;
	for (int q = 0; q < 2; q++)
		for (uint64_t seq = SEQ - 1; seq <= (q ? entered : SEQ); seq++) {
			struct transport_entry *entry = transport_entry(team, q, seq);
			entry->signature = 5;
			entry->count = q && seq == entered ? count : 3;
			entry->history = q && seq == entered ? history : 9;
			atomic_store(&entry->signal, transport_signal(seq, 0));
		}
	first->history = 9;
	engine_end_publish(first, SEQ);
	return engine_end_arrived(fixture->units[1].engine, 0, out);
}

static void test_inside_alike(void **state)
{
	struct engine_difference out;
	assert_false(compare_inside(*state, SEQ, 3, 9, &out));
}

/* What it calls next it compares itself. */
static void test_inside_behind(void **state)
{
	struct engine_difference out;
	assert_false(compare_inside(*state, SEQ - 1, 4, 9, &out));
}

static void test_inside_other_count(void **state)
{
	struct engine_difference out;
	assert_true(compare_inside(*state, SEQ, 4, 9, &out));
	assert_int_equal(out.status, LS_MISMATCH);
	assert_int_equal(out.one, 1);
	assert_int_equal(out.other, 0);
	assert_int_equal(out.seq, SEQ);
}

static void test_inside_more(void **state)
{
	struct engine_difference out;
	assert_true(compare_inside(*state, SEQ + 1, 3, 9, &out));
	assert_int_equal(out.status, LS_PEER_LEFT);
	assert_int_equal(out.one, 0);
	assert_int_equal(out.seq, SEQ + 1);
}

static void test_inside_more_after_others(void **state)
{
	struct engine_difference out;
	assert_true(compare_inside(*state, SEQ + 1, 3, 8, &out));
	assert_int_equal(out.status, LS_MISMATCH);
	assert_int_equal(out.seq, SEQ);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_alike, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_other_history, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_fewer, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_more, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_inside_alike, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_inside_behind, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_inside_other_count, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_inside_more, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_inside_more_after_others, open_pair, close_pair),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
