/* SPDX-License-Identifier: BSD-3-Clause
 * Which ranks wake a thread that needs words of several. Wake-ups are counted by bell->wakeups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/wait_fixture.h"

static int setup(void **state)
{
	struct fixture *fixture = malloc(sizeof *fixture);
	assert_non_null(fixture);
	fixture_init(fixture);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	fixture_fini(*state);
	free(*state);
	return 0;
}

/* The rank whose word the only sleeper needs first; -1: any rank wakes it. */
static int first_of(const struct fixture *fixture)
{
	return (int)(fixture->shared->bell.sleepers >> WAIT_FIRST_SHIFT) - 1;
}

static void store_for(struct fixture *fixture, int rank)
{
	wait_store(&fixture->shared->words[rank], 1);
	wait_wake_for(&fixture->shared->bell, rank);
}

/* Of the ranks that are missing only the one that the sleeper has named wakes it. */
static void test_others_do_not_wake(void **state)
{
	struct fixture *fixture = *state;
	const struct wait_bell *bell = &fixture->shared->bell;
	struct waiting waiting;
	struct wait_slot_body slot;
	waiting_start(&waiting, fixture, fixture_call(fixture, PEERS, false), &slot);
	for (int missing = PEERS; missing > 0;) {
		int first = first_of(fixture);
		assert_in_range(first, 0, PEERS - 1);
		assert_int_equal(fixture->shared->words[first], 0);
		uint32_t wakeups = bell->wakeups;
		int other = (first + 1) % PEERS;
		if (other != first && fixture->shared->words[other] == 0) {
			store_for(fixture, other);
			missing--;
			assert_int_equal(bell->wakeups, wakeups);
		}
		store_for(fixture, first);
		missing--;
		assert_int_equal(bell->wakeups, wakeups + 1);
		if (missing > 0)
			EVENTUALLY(first_of(fixture) != first && is_asleep(slot.tid));
	}
	assert_int_equal(waiting_end(&waiting), LS_OK);
}

/* A failure, a rank that leaves and a rank that has died concern everyone. */
static void test_others_wake_for_a_failure(void **state)
{
	struct fixture *fixture = *state;
	struct waiting waiting;
	struct wait_slot_body slot;
	waiting_start(&waiting, fixture, fixture_call(fixture, PEERS, false), &slot);
	wait_store(&fixture->shared->cause, 1);
	wait_wake(&fixture->shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_ABORTED);
}

/* Any rank wakes a thread that needs one word of several. */
static void test_any_word(void **state)
{
	struct fixture *fixture = *state;
	struct waiting waiting;
	struct wait_slot_body slot;
	waiting_start(&waiting, fixture, fixture_call(fixture, PEERS, true), &slot);
	assert_int_equal(first_of(fixture), -1);
	store_for(fixture, PEERS - 1);
	assert_int_equal(waiting_end(&waiting), LS_OK);
}

/* Two threads at one bell need different ranks, so any rank wakes both; also the one that remains,
 * until it has looked once. */
static void test_two_sleepers(void **state)
{
	struct fixture *fixture = *state;
	struct waiting one, other;
	struct wait_slot_body slot;
	waiting_start(&one, fixture, fixture_call(fixture, 2, false), &slot);
	uint32_t tid = slot.tid;
	assert_in_range(first_of(fixture), 0, 1);
	struct wait_call later = fixture_call(fixture, 2, false);
	later.words = &fixture->words[2];
	waiting_start(&other, fixture, later, &slot);
	EVENTUALLY((fixture->shared->bell.sleepers & WAIT_SLEEPERS) == 2);
	assert_int_equal(first_of(fixture), -1);
	store_for(fixture, 2);
	store_for(fixture, 3);
	assert_int_equal(waiting_end(&other), LS_OK);
	EVENTUALLY(is_asleep(tid));
	store_for(fixture, 0);
	store_for(fixture, 1);
	assert_int_equal(waiting_end(&one), LS_OK);
}

/* An armed bell keeps what the sleeper has named, and the other way round. */
static void test_armed(void **state)
{
	struct fixture *fixture = *state;
	struct wait_bell *bell = &fixture->shared->bell;
	struct waiting waiting;
	struct wait_slot_body slot;
	waiting_start(&waiting, fixture, fixture_call(fixture, 1, false), &slot);
	wait_arm(bell, true);
	assert_int_equal(first_of(fixture), 0);
	uint32_t wakeups = bell->wakeups, requests = bell->requests;
	wait_wake_for(bell, 1); /* wakes the progress thread only */
	assert_int_equal(bell->requests, requests + 1);
	assert_int_equal(bell->wakeups, wakeups);
	assert_int_equal(first_of(fixture), 0);
	wait_arm(bell, false);
	store_for(fixture, 0);
	assert_int_equal(waiting_end(&waiting), LS_OK);
	assert_int_equal(bell->sleepers, WAIT_ARMED);
	wait_disarm(bell);
}

struct progress {
	pthread_t thread;
	struct wait_item items[2];
	struct wait_set set;
	_Atomic bool done;
};

static void *wait_in_progress(void *arg)
{
	struct progress *progress = arg;
	wait_for_set(&progress->set);
	progress->done = true;
	return NULL;
}

/* A thread waits for all words of the fixture, `count` times at once. */
static void run_progress(struct progress *progress, struct fixture *fixture, int count)
{
	struct wait_item *const items[] = {&progress->items[0], &progress->items[1]};
	struct wait_bell *bell = &fixture->shared->bell;
	progress->done = false;
	for (int i = 0; i < count; i++) {
		progress->items[i] = (struct wait_item){
			.waiter = &fixture->waiter, .call = fixture_call(fixture, PEERS, false)};
		wait_item_show(items[i]);
	}
	progress->set = (struct wait_set){.items = items,
					  .count = count,
					  .bell = bell,
					  .seen = bell->requests,
					  .until_ns = CLOCK_NEVER};
	assert_int_equal(pthread_create(&progress->thread, NULL, wait_in_progress, progress), 0);
	EVENTUALLY((bell->sleepers & WAIT_SLEEPERS) == 1 && (count > 1 || first_of(fixture) >= 0));
	for (int i = 0; i < PEERS; i++) {
		uint32_t wakeups = bell->wakeups;
		if (first_of(fixture) == i)
			continue;
		store_for(fixture, i);
		if (i < PEERS - 1) /* at the last word the thread may be awake, and leave */
			assert_int_equal(bell->wakeups, wakeups + (count > 1));
	}
	if (first_of(fixture) >= 0)
		store_for(fixture, first_of(fixture));
	EVENTUALLY(progress->done);
	wait_join(progress->thread);
	for (int i = 0; i < count; i++)
		wait_item_hide(items[i]);
}

/* The progress thread names a rank, too, if it waits for one operation. */
static void test_progress_thread(void **state)
{
	struct fixture *fixture = *state;
	struct progress progress;
	run_progress(&progress, fixture, 1);
	for (int i = 0; i < PEERS; i++)
		fixture->shared->words[i] = 0;
	run_progress(&progress, fixture, 2);
}

enum { ROUNDS = 3000 };

struct writer {
	struct fixture *fixture;
	const _Atomic uint64_t *round;
	int rank;
};

static void *write_rounds(void *arg)
{
	const struct writer *writer = arg;
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		while (atomic_load(writer->round) < i)
			sched_yield();
		wait_store(&writer->fixture->shared->words[writer->rank], i);
		wait_wake_for(&writer->fixture->shared->bell, writer->rank);
	}
	return NULL;
}

/* look_ns is 0 here, so a lost wake-up is a time-out. */
static void test_no_wakeup_is_lost(void **state)
{
	struct fixture *fixture = *state;
	_Atomic uint64_t round = 0;
	pthread_t threads[PEERS];
	struct writer writers[PEERS];
	int bad = 0;
	for (int i = 0; i < PEERS; i++) {
		writers[i] = (struct writer){.fixture = fixture, .round = &round, .rank = i};
		assert_int_equal(pthread_create(&threads[i], NULL, write_rounds, &writers[i]), 0);
	}
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		int peer;
		struct wait_call call = fixture_call(fixture, PEERS, false);
		for (int p = 0; p < PEERS; p++)
			fixture->words[p].edge.value = i;
		atomic_store(&round, i);
		bad += wait_words(&fixture->waiter, &call, &peer) != LS_OK;
	}
	for (int i = 0; i < PEERS; i++)
		wait_join(threads[i]);
	assert_int_equal(bad, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_others_do_not_wake),
		TEST(test_others_wake_for_a_failure),
		TEST(test_any_word),
		TEST(test_two_sleepers),
		TEST(test_armed),
		TEST(test_progress_thread),
		TEST(test_no_wakeup_is_lost),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
