/* SPDX-License-Identifier: BSD-3-Clause
 * Waits for words: every reason to end, and which goes first; what others see of a wait; that no
 * wake-up is lost. Peers that go meanwhile, descriptors, signals and slots: wait_gone_test.c,
 * wait_fds_test.c, wait_signal_test.c, wait_slot_test.c. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/capture.h"
#include "base/wait_fixture.h"

static void test_satisfied(void **state)
{
	struct fixture *fixture = *state;
	struct wait_call all = fixture_call(fixture, 3, false);
	struct wait_call any = fixture_call(fixture, 3, true);
	assert_false(wait_satisfied(&all));
	assert_false(wait_satisfied(&any));
	fixture->shared->words[1] = 5;
	assert_false(wait_satisfied(&all));
	assert_true(wait_satisfied(&any));
	fixture->shared->words[0] = fixture->shared->words[2] = 1;
	assert_true(wait_satisfied(&all));
	/* Words may come round: what counts is the signed difference. */
	fixture->words[0].edge.value = UINT64_MAX;
	assert_true(wait_satisfied(&all));
	fixture->shared->words[0] = UINT64_MAX - 1;
	assert_false(wait_satisfied(&all));
	all.count = any.count = 0;
	assert_true(wait_satisfied(&all));
	assert_false(wait_satisfied(&any));
}

/* The condition holds and all else has failed as well. */
static void test_success_goes_first(void **state)
{
	struct fixture *fixture = *state;
	int peer = 99;
	fixture->shared->words[0] = 1;
	fixture->shared->cause = 1;
	fixture->shared->left[0] = 1;
	fixture->dead[0] = 1;
	struct wait_call call = fixture_call(fixture, 1, false);
	call.deadline_ns = 1;
	assert_int_equal(wait_words(&fixture->waiter, &call, &peer), LS_OK);
	assert_int_equal(peer, -1);
	/* Nothing was published for it: only who sleeps pays. */
	struct wait_slot_body slot;
	assert_false(find_slot(fixture->shared, WAIT_OUTSIDE, &slot));
}

/* The wait succeeds, whichever it sees first: the word, or the failure that the same thread stores
 * after it. */
static void *store_then_fail(void *arg)
{
	struct fixture *fixture = arg;
	wait_store(&fixture->shared->words[0], 1);
	wait_store(&fixture->shared->left[0], 1);
	fixture->dead[0] = 1;
	wait_store(&fixture->shared->cause, 1);
	wait_wake(&fixture->shared->bell);
	return NULL;
}

static void test_success_before_failure(void **state)
{
	struct fixture *fixture = *state;
	for (int i = 0; i < 300; i++) {
		pthread_t thread;
		int peer;
		assert_int_equal(pthread_create(&thread, NULL, store_then_fail, fixture), 0);
		struct wait_call call = fixture_call(fixture, 1, false);
		fixture->waiter.spin_ns = i % 2 ? 20000 : 0;
		assert_int_equal(wait_words(&fixture->waiter, &call, &peer), LS_OK);
		assert_int_equal(peer, -1);
		wait_join(thread);
		fixture->shared->words[0] = fixture->shared->left[0] = 0;
		fixture->dead[0] = 0;
		fixture->shared->cause = 0;
	}
}

static void test_woken_by_thread(void **state)
{
	struct fixture *fixture = *state;
	struct waiting waiting;
	struct wait_slot_body slot;
	waiting_start(&waiting, fixture, fixture_call(fixture, 1, false), &slot);
	assert_int_equal(fixture->shared->bell.sleepers & WAIT_SLEEPERS, 1);
	/* wait_wake without news wakes it, and it sleeps again. */
	wait_wake(&fixture->shared->bell);
	EVENTUALLY(is_asleep(slot.tid));
	assert_false(waiting.done);
	wait_store(&fixture->shared->words[0], 1);
	wait_wake(&fixture->shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_OK);
	assert_int_equal(waiting.peer, -1);
}

static void test_woken_by_process(void **state)
{
	struct fixture *fixture = *state;
	struct waiting waiting;
	struct wait_slot_body slot;
	waiting_start(&waiting, fixture, fixture_call(fixture, 1, false), &slot);
	pid_t child = fork();
	if (child == 0) {
		wait_store(&fixture->shared->words[0], 1);
		wait_wake(&fixture->shared->bell);
		_exit(0);
	}
	assert_true(child > 0);
	assert_int_equal(waiting_end(&waiting), LS_OK);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void test_deadline(void **state)
{
	struct fixture *fixture = *state;
	for (int i = 0; i < 3; i++) {
		int peer = 99;
		/* Asleep, spinning, yielding. */
		fixture->waiter.spin_ns = i ? UINT32_MAX : 0;
		fixture->waiter.yield = i == 2;
		struct wait_call call = fixture_call(fixture, 2, i == 1);
		call.deadline_ns = clock_deadline_ns(20);
		assert_int_equal(wait_words(&fixture->waiter, &call, &peer), LS_TIMED_OUT);
		assert_int_equal(peer, -1);
		uint64_t now = clock_now_ns();
		assert_true(now >= call.deadline_ns && now < clock_deadline_ns(GENEROUS_MS));
	}
}

static void test_cause(void **state)
{
	struct fixture *fixture = *state;
	struct waiting waiting;
	struct wait_slot_body slot;
	waiting_start(&waiting, fixture, fixture_call(fixture, 2, false), &slot);
	wait_store(&fixture->shared->cause, 3);
	wait_wake(&fixture->shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_ABORTED);
	assert_int_equal(waiting.peer, -1);
	/* Also while it spins, without wait_wake. */
	int peer;
	fixture->waiter.spin_ns = UINT32_MAX;
	struct wait_call call = fixture_call(fixture, 2, false);
	assert_int_equal(wait_words(&fixture->waiter, &call, &peer), LS_ABORTED);
	assert_false(find_slot(fixture->shared, WAIT_OUTSIDE, &slot));
}

static void test_peer_died(void **state)
{
	struct fixture *fixture = *state;
	struct waiting waiting;
	struct wait_slot_body slot;
	waiting_start(&waiting, fixture, fixture_call(fixture, 3, false), &slot);
	atomic_store(&fixture->dead[2], 1);
	wait_wake(&fixture->shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_PEER_DIED);
	assert_int_equal(waiting.peer, 2);
}

static void test_peer_left(void **state)
{
	struct fixture *fixture = *state;
	struct waiting waiting;
	struct wait_slot_body slot;
	waiting_start(&waiting, fixture, fixture_call(fixture, 3, false), &slot);
	wait_store(&fixture->shared->left[1], 1);
	wait_wake(&fixture->shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_PEER_LEFT);
	assert_int_equal(waiting.peer, 1);
}

/* All at once: which of several is named. */
static ls_status wait_now(struct fixture *fixture, int count, bool any, int *peer)
{
	struct wait_call call = fixture_call(fixture, count, any);
	call.deadline_ns = clock_now_ns();
	return wait_words(&fixture->waiter, &call, peer);
}

static void test_who_is_named(void **state)
{
	struct fixture *fixture = *state;
	int peer;
	/* Left, and then its process ended: it left. */
	fixture->shared->left[0] = 1;
	fixture->dead[0] = 1;
	assert_int_equal(wait_now(fixture, 3, false, &peer), LS_PEER_LEFT);
	assert_int_equal(peer, 0);
	/* Another one died: that goes before. */
	fixture->dead[1] = 1;
	assert_int_equal(wait_now(fixture, 3, false, &peer), LS_PEER_DIED);
	assert_int_equal(peer, 1);
	/* Those that have done their part are not needed any more. */
	fixture->shared->words[0] = fixture->shared->words[1] = 1;
	assert_int_equal(wait_now(fixture, 3, false, &peer), LS_TIMED_OUT);
	assert_int_equal(peer, -1);
	/* The failure of the group goes before a peer's. */
	fixture->dead[2] = 1;
	fixture->shared->cause = 1;
	assert_int_equal(wait_now(fixture, 3, false, &peer), LS_ABORTED);
	assert_int_equal(peer, -1);
	/* Numbers outside the world are nobody. */
	fixture->shared->cause = 0;
	fixture->words[2].edge.peer = PEERS;
	assert_int_equal(wait_now(fixture, 3, false, &peer), LS_TIMED_OUT);
	fixture->words[2].edge.peer = -1;
	assert_int_equal(wait_now(fixture, 3, false, &peer), LS_TIMED_OUT);
}

/* If a wait needs all words of an alternative, one word that cannot come rules out this
 * alternative. */
static void test_alternatives(void **state)
{
	struct fixture *fixture = *state;
	int peer;
	fixture->words[0].edge.alternative = fixture->words[1].edge.alternative = 1;
	fixture->dead[0] = 1;
	assert_int_equal(wait_now(fixture, 3, true, &peer), LS_TIMED_OUT);
	assert_int_equal(peer, -1);
	assert_int_equal(wait_now(fixture, 2, true, &peer), LS_PEER_DIED);
	assert_int_equal(peer, 0);
}

static void test_any(void **state)
{
	struct fixture *fixture = *state;
	struct waiting waiting;
	struct wait_slot_body slot;
	int peer;
	fixture->dead[0] = 1;
	assert_int_equal(wait_now(fixture, 2, false, &peer), LS_PEER_DIED);
	/* One peer is gone, the other can still come: nobody is to blame for the time limit. */
	assert_int_equal(wait_now(fixture, 2, true, &peer), LS_TIMED_OUT);
	assert_int_equal(peer, -1);
	waiting_start(&waiting, fixture, fixture_call(fixture, 2, true), &slot);
	wait_store(&fixture->shared->words[1], 1);
	wait_wake(&fixture->shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_OK);
	/* For all, one word does not suffice. */
	fixture->dead[0] = 0;
	waiting_start(&waiting, fixture, fixture_call(fixture, 2, false), &slot);
	wait_wake(&fixture->shared->bell);
	EVENTUALLY(is_asleep(slot.tid));
	assert_false(waiting.done);
	wait_store(&fixture->shared->words[0], 1);
	wait_wake(&fixture->shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_OK);
	/* All of them gone. */
	fixture->shared->words[0] = fixture->shared->words[1] = 0;
	waiting_start(&waiting, fixture, fixture_call(fixture, 2, true), &slot);
	wait_store(&fixture->shared->left[0], 1);
	wait_wake(&fixture->shared->bell);
	EVENTUALLY(is_asleep(slot.tid));
	assert_false(waiting.done);
	atomic_store(&fixture->dead[1], 1);
	wait_wake(&fixture->shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_PEER_DIED);
	assert_int_equal(waiting.peer, 1);
}

/* A word that other groups have used before tells of a leaving once it changes; and who leaves sees
 * that somebody sleeps here, as long as that is so. */
static void test_leaving_again(void **state)
{
	struct fixture *fixture = *state;
	struct waiting waiting;
	struct wait_slot_body slot;
	_Atomic uint32_t asleep = 0;
	fixture->waiter.asleep = &asleep;
	fixture->shared->left[0] = 41;
	fixture->peers[0].left_before = 41;
	waiting_start(&waiting, fixture, fixture_call(fixture, 1, false), &slot);
	EVENTUALLY(atomic_load(&asleep) == 1);
	EVENTUALLY(is_asleep(slot.tid));
	assert_false(waiting.done);
	wait_store(&fixture->shared->left[0], 42);
	wait_wake(&fixture->shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_PEER_LEFT);
	assert_int_equal(waiting.peer, 0);
	assert_int_equal(atomic_load(&asleep), 0);
}

/* The upper half of a cause says whose it is, and nothing of a failure. */
static void test_cause_of_a_group(void **state)
{
	struct fixture *fixture = *state;
	struct waiting waiting;
	struct wait_slot_body slot;
	fixture->shared->cause = UINT64_C(5) << 32;
	waiting_start(&waiting, fixture, fixture_call(fixture, 1, false), &slot);
	EVENTUALLY(is_asleep(slot.tid));
	assert_false(waiting.done);
	wait_store(&fixture->shared->cause, (UINT64_C(5) << 32) + 1);
	wait_wake(&fixture->shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_ABORTED);
}

static void test_slot_while_blocked(void **state)
{
	struct fixture *fixture = *state;
	struct waiting waiting;
	struct wait_slot_body slot;
	struct wait_call call = fixture_call(fixture, 3, false);
	call.has_own_limit = true;
	fixture->words[2].edge.value = 17;
	uint64_t before = clock_now_ns();
	waiting_start(&waiting, fixture, call, &slot);
	assert_int_equal(slot.state, WAIT_WORDS);
	assert_int_equal(slot.has_own_limit, 1);
	assert_int_equal(slot.group, 7);
	assert_int_equal(slot.record, 42);
	assert_int_equal(slot.deadline_ns, call.deadline_ns);
	assert_true(slot.since_ns >= before && slot.since_ns <= clock_now_ns());
	assert_int_equal(slot.edge_count, 3);
	for (int i = 0; i < 3; i++)
		assert_memory_equal(&slot.edges[i], &fixture->words[i].edge, sizeof slot.edges[i]);
	/* The same wait keeps its epoch, however often it wakes; the next one has another. */
	uint32_t epoch = fixture->shared->wait_table.slots[0].epoch;
	wait_wake(&fixture->shared->bell);
	EVENTUALLY(is_asleep(slot.tid));
	assert_int_equal(fixture->shared->wait_table.slots[0].epoch, epoch);
	assert_int_equal(epoch % 2, 0);
	for (int i = 0; i < 3; i++)
		wait_store(&fixture->shared->words[i], 17);
	wait_wake(&fixture->shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_OK);
	assert_int_not_equal(fixture->shared->wait_table.slots[0].epoch, epoch);
}

static void test_outside_afterwards(void **state)
{
	struct fixture *fixture = *state;
	struct wait_slot_body slot;
	int peer;
	assert_int_equal(wait_now(fixture, 1, true, &peer), LS_TIMED_OUT);
	assert_true(find_slot(fixture->shared, WAIT_OUTSIDE, &slot));
	assert_int_equal(slot.tid, gettid());
	assert_int_equal(slot.edge_count, 0);
}

static void test_look(void **state)
{
	struct fixture *fixture = *state;
	int look_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_true(look_fd >= 0);
	fixture->waiter.look_fd = look_fd;
	fixture->waiter.look_ns = 2000000;
	struct waiting waiting;
	struct wait_slot_body slot;
	uint64_t begin = clock_now_ns(), woken = 0, one;
	waiting_start(&waiting, fixture, fixture_call(fixture, 1, false), &slot);
	while (woken < 5) {
		EVENTUALLY(read(look_fd, &one, sizeof one) == sizeof one);
		woken += one;
	}
	/* Once per interval, not once per wake-up. */
	assert_true(clock_now_ns() - begin >= 5 * fixture->waiter.look_ns);
	wait_store(&fixture->shared->words[0], 1);
	wait_wake(&fixture->shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_OK);
	/* A short wait wakes nobody. */
	ssize_t ignored = read(look_fd, &one, sizeof one);
	(void)ignored;
	fixture->waiter.look_ns = UINT64_C(60000000000);
	struct wait_call call = fixture_call(fixture, 2, false);
	call.deadline_ns = clock_deadline_ns(5);
	int peer;
	assert_int_equal(wait_words(&fixture->waiter, &call, &peer), LS_TIMED_OUT);
	assert_int_equal(read(look_fd, &one, sizeof one), -1);
	close(look_fd);
}

enum { ROUNDS = 100000 };

struct ping {
	struct fixture *mine, *other;
	bool first;
	int bad;
};

/* Each waits for its own word to reach i, then sets the other's. */
static void *ping_pong(void *arg)
{
	struct ping *ping = arg;
	struct wait_word word = ping->mine->words[0];
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		if (ping->first) {
			wait_store(&ping->other->shared->words[0], i);
			wait_wake(&ping->other->shared->bell);
		}
		word.edge.value = i;
		struct wait_call call = fixture_call(ping->mine, 1, false);
		call.words = &word;
		int peer;
		ping->bad += wait_words(&ping->mine->waiter, &call, &peer) != LS_OK;
		if (!ping->first) {
			wait_store(&ping->other->shared->words[0], i);
			wait_wake(&ping->other->shared->bell);
		}
	}
	return NULL;
}

/* look_ns is 0 here, so a lost wake-up is a time-out. */
static void test_no_wakeup_is_lost(void **state)
{
	struct fixture other;
	fixture_init(&other);
	struct ping pings[2] = {{.mine = *state, .other = &other, .first = true},
				{.mine = &other, .other = *state}};
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, ping_pong, &pings[1]), 0);
	ping_pong(&pings[0]);
	wait_join(thread);
	assert_int_equal(pings[0].bad + pings[1].bad, 0);
	fixture_fini(&other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_satisfied),
		TEST(test_success_goes_first),
		TEST(test_success_before_failure),
		TEST(test_woken_by_thread),
		TEST(test_woken_by_process),
		TEST(test_deadline),
		TEST(test_cause),
		TEST(test_peer_died),
		TEST(test_peer_left),
		TEST(test_who_is_named),
		TEST(test_alternatives),
		TEST(test_any),
		TEST(test_leaving_again),
		TEST(test_cause_of_a_group),
		TEST(test_slot_while_blocked),
		TEST(test_outside_afterwards),
		TEST(test_look),
		TEST(test_no_wakeup_is_lost),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
