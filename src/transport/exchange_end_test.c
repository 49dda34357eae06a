/* SPDX-License-Identifier: BSD-3-Clause
 * Processes that end while ranks connect, where no socket shows it: before they have connected, or
 * while a process that they have forked keeps their sockets open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/capture.h"
#include "transport/transport_fixture.h"
#include "transport/handshake.h"

/* A process that does nothing until it is killed. */
static pid_t start_idle(void)
{
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return child;
}

static void bury(pid_t child)
{
	int status;
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
}

/* Ranks 0 and 1 of 3 connect; `pids` says whose process rank 2 is. Returns what they print. */
static const char *assert_rank_2_lost(struct test_job *job, const int *pids, pid_t killed)
{
	static struct capture capture;
	char lost[64];
	job->pids = pids;
	capture_begin(&capture);
	test_job_start(job, 0);
	test_job_start(job, 1);
	if (killed)
		assert_int_equal(kill(killed, SIGKILL), 0);
	wait_join(job->ranks[0].thread);
	wait_join(job->ranks[1].thread);
	const char *text = capture_end(&capture);
	snprintf(lost, sizeof lost, "rank 2 (pid %d) ended", pids[2]);
	assert_non_null(strstr(text, lost));
	assert_non_null(strstr(text, "because of rank 2"));
	assert_int_equal(job->ranks[0].status, LS_PEER_DIED);
	assert_int_equal(job->ranks[1].status, LS_PEER_DIED);
	return text;
}

static void test_ends_before_hello(void **state)
{
	(void)state;
	int before = test_descriptors();
	struct test_job *job = test_job_new(3, TEST_JOB_LIMIT_MS);
	pid_t child = start_idle();
	assert_rank_2_lost(job, (int[]){getpid(), getpid(), child}, child);
	test_job_close(job);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(test_descriptors(), before);
}

static void test_ended_long_ago(void **state)
{
	(void)state;
	struct test_job *job = test_job_new(3, TEST_JOB_LIMIT_MS);
	pid_t child = start_idle();
	bury(child);
	assert_rank_2_lost(job, (int[]){getpid(), getpid(), child}, 0);
	test_job_close(job);
}

/* The sockets of rank 0 stay open in this process, as in a worker that it has forked. */
static void test_root_ends(void **state)
{
	(void)state;
	struct capture capture;
	struct test_job *job = test_job_new(2, TEST_JOB_LIMIT_MS);
	pid_t child = start_idle();
	job->pids = (int[]){child, getpid()};
	capture_begin(&capture);
	test_job_start(job, 1);
	int fd = accept4(job->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	while (fd < 0 && errno == EAGAIN) {
		struct pollfd poll = {.fd = job->listen_fd, .events = POLLIN};
		assert_int_equal(wait_fds(NULL, &poll, 1, -1, CLOCK_NEVER), LS_OK);
		fd = accept4(job->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	}
	assert_true(fd >= 0);
	bury(child);
	wait_join(job->ranks[1].thread);
	const char *text = capture_end(&capture);
	assert_int_equal(job->ranks[1].status, LS_PEER_DIED);
	assert_non_null(strstr(text, "rank 0 (pid"));
	close(fd);
	test_job_close(job);
}

/* A process that connects to the root and ends at once. */
static pid_t connect_and_end(const struct test_job *job)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(job->address);
	memcpy(address.sun_path + 1, job->address, length);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		_exit(connect(fd, (struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)));
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	return child;
}

/* Rank 2 has connected and said nothing. It is lost, but no stranger. */
static void test_ends_before_its_hello(void **state)
{
	(void)state;
	struct test_job *job = test_job_new(3, TEST_JOB_LIMIT_MS);
	int pids[] = {getpid(), getpid(), 0};
	pids[2] = connect_and_end(job);
	const char *text = assert_rank_2_lost(job, pids, 0);
	assert_null(strstr(text, "not a rank of this job"));
	test_job_close(job);
	/* A process that is none of the known ones is a stranger. */
	job = test_job_new(3, TEST_JOB_LIMIT_MS);
	(void)connect_and_end(job);
	text = assert_rank_2_lost(job, pids, 0);
	assert_non_null(strstr(text, "not a rank of this job"));
	test_job_close(job);
}

/* Runs in a child, because the limit holds for a whole process: rank 0 has no descriptor left, so
 * it cannot watch rank 1, which has none either and never comes. Returns 0 if rank 0 reports this
 * long before the time limit. */
static int run_without_descriptors(pid_t other)
{
	struct capture capture;
	struct test_job *job = test_job_new(2, TEST_JOB_LIMIT_MS);
	job->pids = (int[]){getpid(), other};
	capture_begin(&capture);
	uint64_t began_ns = clock_now_ns();
	int next = fcntl(0, F_DUPFD_CLOEXEC, 0);
	close(next);
	struct rlimit limit = {.rlim_cur = (rlim_t)next, .rlim_max = (rlim_t)next};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	test_job_start(job, 0);
	wait_join(job->ranks[0].thread);
	bool quick = clock_now_ns() - began_ns < TEST_JOB_LIMIT_MS / 2 * UINT64_C(1000000);
	const char *text = capture_end(&capture);
	char words[64];
	snprintf(words, sizeof words, "rank 0 has reached its limit of %d open files", next);
	bool said = strstr(text, "LS-TRANSPORT-LIMIT") && strstr(text, words) &&
		    strstr(text, "ulimit -n");
	return quick && said && job->ranks[0].status == LS_OUT_OF_MEMORY ? 0 : 1;
}

static void test_root_without_descriptors(void **state)
{
	(void)state;
	pid_t other = start_idle(), child = fork();
	int status;
	assert_true(child >= 0);
	if (child == 0)
		_exit(run_without_descriptors(other));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	bury(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ends_before_hello),
		cmocka_unit_test(test_ended_long_ago),
		cmocka_unit_test(test_root_ends),
		cmocka_unit_test(test_root_without_descriptors),
		cmocka_unit_test(test_ends_before_its_hello),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
