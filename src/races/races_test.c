/* SPDX-License-Identifier: BSD-3-Clause
 * What is a race and what is ordered, without ranks and devices. */
#include "races.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static char buffer[4096], other[4096];
static const char first[1], second[1], third[1]; /* streams */
static const char event[1], later_event[1];

struct fixture {
	struct races *races;
	_Atomic uint64_t broken, done;
	struct races_conflict conflict;
};

static void begin_test(struct fixture *fixture)
{
	*fixture = (struct fixture){0};
	fixture->races = races_open(&fixture->broken);
	assert_non_null(fixture->races);
	races_watch(fixture->races);
}

/* The ticket; 0: it races. */
static uint64_t touch(struct fixture *fixture, const char *name, const void *stream, char *at,
		      uint64_t bytes, bool writes)
{
	const struct races_use use = {.who = {.name = name, .stream = stream},
				      .parts = {{at, bytes, writes}}};
	uint64_t ticket;
	bool fine = races_begin(fixture->races, &use, &ticket, &fixture->conflict);
	assert_true(fine == (ticket != 0));
	return ticket;
}

static uint64_t writes(struct fixture *fixture, const char *name, const void *stream)
{
	return touch(fixture, name, stream, buffer, 100, true);
}

static uint64_t reads(struct fixture *fixture, const char *name, const void *stream)
{
	return touch(fixture, name, stream, buffer, 100, false);
}

static bool is_first(const struct fixture *fixture, const char *name)
{
	return strcmp(fixture->conflict.earlier.name, name) == 0;
}

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

static bool collective(struct fixture *fixture, uint32_t group, const void *stream, bool gives,
		       bool gets)
{
	const struct races_use use = {.who = {.name = "c", .group = group, .stream = stream},
				      .parts = {{gives ? buffer : NULL, gives ? 100 : 0, false},
						{gets ? buffer : NULL, gets ? 100 : 0, true}},
				      .is_collective = true};
	uint64_t ticket;
	return races_begin(fixture->races, &use, &ticket, &fixture->conflict);
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

static void follows_operations(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	uint64_t a = writes(&it, "a", first);
	uint64_t beyond = touch(&it, "beyond", first, other, 100, true);
	assert_true(a && beyond);
	races_follow(it.races, a, second);
	assert_true(writes(&it, "b", second));
	/* What came to the first stream after that is not before. */
	assert_false(touch(&it, "c", second, other, 100, false));
	assert_true(is_first(&it, "beyond"));
	races_follow(it.races, beyond, third);
	assert_true(touch(&it, "d", third, other, 100, false));
	/* The third stream follows the first one, and not the second one. */
	assert_false(reads(&it, "e", third));
	assert_true(is_first(&it, "b"));
	races_close(it.races);
}

/* first -> event -> second -> event -> third */
static void follows_events(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	assert_true(writes(&it, "a", first));
	races_follow_event(it.races, event, second); /* it was not recorded */
	assert_false(writes(&it, "b", second));
	races_record(it.races, event, first);
	assert_false(writes(&it, "b", second)); /* recorded, but not followed */
	races_follow_event(it.races, event, second);
	assert_false(reads(&it, "c", third));
	races_record(it.races, later_event, second);
	races_follow_event(it.races, later_event, third);
	assert_true(writes(&it, "d", third));
	assert_false(writes(&it, "e", first)); /* not the other way round */
	assert_true(is_first(&it, "d"));
	/* An event is what was recorded last. */
	assert_true(touch(&it, "f", first, other, 10, true));
	races_follow_event(it.races, event, third);
	assert_false(touch(&it, "g", third, other, 10, true));
	races_record(it.races, event, first);
	races_follow_event(it.races, event, third);
	assert_true(touch(&it, "h", third, other, 10, true));
	races_close(it.races);
}

static void what_is_not_known(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	assert_true(writes(&it, "a", first));
	races_await(it.races, second);
	assert_true(writes(&it, "b", second));
	/* Not of what follows that stream, either, nor of the host. */
	assert_false(writes(&it, "c", third));
	assert_true(is_first(&it, "a"));
	races_record(it.races, event, second);
	races_follow_event(it.races, event, third);
	assert_true(writes(&it, "d", third));
	races_close(it.races);
	begin_test(&it);
	races_await(it.races, first);
	assert_true(writes(&it, "a", first) && writes(&it, "b", NULL) && writes(&it, "c", first));
	assert_false(writes(&it, "d", second));
	assert_true(is_first(&it, "b"));
	races_close(it.races);
	/* Without a driver that tells of events two streams are not compared. */
	begin_test(&it);
	races_close(it.races);
	it.races = races_open(NULL);
	assert_non_null(it.races);
	assert_true(writes(&it, "a", first) && writes(&it, "b", second));
	assert_false(writes(&it, "c", NULL));
	races_close(it.races);
}

static void many_streams(void **state)
{
	static const char streams[RACES_STREAMS + 2];
	struct fixture it;
	(void)state;
	begin_test(&it);
	for (int i = 0; i < RACES_STREAMS + 2; i++)
		assert_true(touch(&it, "a", &streams[i], other + 8 * i, 8, true));
	/* The last two have no place, so nothing is known of them. */
	assert_true(touch(&it, "b", &streams[RACES_STREAMS], other, 8, true));
	assert_false(touch(&it, "c", &streams[1], other, 8, true));
	races_forget(it.races, &streams[0]);
	races_forget(it.races, &streams[RACES_STREAMS]);
	assert_true(touch(&it, "d", &streams[1], other, 8, true));
	/* One of them gets the place. */
	assert_true(writes(&it, "e", &streams[RACES_STREAMS + 1]));
	assert_false(writes(&it, "f", &streams[1]));
	races_close(it.races);
}

/* A stream that gets the slot of another one is not before what had followed that. */
static void a_stream_after_another(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	races_follow(it.races, writes(&it, "a", first), second);
	races_forget(it.races, first);
	assert_int_equal(races_count(it.races), 0);
	assert_true(writes(&it, "b", third));
	assert_false(reads(&it, "c", second));
	assert_true(is_first(&it, "b"));
	races_close(it.races);
}

static void many_events(void **state)
{
	static const char events[RACES_EVENTS + 1];
	struct fixture it;
	(void)state;
	begin_test(&it);
	assert_true(writes(&it, "a", first));
	for (int i = 0; i < RACES_EVENTS; i++)
		races_record(it.races, &events[i], second);
	races_follow_event(it.races, &events[RACES_EVENTS], third);
	assert_false(writes(&it, "b", third));
	races_record(it.races, &events[RACES_EVENTS], first);
	races_follow_event(it.races, &events[RACES_EVENTS], third);
	assert_true(writes(&it, "c", third));
	races_close(it.races);
}

/* ---- the program's own copies ---- */

static bool copies(struct fixture *fixture, const void *stream, char *to, char *from)
{
	const struct races_use use = {.who = {.name = "copy", .stream = stream, .is_program = true},
				      .parts = {{from, 100, false}, {to, 100, true}},
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
	struct races_who who = {.name = "free"}, found;
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
	assert_false(races_who_freed(it.races, buffer, &found));
	races_freed(it.races, buffer, 200, &who);
	who.number = 2;
	races_freed(it.races, buffer + 100, 10, &who);
	assert_true(races_who_freed(it.races, buffer, &found) && found.number == 0);
	assert_true(races_who_freed(it.races, buffer + 109, &found) && found.number == 2);
	assert_true(races_who_freed(it.races, buffer + 199, &found) && found.number == 0);
	assert_false(races_who_freed(it.races, buffer + 200, &found));
	for (int i = 0; i < RACES_FREED; i++)
		races_freed(it.races, other, 1, &who);
	assert_false(races_who_freed(it.races, buffer, &found));
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
		cmocka_unit_test(follows_operations),
		cmocka_unit_test(follows_events),
		cmocka_unit_test(what_is_not_known),
		cmocka_unit_test(many_streams),
		cmocka_unit_test(a_stream_after_another),
		cmocka_unit_test(many_events),
		cmocka_unit_test(copies_of_the_program),
		cmocka_unit_test(frees),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
