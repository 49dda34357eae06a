/* SPDX-License-Identifier: BSD-3-Clause
 * Slots: which thread has one and for how long, threads that end before and after their wait table,
 * more threads than slots, threads that serve several ranks. */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/wait_fixture.h"

static int slots_taken(const struct fixture *fixture)
{
	int count = 0;
	for (int i = 0; i < WAIT_SLOT_MAX; i++) {
		const struct wait_slot *slot = &fixture->shared->wait_table.slots[i];
		struct wait_slot_body body;
		uint32_t epoch;
		assert_true(seqlock_read(&slot->epoch, &body, &slot->body, sizeof body, &epoch));
		assert_int_equal(slot->taken != 0, body.state != WAIT_UNUSED);
		count += slot->taken != 0;
	}
	return count;
}

static void test_enter_and_leave(void **state)
{
	(void)state;
	struct fixture fixture;
	struct wait_slot_body slot;
	fixture_init(&fixture);
	assert_int_equal(slots_taken(&fixture), 0);
	wait_thread_leave(&fixture.waiter);
	for (int i = 0; i < 3; i++) {
		wait_thread_enter(&fixture.waiter);
		wait_thread_enter(&fixture.waiter);
		assert_int_equal(slots_taken(&fixture), 1);
		assert_true(find_slot(fixture.shared, WAIT_OUTSIDE, &slot));
		assert_int_equal(slot.tid, gettid());
		wait_thread_leave(&fixture.waiter);
		assert_int_equal(slots_taken(&fixture), 0);
	}
	assert_int_equal(fixture.shared->wait_table.unpublished, 0);
	fixture_fini(&fixture);
}

/* One thread, several ranks, in turn and closed in another order. */
static void test_several_boards(void **state)
{
	(void)state;
	struct fixture fixtures[3];
	for (int i = 0; i < 3; i++)
		fixture_init(&fixtures[i]);
	for (int turn = 0; turn < 4; turn++)
		for (int i = 0; i < 3; i++) {
			int peer;
			struct wait_call call = fixture_call(&fixtures[i], 1, false);
			call.deadline_ns = 1;
			assert_int_equal(wait_words(&fixtures[i].waiter, &call, &peer),
					 LS_TIMED_OUT);
			assert_int_equal(slots_taken(&fixtures[i]), 1);
		}
	wait_close(&fixtures[1].waiter);
	assert_int_equal(slots_taken(&fixtures[1]), 0);
	wait_close(&fixtures[1].waiter);
	wait_thread_enter(&fixtures[0].waiter);
	assert_int_equal(slots_taken(&fixtures[0]), 1);
	for (int i = 0; i < 3; i++)
		fixture_fini(&fixtures[i]);
}

/* A wait table that comes to lie where an old one lay is another wait table, also for a thread that
 * was there. */
static void test_same_address_again(void **state)
{
	(void)state;
	struct fixture fixture;
	fixture_init(&fixture);
	for (int i = 0; i < 5; i++) {
		wait_thread_enter(&fixture.waiter);
		assert_int_equal(slots_taken(&fixture), 1);
		wait_close(&fixture.waiter);
		memset(fixture.shared, 0, sizeof *fixture.shared);
		assert_int_equal(wait_open(&fixture.waiter), LS_OK);
	}
	assert_int_equal(slots_taken(&fixture), 0);
	fixture_fini(&fixture);
}

struct visitor {
	struct fixture *fixture;
	pthread_t thread;
	_Atomic bool inside;
	sem_t may_end;
};

static void *visit(void *arg)
{
	struct visitor *visitor = arg;
	wait_thread_enter(&visitor->fixture->waiter);
	visitor->inside = true;
	while (sem_wait(&visitor->may_end) != 0)
		continue;
	return NULL;
}

static void visitor_start(struct visitor *visitor, struct fixture *fixture)
{
	*visitor = (struct visitor){.fixture = fixture};
	assert_int_equal(sem_init(&visitor->may_end, 0, 0), 0);
	assert_int_equal(pthread_create(&visitor->thread, NULL, visit, visitor), 0);
	EVENTUALLY(visitor->inside);
}

static void visitor_end(struct visitor *visitor)
{
	sem_post(&visitor->may_end);
	wait_join(visitor->thread);
	sem_destroy(&visitor->may_end);
}

static void test_thread_ends(void **state)
{
	(void)state;
	struct fixture fixture;
	struct visitor visitor;
	fixture_init(&fixture);
	for (int i = 0; i < 3; i++) {
		visitor_start(&visitor, &fixture);
		assert_int_equal(slots_taken(&fixture), 1);
		visitor_end(&visitor);
		assert_int_equal(slots_taken(&fixture), 0);
	}
	fixture_fini(&fixture);
}

/* The wait table is unmapped while a thread that had a slot of it still lives: touching it would
 * crash. */
static void test_board_ends_first(void **state)
{
	(void)state;
	struct fixture fixture;
	struct visitor visitor;
	fixture_init(&fixture);
	visitor_start(&visitor, &fixture);
	fixture_fini(&fixture);
	visitor_end(&visitor);
}

/* A thread that finds no slot waits all the same, and the wait table says that it does not show
 * everybody. */
static void test_more_threads_than_slots(void **state)
{
	(void)state;
	static struct visitor visitors[WAIT_SLOT_MAX];
	struct visitor extra;
	struct fixture fixture;
	fixture_init(&fixture);
	for (int i = 0; i < WAIT_SLOT_MAX; i++)
		visitor_start(&visitors[i], &fixture);
	assert_int_equal(slots_taken(&fixture), WAIT_SLOT_MAX);
	assert_int_equal(fixture.shared->wait_table.unpublished, 0);
	visitor_start(&extra, &fixture);
	assert_int_equal(fixture.shared->wait_table.unpublished, 1);
	int peer;
	struct wait_call call = fixture_call(&fixture, 1, false);
	call.deadline_ns = 1;
	assert_int_equal(wait_words(&fixture.waiter, &call, &peer), LS_TIMED_OUT);
	assert_int_equal(fixture.shared->wait_table.unpublished, 2);
	assert_int_equal(fixture.shared->wait_table.slotless, 2);
	visitor_end(&extra);
	assert_int_equal(fixture.shared->wait_table.unpublished, 1);
	struct wait_slot_body slot;
	wait_foreign_call_begin(&fixture.waiter, "cuMemFree");
	assert_false(find_slot(fixture.shared, WAIT_FOREIGN, &slot));
	assert_int_equal(fixture.shared->wait_table.unpublished, 1);
	wait_foreign_call_end(&fixture.waiter);
	/* A slot that has become free is taken when the thread next sleeps. */
	visitor_end(&visitors[5]);
	assert_int_equal(slots_taken(&fixture), WAIT_SLOT_MAX - 1);
	assert_int_equal(wait_words(&fixture.waiter, &call, &peer), LS_TIMED_OUT);
	assert_int_equal(slots_taken(&fixture), WAIT_SLOT_MAX);
	assert_int_equal(fixture.shared->wait_table.unpublished, 0);
	assert_int_equal(fixture.shared->wait_table.slotless, 0);
	for (int i = 0; i < WAIT_SLOT_MAX; i++)
		if (i != 5)
			visitor_end(&visitors[i]);
	assert_int_equal(slots_taken(&fixture), 1);
	fixture_fini(&fixture);
}

/* ---- foreign calls ---- */

static void test_foreign_call(void **state)
{
	(void)state;
	struct fixture fixture;
	struct wait_slot_body slot;
	int peer;
	fixture_init(&fixture);
	/* What a wait before has left in the slot is not shown. */
	struct wait_call call = fixture_call(&fixture, PEERS, false);
	call.deadline_ns = 1;
	assert_int_equal(wait_words(&fixture.waiter, &call, &peer), LS_TIMED_OUT);
	for (int turn = 0; turn < 2; turn++) {
		uint64_t before_ns = clock_now_ns();
		wait_foreign_call_begin(&fixture.waiter, turn ? "free" : "cuMemFree");
		assert_true(find_slot(fixture.shared, WAIT_FOREIGN, &slot));
		assert_string_equal(slot.foreign, turn ? "free" : "cuMemFree");
		assert_int_equal(slot.tid, gettid());
		assert_in_range(slot.since_ns, before_ns, clock_now_ns());
		assert_int_equal(slot.deadline_ns, CLOCK_NEVER);
		assert_int_equal(slot.edge_count + slot.further + slot.has_own_limit + slot.group,
				 0);
		assert_int_equal(slot.record + slot.pages, 0);
		assert_int_equal(slots_taken(&fixture), 1);
		wait_foreign_call_end(&fixture.waiter);
		assert_false(find_slot(fixture.shared, WAIT_FOREIGN, &slot));
		assert_true(find_slot(fixture.shared, WAIT_OUTSIDE, &slot));
		assert_int_equal(slots_taken(&fixture), 1);
	}
	/* A thread that leaves keeps no slot. */
	wait_foreign_call_begin(&fixture.waiter, "");
	wait_foreign_call_end(&fixture.waiter);
	wait_thread_leave(&fixture.waiter);
	assert_int_equal(slots_taken(&fixture), 0);
	assert_int_equal(fixture.shared->wait_table.unpublished, 0);
	fixture_fini(&fixture);
}

static void test_long_foreign_name(void **state)
{
	(void)state;
	struct fixture fixture;
	struct wait_slot_body slot;
	char name[2 * WAIT_FOREIGN_BYTES];
	fixture_init(&fixture);
	for (size_t length = WAIT_FOREIGN_BYTES - 2; length <= WAIT_FOREIGN_BYTES + 1; length++) {
		memset(name, 'x', sizeof name);
		name[length] = 0;
		wait_foreign_call_begin(&fixture.waiter, name);
		assert_true(find_slot(fixture.shared, WAIT_FOREIGN, &slot));
		assert_int_equal(strnlen(slot.foreign, WAIT_FOREIGN_BYTES),
				 length < WAIT_FOREIGN_BYTES ? length : WAIT_FOREIGN_BYTES - 1);
		assert_memory_equal(slot.foreign, name, strlen(slot.foreign));
		wait_foreign_call_end(&fixture.waiter);
	}
	fixture_fini(&fixture);
}

static void test_wait_for_foreign_code(void **state)
{
	(void)state;
	struct fixture fixture;
	struct waiting waiting;
	struct wait_slot_body slot;
	fixture_init(&fixture);
	struct wait_call call = fixture_call(&fixture, PEERS, false);
	call.foreign = "memory";
	call.since_ns = 5;
	call.partial = true;
	waiting_start(&waiting, &fixture, call, &slot);
	assert_string_equal(slot.foreign, "memory");
	assert_int_equal(slot.since_ns, 5);
	assert_int_equal(slot.edge_count + slot.further + slot.pages, 0);
	for (int i = 0; i < PEERS; i++)
		wait_store(&fixture.shared->words[i], 1);
	wait_wake(&fixture.shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_OK);
	fixture_fini(&fixture);
}

static void test_foreign_call_of_nobody(void **state)
{
	(void)state;
	struct waiter none = {.look_fd = -1};
	wait_foreign_call_begin(NULL, "cuMemFree");
	wait_foreign_call_end(NULL);
	wait_foreign_call_begin(&none, "cuMemFree");
	wait_foreign_call_end(&none);
}

/* ---- more words than a slot has ---- */

enum { MANY = WAIT_EDGE_MAX * WAIT_PAGE_MAX };

static struct wait_call many_words(const struct fixture *fixture, struct wait_word *words, int count)
{
	struct wait_call call = fixture_call(fixture, count, true);
	for (int i = 0; i < count; i++) {
		words[i] = fixture->words[0];
		words[i].edge.offset = 8 * (uint64_t)i;
	}
	call.words = words;
	return call;
}

/* All that is shown of the wait in slot 0, in order; how many. */
static int words_shown(const struct fixture *fixture, uint32_t *further)
{
	const struct wait_table *wait_table = &fixture->shared->wait_table;
	const struct wait_slot_body *body = &wait_table->slots[0].body;
	int shown = (int)body->edge_count;
	uint32_t left = body->further;
	for (int i = 0; i < shown; i++)
		assert_int_equal(body->edges[i].offset, 8 * i);
	for (uint64_t pages = body->pages; pages; pages &= pages - 1)
		for (int i = 0; i < WAIT_EDGE_MAX && left > 0; i++, left--, shown++)
			assert_int_equal(wait_table->pages[__builtin_ctzll(pages)][i].offset,
					 8 * shown);
	*further = left;
	return shown;
}

static void test_many_words(void **state)
{
	(void)state;
	static const int counts[] = {1,    WAIT_EDGE_MAX, WAIT_EDGE_MAX + 1,   2 * WAIT_EDGE_MAX,
				     1000, MANY,          MANY + WAIT_EDGE_MAX};
	struct fixture fixture;
	struct wait_word *words = calloc(MANY + 2 * WAIT_EDGE_MAX, sizeof *words);
	uint32_t left;
	assert_non_null(words);
	fixture_init(&fixture);
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		struct wait_call call = many_words(&fixture, words, counts[i]);
		wait_show(&fixture.waiter, &call);
		assert_int_equal(words_shown(&fixture, &left), counts[i]);
		assert_int_equal(left, 0);
	}
	/* One more, and those that do not fit into the slot are not shown; which shows. */
	struct wait_call call = many_words(&fixture, words, MANY + WAIT_EDGE_MAX + 1);
	wait_show(&fixture.waiter, &call);
	assert_int_equal(words_shown(&fixture, &left), WAIT_EDGE_MAX);
	assert_int_equal(left, MANY + 1);
	call.count = 3;
	call.partial = true;
	wait_show(&fixture.waiter, &call);
	assert_int_equal(words_shown(&fixture, &left), 3);
	assert_int_not_equal(left, 0);
	/* Pages are given back with the wait, with the slot, and with the wait table. */
	call = many_words(&fixture, words, 200);
	int peer;
	call.deadline_ns = clock_now_ns();
	assert_int_equal(wait_words(&fixture.waiter, &call, &peer), LS_TIMED_OUT);
	assert_int_equal(fixture.shared->wait_table.pages_taken, 0);
	wait_show(&fixture.waiter, &call);
	assert_int_not_equal(fixture.shared->wait_table.pages_taken, 0);
	wait_thread_leave(&fixture.waiter);
	assert_int_equal(fixture.shared->wait_table.pages_taken, 0);
	wait_show(&fixture.waiter, &call);
	wait_close(&fixture.waiter);
	assert_int_equal(fixture.shared->wait_table.pages_taken, 0);
	fixture_fini(&fixture);
	free(words);
}

static void test_not_opened(void **state)
{
	(void)state;
	struct fixture fixture;
	fixture_init(&fixture);
	wait_close(&fixture.waiter);
	int peer;
	struct wait_call call = fixture_call(&fixture, 1, false);
	call.deadline_ns = 1;
	assert_int_equal(wait_words(&fixture.waiter, &call, &peer), LS_TIMED_OUT);
	assert_int_equal(slots_taken(&fixture), 0);
	assert_true(fixture.shared->wait_table.unpublished > 0);
	wait_thread_leave(&fixture.waiter);
	/* And without any wait table there is nothing to show. */
	fixture.waiter.wait_table = NULL;
	assert_int_equal(wait_open(&fixture.waiter), LS_OK);
	assert_int_equal(wait_words(&fixture.waiter, &call, &peer), LS_TIMED_OUT);
	wait_thread_enter(&fixture.waiter);
	wait_thread_leave(&fixture.waiter);
	fixture_fini(&fixture);
}

struct commuter {
	struct fixture *fixture;
	pthread_t thread;
	_Atomic bool may_end;
};

/* One number stands in each part of what it publishes, so that a reader can check that they belong
 * together. Some words fewer each time, as what is not meant is not copied either. */
static void *come_and_go(void *arg)
{
	struct commuter *commuter = arg;
	struct wait_word words[WAIT_EDGE_MAX];
	for (uint64_t i = 1; i <= 3000 || !commuter->may_end; i++) {
		struct wait_call call = fixture_call(commuter->fixture, 0, i % 2);
		call.words = words;
		call.count = (int)(WAIT_EDGE_MAX - i % 3);
		call.record = i;
		/* Mostly over at once; sometimes it sleeps, so that there is something to see. */
		call.deadline_ns = i % 8 ? 1 : clock_now_ns() + 20000;
		for (int j = 0; j < call.count; j++) {
			words[j] = commuter->fixture->words[0];
			words[j].edge.value = i;
		}
		int peer;
		ls_status ignored = wait_words(&commuter->fixture->waiter, &call, &peer);
		(void)ignored;
		if (i % 16 == 0)
			wait_thread_leave(&commuter->fixture->waiter);
	}
	return NULL;
}

/* Whether the slot was read while somebody waited in it; what is read must be of one wait. */
static int read_slot(const struct wait_slot *slot)
{
	struct wait_slot_body body;
	uint32_t epoch;
	if (!seqlock_read(&slot->epoch, &body, &slot->body, sizeof body, &epoch))
		return 0;
	if (body.state != WAIT_WORDS && body.state != WAIT_ANY_WORD)
		return 0;
	assert_int_equal(body.state == WAIT_ANY_WORD, body.record % 2);
	assert_int_equal(body.edge_count, WAIT_EDGE_MAX - body.record % 3);
	for (uint32_t i = 0; i < body.edge_count; i++)
		assert_int_equal(body.edges[i].value, body.record);
	return 1;
}

static void test_readers_see_whole_slots(void **state)
{
	(void)state;
	struct fixture fixture;
	struct commuter commuters[2] = {{.fixture = &fixture}, {.fixture = &fixture}};
	fixture_init(&fixture);
	int seen = 0;
	for (int i = 0; i < 2; i++)
		assert_int_equal(
			pthread_create(&commuters[i].thread, NULL, come_and_go, &commuters[i]), 0);
	EVENTUALLY((seen += read_slot(&fixture.shared->wait_table.slots[0]) +
			    read_slot(&fixture.shared->wait_table.slots[1])) > 1000);
	for (int i = 0; i < 2; i++) {
		commuters[i].may_end = true;
		wait_join(commuters[i].thread);
	}
	assert_int_equal(slots_taken(&fixture), 0);
	fixture_fini(&fixture);
}

/* The sequence lock by itself: what a reader gets at each point of a write. */
static void test_sequence_lock(void **state)
{
	(void)state;
	_Atomic uint32_t epoch = 4;
	uint64_t shared[2] = {1, 2}, next[2] = {3, 4}, copy[2];
	uint32_t seen, seen_later;
	assert_true(seqlock_read(&epoch, copy, shared, sizeof copy, &seen));
	assert_int_equal(copy[1], 2);
	seqlock_begin(&epoch);
	assert_false(seqlock_try_read(&epoch, copy, shared, sizeof copy, &seen_later));
	seqlock_store(shared, next, sizeof next);
	/* The writer died here: the reader gives up instead of spinning. */
	assert_false(seqlock_read(&epoch, copy, shared, sizeof copy, &seen_later));
	seqlock_end(&epoch);
	assert_true(seqlock_read(&epoch, copy, shared, sizeof copy, &seen_later));
	assert_memory_equal(copy, next, sizeof next);
	assert_int_not_equal(seen, seen_later);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_enter_and_leave),
		cmocka_unit_test(test_several_boards),
		cmocka_unit_test(test_same_address_again),
		cmocka_unit_test(test_thread_ends),
		cmocka_unit_test(test_board_ends_first),
		cmocka_unit_test(test_more_threads_than_slots),
		cmocka_unit_test(test_foreign_call),
		cmocka_unit_test(test_long_foreign_name),
		cmocka_unit_test(test_wait_for_foreign_code),
		cmocka_unit_test(test_foreign_call_of_nobody),
		cmocka_unit_test(test_many_words),
		cmocka_unit_test(test_not_opened),
		cmocka_unit_test(test_readers_see_whole_slots),
		cmocka_unit_test(test_sequence_lock),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
