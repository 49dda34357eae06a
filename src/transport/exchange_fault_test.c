/* SPDX-License-Identifier: BSD-3-Clause
 * Failures while ranks connect; each error comes in time and names the rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/capture.h"
#include "transport/transport_fixture.h"
#include "transport/handshake.h"

enum {
	SHORT_MS = 400,
	COME_MS = 3000, /* the same, where others must have come before, on a busy machine */
};

/* ---- a socket that is no rank ---- */

static struct sockaddr_un address_of(const char *name, socklen_t *bytes)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	memcpy(address.sun_path + 1, name, strlen(name));
	*bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
	return address;
}

static int connect_to(const char *name)
{
	socklen_t bytes;
	struct sockaddr_un address = address_of(name, &bytes);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, bytes), 0);
	return fd;
}

static struct transport_handshake hello_of(struct test_job *job, int rank)
{
	return transport_handshake_of(&job->ranks[rank].transport, HANDSHAKE_HELLO);
}

/* Says `wire` with these descriptors, as a rank would. */
static void say(int fd, const struct transport_handshake *wire, const int *fds, int count)
{
	struct transport_exchange exchange = {.deadline_ns = CLOCK_NEVER};
	assert_int_equal(transport_handshake_send(fd, wire, fds, count, 0, &exchange, CLOCK_NEVER),
			 LS_OK);
}

/* Connects as `rank` and hands over what it should. */
static int member(struct test_job *job, int rank)
{
	struct test_rank *who = &job->ranks[rank];
	int fds[TRANSPORT_FDS] = {who->transport.segment_fd, who->memory.fd, who->trace_fd};
	struct transport_handshake wire = hello_of(job, rank);
	int fd = connect_to(job->address);
	say(fd, &wire, fds, TRANSPORT_FDS);
	return fd;
}

/* Blocks until the other end says something or closes. */
static enum transport_handshake_result listen_to(int fd, struct transport_handshake *wire)
{
	struct pollfd poll = {.fd = fd, .events = POLLIN};
	int fds[HANDSHAKE_FDS_MAX], count;
	assert_int_equal(wait_fds(NULL, &poll, 1, -1, CLOCK_NEVER), LS_OK);
	enum transport_handshake_result result =
		transport_handshake_receive(fd, TEST_JOB_ID, wire, fds, HANDSHAKE_FDS_MAX, &count);
	transport_close_fds(fds, count);
	return result;
}

/* Starts all ranks but `missing`, and returns once all have ended. */
static void run_without(struct test_job *job, int missing)
{
	for (int r = 0; r < job->size; r++)
		if (r != missing)
			test_job_start(job, r);
	for (int r = 0; r < job->size; r++)
		if (r != missing)
			wait_join(job->ranks[r].thread);
}

static void assert_all(struct test_job *job, int missing, ls_status status)
{
	for (int r = 0; r < job->size; r++)
		if (r != missing)
			assert_int_equal(job->ranks[r].status, status);
}

/* ---- strangers ---- */

static void test_strangers(void **state)
{
	(void)state;
	struct capture capture;
	int before = test_descriptors();
	struct test_job *job = test_job_new(3, TEST_JOB_LIMIT_MS);
	int strangers[100 + 8], count = 0;
	capture_begin(&capture);
	int silent = connect_to(job->address);
	test_job_start(job, 0);
	for (int i = 0; i < 100; i++) /* more than are kept */
		strangers[count++] = connect_to(job->address);
	for (int kind = 0; kind < 7; kind++) {
		struct transport_handshake wire = hello_of(job, 1);
		int fds[4] = {job->ranks[1].transport.segment_fd, job->ranks[1].memory.fd,
			      job->ranks[1].trace_fd, job->ranks[1].trace_fd};
		int fd = strangers[count++] = connect_to(job->address);
		wire.magic += kind == 0;
		wire.version += kind == 1;
		wire.job += kind == 2;
		wire.rank = kind == 3 ? 3 : kind == 4 ? 0 : 1;
		wire.size += kind == 5;
		say(fd, &wire, fds, kind == 6 ? 4 : 3);
	}
	int fd = strangers[count++] = connect_to(job->address);
	assert_int_equal(send(fd, "garbage", 7, 0), 7);
	/* Those that spoke are turned away while the root still waits. */
	struct transport_handshake wire;
	for (int i = 100; i < count; i++)
		assert_int_equal(listen_to(strangers[i], &wire), HANDSHAKE_END);
	test_job_start(job, 1);
	test_job_start(job, 2);
	for (int r = 0; r < 3; r++)
		wait_join(job->ranks[r].thread);
	const char *text = capture_end(&capture);
	assert_all(job, -1, LS_OK);
	assert_int_equal(capture_count(text, "LS-TRANSPORT-UNTRUSTED"), 1);
	for (int i = 0; i < count; i++)
		close(strangers[i]);
	close(silent);
	test_job_close(job);
	assert_int_equal(test_descriptors(), before);
}

/* Runs in a child that is another user: 0 if the root closed without a word. */
static int be_another_user(struct test_job *job)
{
	struct transport_handshake wire = hello_of(job, 1);
	if (setuid(65534) != 0)
		return 2;
	/* The root may turn it away before it has said anything, so it may be unable to. */
	int fd = connect_to(job->address);
	transport_handshake_try_send(fd, &wire);
	return listen_to(fd, &wire) == HANDSHAKE_END ? 0 : 1;
}

static void test_another_user(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	struct capture capture;
	struct test_job *job = test_job_new(2, TEST_JOB_LIMIT_MS);
	capture_begin(&capture);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(be_another_user(job));
	test_job_start(job, 0);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	test_job_start(job, 1);
	wait_join(job->ranks[0].thread);
	wait_join(job->ranks[1].thread);
	const char *text = capture_end(&capture);
	assert_int_equal(status, 0);
	assert_all(job, -1, LS_OK);
	assert_non_null(strstr(text, "user 65534"));
	test_job_close(job);
}

/* ---- ranks that die or fall silent ---- */

/* Between hello and go: in the child everything ends at once, as after kill -9. */
static void test_death_after_hello(void **state)
{
	(void)state;
	struct capture capture;
	struct test_job *job = test_job_new(4, TEST_JOB_LIMIT_MS);
	capture_begin(&capture);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		member(job, 2);
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	run_without(job, 2);
	const char *text = capture_end(&capture);
	assert_all(job, 2, LS_PEER_DIED);
	assert_int_equal(capture_count(text, "rank 2"), 3); /* once on each survivor */
	test_job_close(job);
}

static void test_death_after_table(void **state)
{
	(void)state;
	struct capture capture;
	struct test_job *job = test_job_new(3, TEST_JOB_LIMIT_MS);
	struct transport_handshake wire;
	capture_begin(&capture);
	int fd = member(job, 1);
	int double_fd = member(job, 1);
	test_job_start(job, 0);
	assert_int_equal(listen_to(double_fd, &wire), HANDSHAKE_END); /* the rank is taken */
	test_job_start(job, 2);
	assert_int_equal(listen_to(fd, &wire), HANDSHAKE_MESSAGE);
	assert_int_equal(wire.kind, HANDSHAKE_TABLE);
	assert_int_equal(wire.count, 3);
	close(fd);
	close(double_fd);
	wait_join(job->ranks[0].thread);
	wait_join(job->ranks[2].thread);
	const char *text = capture_end(&capture);
	assert_all(job, 1, LS_PEER_DIED);
	assert_int_equal(capture_count(text, "rank 1"), 2);
	test_job_close(job);
}

static void test_never_comes(void **state)
{
	(void)state;
	struct capture capture;
	struct test_job *job = test_job_new(4, COME_MS);
	capture_begin(&capture);
	run_without(job, 2);
	const char *text = capture_end(&capture);
	assert_all(job, 2, LS_RANK_MISSING);
	assert_int_equal(capture_count(text, "rank 2"), 3);
	test_job_close(job);
}

/* Takes the table and says no more. */
static void test_falls_silent(void **state)
{
	(void)state;
	struct capture capture;
	int before = test_descriptors();
	struct test_job *job = test_job_new(3, COME_MS);
	capture_begin(&capture);
	int fd = member(job, 1);
	run_without(job, 1);
	close(fd);
	const char *text = capture_end(&capture);
	assert_all(job, 1, LS_RANK_MISSING);
	assert_int_equal(capture_count(text, "rank 1"), 2);
	test_job_close(job);
	assert_int_equal(test_descriptors(), before);
}

/* ---- a root that is none ---- */

static void test_no_root(void **state)
{
	(void)state;
	struct capture capture;
	struct test_job *job = test_job_new(2, TEST_JOB_LIMIT_MS);
	capture_begin(&capture);
	close(job->listen_fd);
	job->listen_fd = -1;
	assert_int_equal(test_job_connect_rank(&job->ranks[1]), LS_NO_MASTER);
	assert_non_null(strstr(capture_end(&capture), "rank 0 (pid 0) ended or gave up"));
	test_job_close(job);
}

static void test_silent_root(void **state)
{
	(void)state;
	struct capture capture;
	struct test_job *job = test_job_new(2, SHORT_MS);
	capture_begin(&capture);
	assert_int_equal(test_job_connect_rank(&job->ranks[1]), LS_RANK_MISSING);
	assert_non_null(strstr(capture_end(&capture), "rank 0"));
	test_job_close(job);
}

enum root_fault {
	ROOT_CLOSES,
	ROOT_TALKS,
	ROOT_OTHER_JOB,
	ROOT_EARLY_GO,
	ROOT_BAD_COUNT,
	ROOT_BAD_STATUS
};

static void test_bad_roots(void **state)
{
	(void)state;
	static const ls_status expected[] = {LS_PEER_DIED,      LS_UNTRUSTED_PEER,
					     LS_UNTRUSTED_PEER, LS_UNTRUSTED_PEER,
					     LS_UNTRUSTED_PEER, LS_INTERNAL};
	for (int fault = ROOT_CLOSES; fault <= ROOT_BAD_STATUS; fault++) {
		struct capture capture;
		struct test_job *job = test_job_new(2, TEST_JOB_LIMIT_MS);
		capture_begin(&capture);
		test_job_start(job, 1);
		struct transport_handshake wire;
		struct pollfd poll = {.fd = job->listen_fd, .events = POLLIN};
		assert_int_equal(wait_fds(NULL, &poll, 1, -1, CLOCK_NEVER), LS_OK);
		int fd = accept4(job->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		assert_int_equal(listen_to(fd, &wire), HANDSHAKE_MESSAGE);
		assert_int_equal(wire.kind, HANDSHAKE_HELLO);
		wire = transport_handshake_of(&job->ranks[0].transport, HANDSHAKE_TABLE);
		wire.job += fault == ROOT_OTHER_JOB;
		wire.count = 1000;
		wire.status = 12345;
		if (fault == ROOT_EARLY_GO)
			wire.kind = HANDSHAKE_GO;
		if (fault == ROOT_BAD_STATUS)
			wire.kind = HANDSHAKE_FAIL;
		if (fault == ROOT_TALKS)
			assert_int_equal(send(fd, "hello?", 6, 0), 6);
		else if (fault != ROOT_CLOSES)
			say(fd, &wire, &job->ranks[0].trace_fd, 1);
		close(fd);
		wait_join(job->ranks[1].thread);
		const char *text = capture_end(&capture);
		assert_int_equal(job->ranks[1].status, expected[fault]);
		if (fault == ROOT_BAD_COUNT)
			assert_non_null(strstr(text, "table of ranks"));
		assert_non_null(strstr(text, "rank 0"));
		test_job_close(job);
	}
}

static void test_root_of_another_user(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	struct capture capture;
	struct test_job *job = test_job_new(2, TEST_JOB_LIMIT_MS);
	int ready[2];
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	close(job->listen_fd);
	job->listen_fd = -1;
	capture_begin(&capture);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		socklen_t bytes;
		struct sockaddr_un address = address_of(job->address, &bytes);
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		bool good = setuid(65534) == 0 &&
			    bind(fd, (struct sockaddr *)&address, bytes) == 0 &&
			    listen(fd, 1) == 0 && write(ready[1], "x", 1) == 1;
		struct transport_handshake wire;
		int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		/* It must not even get the hello. */
		_exit(good && listen_to(peer, &wire) == HANDSHAKE_END ? 0 : 1);
	}
	char byte;
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(test_job_connect_rank(&job->ranks[1]), LS_UNTRUSTED_PEER);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	const char *text = capture_end(&capture);
	assert_int_equal(status, 0);
	assert_non_null(strstr(text, "user 65534) answers in place of rank 0"));
	close(ready[0]);
	close(ready[1]);
	test_job_close(job);
}

/* ---- memory that is none ---- */

enum memory_fault { A_PIPE, NOT_SEALED, TOO_SMALL, OTHER_RANK, NOT_AN_ARENA, MEMORY_FAULTS };

static void hand_over(struct test_job *job, int fault, int fds[TRANSPORT_FDS])
{
	struct test_rank *rank = &job->ranks[1];
	off_t bytes = (off_t)rank->transport.peers[1].segment_bytes;
	int pipes[2] = {-1, -1};
	int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	assert_int_equal(ftruncate(fd, fault == TOO_SMALL ? 4096 : bytes), 0);
	if (fault != NOT_SEALED)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	int arena = fault == NOT_AN_ARENA ? pipes[0] : rank->memory.fd;
	fds[TRANSPORT_FD_SEGMENT] = fcntl(rank->transport.segment_fd, F_DUPFD_CLOEXEC, 0);
	fds[TRANSPORT_FD_ARENA] = fcntl(arena, F_DUPFD_CLOEXEC, 0);
	fds[TRANSPORT_FD_TRACE] = fcntl(rank->trace_fd, F_DUPFD_CLOEXEC, 0);
	if (fault != NOT_AN_ARENA)
		assert_true(dup2(fault == A_PIPE ? pipes[0] : fd, fds[TRANSPORT_FD_SEGMENT]) >= 0);
	int other = job->ranks[2].transport.segment_fd;
	if (fault == OTHER_RANK)
		assert_true(dup2(other, fds[TRANSPORT_FD_SEGMENT]) >= 0);
	close(fd);
	close(pipes[0]);
	close(pipes[1]);
}

static void test_bad_memory(void **state)
{
	(void)state;
	static const char *const reasons[] = {"not a file", "not sealed", "another size",
					      "another job or rank", "rank 1"};
	for (int fault = 0; fault < MEMORY_FAULTS; fault++) {
		struct capture capture;
		int before = test_descriptors();
		struct test_job *job = test_job_new(3, TEST_JOB_LIMIT_MS);
		int fds[TRANSPORT_FDS];
		struct transport_handshake wire = hello_of(job, 1);
		hand_over(job, fault, fds);
		capture_begin(&capture);
		int fd = connect_to(job->address);
		say(fd, &wire, fds, TRANSPORT_FDS);
		run_without(job, 1);
		const char *text = capture_end(&capture);
		ls_status status = job->ranks[0].status;
		assert_int_not_equal(status, LS_OK);
		assert_int_not_equal(status, LS_RANK_MISSING);
		assert_all(job, 1, status);
		assert_non_null(strstr(text, "because of rank 1"));
		assert_non_null(strstr(text, reasons[fault]));
		transport_close_fds(fds, TRANSPORT_FDS);
		close(fd);
		test_job_close(job);
		assert_int_equal(test_descriptors(), before);
	}
}

/* ---- no descriptors left ---- */

/* Runs in a child, because the limit holds for a whole process. Returns 0 if the rank that lacks
 * descriptors reports it. */
static int run_short_of_descriptors(int spare)
{
	struct capture capture;
	struct test_job *job = test_job_new(3, TEST_JOB_LIMIT_MS);
	capture_begin(&capture);
	int next = fcntl(0, F_DUPFD_CLOEXEC, 0);
	close(next);
	struct rlimit limit = {.rlim_cur = (rlim_t)(next + spare),
			       .rlim_max = (rlim_t)(next + spare)};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	run_without(job, -1);
	const char *text = capture_end(&capture);
	bool said = strstr(text, "LS-TRANSPORT-LIMIT") || strstr(text, "Too many open files");
	int failed = 0;
	for (int r = 0; r < 3; r++)
		failed += job->ranks[r].status == LS_OUT_OF_MEMORY;
	return said && failed > 0 ? 0 : 1;
}

static void test_short_of_descriptors(void **state)
{
	(void)state;
	for (int spare = 1; spare < 18; spare += 3) {
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0)
			_exit(run_short_of_descriptors(spare));
		int status;
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strangers),
		cmocka_unit_test(test_another_user),
		cmocka_unit_test(test_death_after_hello),
		cmocka_unit_test(test_death_after_table),
		cmocka_unit_test(test_never_comes),
		cmocka_unit_test(test_falls_silent),
		cmocka_unit_test(test_no_root),
		cmocka_unit_test(test_silent_root),
		cmocka_unit_test(test_bad_roots),
		cmocka_unit_test(test_root_of_another_user),
		cmocka_unit_test(test_bad_memory),
		cmocka_unit_test(test_short_of_descriptors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
