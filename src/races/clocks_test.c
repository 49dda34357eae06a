/* SPDX-License-Identifier: BSD-3-Clause
 * Which streams follow which, and what is known of many of them. */
#include "races/races_fixture.h"

static const char event[1], later_event[1];

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

/* A collective's stream waits until those before it in its group are over. */
static void collectives_order_streams(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	assert_true(collective(&it, 1, first, false, true));
	assert_true(touch(&it, "a", first, other, 100, true)); /* is not over by then */
	assert_true(collective(&it, 2, second, false, false));
	assert_false(reads(&it, "b", second)); /* a barrier of another group orders nothing */
	assert_true(collective(&it, 1, second, false, false));
	assert_true(reads(&it, "c", second));
	assert_false(touch(&it, "d", second, other, 100, false));
	assert_true(is_first(&it, "a"));
	/* An event behind it is behind both. */
	races_record(it.races, event, second);
	races_follow_event(it.races, event, third);
	assert_true(reads(&it, "e", third));
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

/* There are more streams than places: idle ones give up theirs. */
static void idle_streams(void **state)
{
	static const char streams[4 * RACES_STREAMS];
	struct fixture it;
	(void)state;
	begin_test(&it);
	assert_true(writes(&it, "a", first));
	races_record(it.races, event, first);
	races_follow_event(it.races, event, second); /* not idle: it follows what is not over */
	for (int i = 0; i < 4 * RACES_STREAMS; i++) {
		uint64_t ticket = touch(&it, "b", &streams[i], other, 8, true);
		assert_true(ticket);
		races_end(it.races, ticket);
	}
	assert_false(writes(&it, "c", &streams[0])); /* it is compared with the others */
	assert_false(writes(&it, "d", third));
	assert_true(writes(&it, "e", second));
	races_close(it.races);
}

/* What a stream has waited for without a place is unknown, also when it gets a place later. */
static void streams_without_a_place(void **state)
{
	static const char streams[RACES_STREAMS], beyond[1];
	struct fixture it;
	(void)state;
	begin_test(&it);
	for (int i = 0; i < RACES_STREAMS; i++)
		assert_true(touch(&it, "a", &streams[i], other + 8 * i, 8, true));
	assert_true(writes(&it, "host", NULL));
	assert_false(writes(&it, "b", beyond));
	races_await(it.races, beyond); /* perhaps for the host */
	uint64_t b = writes(&it, "b", beyond);
	assert_true(b);
	races_end(it.races, b);
	races_record(it.races, event, &streams[1]);
	races_follow_event(it.races, event, beyond);
	races_forget(it.races, &streams[0]);
	assert_true(touch(&it, "c", beyond, other + 8, 8, true));
	assert_true(writes(&it, "d", beyond));
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
	assert_true(writes(&it, "a", first) && touch(&it, "other", second, other, 8, true));
	for (int i = 0; i < RACES_EVENTS; i++)
		races_record(it.races, &events[i], second);
	races_follow_event(it.races, &events[RACES_EVENTS], third);
	assert_false(writes(&it, "b", third));
	races_record(it.races, &events[RACES_EVENTS], first);
	races_follow_event(it.races, &events[RACES_EVENTS], third);
	assert_true(writes(&it, "c", third));
	races_close(it.races);
}

/* Events of finished operations give up their places. */
static void idle_events(void **state)
{
	static const char events[2 * RACES_EVENTS];
	struct fixture it;
	(void)state;
	begin_test(&it);
	assert_true(writes(&it, "a", first));
	races_record(it.races, event, first);
	for (int i = 0; i < 2 * RACES_EVENTS; i++) {
		uint64_t b = touch(&it, "b", second, other, 8, true);
		assert_true(b);
		races_record(it.races, &events[i], second);
		races_end(it.races, b);
	}
	races_follow_event(it.races, &events[0], third); /* as if it had not been recorded */
	assert_false(writes(&it, "c", third));
	races_follow_event(it.races, event, third);
	assert_true(writes(&it, "d", third));
	races_close(it.races);
}

/* A new event or stream has the address of one that was destroyed. */
static void addresses_are_used_again(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	assert_true(writes(&it, "a", first));
	races_record(it.races, event, first);
	races_made(it.races, event);
	races_follow_event(it.races, event, second); /* it was not recorded */
	assert_false(reads(&it, "b", second));
	races_record(it.races, event, first);
	races_follow_event(it.races, event, second);
	assert_true(reads(&it, "b", second));
	assert_true(touch(&it, "c", second, other, 100, true));
	races_made(it.races, second);
	/* It follows nothing yet, neither the first stream nor the old one. */
	assert_false(reads(&it, "d", second));
	assert_true(is_first(&it, "a"));
	assert_false(touch(&it, "e", second, other, 100, false));
	assert_true(is_first(&it, "c"));
	races_await(it.races, third);
	races_made(it.races, third);
	assert_false(reads(&it, "f", third));
	races_close(it.races);
}

/* The program forgets a stream that has the handle of an older one: what is under way on the old
 * one stays listed, whether that has a place or not. */
static void the_old_stream_is_not_forgotten(void **state)
{
	static const char streams[RACES_STREAMS];
	struct fixture it;
	(void)state;
	begin_test(&it);
	assert_true(writes(&it, "old", first));
	races_made(it.races, first);
	assert_true(touch(&it, "new", first, other, 8, true));
	races_forget(it.races, first);
	assert_int_equal(races_count(it.races), 1);
	assert_false(reads(&it, "b", second));
	assert_true(is_first(&it, "old"));
	assert_true(touch(&it, "c", NULL, other, 8, true)); /* the new one was forgotten */
	races_close(it.races);
	begin_test(&it);
	for (int i = 0; i < RACES_STREAMS; i++)
		assert_true(touch(&it, "a", &streams[i], other + 8 * i, 8, true));
	assert_true(writes(&it, "old", first)); /* it has no place */
	races_made(it.races, first);
	races_forget(it.races, first);
	assert_false(reads(&it, "host", NULL));
	assert_true(is_first(&it, "old"));
	races_close(it.races);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(follows_operations),
		cmocka_unit_test(follows_events),
		cmocka_unit_test(what_is_not_known),
		cmocka_unit_test(collectives_order_streams),
		cmocka_unit_test(many_streams),
		cmocka_unit_test(idle_streams),
		cmocka_unit_test(streams_without_a_place),
		cmocka_unit_test(a_stream_after_another),
		cmocka_unit_test(many_events),
		cmocka_unit_test(idle_events),
		cmocka_unit_test(addresses_are_used_again),
		cmocka_unit_test(the_old_stream_is_not_forgotten),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
