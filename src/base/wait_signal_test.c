/* SPDX-License-Identifier: BSD-3-Clause
 * Waits for words and signals: handlers with and without SA_RESTART, stop and continue, and the
 * way for systems without futex_waitv, which a system call filter takes away here. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/wait_fixture.h"
#include "base/waitv_fixture.h"

static _Atomic int handled;

static void handle(int number)
{
	(void)number;
	handled++;
}

static void set_handler(int flags)
{
	struct sigaction action = {.sa_handler = handle, .sa_flags = flags};
	handled = 0;
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
}

static void test_interrupt(void **state)
{
	(void)state;
	struct fixture fixture;
	struct waiting waiting;
	struct wait_slot_body slot;
	fixture_init(&fixture);
	set_handler(0);
	waiting_start(&waiting, &fixture, fixture_call(&fixture, 1, false), &slot);
	/* Not in the kernel the very moment the handler runs: then again. */
	EVENTUALLY(waiting.done || pthread_kill(waiting.thread, SIGUSR1) != 0);
	assert_int_equal(waiting_end(&waiting), LS_INTERRUPTED);
	assert_int_equal(waiting.peer, -1);
	assert_true(handled > 0);
	fixture_fini(&fixture);
}

static void test_restart(void **state)
{
	(void)state;
	if (!has_futex_waitv())
		skip();
	struct fixture fixture;
	struct waiting waiting;
	struct wait_slot_body slot;
	fixture_init(&fixture);
	set_handler(SA_RESTART);
	waiting_start(&waiting, &fixture, fixture_call(&fixture, 1, false), &slot);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(pthread_kill(waiting.thread, SIGUSR1), 0);
		/* Woken by the signal and asleep again, or ended. */
		EVENTUALLY(waiting.done || is_asleep(slot.tid));
	}
	assert_false(waiting.done);
	wait_store(&fixture.shared->words[0], 1);
	wait_wake(&fixture.shared->bell);
	assert_int_equal(waiting_end(&waiting), LS_OK);
	assert_true(handled > 0);
	fixture_fini(&fixture);
}

/* A stopped process goes on waiting when it is continued, without LS_INTERRUPTED. */
static void test_stop_and_continue(void **state)
{
	(void)state;
	struct fixture fixture;
	struct wait_slot_body slot;
	fixture_init(&fixture);
	pid_t child = fork();
	if (child == 0) {
		int peer;
		struct wait_call call = fixture_call(&fixture, 1, false);
		_exit((int)wait_words(&fixture.waiter, &call, &peer));
	}
	assert_true(child > 0);
	EVENTUALLY(find_slot(fixture.shared, WAIT_WORDS, &slot));
	for (int i = 0; i < 3; i++) {
		int status;
		assert_int_equal(kill(child, SIGSTOP), 0);
		assert_int_equal(waitpid(child, &status, WUNTRACED), child);
		assert_true(WIFSTOPPED(status));
		/* What it waits for can be read meanwhile. */
		assert_true(find_slot(fixture.shared, WAIT_WORDS, &slot));
		assert_int_equal(kill(child, SIGCONT), 0);
		assert_int_equal(waitpid(child, &status, WCONTINUED), child);
	}
	wait_store(&fixture.shared->words[0], 1);
	wait_wake(&fixture.shared->bell);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), LS_OK);
	fixture_fini(&fixture);
}

enum { CANNOT_FILTER = 100 };

/* Runs in a child without futex_waitv: a wait reaches its deadline, then the parent wakes another
 * one. Returns 0 if both went as they should. */
static int without_waitv(struct fixture *fixture)
{
	if (!forbid_futex_waitv())
		return CANNOT_FILTER;
	int peer;
	struct wait_call call = fixture_call(fixture, 1, false);
	call.deadline_ns = clock_deadline_ns(10);
	if (wait_words(&fixture->waiter, &call, &peer) != LS_TIMED_OUT ||
	    clock_now_ns() < call.deadline_ns)
		return 1;
	call = fixture_call(fixture, 2, false);
	if (wait_words(&fixture->waiter, &call, &peer) != LS_OK)
		return 2;
	/* A sleeper with one topic then sleeps on the word of that topic only. */
	fixture->words[2].topic = 7;
	call = fixture_call(fixture, 3, false);
	if (wait_words(&fixture->waiter, &call, &peer) != LS_OK)
		return 3;
	/* The parent sends signals until this returns. */
	call = fixture_call(fixture, 4, false);
	if (wait_words(&fixture->waiter, &call, &peer) != LS_INTERRUPTED)
		return 4;
	return 0;
}

static bool waits_for(const struct fixture *fixture, uint32_t edge_count)
{
	struct wait_slot_body slot;
	return find_slot(fixture->shared, WAIT_WORDS, &slot) && slot.edge_count == edge_count &&
	       (fixture->shared->bell.sleepers & WAIT_SLEEPERS) == 1;
}

static void test_without_waitv(void **state)
{
	(void)state;
	struct fixture fixture;
	fixture_init(&fixture);
	set_handler(0);
	pid_t child = fork();
	if (child == 0)
		_exit(without_waitv(&fixture));
	assert_true(child > 0);
	int status = 0;
	pid_t ended = 0;
	EVENTUALLY(waits_for(&fixture, 2) || (ended = waitpid(child, &status, WNOHANG)) != 0);
	if (ended == child && WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_FILTER) {
		fixture_fini(&fixture);
		skip();
	}
	assert_int_equal(ended, 0);
	wait_store(&fixture.shared->words[0], 1);
	wait_store(&fixture.shared->words[1], 1);
	wait_wake(&fixture.shared->bell);
	EVENTUALLY((waits_for(&fixture, 3) && fixture.shared->bell.to_one == 1) ||
		   (ended = waitpid(child, &status, WNOHANG)) != 0);
	assert_int_equal(ended, 0);
	wait_store(&fixture.shared->words[2], 1);
	wait_wake_topic(&fixture.shared->bell, 7);
	EVENTUALLY(waits_for(&fixture, 4) || (ended = waitpid(child, &status, WNOHANG)) != 0);
	assert_int_equal(ended, 0);
	EVENTUALLY(kill(child, SIGUSR1) != 0 || waitpid(child, &status, WNOHANG) == child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	fixture_fini(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_interrupt),
		cmocka_unit_test(test_restart),
		cmocka_unit_test(test_stop_and_continue),
		cmocka_unit_test(test_without_waitv),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
