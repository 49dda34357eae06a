/* SPDX-License-Identifier: BSD-3-Clause
 * A root that is short of processors: it says which rank is missing only after the time limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/capture.h"
#include "transport/transport_fixture.h"
#include "transport/handshake.h"

enum { SHORT_MS = 400 };

/* The root's end of the connection of the one rank that comes, and has said hello. */
static int accept_hello(const struct test_job *job)
{
	struct transport_handshake wire;
	int fds[HANDSHAKE_FDS_MAX], count;
	struct pollfd poll = {.fd = job->listen_fd, .events = POLLIN};
	assert_int_equal(wait_fds(NULL, &poll, 1, -1, CLOCK_NEVER), LS_OK);
	int fd = accept4(job->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	assert_true(fd >= 0);
	poll.fd = fd;
	assert_int_equal(wait_fds(NULL, &poll, 1, -1, CLOCK_NEVER), LS_OK);
	assert_int_equal(
		transport_handshake_receive(fd, TEST_JOB_ID, &wire, fds, HANDSHAKE_FDS_MAX, &count),
		HANDSHAKE_MESSAGE);
	assert_int_equal(wire.kind, HANDSHAKE_HELLO);
	transport_close_fds(fds, count);
	return fd;
}

static void test_late_root(void **state)
{
	(void)state;
	uint64_t said_ns, until_ns;
	do { /* again if this test was later still */
		struct capture capture;
		struct test_job *job = test_job_new(3, SHORT_MS);
		capture_begin(&capture);
		test_job_start(job, 1);
		int fd = accept_hello(job);
		until_ns = job->deadline_ns + HANDSHAKE_GRACE_MS * UINT64_C(1000000);
		assert_int_equal(wait_fds(NULL, NULL, 0, -1, job->deadline_ns), LS_TIMED_OUT);
		struct transport_handshake wire =
			transport_handshake_of(&job->ranks[0].transport, HANDSHAKE_FAIL);
		wire.rank = 2;
		wire.status = LS_RANK_MISSING;
		transport_handshake_try_send(fd, &wire);
		said_ns = clock_now_ns();
		wait_join(job->ranks[1].thread);
		close(fd);
		const char *text = capture_end(&capture);
		assert_int_equal(job->ranks[1].status, LS_RANK_MISSING);
		if (said_ns < until_ns)
			assert_non_null(strstr(text, "rank 2"));
		test_job_close(job);
	} while (said_ns >= until_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_late_root)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
