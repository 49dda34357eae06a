/* SPDX-License-Identifier: BSD-3-Clause
 * Waits for descriptors: ready at once, later, never; interrupted; what others see meanwhile. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/capture.h"
#include "base/wait_fixture.h"

struct polling {
	struct fixture *fixture;
	struct pollfd fd;
	pthread_t thread;
	ls_status status;
	_Atomic bool done;
};

static void *poll_run(void *arg)
{
	struct polling *polling = arg;
	polling->status = wait_fds(polling->fixture ? &polling->fixture->waiter : NULL,
				   &polling->fd, 1, 3, clock_deadline_ns(GENEROUS_MS));
	polling->done = true;
	return NULL;
}

static void test_ready_at_once(void **state)
{
	(void)state;
	struct fixture fixture;
	struct wait_slot_body slot;
	fixture_init(&fixture);
	struct pollfd fd = {.fd = eventfd(1, EFD_CLOEXEC), .events = POLLIN};
	/* A deadline in the past still gets one look. */
	assert_int_equal(wait_fds(&fixture.waiter, &fd, 1, -1, 0), LS_OK);
	assert_int_equal(fd.revents, POLLIN);
	assert_false(find_slot(fixture.shared, WAIT_OUTSIDE, &slot));
	close(fd.fd);
	fixture_fini(&fixture);
}

static void test_ready_later(void **state)
{
	(void)state;
	struct fixture fixture;
	struct wait_slot_body slot;
	fixture_init(&fixture);
	int fd = eventfd(0, EFD_CLOEXEC);
	struct polling polling = {.fixture = &fixture, .fd = {.fd = fd, .events = POLLIN}};
	assert_int_equal(pthread_create(&polling.thread, NULL, poll_run, &polling), 0);
	EVENTUALLY(find_slot(fixture.shared, WAIT_FDS, &slot));
	assert_int_equal(slot.edge_count, 1);
	assert_int_equal(slot.edges[0].peer, 3);
	assert_int_equal(slot.edges[0].segment, WAIT_SEGMENT_NONE);
	assert_int_equal(slot.has_own_limit, 1);
	assert_false(polling.done);
	assert_int_equal(eventfd_write(fd, 1), 0);
	wait_join(polling.thread);
	assert_int_equal(polling.status, LS_OK);
	assert_int_equal(polling.fd.revents, POLLIN);
	assert_false(find_slot(fixture.shared, WAIT_FDS, &slot));
	close(fd);
	fixture_fini(&fixture);
}

static void test_deadline(void **state)
{
	(void)state;
	struct pollfd fd = {.fd = eventfd(0, EFD_CLOEXEC), .events = POLLIN};
	uint64_t deadline_ns = clock_deadline_ns(20);
	assert_int_equal(wait_fds(NULL, &fd, 1, -1, deadline_ns), LS_TIMED_OUT);
	assert_true(clock_now_ns() >= deadline_ns);
	deadline_ns = clock_deadline_ns(5);
	assert_int_equal(wait_fds(NULL, NULL, 0, -1, deadline_ns), LS_TIMED_OUT);
	assert_true(clock_now_ns() >= deadline_ns);
	assert_int_equal(wait_fds(NULL, NULL, 0, -1, 0), LS_TIMED_OUT);
	close(fd.fd);
}

static void ignore(int number)
{
	(void)number;
}

static _Atomic int handled;

static void count(int number)
{
	(void)number;
	handled++;
}

static bool sleeps_in_poll(const struct polling *polling, pid_t tid)
{
	return polling->done || is_asleep(tid);
}

/* Signals whose handler has these flags come while a waiter polls, until it ends or has been
 * through many of them. */
static ls_status poll_under_signals(int flags, bool resumes)
{
	struct sigaction action = {.sa_handler = count, .sa_flags = flags};
	struct fixture fixture;
	struct wait_slot_body slot;
	fixture_init(&fixture);
	fixture.waiter.resumes = resumes;
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	int fd = eventfd(0, EFD_CLOEXEC);
	struct polling polling = {.fixture = &fixture, .fd = {.fd = fd, .events = POLLIN}};
	handled = 0;
	assert_int_equal(pthread_create(&polling.thread, NULL, poll_run, &polling), 0);
	EVENTUALLY(find_slot(fixture.shared, WAIT_FDS, &slot));
	/* A second signal would end the process if the first one has removed the handler. */
	int signals = flags & (int)SA_RESETHAND ? 1 : 50;
	for (int i = 0; i < signals && !polling.done; i++) {
		int before = handled;
		EVENTUALLY(sleeps_in_poll(&polling, slot.tid));
		assert_int_equal(pthread_kill(polling.thread, SIGUSR1), 0);
		/* Handlers are not held back. */
		EVENTUALLY(handled > before || polling.done);
	}
	assert_int_equal(eventfd_write(fd, 1), 0);
	wait_join(polling.thread);
	assert_true(handled > 0);
	close(fd);
	fixture_fini(&fixture);
	return polling.status;
}

static void test_handlers(void **state)
{
	(void)state;
	assert_int_equal(poll_under_signals(SA_RESTART, false), LS_OK);
	assert_int_equal(handled, 50);
	assert_int_equal(poll_under_signals(0, true), LS_OK);
	assert_int_equal(handled, 50);
	assert_int_equal(poll_under_signals(0, false), LS_INTERRUPTED);
	/* It is gone when it has run. */
	assert_int_equal(poll_under_signals((int)SA_RESETHAND, false), LS_INTERRUPTED);
	/* One of each kind: the other one goes on interrupting. */
	struct sigaction other = {.sa_handler = ignore, .sa_flags = SA_RESTART};
	assert_int_equal(sigaction(SIGUSR2, &other, NULL), 0);
	assert_int_equal(poll_under_signals(0, false), LS_INTERRUPTED);
}

/* Another thread changes the group of the process. The C library interrupts all threads then,
 * though none has a handler; or, with `handler`, only one that could not have run. */
static ls_status poll_under_changes(bool handler)
{
	struct sigaction none = {.sa_handler = SIG_DFL},
			 restarting = {.sa_handler = count, .sa_flags = SA_RESTART},
			 crash = {.sa_handler = ignore}; /* as programs have that tell where */
	struct fixture fixture;
	struct wait_slot_body slot;
	fixture_init(&fixture);
	assert_int_equal(sigaction(SIGUSR1, handler ? &restarting : &none, NULL), 0);
	assert_int_equal(sigaction(SIGUSR2, &none, NULL), 0);
	assert_int_equal(sigaction(SIGBUS, &crash, NULL), 0);
	int fd = eventfd(0, EFD_CLOEXEC);
	struct polling polling = {.fixture = &fixture, .fd = {.fd = fd, .events = POLLIN}};
	assert_int_equal(pthread_create(&polling.thread, NULL, poll_run, &polling), 0);
	EVENTUALLY(find_slot(fixture.shared, WAIT_FDS, &slot));
	for (int i = 0; i < 10 && !polling.done; i++) {
		EVENTUALLY(sleeps_in_poll(&polling, slot.tid));
		assert_int_equal(setgid(getgid()), 0);
	}
	assert_int_equal(eventfd_write(fd, 1), 0);
	wait_join(polling.thread);
	close(fd);
	fixture_fini(&fixture);
	return polling.status;
}

static void test_change_of_group(void **state)
{
	(void)state;
	assert_int_equal(poll_under_changes(false), LS_OK);
	assert_int_equal(poll_under_changes(true), LS_OK);
}

/* Without a waiter any signal handler interrupts a poll, also a handler with SA_RESTART. */
static void test_interrupt(void **state)
{
	(void)state;
	for (int restart = 0; restart < 2; restart++) {
		struct sigaction action = {.sa_handler = ignore,
					   .sa_flags = restart ? SA_RESTART : 0};
		assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
		struct polling polling = {.fd = {.fd = eventfd(0, EFD_CLOEXEC), .events = POLLIN}};
		assert_int_equal(pthread_create(&polling.thread, NULL, poll_run, &polling), 0);
		/* The handler counts only while the thread is in the poll, so it is tried again. */
		EVENTUALLY(polling.done || pthread_kill(polling.thread, SIGUSR1) != 0);
		wait_join(polling.thread);
		assert_int_equal(polling.status, LS_INTERRUPTED);
		close(polling.fd.fd);
	}
}

static void test_system_error(void **state)
{
	(void)state;
	struct rlimit old, none = {0, 0};
	struct capture capture;
	struct pollfd fd = {.fd = -1};
	capture_begin(&capture);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none.rlim_max = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	ls_status status = wait_fds(NULL, &fd, 1, -1, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_non_null(strstr(capture_end(&capture), "ppoll failed: Invalid argument"));
	assert_int_equal(status, LS_SYSTEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ready_at_once),   cmocka_unit_test(test_ready_later),
		cmocka_unit_test(test_deadline),        cmocka_unit_test(test_interrupt),
		cmocka_unit_test(test_system_error),    cmocka_unit_test(test_handlers),
		cmocka_unit_test(test_change_of_group),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
