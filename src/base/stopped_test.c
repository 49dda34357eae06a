/* SPDX-License-Identifier: BSD-3-Clause
 * A process that is stopped is reported once, and one that runs is not. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stopped.h"

static void await_next(const struct stopped_looks *looks)
{
	while (clock_now_ns() < looks->next_ns)
		;
}

static void test_looks_are_planned(void **state)
{
	struct stopped_looks looks = {.next_ns = 0};
	(void)state;
	assert_false(stopped_is_due(&looks));
	assert_int_equal(stopped_until(&looks, 1), 1);
	uint64_t next_ns = stopped_until(&looks, CLOCK_NEVER);
	assert_in_range(next_ns, clock_now_ns(), clock_deadline_ns(1000));
	assert_int_equal(stopped_until(&looks, CLOCK_NEVER), next_ns);
	await_next(&looks);
	assert_true(stopped_is_due(&looks));
	assert_false(stopped_is_due(&looks));
	assert_true(stopped_until(&looks, CLOCK_NEVER) > next_ns);
}

/* A process that does nothing. */
static pid_t start_child(void)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* as hard to read as a name can be */
		prctl(PR_SET_NAME, "a) R (b");
		for (;;)
			pause();
	}
	return pid;
}

static void test_a_process_is_stopped(void **state)
{
	struct stopped_looks looks = {.next_ns = 0};
	int status;
	(void)state;
	pid_t pid = start_child();
	for (int i = 0; i < 3; i++)
		stopped_look(&looks, 5, pid);
	assert_false(ranks_have(&looks.told, 5));
	kill(pid, SIGSTOP);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	stopped_look(&looks, 5, pid);
	assert_false(ranks_have(&looks.told, 5));
	stopped_look(&looks, 5, pid);
	assert_true(ranks_have(&looks.told, 5));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	stopped_look(&looks, 6, pid);
	stopped_look(&looks, 6, 0);
	assert_false(ranks_have(&looks.seen, 6));
}

/* Going on in between is no stop. */
static void test_a_moment_is_not_reported(void **state)
{
	struct stopped_looks looks = {.next_ns = 0};
	int status;
	(void)state;
	pid_t pid = start_child();
	for (int i = 0; i < 3; i++) {
		kill(pid, SIGSTOP);
		assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
		stopped_look(&looks, 1, pid);
		kill(pid, SIGCONT);
		assert_int_equal(waitpid(pid, &status, WCONTINUED), pid);
		stopped_look(&looks, 1, pid);
	}
	assert_false(ranks_have(&looks.told, 1));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_looks_are_planned),
		cmocka_unit_test(test_a_process_is_stopped),
		cmocka_unit_test(test_a_moment_is_not_reported),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
