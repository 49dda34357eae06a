/* SPDX-License-Identifier: BSD-3-Clause
 * Locks: the mask, mutual exclusion, and that each violation is reported and ends the process. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/capture.h"
#include "base/lock.h"
#include "base/wait.h"

static struct lock_rank outer;
static struct lock_memory inner, other_inner;

static void test_mask(void **state)
{
	(void)state;
	assert_int_equal(lock_held_mask(), 0);
	lock_assert_none();
	lock_rank_acquire(&outer);
	assert_int_equal(lock_held_mask(), 1u << LOCK_INDEX_rank);
	lock_memory_acquire(&inner);
	assert_int_equal(lock_held_mask(), 1u << LOCK_INDEX_rank | 1u << LOCK_INDEX_memory);
	lock_rank_release(&outer);
	assert_int_equal(lock_held_mask(), 1u << LOCK_INDEX_memory);
	lock_memory_release(&inner);
	assert_int_equal(lock_held_mask(), 0);
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(lock_level_name(LOCK_INDEX_rank), "rank");
	assert_string_equal(lock_level_name(LOCK_INDEX_trace), "trace");
	assert_string_equal(lock_level_name(-1), "?");
	assert_string_equal(lock_level_name(LOCK_LEVEL_COUNT), "?");
}

static int counter LOCK_GUARDED(rank);

static void *count(void *arg)
{
	(void)arg;
	for (int i = 0; i < 10000; i++) {
		lock_rank_acquire(&outer);
		counter++;
		lock_rank_release(&outer);
	}
	return NULL;
}

static void test_exclusion(void **state)
{
	(void)state;
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count, NULL), 0);
	for (int i = 0; i < 3; i++)
		wait_join(threads[i]);
	lock_rank_acquire(&outer);
	int counted = counter;
	lock_rank_release(&outer);
	assert_int_equal(counted, 30000);
}

/* One thread takes it often, and comes to own it; the others take it from it now and then. */
static struct lock_mail mail;
static int messages LOCK_GUARDED(mail);

static void count_messages(int times)
{
	for (int i = 0; i < times; i++) {
		lock_mail_acquire(&mail);
		messages++;
		lock_mail_release(&mail);
	}
}

static void *count_few(void *arg)
{
	for (int i = 0; i < 300; i++) {
		count_messages(1);
		for (int spin = 0; spin < 500; spin++)
			lock_assert_none();
	}
	return arg;
}

static void test_owned(void **state)
{
	pthread_t threads[2];
	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count_few, NULL), 0);
	count_messages(200000);
	for (int i = 0; i < 2; i++)
		wait_join(threads[i]);
	count_messages(LOCK_RUN_MOST);
	assert_int_equal(lock_held_mask(), 0);
	lock_mail_acquire(&mail);
	int counted = messages;
	assert_int_equal(lock_held_mask(), 1u << LOCK_INDEX_mail);
	lock_mail_release(&mail);
	assert_int_equal(counted, 200600 + LOCK_RUN_MOST);
}

/* These functions break the lock order. clang would refuse them, so it does not check them. */
LOCK_UNCHECKED static void inverted(void)
{
	lock_memory_acquire(&inner);
	lock_rank_acquire(&outer);
}

LOCK_UNCHECKED static void twice(void)
{
	lock_memory_acquire(&inner);
	lock_memory_acquire(&inner);
}

LOCK_UNCHECKED static void twice_as_owner(void)
{
	count_messages(LOCK_RUN_LEAST);
	lock_mail_acquire(&mail);
	lock_mail_acquire(&mail);
}

LOCK_UNCHECKED static void not_held_by_its_owner(void)
{
	count_messages(LOCK_RUN_LEAST);
	lock_mail_release(&mail);
}

LOCK_UNCHECKED static void two_of_a_rank(void)
{
	lock_memory_acquire(&inner);
	lock_memory_acquire(&other_inner);
}

LOCK_UNCHECKED static void not_held(void)
{
	lock_memory_release(&inner);
}

LOCK_UNCHECKED static void wait_words_under_lock(void)
{
	int peer;
	struct wait_call call = {.count = 0};
	struct waiter waiter = {.wait_table = NULL};
	lock_rank_acquire(&outer);
	lock_memory_acquire(&inner);
	ls_status ignored = wait_words(&waiter, &call, &peer);
	(void)ignored;
}

LOCK_UNCHECKED static void wait_fds_under_lock(void)
{
	lock_memory_acquire(&inner);
	ls_status ignored = wait_fds(NULL, NULL, 0, -1, 0);
	(void)ignored;
}

LOCK_UNCHECKED static void foreign_call_under_lock(void)
{
	lock_memory_acquire(&inner);
	wait_foreign_call_begin(NULL, "cuMemFree");
}

LOCK_UNCHECKED static void join_under_lock(void)
{
	lock_memory_acquire(&inner);
	wait_join(pthread_self());
}

/* A violation aborts, so each has a process of its own. */
static void assert_aborts(void (*violate)(void), const char *expected)
{
	struct capture capture;
	capture_begin(&capture);
	pid_t child = fork();
	if (child == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGABRT, SIG_DFL);
		violate();
		_exit(0);
	}
	int status = 0;
	pid_t ended = waitpid(child, &status, 0);
	const char *text = capture_end(&capture);
	assert_int_equal(ended, child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_non_null(strstr(text, expected));
}

static void test_violations(void **state)
{
	(void)state;
	assert_aborts(inverted,
		      "wants a 'rank' lock while it holds a 'memory' lock [LS-LOCK-ORDER]");
	assert_aborts(twice, "wants a 'memory' lock while it holds a 'memory' lock");
	lock_mail_fini(&mail);
	lock_mail_init(&mail);
	assert_aborts(twice_as_owner, "wants a 'mail' lock while it holds a 'mail' lock");
	assert_aborts(not_held_by_its_owner, "this thread does not hold it [LS-LOCK-BROKEN]");
	assert_aborts(two_of_a_rank, "wants a 'memory' lock while it holds a 'memory' lock");
	assert_aborts(not_held, "this thread does not hold it [LS-LOCK-BROKEN]");
	assert_aborts(wait_words_under_lock, "while it holds a 'memory' lock [LS-LOCK-WAIT]");
	assert_aborts(wait_fds_under_lock, "[LS-LOCK-WAIT]");
	assert_aborts(foreign_call_under_lock, "[LS-LOCK-WAIT]");
	assert_aborts(join_under_lock, "[LS-LOCK-WAIT]");
}

int main(void)
{
	lock_rank_init(&outer);
	lock_memory_init(&inner);
	lock_memory_init(&other_inner);
	lock_mail_init(&mail);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mask),       cmocka_unit_test(test_names),
		cmocka_unit_test(test_exclusion),  cmocka_unit_test(test_owned),
		cmocka_unit_test(test_violations),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
