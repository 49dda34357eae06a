/* SPDX-License-Identifier: BSD-3-Clause
 * A child has another generation than its parent, and its own child yet another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_generations)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
