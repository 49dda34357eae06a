/* SPDX-License-Identifier: BSD-3-Clause
 * What is a race, what is over, and which memory may be freed, without ranks and devices. */
#include "races/races_fixture.h"

/* ---- the host ---- */

static void overlap(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	uint64_t a = touch(&it, "a", NULL, buffer + 100, 100, true);
	assert_true(a);
	/* Before, behind, elsewhere, and nothing at all. */
	uint64_t beside[] = {touch(&it, "b", NULL, buffer, 100, true),
			     touch(&it, "c", NULL, buffer + 200, 100, true),
			     touch(&it, "d", NULL, other, 4096, true),
			     touch(&it, "e", NULL, buffer + 150, 0, true)};
	for (int i = 0; i < 4; i++)
		assert_true(beside[i]);
	races_end(it.races, beside[0]);
	races_end(it.races, beside[1]);
	assert_false(touch(&it, "f", NULL, buffer + 50, 60, false));
	assert_ptr_equal(it.conflict.address, buffer + 100);
	assert_int_equal(it.conflict.bytes, 10);
	assert_true(it.conflict.earlier_writes && !it.conflict.later_writes && is_first(&it, "a"));
	assert_false(touch(&it, "g", NULL, buffer + 199, 500, true));
	assert_ptr_equal(it.conflict.address, buffer + 199);
	assert_int_equal(it.conflict.bytes, 1);
	races_end(it.races, a);
	races_end(it.races, a); /* nothing happens */
	assert_true(touch(&it, "h", NULL, buffer + 50, 200, true));
	races_close(it.races);
}

static void readers(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	uint64_t all[40];
	for (int i = 0; i < 40; i++) { /* more than the list has room for at first */
		all[i] = reads(&it, "read", NULL);
		assert_true(all[i]);
	}
	assert_int_equal(races_count(it.races), 40);
	for (int i = 0; i < 40; i++) {
		assert_false(writes(&it, "write", NULL));
		races_end(it.races, all[i]);
	}
	assert_int_equal(races_count(it.races), 0);
	assert_true(writes(&it, "write", NULL));
	assert_false(reads(&it, "read", NULL));
	races_close(it.races);
}

static void numbers(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	uint64_t a = writes(&it, "a", NULL);
	races_number(it.races, a, 7);
	races_number(it.races, a + 1, 8);
	assert_false(writes(&it, "b", NULL));
	assert_int_equal(it.conflict.earlier.number, 7);
	races_close(it.races);
}

/* They run one after the other. But what a stream gives is fetched when the stream is there. */
static void collectives_of_a_group(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	assert_true(collective(&it, 1, NULL, true, true));
	assert_true(collective(&it, 1, NULL, true, true));
	assert_true(collective(&it, 1, first, false, true));
	assert_false(collective(&it, 1, first, true, false));
	assert_false(collective(&it, 2, NULL, true, false));
	assert_false(writes(&it, "send", NULL));
	races_close(it.races);
}

/* ---- streams ---- */

static void one_stream(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	assert_true(writes(&it, "a", first));
	assert_true(writes(&it, "b", first));
	assert_false(writes(&it, "c", second));
	assert_false(reads(&it, "d", NULL));
	races_close(it.races);
}

static void what_is_done(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	uint64_t a = writes(&it, "a", first);
	atomic_store(&it.done, 4);
	races_launched(it.races, a, &it.done, 5);
	assert_false(reads(&it, "b", second));
	assert_false(reads(&it, "c", NULL));
	atomic_store(&it.done, 5);
	assert_true(reads(&it, "d", second));
	/* A broken device touches nothing. */
	assert_false(writes(&it, "e", NULL));
	atomic_store(&it.broken, 1);
	assert_true(writes(&it, "f", NULL));
	races_close(it.races);
}

/* ---- the program's own copies ---- */

static bool copies(struct fixture *fixture, const void *stream, char *to, char *from)
{
	const struct races_use use = {.who = {.name = "copy", .stream = stream, .is_program = true},
				      .parts = {{.address = from, .bytes = 100},
						{.address = to, .bytes = 100, .writes = true}},
				      .done = &fixture->done,
				      .number = 1};
	uint64_t ticket;
	return races_begin(fixture->races, &use, &ticket, &fixture->conflict);
}

static void copies_of_the_program(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	assert_true(copies(&it, first, buffer, other));
	assert_true(copies(&it, second, buffer, other)); /* its own business */
	assert_false(reads(&it, "a", third));
	assert_true(is_first(&it, "copy") && it.conflict.earlier_writes);
	assert_true(touch(&it, "b", third, other, 100, false));
	assert_false(copies(&it, first, other, buffer));
	assert_true(is_first(&it, "b") && it.conflict.later_writes);
	atomic_store(&it.done, 1);
	assert_true(reads(&it, "c", third));
	races_close(it.races);
}

/* ---- memory that is freed ---- */

static bool may_free(struct fixture *fixture, const void *a, const void *b)
{
	void *streams[] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b};
	return races_may_free(fixture->races, buffer, 200, streams, a ? b ? 2 : 1 : 0,
			      &fixture->conflict);
}

static void frees(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	assert_true(may_free(&it, NULL, NULL));
	uint64_t a = reads(&it, "a", first);
	assert_true(may_free(&it, first, NULL) && may_free(&it, second, first));
	assert_false(may_free(&it, second, third));
	assert_int_equal(it.conflict.bytes, 100);
	assert_false(may_free(&it, NULL, NULL));
	races_follow(it.races, a, second);
	assert_true(may_free(&it, second, NULL));
	assert_true(reads(&it, "host", NULL));
	assert_false(may_free(&it, first, second));
	assert_true(is_first(&it, "host"));
	races_close(it.races);
}

/* Which caller has freed this piece of the buffer, and where the freed memory begins; -1: not
 * known. */
static int freer(struct fixture *fixture, const char *at, uint64_t bytes, const char *begin)
{
	struct races_who found;
	const void *part;
	if (!races_who_freed(fixture->races, at, bytes, &part, &found))
		return -1;
	assert_ptr_equal(part, begin);
	return (int)found.number;
}

static void who_frees(void **state)
{
	struct fixture it;
	struct races_who who = {.name = "free"};
	(void)state;
	begin_test(&it);
	assert_int_equal(freer(&it, buffer, 1, NULL), -1);
	races_freed(it.races, buffer, 200, &who);
	who.number = 2;
	races_freed(it.races, buffer + 100, 10, &who);
	assert_int_equal(freer(&it, buffer, 1, buffer), 0);
	assert_int_equal(freer(&it, buffer + 109, 1, buffer + 109), 2);
	assert_int_equal(freer(&it, buffer + 199, 1, buffer + 199), 0);
	assert_int_equal(freer(&it, buffer + 200, 1, NULL), -1);
	/* The last one, also if it begins behind the piece. */
	assert_int_equal(freer(&it, buffer, 101, buffer + 100), 2);
	assert_int_equal(freer(&it, buffer + 110, 200, buffer + 110), 0);
	assert_int_equal(freer(&it, buffer, 0, NULL), -1);
	for (int i = 0; i < RACES_FREED; i++)
		races_freed(it.races, other, 1, &who);
	assert_int_equal(freer(&it, buffer, 200, NULL), -1);
	races_close(it.races);
}

/* A new block forgets the operations that touched its memory, but not those that touch its
 * neighbours. */
static void allocated(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	uint64_t a = reads(&it, "a", NULL);
	assert_true(touch(&it, "b", NULL, buffer + 100, 100, false));
	assert_true(touch(&it, "c", NULL, other, 100, false));
	assert_false(writes(&it, "d", NULL));
	races_allocated(it.races, buffer, 100);
	assert_int_equal(races_count(it.races), 2);
	assert_true(writes(&it, "d", NULL));
	races_end(it.races, a); /* nothing happens */
	assert_false(reads(&it, "e", NULL));
	assert_false(touch(&it, "f", NULL, buffer + 100, 1, true));
	assert_false(touch(&it, "g", NULL, other, 1, true));
	races_close(it.races);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(overlap),
		cmocka_unit_test(readers),
		cmocka_unit_test(numbers),
		cmocka_unit_test(collectives_of_a_group),
		cmocka_unit_test(one_stream),
		cmocka_unit_test(what_is_done),
		cmocka_unit_test(copies_of_the_program),
		cmocka_unit_test(frees),
		cmocka_unit_test(who_frees),
		cmocka_unit_test(allocated),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
