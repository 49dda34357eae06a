/* SPDX-License-Identifier: BSD-3-Clause
 * Processes that are looked into: one without an interpreter, one that may hang in the kernel, one that has ended. */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
/* Must come after the ones above. */
#include <cmocka.h>

#include "stack/stack_private.h"

static const char mark[] = "to be read by another process";

/* 0 in a child, which ends with this process. */
static pid_t fork_along(void)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static void await_state(pid_t pid, char state)
{
	while (stack_thread_state(pid, (uint32_t)pid) != state)
		sched_yield();
}

static void end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_without_python(void **state)
{
#ifdef __SANITIZE_THREAD__
	skip(); /* its own thread is in the process, too */
#endif
	struct stack_frame frame;
	uint64_t images[STACK_IMAGE_MAX];
	char name[32], copy[sizeof mark];
	uint32_t tids[4];
	int count;
	(void)state;
	pid_t pid = fork_along();
	if (pid == 0) {
		prctl(PR_SET_NAME, "a)\033 b");
		for (;;)
			pause();
	}
	await_state(pid, 'S');
	struct stack_memory memory = stack_memory_of(pid);
	assert_true(memory.read(&memory, (uint64_t)(uintptr_t)mark, copy, sizeof copy));
	assert_memory_equal(copy, mark, sizeof mark);
	assert_false(memory.read(&memory, 64, copy, sizeof copy));
	assert_int_equal(stack_find_images(pid, images, &count), STACK_FOUND);
	assert_int_equal(count, 1);
	assert_int_equal(stack_python_top(pid, (uint32_t)pid, &frame), STACK_NOTHING);
	assert_int_equal(stack_list_threads(pid, tids, 4), 1);
	assert_int_equal(tids[0], pid);
	stack_thread_name(pid, tids[0], name, sizeof name);
	assert_string_equal(name, "a)? b");
	end(pid);
	assert_int_equal(stack_find_images(pid, images, &count), STACK_GONE);
	assert_int_equal(stack_python_top(pid, (uint32_t)pid, &frame), STACK_GONE);
	assert_int_equal(stack_list_threads(pid, tids, 4), 0);
	assert_int_equal(stack_thread_state(pid, (uint32_t)pid), 0);
}

/* Who waits for its vfork sleeps uninterruptibly, and not for a file. */
static void test_who_hangs(void **state)
{
#ifdef __SANITIZE_THREAD__
	skip(); /* it makes a fork of every vfork */
#endif
	uint64_t images[STACK_IMAGE_MAX];
	int count, ends[2];
	pid_t inner;
	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid_t pid = fork_along();
	if (pid == 0) {
		if (vfork() == 0) {
			inner = getpid();
			(void)!write(ends[1], &inner, sizeof inner);
			for (;;)
				pause();
		}
		_exit(0);
	}
	assert_int_equal(read(ends[0], &inner, sizeof inner), sizeof inner);
	await_state(pid, 'D');
	assert_int_equal(stack_find_images(pid, images, &count), STACK_HANGS);
	assert_int_equal(kill(inner, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(ends[0]);
	close(ends[1]);
}

/* It is stopped while it is looked at, and neither before nor afterwards. */
static void test_registers(void **state)
{
	static struct stack_registers registers;
	(void)state;
	pid_t pid = fork_along();
	if (pid == 0)
		for (;;)
			pause();
	await_state(pid, 'S');
	struct stack_memory memory = stack_memory_of(pid);
	enum stack_answer answer = stack_copy_registers(&memory, (uint32_t)pid, &registers);
	if (answer != STACK_REFUSED) { /* as some containers do */
		assert_int_equal(answer, STACK_FOUND);
		assert_true(registers.sp && registers.pc && registers.bytes > 0);
		assert_in_range((uintptr_t)&state, registers.sp, registers.sp + registers.bytes);
		assert_int_equal(stack_copy_registers(&memory, (uint32_t)pid, &registers),
				 STACK_FOUND);
	}
	await_state(pid, 'S');
	end(pid);
	assert_int_equal(stack_copy_registers(&memory, (uint32_t)pid, &registers), STACK_GONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_python),
		cmocka_unit_test(test_who_hangs),
		cmocka_unit_test(test_registers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
