/* SPDX-License-Identifier: BSD-3-Clause
 * Threads outside of Lockstep that sleep on several words, as those of a simulated device do: who
 * can wake them. */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/waitv_fixture.h"
#include "diagnose/collect_fixture.h"
#include "diagnose/facts.h"

#ifdef __SANITIZE_THREAD__
enum { HAS_OTHERS = 1 }; /* the sanitizer's own thread wakes by itself */
#else
enum { HAS_OTHERS = 0 };
#endif

struct words {
	_Atomic uint32_t word;
	struct wait_bell bell;
};

static struct words own;
static struct words *shared;

static bool main_thread_sleeps(void)
{
	char path[64], text[512];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
	assert_true(diagnose_read_file(path, text, sizeof text, NULL) > 0);
	const char *name_end = strrchr(text, ')');
	return name_end && name_end[2] == 'S';
}

struct watcher {
	const struct trace_view *view;
	bool endless; /* the main thread is to be seen so */
	uint64_t sleep;
	_Atomic uint64_t awaited;
};

/* Looks at the main thread once that sleeps, and wakes it. */
static void *watch(void *argument)
{
	struct watcher *watcher = argument;
	do {
		while (!main_thread_sleeps())
			sched_yield();
		watcher->sleep = diagnose_outside_sleep(watcher->view);
	} while (watcher->endless && !watcher->sleep);
	wait_store(&watcher->awaited, 1);
	wait_wake(&own.bell);
	wait_wake(&shared->bell);
	atomic_store(&own.word, 1);
	syscall(SYS_futex, &own.word, FUTEX_WAKE, 1, NULL, NULL, 0);
	return NULL;
}

static void set_up_words(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	assert_ptr_not_equal(shared, MAP_FAILED);
}

/* A wait on a bell of this process; on one that other processes can ring, too; with a limit. */
static void waits_without_a_slot(void **state)
{
	const struct collect_fixture *fixture = *state;
	if (HAS_OTHERS)
		skip();
	set_up_words();
	for (int way = 0; way < 3; way++) {
		struct watcher watcher = {.view = &fixture->views[0], .endless = way == 0};
		struct waiter waiter = {.bell = way == 1 ? &shared->bell : &own.bell, .look_fd = -1};
		struct wait_word word = {.word = &watcher.awaited,
					 .edge = {.value = 1, .owner = -1, .peer = -1}};
		struct wait_call call = {.words = &word,
					 .count = 1,
					 .deadline_ns = way == 2 ? clock_deadline_ns(100000)
								 : CLOCK_NEVER};
		pthread_t thread;
		int peer;
		assert_int_equal(pthread_create(&thread, NULL, watch, &watcher), 0);
		assert_int_equal(wait_words(&waiter, &call, &peer), LS_OK);
		pthread_join(thread, NULL);
		assert_int_equal(watcher.sleep != 0, way == 0);
	}
	munmap(shared, sizeof *shared);
}

static void sleep_on(_Atomic uint32_t *first, _Atomic uint32_t *second)
{
	struct futex_waitv words[] = {{.uaddr = (uintptr_t)first, .flags = FUTEX_32},
				      {.uaddr = (uintptr_t)second, .flags = FUTEX_32}};
	while (atomic_load(&own.word) == 0)
		(void)syscall(SYS_futex_waitv, words, 2, 0, NULL, 0);
}

/* Another process may wake the thread by any one of the words. */
static void several_words(void **state)
{
	const struct collect_fixture *fixture = *state;
	static _Atomic uint32_t other;
	if (HAS_OTHERS || !has_futex_waitv())
		skip();
	set_up_words();
	for (int way = 0; way < 2; way++) {
		struct watcher watcher = {.view = &fixture->views[0], .endless = way == 0};
		pthread_t thread;
		atomic_store(&own.word, 0);
		assert_int_equal(pthread_create(&thread, NULL, watch, &watcher), 0);
		sleep_on(&own.word, way == 0 ? &other : &shared->word);
		pthread_join(thread, NULL);
		assert_int_equal(watcher.sleep != 0, way == 0);
	}
	munmap(shared, sizeof *shared);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(waits_without_a_slot, set_up, tear_down),
		cmocka_unit_test_setup_teardown(several_words, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
