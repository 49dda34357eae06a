/* SPDX-License-Identifier: BSD-3-Clause
 * Which stores wake which threads. The bell counts wake-ups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/wait_fixture.h"
#include "base/wait_private.h"
#include "base/waitv_fixture.h"

static uint8_t topic_of(int rank)
{
	return (uint8_t)(2 * rank + 1);
}

/* Word i is written by rank i, and has a topic of its own. */
static int setup(void **state)
{
	int error = fixture_setup(state);
	struct fixture *fixture = *state;
	for (int i = 0; i < PEERS; i++)
		fixture->words[i].topic = topic_of(i);
	return error;
}

static int listeners(const struct fixture *fixture, int rank)
{
	return fixture->shared->bell.listeners[topic_of(rank) - 1];
}

/* The rank whose topic the sleepers listen to; -1: there is none, or there are several. */
static int first_of(const struct fixture *fixture)
{
	int first = -1, count = 0;
	for (int i = 0; i < PEERS; i++) {
		first = listeners(fixture, i) ? i : first;
		count += listeners(fixture, i);
	}
	return count == 1 ? first : -1;
}

/* How often sleepers were woken: all of them, and those who listen to a topic. */
static uint32_t wakeups(const struct fixture *fixture)
{
	uint32_t count = fixture->shared->bell.wakeups;
	for (int i = 0; i < WAIT_TOPICS; i++)
		count += fixture->shared->bell.topic_wakeups[i];
	return count;
}

static int sleepers(const struct fixture *fixture)
{
	return (int)(fixture->shared->bell.sleepers & WAIT_SLEEPERS);
}

static void store_for(struct fixture *fixture, int rank)
{
	wait_store(&fixture->shared->words[rank], 1);
	wait_wake_topic(&fixture->shared->bell, topic_of(rank));
}

/* A sleeper that waits for several ranks is woken only by the first of those that are missing. */
static void test_others_do_not_wake(void **state)
{
	struct fixture *fixture = *state;
	struct waiting waiting;
	struct wait_slot_body slot;
	waiting_start(&waiting, fixture, fixture_call(fixture, PEERS, false), &slot);
	for (int missing = PEERS; missing > 0;) {
		int first = first_of(fixture);
		assert_in_range(first, 0, PEERS - 1);
		assert_int_equal(fixture->shared->words[first], 0);
		uint32_t before = wakeups(fixture);
		int other = (first + 1) % PEERS;
		if (other != first && fixture->shared->words[other] == 0) {
			store_for(fixture, other);
			missing--;
			assert_int_equal(wakeups(fixture), before);
		}
		store_for(fixture, first);
		missing--;
		assert_int_equal(wakeups(fixture), before + 1);
		if (missing > 0)
			EVENTUALLY(first_of(fixture) != first && is_asleep(slot.tid));
	}
	assert_int_equal(waiting_end(&waiting), LS_OK);
	assert_int_equal(first_of(fixture), -1);
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
	for (int last = 0; last < PEERS; last++) {
		waiting_start(&waiting, fixture, fixture_call(fixture, PEERS, true), &slot);
		for (int i = 0; i < PEERS; i++)
			assert_int_equal(listeners(fixture, i), 1);
		store_for(fixture, last);
		assert_int_equal(waiting_end(&waiting), LS_OK);
		fixture->shared->words[last] = 0;
	}
}

/* A thread that needs one of very many words is woken by every store. */
static void test_too_many_topics(void **state)
{
	struct fixture *fixture = *state;
	struct wait_word words[WAIT_TOPICS_AT_ONCE + 1];
	struct wait_call call = fixture_call(fixture, WAIT_TOPICS_AT_ONCE + 1, true);
	struct waiting waiting;
	struct wait_slot_body slot;
	call.words = words;
	for (int i = 0; i < call.count; i++) {
		words[i] = fixture->words[i % PEERS];
		words[i].topic = (uint8_t)(WAIT_TOPICS - i);
	}
	waiting_start(&waiting, fixture, call, &slot);
	assert_int_equal(fixture->shared->bell.to_all, 1);
	store_for(fixture, 0);
	assert_int_equal(waiting_end(&waiting), LS_OK);
	assert_int_equal(fixture->shared->bell.to_all, 0);
}

/* A store wakes only the threads that wait for its topic. */
static void test_two_sleepers(void **state)
{
	struct fixture *fixture = *state;
	struct waiting one, other;
	struct wait_slot_body slot;
	waiting_start(&one, fixture, fixture_call(fixture, 1, false), &slot);
	struct wait_call later = fixture_call(fixture, 1, true);
	later.words = &fixture->words[1];
	waiting_start(&other, fixture, later, &slot);
	EVENTUALLY(sleepers(fixture) == 2);
	uint32_t before = fixture->shared->bell.topic_wakeups[topic_of(0) - 1];
	store_for(fixture, 1);
	assert_int_equal(waiting_end(&other), LS_OK);
	assert_int_equal(fixture->shared->bell.topic_wakeups[topic_of(0) - 1], before);
	assert_int_equal(fixture->shared->bell.wakeups, 0);
	assert_int_equal(first_of(fixture), 0);
	assert_false(one.done);
	store_for(fixture, 0);
	assert_int_equal(waiting_end(&one), LS_OK);
}

/* A word without a topic is announced to all, and stores of topics do not wake threads that
 * wait for it. */
static void test_no_topic(void **state)
{
	struct fixture *fixture = *state;
	struct waiting waiting;
	struct wait_slot_body slot;
	fixture->words[0].topic = 0;
	waiting_start(&waiting, fixture, fixture_call(fixture, 1, false), &slot);
	store_for(fixture, 1);
	assert_int_equal(wakeups(fixture), 0);
	wait_store(&fixture->shared->words[0], 1);
	wait_wake(&fixture->shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_OK);
}

/* Topics and arming do not know of each other. */
static void test_armed(void **state)
{
	struct fixture *fixture = *state;
	struct wait_bell *bell = &fixture->shared->bell;
	struct waiting waiting;
	struct wait_slot_body slot;
	waiting_start(&waiting, fixture, fixture_call(fixture, 1, false), &slot);
	wait_arm(bell, true);
	assert_int_equal(first_of(fixture), 0);
	uint32_t requests = bell->requests;
	wait_wake_topic(bell, topic_of(1)); /* wakes the progress thread only */
	assert_int_equal(bell->requests, requests + 1);
	assert_int_equal(wakeups(fixture), 0);
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

/* The thread waits for all words of the fixture, and for word 0 alone. */
static void test_progress_thread(void **state)
{
	struct fixture *fixture = *state;
	struct progress progress = {0};
	struct wait_item *const items[] = {&progress.items[0], &progress.items[1]};
	struct wait_bell *bell = &fixture->shared->bell;
	for (int i = 0; i < 2; i++) {
		progress.items[i] =
			(struct wait_item){.waiter = &fixture->waiter,
					   .call = fixture_call(fixture, i == 0 ? PEERS : 1, false)};
		wait_item_show(items[i]);
	}
	progress.set = (struct wait_set){.items = items,
					 .count = 2,
					 .bell = bell,
					 .seen = bell->requests,
					 .until_ns = CLOCK_NEVER};
	assert_int_equal(pthread_create(&progress.thread, NULL, wait_in_progress, &progress), 0);
	EVENTUALLY(listeners(fixture, 0) == 1);
	int heard = 0;
	for (int i = 0; i < PEERS; i++)
		heard += listeners(fixture, i);
	assert_in_range(heard, 1, 2);
	for (int i = PEERS - 1; i >= 0; i--)
		store_for(fixture, i);
	EVENTUALLY(progress.done);
	wait_join(progress.thread);
	for (int i = 0; i < 2; i++)
		wait_item_hide(items[i]);
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
		wait_wake_topic(&writer->fixture->shared->bell, topic_of(writer->rank));
	}
	return NULL;
}

/* Needs in each round one of the words 1 and 2. Returns how many waits have failed. */
static void *wait_rounds(void *arg)
{
	struct fixture *fixture = arg;
	struct wait_word words[] = {fixture->words[1], fixture->words[2]};
	uintptr_t bad = 0;
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		int peer;
		struct wait_call call = fixture_call(fixture, 2, true);
		call.words = words;
		words[0].edge.value = words[1].edge.value = i;
		bad += wait_words(&fixture->waiter, &call, &peer) != LS_OK ||
		       clock_now_ns() >= call.deadline_ns;
	}
	return (void *)bad;
}

/* look_ns is 0 here, so a lost wake-up is a time-out. */
static void test_no_wakeup_is_lost(void **state)
{
	struct fixture *fixture = *state;
	_Atomic uint64_t round = 0;
	pthread_t threads[PEERS], other;
	struct writer writers[PEERS];
	uintptr_t bad = 0;
	void *bad_of_other;
	assert_int_equal(pthread_create(&other, NULL, wait_rounds, fixture), 0);
	for (int i = 0; i < PEERS; i++) {
		writers[i] = (struct writer){.fixture = fixture, .round = &round, .rank = i};
		assert_int_equal(pthread_create(&threads[i], NULL, write_rounds, &writers[i]), 0);
	}
	struct wait_word words[PEERS];
	memcpy(words, fixture->words, sizeof words);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		int peer;
		struct wait_call call = fixture_call(fixture, PEERS, false);
		call.words = words;
		for (int p = 0; p < PEERS; p++)
			words[p].edge.value = i;
		atomic_store(&round, i);
		bad += wait_words(&fixture->waiter, &call, &peer) != LS_OK ||
		       clock_now_ns() >= call.deadline_ns;
	}
	for (int i = 0; i < PEERS; i++)
		wait_join(threads[i]);
	assert_int_equal(pthread_join(other, &bad_of_other), 0);
	assert_int_equal(bad + (uintptr_t)bad_of_other, 0);
}

/* Without futex_waitv a thread that waits for any of several topics listens to all, and one that
 * waits for one topic is still woken by that topic only, and with all sleepers. */
static void test_one_word(void **state)
{
	struct fixture *fixture = *state;
	struct wait_bell *bell = &fixture->shared->bell;
	struct waiting one, any;
	struct wait_slot_body slot;
	waiting_start(&one, fixture, fixture_call(fixture, 1, false), &slot);
	EVENTUALLY(bell->to_one == 1 && is_asleep(slot.tid));
	store_for(fixture, 1);
	assert_int_equal(wakeups(fixture), 0);
	fixture->shared->words[1] = 0;
	struct wait_call call = fixture_call(fixture, 2, true);
	call.words = &fixture->words[1];
	waiting_start(&any, fixture, call, &slot);
	EVENTUALLY(bell->to_all == 1);
	store_for(fixture, 2);
	assert_int_equal(waiting_end(&any), LS_OK);
	assert_false(one.done);
	wait_store(&fixture->shared->cause, 1);
	wait_wake(bell);
	assert_int_equal(waiting_end(&one), LS_ABORTED);
}

static void test_requests_wake_on_one_word(void **state)
{
	struct fixture *fixture = *state;
	struct wait_bell *bell = &fixture->shared->bell;
	struct progress progress = {0};
	struct wait_item *const items[] = {&progress.items[0]};
	progress.items[0] = (struct wait_item){.waiter = &fixture->waiter,
					       .call = fixture_call(fixture, 1, false)};
	wait_item_show(items[0]);
	progress.set = (struct wait_set){.items = items,
					 .count = 1,
					 .bell = bell,
					 .seen = bell->requests,
					 .until_ns = CLOCK_NEVER};
	assert_int_equal(pthread_create(&progress.thread, NULL, wait_in_progress, &progress), 0);
	EVENTUALLY(bell->to_one == 1);
	wait_wake_progress(bell);
	EVENTUALLY(progress.done);
	wait_join(progress.thread);
	wait_item_hide(items[0]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_others_do_not_wake),
		TEST(test_others_wake_for_a_failure),
		TEST(test_any_word),
		TEST(test_too_many_topics),
		TEST(test_two_sleepers),
		TEST(test_no_topic),
		TEST(test_armed),
		TEST(test_progress_thread),
		TEST(test_no_wakeup_is_lost),
	};
	const struct CMUnitTest on_one_word[] = {
		TEST(test_others_do_not_wake), TEST(test_others_wake_for_a_failure),
		TEST(test_too_many_topics),    TEST(test_two_sleepers),
		TEST(test_no_topic),           TEST(test_armed),
		TEST(test_one_word),           TEST(test_requests_wake_on_one_word),
		TEST(test_no_wakeup_is_lost),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (!forbid_futex_waitv())
		return failed;
	return failed + cmocka_run_group_tests(on_one_word, NULL, NULL);
}
