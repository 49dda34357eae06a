/* SPDX-License-Identifier: BSD-3-Clause
 * No operation on a stream keeps a thread in the driver, whose lock the thread would hold: neither
 * if the device has short queues, nor if the calls of the driver wait for their own work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>
#include <sys/syscall.h>

#include "job_fixture.h"

enum { CALLS = 4 };

static const char *const devices[] = {"queues=1,depth=5",  "depth=6",      "queues=1,depth=16",
				      "queues=1,depth=2",  "launch=waits", "queues=1,depth=64",
				      "depth=5,free=waits"};

static _Atomic int main_thread; /* the thread of rank 1, once it has begun to call */

/* Whether the thread sleeps. It may sleep for another reason; then the test shows less. */
static bool main_thread_sleeps(void)
{
	char path[64], line[256] = "";
	int thread = atomic_load(&main_thread);
	if (thread == 0)
		return false;
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
	FILE *file = fopen(path, "re");
	MUST(file && fgets(line, sizeof line, file));
	fclose(file);
	const char *name_end = strrchr(line, ')');
	return name_end && strncmp(name_end, ") S", 3) == 0;
}

/* ---- another thread of the rank ---- */

/* Rank 0 waits for this before it takes part in the operation for which the first thread of rank 1
 * waits. */
static void *send_from_beside(void *argument)
{
	struct rank *rank = argument;
	int32_t seven = 7;
	void *block;
	while (!main_thread_sleeps())
		sched_yield();
	MUST(sim_held_calls(rank->sim) == 0);
	MUST(ls_device_alloc(rank->group, 1 << 20, rank->streams[1], &block) == LS_OK);
	MUST(ls_device_free(rank->group, block) == LS_OK);
	MUST(ls_send(rank->group, &seven, 1, LS_INT32, 0, NULL) == LS_OK);
	return NULL;
}

static void wait_for_all(struct rank *rank, ls_request **ops, const int32_t *sums)
{
	for (int i = 0; i < CALLS; i++) {
		MUST(ls_wait(ops[i], 0) == LS_OK && sums[i] == RANKS);
		ls_request_free(ops[i]);
	}
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
}

static void two_threads(struct rank *rank)
{
	int32_t one = 1, got = 0, sums[CALLS];
	ls_request *ops[CALLS];
	pthread_t beside;
	if (rank->rank == 1) {
		MUST(pthread_create(&beside, NULL, send_from_beside, rank) == 0);
		atomic_store(&main_thread, (int)syscall(SYS_gettid));
	} else if (rank->rank == 0) {
		MUST(ls_recv(rank->group, &got, 1, LS_INT32, 1, NULL) == LS_OK && got == 7);
	}
	for (int i = 0; i < CALLS; i++) {
		struct ls_call_options options = on(rank, 0);
		options.request = &ops[i];
		MUST(ls_allreduce(rank->group, &one, &sums[i], 1, LS_INT32, LS_SUM, &options) ==
		     LS_OK);
		MUST(ls_request_follow(ops[i], rank->streams[1]) == LS_OK);
	}
	wait_for_all(rank, ops, sums);
	if (rank->rank == 1)
		pthread_join(beside, NULL);
	MUST(sim_held_calls(rank->sim) == 0);
}

static void other_threads_can_call_the_driver(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
		atomic_store(&main_thread, 0);
		run_job(two_threads, devices[i]);
	}
}

/* ---- messages ---- */

/* Each rank sends values to the next one, and receives those of the one before. */
static void shifts(struct rank *rank)
{
	int32_t mine[CALLS], got[CALLS];
	ls_request *ops[2 * CALLS];
	int to = (rank->rank + 1) % RANKS, from = (rank->rank + RANKS - 1) % RANKS;
	for (int i = 0; i < CALLS; i++) {
		struct ls_call_options options = on(rank, i % 2);
		mine[i] = 10 * rank->rank + i;
		MUST(ls_isend(rank->group, &mine[i], 1, LS_INT32, to, &options, &ops[2 * i]) ==
		     LS_OK);
		MUST(ls_irecv(rank->group, &got[i], 1, LS_INT32, from, &options, &ops[2 * i + 1]) ==
		     LS_OK);
	}
	for (int i = 0; i < 2 * CALLS; i++) {
		MUST(ls_wait(ops[i], 0) == LS_OK);
		ls_request_free(ops[i]);
	}
	for (int i = 0; i < CALLS; i++)
		MUST(got[i] == 10 * from + i);
	MUST(sim_held_calls(rank->sim) == 0);
}

static void messages_arrive(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
		run_job(shifts, devices[i]);
}

/* ---- failures ---- */

/* Calls until one fails; one must fail. */
static void call_until_it_fails(struct rank *rank, const struct ls_call_options *options)
{
	int32_t one = 1, sums[CALLS];
	ls_status status = LS_OK;
	for (int i = 0; i < CALLS && status == LS_OK; i++)
		status = ls_allreduce(rank->group, &one, &sums[i], 1, LS_INT32, LS_SUM, options);
	if (status == LS_OK)
		status = ls_barrier(rank->group, NULL);
	MUST(status != LS_OK);
	MUST(sim_held_calls(rank->sim) == 0);
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK); /* the stream has continued */
}

static void one_gives_up(struct rank *rank)
{
	struct ls_call_options options = on(rank, 0);
	if (rank->rank == 1)
		atomic_store(&main_thread, (int)syscall(SYS_gettid));
	if (rank->rank != 0) {
		call_until_it_fails(rank, &options);
		return;
	}
	while (!main_thread_sleeps())
		sched_yield();
	MUST(ls_group_abort(rank->group, "it gives up") == LS_OK);
}

/* Rank 0 waits for a message instead. */
static void one_does_not_come(struct rank *rank)
{
	struct ls_call_options options = on(rank, 0);
	int32_t got;
	options.timeout_ms = 100;
	if (rank->rank != 0)
		call_until_it_fails(rank, &options);
	else
		MUST(ls_recv(rank->group, &got, 1, LS_INT32, 1, NULL) != LS_OK);
}

static void failures_end_the_wait(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
		atomic_store(&main_thread, 0);
		run_job(one_gives_up, devices[i]);
		run_job(one_does_not_come, devices[i]);
	}
}

/* ---- one thread for several ranks ---- */

static struct rank *all_ranks[RANKS];
static pthread_barrier_t all_are_there;

/* Its first operation would wait for those of the other ranks. */
static void launches_for_others(struct rank *rank)
{
	all_ranks[rank->rank] = rank;
	pthread_barrier_wait(&all_are_there);
	ls_group *groups[RANKS] = {rank->group, rank->group, all_ranks[0]->group};
	ls_status status = ls_launch_begin(groups, RANKS);
	MUST(status == (rank->rank == 0 ? LS_OK : LS_BAD_ARGUMENT));
	MUST(rank->rank != 0 || ls_launch_end() == LS_OK);
	pthread_barrier_wait(&all_are_there);
}

static void a_launch_that_would_wait_for_itself_is_refused(void **state)
{
	(void)state;
	assert_int_equal(pthread_barrier_init(&all_are_there, NULL, RANKS), 0);
	run_job(launches_for_others, "devices=3,process=1,launch=waits");
}

/* The device has one queue, so what is on the second stream waits for what is on the first. Rank 1
 * aborts the group of the second stream, and later that of the first. The thread of rank 0, which
 * already waits for the device, must let both streams continue. */
static void one_gives_up_twice(struct rank *rank)
{
	static _Atomic int turns;
	ls_group *first, *second;
	MUST(ls_group_split(rank->group, 0, 0, &first) == LS_OK);
	MUST(ls_group_split(rank->group, 0, 0, &second) == LS_OK);
	if (rank->rank == 0) {
		int32_t *block = device_block(rank, 8);
		ls_request *ops[2];
		struct ls_call_options options[] = {on(rank, 0), on(rank, 1)};
		MUST(ls_irecv(first, block, 1, LS_INT32, 1, &options[0], &ops[0]) == LS_OK);
		MUST(ls_irecv(second, block + 1, 1, LS_INT32, 1, &options[1], &ops[1]) == LS_OK);
		MUST(ls_barrier(rank->group, NULL) == LS_OK);
		for (int i = 1; i >= 0; i--) {
			MUST(ls_wait(ops[i], 0) == LS_ABORTED);
			ls_request_free(ops[i]);
		}
	} else {
		MUST(ls_barrier(rank->group, NULL) == LS_OK);
	}
	if (rank->rank == 1) {
		MUST(ls_group_abort(second, "its program gives up") == LS_OK);
		/* Each turn waits longer, so that in some of them rank 0 sleeps. */
		for (int i = atomic_fetch_add(&turns, 1) * 1000; i > 0; i--)
			sched_yield();
		MUST(ls_group_abort(first, "its program gives up") == LS_OK);
	}
	ls_group_close(second);
	ls_group_close(first);
}

static void two_failures_on_one_queue(void **state)
{
	(void)state;
	for (int turn = 0; turn < 20; turn++)
		run_job(one_gives_up_twice, "queues=1");
}

/* ---- a time limit behind an expired one ---- */

static _Atomic uint64_t held_word;
static _Atomic bool limit_is_over;

/* Two receives are late, and their device is busy. The time limit of a third one counts all the
 * same. */
static void limits_behind_a_busy_device(struct rank *rank)
{
	ls_group *late;
	MUST(ls_group_split(rank->group, 0, rank->rank, &late) == LS_OK);
	if (rank->rank == 0) {
		int32_t *block = device_block(rank, 8), value;
		struct ls_call_options busy = on(rank, 0);
		struct ls_call_options soon = {.size = sizeof soon, .timeout_ms = 200};
		struct ls_failure failure = {.size = sizeof failure};
		ls_request *ops[3];
		busy.timeout_ms = 100;
		MUST(sim_await(rank->streams[0], &held_word, 1) == SIM_OK);
		for (int i = 0; i < 2; i++)
			MUST(ls_irecv(late, block + i, 1, LS_INT32, 1, &busy, &ops[i]) == LS_OK);
		while (failure.status == LS_OK) {
			MUST(ls_wait(ops[0], 10) == LS_PENDING);
			MUST(ls_group_failure(late, &failure) == LS_OK);
		}
		MUST(ls_irecv(rank->group, &value, 1, LS_INT32, 1, &soon, &ops[2]) == LS_OK);
		MUST(ls_wait(ops[2], 0) == LS_TIMED_OUT);
		sim_board_store(rank->sim, &held_word, 1);
		for (int i = 0; i < 3; i++) {
			MUST(ls_wait(ops[i], 0) == LS_TIMED_OUT);
			ls_request_free(ops[i]);
		}
		atomic_store(&limit_is_over, true);
	}
	while (!atomic_load(&limit_is_over))
		sched_yield();
	ls_group_close(late);
}

static void limits_count_behind_a_busy_device(void **state)
{
	(void)state;
	run_job(limits_behind_a_busy_device, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_threads_can_call_the_driver),
		cmocka_unit_test(messages_arrive),
		cmocka_unit_test(two_failures_on_one_queue),
		cmocka_unit_test(limits_count_behind_a_busy_device),
		cmocka_unit_test(failures_end_the_wait),
		cmocka_unit_test(a_launch_that_would_wait_for_itself_is_refused)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
