/* SPDX-License-Identifier: BSD-3-Clause
 * Ranks that cannot take part when the ranks connect, and whose processes continue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/capture.h"
#include "transport/transport_fixture.h"

enum { SOON_MS = TEST_JOB_LIMIT_MS / 3 };

static void decline(struct test_job *job, int rank)
{
	struct transport_exchange exchange = {.address = job->address,
					      .listen_fd = rank == 0 ? job->listen_fd : -1,
					      .deadline_ns = job->deadline_ns};
	transport_decline(&exchange, TEST_JOB_ID, rank, job->size, LS_OUT_OF_MEMORY);
}

/* Ranks of the set connect; each returns the status of a rank that declined. Returns how often that
 * rank was named. */
static int connect_in_vain(struct test_job *job, unsigned ranks, struct capture *capture,
			   const char *named)
{
	int count = 0;
	for (int r = 0; r < job->size; r++)
		if (ranks >> r & 1)
			wait_join(job->ranks[r].thread);
	const char *text = capture_end(capture);
	for (int r = 0; r < job->size; r++)
		if (ranks >> r & 1)
			assert_int_equal(job->ranks[r].status, LS_OUT_OF_MEMORY);
	for (const char *at = strstr(text, named); at; at = strstr(at + 1, named))
		count++;
	return count;
}

/* before: before the others come. */
static void assert_declined(int rank, bool before)
{
	struct capture capture;
	char named[64];
	int descriptors = test_descriptors();
	struct test_job *job = test_job_new(3, TEST_JOB_LIMIT_MS);
	uint64_t soon_ns = clock_deadline_ns(SOON_MS);
	capture_begin(&capture);
	if (before)
		decline(job, rank);
	for (int r = 0; r < job->size; r++)
		if (r != rank)
			test_job_start(job, r);
	if (!before)
		decline(job, rank);
	snprintf(named, sizeof named, "because of rank %d", rank);
	assert_int_equal(connect_in_vain(job, 7U & ~(1U << rank), &capture, named), 2);
	assert_true(clock_now_ns() < soon_ns);
	test_job_close(job);
	assert_int_equal(test_descriptors(), descriptors);
}

static void test_declines(void **state)
{
	(void)state;
	assert_declined(1, true);
	assert_declined(2, false);
}

static void test_root_declines(void **state)
{
	(void)state;
	assert_declined(0, false);
}

/* The first one counts. */
static void test_two_decline(void **state)
{
	struct capture capture;
	struct test_job *job = test_job_new(4, TEST_JOB_LIMIT_MS);
	(void)state;
	capture_begin(&capture);
	decline(job, 2);
	decline(job, 1);
	test_job_start(job, 0);
	test_job_start(job, 3);
	assert_int_equal(connect_in_vain(job, 9, &capture, "because of rank 2"), 2);
	test_job_close(job);
}

/* Nobody listens, and nobody else is there. */
static void test_declines_to_nobody(void **state)
{
	struct transport_exchange exchange = {.address = "lockstep-nobody-is-there"};
	(void)state;
	transport_decline(&exchange, TEST_JOB_ID, 1, 2, LS_OUT_OF_MEMORY);
	transport_decline(&exchange, TEST_JOB_ID, 0, 1, LS_OUT_OF_MEMORY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_declines),
		cmocka_unit_test(test_root_declines),
		cmocka_unit_test(test_two_decline),
		cmocka_unit_test(test_declines_to_nobody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
