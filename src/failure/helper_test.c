/* SPDX-License-Identifier: BSD-3-Clause
 * The program that a helper runs here is this one; its argument says what to do. */
#include "failure/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

enum { GENEROUS_MS = 60000, TEXT_BYTES = 256 };

static _Atomic int children_seen; /* by the handler of SIGCHLD */

static void on_child(int signal)
{
	(void)signal;
	children_seen++;
}

/* ---- what the program does ---- */

/* Its descriptors, whether all are one pipe, its environment, and whether signals are blocked. */
static int tell_state(void)
{
	struct stat first, other;
	sigset_t blocked;
	fstat(STDIN_FILENO, &first);
	bool one_pipe = S_ISFIFO(first.st_mode);
	for (int fd = 0; fd < 1024; fd++) {
		if (fstat(fd, &other) != 0)
			continue;
		dprintf(STDOUT_FILENO, "%d ", fd);
		one_pipe = one_pipe && other.st_ino == first.st_ino;
	}
	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	dprintf(STDOUT_FILENO, "%s, %s, %s\n", one_pipe ? "one pipe" : "several",
		environ[0] ? environ[0] : "empty",
		sigismember(&blocked, SIGTERM) ? "blocked" : "open");
	return 0;
}

static int act(const char *word)
{
	if (strcmp(word, "state") == 0)
		return tell_state();
	if (strcmp(word, "hang") == 0) {
		dprintf(STDOUT_FILENO, "%d", (int)getpid());
		for (;;)
			pause();
	}
	for (;;) /* more than a pipe takes */
		dprintf(STDOUT_FILENO, "%s\n", word);
}

/* ---- the tests ---- */

static struct failure_helper *start(const char *word, uint64_t limit_ms)
{
	struct failure_command command = {.places = {"/nowhere/lockstep", "/proc/self/exe"},
					  .words = {"helper_test"}};
	snprintf(command.words[1], HELPER_WORD_BYTES, "%s", word);
	struct failure_helper *helper = failure_helper_start(&command, limit_ms);
	assert_non_null(helper);
	return helper;
}

static void assert_no_children(void)
{
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	assert_int_equal(children_seen, 0);
}

static void end(struct failure_helper *helper)
{
	assert_no_children();
	assert_true(failure_helper_await(helper, clock_deadline_ns(GENEROUS_MS)));
	assert_no_children();
	assert_true(failure_helper_reap(helper));
	assert_int_equal(waitpid(-1, NULL, __WALL | WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

/* Opens the program that hangs, once it has written its number. */
static int open_program(const struct failure_helper *helper)
{
	char text[TEXT_BYTES];
	do {
		failure_helper_read(helper, text, sizeof text);
		sched_yield();
	} while (!text[0]);
	int fd = (int)syscall(SYS_pidfd_open, strtol(text, NULL, 10), 0);
	assert_true(fd >= 0);
	return fd;
}

static void assert_ended(int pidfd)
{
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	assert_int_equal(poll(&end, 1, GENEROUS_MS), 1);
	close(pidfd);
}

static void nothing_is_inherited(void **state)
{
	(void)state;
	char text[TEXT_BYTES];
	int more = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_true(more >= 0 && fcntl(more, F_SETFD, 0) == 0);
	struct failure_helper *helper = start("state", GENEROUS_MS);
	assert_true(failure_helper_await(helper, clock_deadline_ns(GENEROUS_MS)));
	failure_helper_read(helper, text, sizeof text);
	assert_string_equal(text, "0 1 2 one pipe, empty, blocked\n");
	end(helper);
	assert_int_equal(close(more), 0);
}

/* The rank has closed its descriptors 0, 1 and 2, so the pipe gets these numbers. */
static void without_descriptors(void **state)
{
	(void)state;
	int copy = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
	int errors = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
	char text[TEXT_BYTES];
	assert_true(copy >= 0 && errors >= 0);
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	struct failure_helper *helper = start("state", GENEROUS_MS);
	bool ended = failure_helper_await(helper, clock_deadline_ns(GENEROUS_MS));
	failure_helper_read(helper, text, sizeof text);
	bool reaped = failure_helper_reap(helper);
	open("/dev/null", O_RDONLY | O_CLOEXEC);
	dup2(copy, STDOUT_FILENO);
	dup2(errors, STDERR_FILENO);
	close(copy);
	close(errors);
	assert_true(ended && reaped);
	assert_string_equal(text, "0 1 2 one pipe, empty, blocked\n");
}

static void no_program(void **state)
{
	(void)state;
	static const struct failure_command command = {.places = {"/nowhere/lockstep"},
						       .words = {"lockstep"}};
	char text[TEXT_BYTES];
	struct failure_helper *helper = failure_helper_start(&command, GENEROUS_MS);
	assert_non_null(helper);
	assert_true(failure_helper_await(helper, clock_deadline_ns(GENEROUS_MS)));
	failure_helper_read(helper, text, sizeof text);
	assert_string_equal(text, "");
	end(helper);
}

/* The rank ignores SIGCHLD, so the system reaps its children: the keeper's it does not. */
static void ignored_children_are_awaited(void **state)
{
	(void)state;
	static const struct failure_command command = {.places = {"/nowhere/lockstep"},
						       .words = {"lockstep"}};
	struct sigaction ignored = {.sa_handler = SIG_IGN}, before;
	assert_int_equal(sigaction(SIGCHLD, &ignored, &before), 0);
	for (int i = 0; i < 50; i++) {
		struct failure_helper *helper = failure_helper_start(&command, 10 * GENEROUS_MS);
		assert_non_null(helper);
		assert_true(failure_helper_await(helper, clock_deadline_ns(GENEROUS_MS)));
		assert_true(failure_helper_reap(helper));
	}
	assert_int_equal(sigaction(SIGCHLD, &before, NULL), 0);
}

static void a_program_ends_at_its_limit(void **state)
{
	(void)state;
	static const char *const words[] = {"hang", "chatter"};
	for (int i = 0; i < 2; i++) {
		uint64_t limit_ns = clock_deadline_ns(30);
		struct failure_helper *helper = start(words[i], 30);
		assert_false(failure_helper_reap(helper));
		end(helper);
		assert_true(clock_now_ns() >= limit_ns);
	}
}

static void nobody_waits_longer_than_he_says(void **state)
{
	(void)state;
	struct failure_helper *helper = start("hang", GENEROUS_MS);
	int program = open_program(helper);
	assert_false(failure_helper_await(helper, clock_deadline_ns(10)));
	assert_false(failure_helper_reap(helper));
	assert_no_children();
	failure_helper_stop(helper);
	assert_ended(program);
	assert_int_equal(waitpid(-1, NULL, __WALL | WNOHANG), -1);
}

static int next_descriptor(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && close(fd) == 0);
	return fd;
}

/* The program waits for all sorts of children, and has been faster. */
static void its_end_may_be_taken_by_others(void **state)
{
	(void)state;
	int before = next_descriptor();
	struct failure_helper *helper = start("state", GENEROUS_MS);
	assert_true(failure_helper_await(helper, clock_deadline_ns(GENEROUS_MS)));
	assert_true(waitpid(-1, NULL, __WALL) > 0);
	failure_helper_stop(helper);
	assert_int_equal(next_descriptor(), before);
}

static void *start_and_leave(void *program)
{
	struct failure_helper *helper = start("hang", GENEROUS_MS);
	*(int *)program = open_program(helper);
	return helper;
}

static void it_ends_with_its_thread(void **state)
{
	(void)state;
	int program;
	void *helper;
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, start_and_leave, &program), 0);
	assert_int_equal(pthread_join(thread, &helper), 0);
	assert_ended(program);
	end(helper);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_inherited),
		cmocka_unit_test(without_descriptors),
		cmocka_unit_test(no_program),
		cmocka_unit_test(ignored_children_are_awaited),
		cmocka_unit_test(a_program_ends_at_its_limit),
		cmocka_unit_test(nobody_waits_longer_than_he_says),
		cmocka_unit_test(its_end_may_be_taken_by_others),
		cmocka_unit_test(it_ends_with_its_thread),
	};
	if (argc > 1)
		return act(argv[1]);
	signal(SIGCHLD, on_child);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
