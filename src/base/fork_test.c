/* SPDX-License-Identifier: BSD-3-Clause
 * A child has another generation than its parent, and its own child yet another. It does not hold
 * the sockets that are marked. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fork.h"

static void test_generations(void **state)
{
	(void)state;
	uint32_t mine = fork_generation();
	assert_int_equal(fork_generation(), mine);
	pid_t child = fork();
	if (child == 0) {
		uint32_t childs = fork_generation();
		pid_t grandchild = fork();
		if (grandchild == 0)
			_exit(fork_generation() == mine || fork_generation() == childs);
		int status;
		waitpid(grandchild, &status, 0);
		_exit(status != 0 || childs == mine || fork_generation() != childs);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(fork_generation(), mine);
}

/* Whether a child that fork makes has the descriptor; the child then ends. */
static bool child_has(int fd)
{
	pid_t child = fork();
	int status;
	if (child == 0)
		_exit(fcntl(fd, F_GETFD) >= 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status) != 0;
}

static void test_sockets_are_closed(void **state)
{
	int ends[2], file;
	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	int mark = fork_close_in_child(ends[0]);
	assert_true(mark >= 0);
	assert_false(child_has(ends[0]));
	assert_true(child_has(ends[1]));
	fork_forget(mark);
	assert_true(child_has(ends[0]));
	mark = fork_close_in_child(ends[0]);
	/* The number passes to another file. */
	file = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_true(file >= 0);
	assert_int_equal(dup2(file, ends[0]), ends[0]);
	assert_true(child_has(ends[0]));
	fork_forget(mark);
	assert_int_equal(fork_close_in_child(file), -1); /* no socket */
	close(file);
	close(ends[0]);
	close(ends[1]);
}

/* There are not more than a number of them, and all can be had again. */
static void test_too_many_sockets(void **state)
{
	enum { MANY = 5000 };
	static int marks[MANY];
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), count[2] = {0, 0};
	(void)state;
	for (int round = 0; round < 2; round++) {
		for (int mark; (mark = fork_close_in_child(fd)) >= 0; marks[count[round]++] = mark)
			assert_true(count[round] < MANY);
		for (int i = 0; i < count[round]; i++)
			fork_forget(marks[i]);
	}
	assert_true(count[0] >= 512);
	assert_int_equal(count[0], count[1]);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_generations),
		cmocka_unit_test(test_sockets_are_closed),
		cmocka_unit_test(test_too_many_sockets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
