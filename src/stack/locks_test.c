/* SPDX-License-Identifier: BSD-3-Clause
 * Threads of a child wait for each other's mutexes. */
#include <grp.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "stack/child_fixture.h"
#include "stack/stack.h"

enum { THREADS = 16, LOOKS = 300, GROUPS = 400, FAR_S = 1000000 };

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

struct shared {
	_Atomic int tids[4];
};
static struct shared *shared;

static void say(int which)
{
	atomic_store(&shared->tids[which], (int)gettid());
}

static int look(const struct stack_memory *memory, struct stack_lock_wait *out)
{
	uint32_t tids[THREADS];
	int count = stack_list_threads(memory->pid, tids, THREADS);
	return stack_lock_waits(memory, tids, count, out, THREADS);
}

static const struct stack_lock_wait *wait_of(const struct stack_lock_wait *waits, int count,
					     int which)
{
	for (int i = 0; i < count; i++)
		if (waits[i].tid == (uint32_t)atomic_load(&shared->tids[which]))
			return &waits[i];
	fail_msg("thread %d does not wait", which);
	return NULL;
}

/* ---- a cycle ---- */

static void *take_second_first(void *argument)
{
	(void)argument;
	say(1);
	pthread_mutex_lock(&second);
	pthread_barrier_wait(&both);
	pthread_mutex_lock(&first);
	return NULL;
}

static void *take_first(void *argument)
{
	(void)argument;
	pthread_barrier_wait(&both);
	say(2);
	pthread_mutex_lock(&first);
	return NULL;
}

/* It may give up, so it proves nothing. */
static void *take_first_for_a_while(void *argument)
{
	(void)argument;
	struct timespec limit;
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += FAR_S;
	pthread_barrier_wait(&both);
	pthread_mutex_timedlock(&first, &limit);
	return NULL;
}

static void cross(void)
{
	pthread_t threads[3];
	pthread_barrier_init(&both, NULL, 4);
	pthread_create(&threads[0], NULL, take_second_first, NULL);
	pthread_create(&threads[1], NULL, take_first, NULL);
	pthread_create(&threads[2], NULL, take_first_for_a_while, NULL);
	say(0);
	pthread_mutex_lock(&first);
	pthread_barrier_wait(&both);
	pthread_mutex_lock(&second);
}

static void a_cycle_is_a_deadlock(void **state)
{
	struct stack_memory memory;
	struct stack_lock_wait waits[THREADS];
	int count;
	(void)state;
	pid_t pid = fork_along();
	if (pid == 0)
		cross();
	stack_memory_open(pid, &memory);
	while ((count = look(&memory, waits)) < 3)
		sched_yield();
	assert_int_equal(count, 3);
	const struct stack_lock_wait *one = wait_of(waits, count, 0),
				     *two = wait_of(waits, count, 1),
				     *third = wait_of(waits, count, 2);
	assert_true(one->is_deadlock && two->is_deadlock && !third->is_deadlock);
	assert_int_equal(one->owner, two->tid);
	assert_int_equal(two->owner, one->tid);
	assert_int_equal(third->owner, one->tid);
	assert_int_equal(one->mutex, (uint64_t)(uintptr_t)&second);
	assert_int_equal(two->mutex, (uint64_t)(uintptr_t)&first);
	end(pid);
	assert_int_equal(look(&memory, waits), 0);
	stack_memory_close(&memory);
}

static void a_mutex_that_its_owner_takes_again(void **state)
{
	struct stack_memory memory;
	struct stack_lock_wait waits[THREADS];
	(void)state;
	pid_t pid = fork_along();
	if (pid == 0) {
		pthread_mutex_lock(&first);
		pthread_mutex_lock(&first);
	}
	stack_memory_open(pid, &memory);
	while (look(&memory, waits) < 1)
		sched_yield();
	assert_true(waits[0].is_deadlock);
	assert_int_equal(waits[0].tid, pid);
	assert_int_equal(waits[0].owner, pid);
	end(pid);
	stack_memory_close(&memory);
}

/* ---- an owner that is no thread of the process ---- */

static void *keep_first(void *argument)
{
	pthread_mutex_lock(&first);
	pthread_barrier_wait(&both);
	pthread_barrier_wait(argument);
	return NULL;
}

/* The thread that holds it lives in the parent. */
static void take_after_fork(void)
{
	static pthread_barrier_t never;
	pthread_t thread;
	pthread_barrier_init(&both, NULL, 2);
	pthread_barrier_init(&never, NULL, 2);
	pthread_create(&thread, NULL, keep_first, &never);
	pthread_barrier_wait(&both);
	pid_t parent = getpid();
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		say(0);
		pthread_mutex_lock(&first);
	}
	pthread_join(thread, NULL);
}

static void *take_and_end(void *argument)
{
	(void)argument;
	say(1);
	pthread_mutex_lock(&first);
	return NULL;
}

static void take_after_end(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, take_and_end, NULL);
	pthread_join(thread, NULL);
	say(0);
	pthread_mutex_lock(&first);
}

static void an_owner_that_is_gone(void **state)
{
	static void (*const takes[])(void) = {take_after_fork, take_after_end};
	struct stack_memory memory;
	struct stack_lock_wait waits[THREADS];
	(void)state;
	for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
		atomic_store(&shared->tids[0], 0);
		pid_t pid = fork_along();
		if (pid == 0)
			takes[i]();
		while (atomic_load(&shared->tids[0]) == 0)
			sched_yield();
		stack_memory_open(atomic_load(&shared->tids[0]), &memory);
		while (look(&memory, waits) < 1)
			sched_yield();
		assert_true(waits[0].owner_is_gone && !waits[0].is_deadlock);
		assert_int_equal(waits[0].tid, atomic_load(&shared->tids[0]));
		assert_int_equal(waits[0].mutex, (uint64_t)(uintptr_t)&first);
		if (takes[i] == take_after_end)
			assert_int_equal(waits[0].owner, atomic_load(&shared->tids[1]));
		end(pid);
		stack_memory_close(&memory);
	}
}

/* ---- none ---- */

static void *take_and_give(void *argument)
{
	pthread_mutex_t *const *locks = argument;
	for (;;) {
		pthread_mutex_lock(locks[0]);
		sched_yield();
		pthread_mutex_lock(locks[1]);
		sched_yield();
		pthread_mutex_unlock(locks[1]);
		pthread_mutex_unlock(locks[0]);
	}
	return NULL;
}

/* Joins so many groups that the counts of /proc stand behind the first 4 KiB, if the user may. */
static void join_many_groups(void)
{
	gid_t groups[GROUPS];
	for (int i = 0; i < GROUPS; i++)
		groups[i] = 1000000000u + (gid_t)i;
	int result = setgroups(GROUPS, groups);
	(void)result;
}

static void contention_is_no_deadlock(void **state)
{
	struct stack_memory memory;
	struct stack_lock_wait waits[THREADS];
	static pthread_mutex_t *locks[2] = {&first, &second};
	(void)state;
	pid_t pid = fork_along();
	if (pid == 0) {
		pthread_t threads[3];
		join_many_groups();
		for (int i = 0; i < 3; i++)
			pthread_create(&threads[i], NULL, take_and_give, locks);
		take_and_give(locks);
	}
	stack_memory_open(pid, &memory);
	for (int i = 0; i < LOOKS; i++) {
		int count = look(&memory, waits);
		for (int w = 0; w < count; w++)
			assert_false(waits[w].is_deadlock);
	}
	end(pid);
	stack_memory_close(&memory);
}

/* A word of a pool may have the same value, and a thread's number where a mutex has its owner. */
static void sleep_on_a_word(void)
{
	static uint32_t word[16];
	word[0] = 2;
	word[2] = (uint32_t)gettid();
	for (;;)
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

/* Another process may unlock it, and numbers of threads there are others. */
static void lock_a_shared_mutex(void)
{
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&first, &attributes);
	pthread_mutex_lock(&first);
	pthread_mutex_lock(&first);
}

static void *lock_output(void *argument)
{
	flockfile(stdout);
	pthread_barrier_wait(&both);
	pthread_barrier_wait(argument);
	return NULL;
}

/* It has a pointer where a mutex has its owner. */
static void lock_a_file(void)
{
	static pthread_barrier_t never;
	pthread_t thread;
	pthread_barrier_init(&both, NULL, 2);
	pthread_barrier_init(&never, NULL, 2);
	pthread_create(&thread, NULL, lock_output, &never);
	pthread_barrier_wait(&both);
	flockfile(stdout);
}

/* All but one of what a mutex has whose owner is gone. */
static void *sleep_on(void *words)
{
	for (;;)
		syscall(SYS_futex, words, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
	return NULL;
}

static void sleep_on_near_mutexes(void)
{
	static uint32_t words[4][16] = {{2, 0, 0x7ffffff0, 1},
					{2, 0, 0x3ffff0, 2},
					{2, 1, 0x3ffff0, 1},
					{2, 0, 0x3ffff0, 1, 1 /* recursive */}};
	pthread_t thread;
	for (int i = 1; i < 4; i++)
		pthread_create(&thread, NULL, sleep_on, words[i]);
	sleep_on(words[0]);
}

static void other_locks_are_none(void **state)
{
	static void (*const sleeps[])(void) = {sleep_on_a_word, lock_a_shared_mutex, lock_a_file,
					       sleep_on_near_mutexes};
	struct stack_memory memory;
	struct stack_lock_wait waits[THREADS];
	(void)state;
	for (size_t i = 0; i < sizeof sleeps / sizeof *sleeps; i++) {
		pid_t pid = fork_along();
		if (pid == 0)
			sleeps[i]();
		await_state(pid, 'S');
		stack_memory_open(pid, &memory);
		for (int n = 0; n < 10; n++)
			assert_int_equal(look(&memory, waits), 0);
		end(pid);
		stack_memory_close(&memory);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cycle_is_a_deadlock),
		cmocka_unit_test(a_mutex_that_its_owner_takes_again),
		cmocka_unit_test(an_owner_that_is_gone),
		cmocka_unit_test(contention_is_no_deadlock),
		cmocka_unit_test(other_locks_are_none),
	};
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	return shared == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
