/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/own_fd.h"

enum { EVENT = 1, MEMORY = 2, PROCESS = 4 };

static int kinds(int fd)
{
	return own_fd_is_event(fd) * EVENT + own_fd_is_memory(fd) * MEMORY +
	       own_fd_is_process(fd) * PROCESS;
}

static void assert_is(int fd, int expected)
{
	assert_true(fd >= 0);
	assert_int_equal(kinds(fd) & expected, expected);
	assert_int_equal(kinds(fd) & ~expected, 0);
	close(fd);
	assert_int_equal(kinds(fd), 0);
}

static void what_they_are(void **state)
{
	int ends[2];
	(void)state;
	assert_is(eventfd(0, EFD_CLOEXEC), EVENT);
	assert_is(memfd_create("lockstep-test", MFD_CLOEXEC | MFD_ALLOW_SEALING), MEMORY);
	assert_is((int)syscall(SYS_pidfd_open, getpid(), 0), PROCESS);
	assert_is(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 0);
	assert_is(open("/dev/null", O_RDWR | O_CLOEXEC), 0);
	assert_is(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING), 0);
	assert_is(open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), 0);
	assert_is(epoll_create1(EPOLL_CLOEXEC), 0);
	assert_is(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), 0);
	assert_is(inotify_init1(IN_CLOEXEC), 0);
	assert_is(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
	assert_is(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), 0);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_is(ends[0], 0);
	assert_is(ends[1], 0);
	assert_int_equal(kinds(-1), 0);
}

static void a_process_that_has_ended(void **state)
{
	pid_t child = fork();
	(void)state;
	if (child == 0)
		_exit(0);
	int fd = (int)syscall(SYS_pidfd_open, child, 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_true(own_fd_is_process(fd));
	own_fd_close(&fd, own_fd_is_process);
	assert_int_equal(fd, -1);
}

static void only_ones_own_is_closed(void **state)
{
	int event = eventfd(0, EFD_CLOEXEC), number = event;
	int other = open("/dev/null", O_RDWR | O_CLOEXEC);
	(void)state;
	assert_true(event >= 0 && other >= 0);
	assert_int_equal(dup2(other, event), event);
	own_fd_close(&event, own_fd_is_event);
	assert_int_equal(event, -1);
	assert_true(fcntl(number, F_GETFD) >= 0);
	close(number);
	close(other);
	event = number = eventfd(0, EFD_CLOEXEC);
	own_fd_close(&event, own_fd_is_event);
	assert_true(fcntl(number, F_GETFD) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_they_are),
		cmocka_unit_test(a_process_that_has_ended),
		cmocka_unit_test(only_ones_own_is_closed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
