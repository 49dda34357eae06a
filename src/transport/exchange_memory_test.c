/* SPDX-License-Identifier: BSD-3-Clause
 * A rank that can map no memory while the ranks connect: all are told that it is that rank, and not
 * the one whose memory it could not map. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <sys/syscall.h>

#include "base/capture.h"
#include "transport/transport_fixture.h"

enum { RANKS = 3 };

static int poor;       /* this rank can map only its own memory */
static int first_here; /* the ranks from this one on are on one host */
static _Thread_local bool maps_nothing_more;
static _Thread_local int maps_left;

/* The library finds this function before that of the C library. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	if (maps_nothing_more && fd >= 0 && maps_left-- <= 0) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

static void *connect_thread(void *argument)
{
	struct test_rank *rank = argument;
	const struct test_job *job = rank->job;
	struct transport_exchange exchange = {
		.address = job->address,
		.listen_fd = rank->transport.rank == first_here ? job->listen_fd : -1,
		.arena_fd = rank->memory.fd,
		.trace_fd = rank->trace_fd,
		.waiter = &rank->waiter,
		.deadline_ns = job->deadline_ns};
	for (int r = first_here; r < RANKS; r++)
		ranks_add(&exchange.here, r);
	maps_nothing_more = rank->transport.rank == poor;
	maps_left = 1; /* its own arena */
	rank->status = transport_connect(&rank->transport, &exchange);
	wait_thread_leave(&rank->waiter);
	return NULL;
}

static void assert_blamed(int rank)
{
	struct capture capture;
	char blamed[32];
	struct test_job *job = test_job_new_of(RANKS, TEST_JOB_LIMIT_MS, first_here > 0);
	int times = 0;
	poor = rank;
	snprintf(blamed, sizeof blamed, "because of rank %d", rank);
	capture_begin(&capture);
	for (int r = first_here; r < RANKS; r++)
		assert_int_equal(
			pthread_create(&job->ranks[r].thread, NULL, connect_thread, &job->ranks[r]),
			0);
	for (int r = first_here; r < RANKS; r++)
		wait_join(job->ranks[r].thread);
	const char *text = capture_end(&capture);
	for (int r = first_here; r < RANKS; r++)
		assert_int_equal(job->ranks[r].status, LS_OUT_OF_MEMORY);
	assert_non_null(strstr(text, "Cannot allocate memory"));
	for (const char *at = text; (at = strstr(at, "because of rank ")); at++, times++)
		assert_memory_equal(at, blamed, strlen(blamed));
	assert_int_equal(times, RANKS - first_here - 1);
	test_job_close(job);
}

static void test_root(void **state)
{
	(void)state;
	assert_blamed(0);
}

static void test_others(void **state)
{
	(void)state;
	for (int rank = 1; rank < RANKS; rank++)
		assert_blamed(rank);
}

/* Where rank 0 is on another host. */
static void test_root_of_another_host(void **state)
{
	(void)state;
	first_here = 1;
	for (int rank = 1; rank < RANKS; rank++)
		assert_blamed(rank);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_root),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_root_of_another_host),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
