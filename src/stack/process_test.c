/* SPDX-License-Identifier: BSD-3-Clause
 * Reading other processes: one without an interpreter, one that may hang in the kernel, one that
 * has ended. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
/* Must come after the ones above. */
#include <cmocka.h>

#include "stack/child_fixture.h"
#include "stack/stack_private.h"

static const char mark[] = "to be read by another process";

#ifdef __SANITIZE_ADDRESS__
/* The sanitizer guesses where thread-local memory of a loaded library lies. For libdw's it guesses
 * wrong, and its search for leaks ends in that memory. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "intercept_tls_get_addr=0";
}
#endif

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
	struct stack_memory memory;
	stack_memory_open(pid, &memory);
	assert_true(memory.read(&memory, (uint64_t)(uintptr_t)mark, copy, sizeof copy));
	assert_memory_equal(copy, mark, sizeof mark);
	assert_false(memory.read(&memory, 64, copy, sizeof copy));
	assert_int_equal(stack_find_images(&memory, images, &count), STACK_FOUND);
	assert_int_equal(count, 1);
	assert_int_equal(stack_python_top(&memory, (uint32_t)pid, &frame), STACK_NOTHING);
	assert_int_equal(stack_list_threads(pid, tids, 4), 1);
	assert_int_equal(tids[0], pid);
	stack_thread_name(pid, tids[0], name, sizeof name);
	assert_string_equal(name, "a)? b");
	end(pid);
	assert_int_equal(stack_find_images(&memory, images, &count), STACK_GONE);
	assert_int_equal(stack_python_top(&memory, (uint32_t)pid, &frame), STACK_GONE);
	assert_int_equal(stack_list_threads(pid, tids, 4), 0);
	assert_int_equal(stack_thread_state(pid, (uint32_t)pid), 0);
	stack_memory_close(&memory);
}

/* A process that waits for its vfork child sleeps uninterruptibly, and not for a file. */
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
	struct stack_memory memory;
	stack_memory_open(pid, &memory);
	assert_int_equal(stack_find_images(&memory, images, &count), STACK_HANGS);
	stack_memory_close(&memory);
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
	struct stack_memory memory;
	stack_memory_open(pid, &memory);
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
	stack_memory_close(&memory);
}

/* A child with this number; 0 if the system does not let us choose. */
static pid_t fork_as(pid_t pid)
{
	/* Missing from older headers: struct clone_args of Linux 5.5. */
	uint64_t arguments[10] = {[4] = SIGCHLD, [8] = (uintptr_t)&pid, [9] = 1};
	long child = syscall(SYS_clone3, arguments, sizeof arguments);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return child > 0 ? (pid_t)child : 0;
}

/* Its number has gone to another process, which answers in its place. */
static void test_number_used_again(void **state)
{
	struct stack_memory memory, other;
	struct stack_frame frame;
	char copy[sizeof mark];
	(void)state;
	pid_t pid = fork_along();
	if (pid == 0)
		for (;;)
			pause();
	stack_memory_open(pid, &memory);
	assert_true(stack_memory_is_there(&memory));
	assert_int_equal(kill(pid, SIGKILL), 0);
	await_state(pid, 'Z');
	assert_true(stack_memory_is_there(&memory)); /* so long the number is its own */
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_false(stack_memory_is_there(&memory));
	stack_memory_open(pid, &other);
	assert_false(stack_memory_is_there(&other));
	stack_memory_close(&other);
	if (fork_as(pid) == pid) {
		assert_true(memory.read(&memory, (uint64_t)(uintptr_t)mark, copy, sizeof copy));
		assert_false(stack_memory_is_there(&memory));
		assert_int_not_equal(stack_python_top(&memory, (uint32_t)pid, &frame), STACK_FOUND);
		end(pid);
	}
	stack_memory_close(&memory);
}

/* ---- files that only the other process sees ---- */

__attribute__((noinline)) static void wait_here(int ready)
{
	(void)!write(ready, "", 1);
	for (;;)
		pause();
}

/* Runs a copy of this program from a file system that only that process has mounted, as in a
 * container. Other processes see a path of it from its root, so the copy lies there under the path
 * under which that process finds it. */
static void run_hidden(const char *folder, int ready)
{
	char copy[64], path[128], number[16], *const arguments[] = {path, number, NULL};
	char bytes[4096];
	ssize_t count;
	snprintf(copy, sizeof copy, "%s/copy", folder);
	snprintf(number, sizeof number, "%d", ready);
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (from < 0 || unshare(CLONE_NEWNS) != 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("none", folder, "tmpfs", 0, NULL) != 0)
		_exit(77);
	int to = open(copy, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
	while ((count = read(from, bytes, sizeof bytes)) > 0)
		if (write(to, bytes, (size_t)count) != count)
			_exit(1);
	close(to);
	snprintf(path, sizeof path, "%s/tmp", folder);
	mkdir(path, 0700);
	snprintf(path, sizeof path, "%s%s", folder, folder);
	mkdir(path, 0700);
	snprintf(path, sizeof path, "%s%s", folder, copy);
	if (link(copy, path) == 0)
		execv(path, arguments);
	_exit(1);
}

static bool is_among(const struct stack_frame *frames, int count, const char *function)
{
	for (int i = 0; i < count; i++)
		if (strcmp(frames[i].function, function) == 0)
			return true;
	return false;
}

static void test_other_mounts(void **state)
{
	char folder[] = "/tmp/stack-process-test-XXXXXX", byte;
	int ready[2];
	struct stack_frame frames[16];
	struct stack_memory memory;
	struct stack_depth depth;
	(void)state;
	assert_non_null(mkdtemp(folder));
	assert_int_equal(pipe(ready), 0); /* NOLINT(android-cloexec-pipe): inherited */
	pid_t pid = fork_along();
	if (pid == 0)
		run_hidden(folder, ready[1]);
	close(ready[1]);
	bool runs = read(ready[0], &byte, 1) == 1;
	close(ready[0]);
	if (runs) {
		stack_memory_open(pid, &memory);
		struct stack_native *native = stack_native_open(&memory);
		if (native &&
		    stack_native_frames(native, (uint32_t)pid, frames, 16, &depth) == STACK_FOUND)
			assert_true(is_among(frames, depth.count, "wait_here"));
		stack_native_close(native);
		stack_memory_close(&memory);
		end(pid);
	} else { /* as an ordinary user it may mount nothing */
		int code;
		assert_int_equal(waitpid(pid, &code, 0), pid);
		assert_int_equal(WEXITSTATUS(code), 77);
	}
	assert_int_equal(rmdir(folder), 0);
}

int main(int count, char **arguments)
{
	if (count == 2)
		wait_here((int)strtol(arguments[1], NULL, 10));
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_python), cmocka_unit_test(test_who_hangs),
		cmocka_unit_test(test_registers),      cmocka_unit_test(test_number_used_again),
		cmocka_unit_test(test_other_mounts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
