/* SPDX-License-Identifier: BSD-3-Clause
 * Connecting: every number of ranks that matters, across fork, and what the wait slots say
 * meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/capture.h"
#include "base/ranks.h"
#include "base/seqlock.h"
#include "transport/transport_fixture.h"

static struct transport *at(struct test_job *job, int rank)
{
	return &job->ranks[rank].transport;
}

/* Every rank sees every rank's segment and arena, and the right one. */
static void check_all_see_all(struct test_job *job)
{
	for (int r = 0; r < job->size; r++) {
		atomic_store(&transport_area_of(&job->ranks[r].team, r)->finished,
			     (uint64_t)r + 100);
		job->ranks[r].memory.base[5000] = (unsigned char)(r + 1);
	}
	for (int r = 0; r < job->size; r++) {
		for (int q = 0; q < job->size; q++) {
			struct transport_peer *mapped = &at(job, r)->peers[q];
			assert_int_equal(mapped->rank, q);
			assert_int_equal(
				atomic_load(&transport_area_of(&job->ranks[r].team, q)->finished),
				q + 100);
			unsigned char *byte = memory_view_at(&mapped->arena, 5000, 1);
			assert_non_null(byte);
			assert_int_equal(*byte, q + 1);
			assert_true(fcntl(mapped->segment_fd, F_GETFD) & FD_CLOEXEC);
			assert_true(fcntl(mapped->trace_fd, F_GETFD) & FD_CLOEXEC);
		}
		assert_true(transport_is_valid(&job->ranks[r].team));
	}
}

/* How many mappings of this process are a segment. */
static int segments_mapped(void)
{
	char line[512];
	int count = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	assert_non_null(maps);
	while (fgets(line, sizeof line, maps))
		count += strstr(line, "lockstep-segment:") != NULL;
	fclose(maps);
	return count;
}

static void run_size(int size)
{
	int before = test_descriptors();
	struct test_job *job = test_job_open(size);
	check_all_see_all(job);
	/* Nothing but two descriptors a peer is left: no connection, no arena. */
	int mine = 3 * size;
	assert_int_equal(test_descriptors(), before + mine + 2 * size * (size - 1));
	assert_int_equal(segments_mapped(), size * size);
	test_job_close(job);
	assert_int_equal(test_descriptors(), before);
	assert_int_equal(segments_mapped(), 0);
}

static void test_few(void **state)
{
	(void)state;
	for (int size = 1; size <= 5; size++)
		run_size(size);
}

/* The table is sent in pieces of 32 ranks. */
static void test_pieces(void **state)
{
	(void)state;
	run_size(32);
	run_size(33);
}

/* All ranks map everybody's segment into this one process. */
#if defined(__SANITIZE_THREAD__)
enum { MOST = 40 }; /* it leaves the program 1.5 TiB of addresses */
#else
enum { MOST = RANKS_HOST_MAX };
#endif

static void test_most(void **state)
{
	(void)state;
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_max < 3 * MOST * MOST)
		skip();
	run_size(MOST);
}

/* Each rank keeps few others, and each is kept by as many. */
static void test_held(void **state)
{
	(void)state;
	enum { SIZE = TRANSPORT_HELD + 5 };
	struct test_job *job = test_job_open(SIZE);
	int keepers[SIZE] = {0};
	for (int r = 0; r < SIZE; r++) {
		struct transport *transport = &job->ranks[r].transport;
		int kept = 0;
		transport_hold(transport);
		transport_hold(transport); /* nothing is left to do */
		for (int q = 0; q < SIZE; q++) {
			const struct transport_peer *mapped = &transport->peers[q];
			bool open = mapped->segment_fd >= 0;
			assert_int_equal(open, mapped->trace_fd >= 0);
			assert_int_equal(open, mapped->segment_fd >= 0 &&
						       fcntl(mapped->segment_fd, F_GETFD) >= 0);
			kept += open && q != r;
			keepers[q] += open && q != r;
		}
		assert_int_equal(kept, TRANSPORT_HELD);
	}
	for (int q = 0; q < SIZE; q++)
		assert_int_equal(keepers[q], TRANSPORT_HELD);
	test_job_close(job);
}

static void test_arguments(void **state)
{
	(void)state;
	struct capture capture;
	struct transport transport;
	int fd = 5;
	char address[8] = "x";
	capture_begin(&capture);
	assert_int_equal(transport_init(&transport, 1, 0, RANKS_WORLD_MAX + 1), LS_BAD_ARGUMENT);
	assert_null(transport.peers);
	assert_int_equal(transport_init(&transport, 1, 2, 2), LS_BAD_ARGUMENT);
	transport_fini(&transport);
	assert_int_not_equal(transport_listen(address, sizeof address, &fd), LS_OK);
	assert_int_equal(fd, -1);
	assert_string_equal(address, "");
	const char *text = capture_end(&capture);
	assert_non_null(strstr(text, "rank 2 of 2"));
	assert_non_null(strstr(text, "LS-TRANSPORT-LISTEN"));
}

/* Memory that nobody can take away from under a peer, and no child sees. */
static void test_segment(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(2);
	int fd = at(job, 0)->peers[1].segment_fd;
	struct stat stat;
	assert_int_equal(fstat(fd, &stat), 0);
	assert_int_equal(ftruncate(fd, 4096), -1);
	assert_int_equal(ftruncate(fd, stat.st_size + 4096), -1);
	/* Of the first area inboxes and cells are missing, until they are opened; of the others all
	 * is. */
	int64_t there = stat.st_blocks * 512,
		needed = (int64_t)transport_areas_at(2) +
			 (int64_t)offsetof(struct transport_area, cells);
	assert_true(there >= needed && there < needed + 2 * TRANSPORT_PAGE_BYTES);
	char path[64], name[128] = "";
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	assert_true(readlink(path, name, sizeof name - 1) > 0);
	assert_non_null(strstr(name, "memfd:lockstep-segment:1122334455667788:1"));
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		unsigned char resident;
		int seen = 0;
		for (int q = 0; q < 2; q++)
			seen += mincore(at(job, 0)->peers[q].segment, 4096, &resident) == 0;
		transport_fini(at(job, 0)); /* must not touch what is not there */
		_exit(seen);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	check_all_see_all(job);
	test_job_close(job);
}

/* Waits (with the machine's patience, not ours) until a thread of this rank is blocked on a
 * descriptor; returns the rank that it waits for. */
static int awaited_peer(struct test_job *job, int rank)
{
	struct wait_table *wait_table = job->ranks[rank].wait_table;
	while (clock_now_ns() < job->deadline_ns) {
		for (int i = 0; i < WAIT_SLOT_MAX; i++) {
			struct wait_slot_body body;
			uint32_t epoch;
			if (seqlock_read(&wait_table->slots[i].epoch, &body,
					 &wait_table->slots[i].body, sizeof body, &epoch) &&
			    body.state == WAIT_FDS)
				return body.edges[0].peer;
		}
		sched_yield();
	}
	return -2;
}

/* Until `peer` is named: a wait for somebody else may come before. */
static bool names(struct test_job *job, int rank, int peer)
{
	int seen;
	do
		seen = awaited_peer(job, rank);
	while (seen != peer && seen != -2);
	return seen == peer;
}

static void test_slots_name_whom(void **state)
{
	(void)state;
	struct test_job *job = test_job_new(4, TEST_JOB_LIMIT_MS);
	test_job_start(job, 0);
	assert_true(names(job, 0, 1));
	test_job_start(job, 1);
	test_job_start(job, 3);
	assert_true(names(job, 0, 2));
	assert_true(names(job, 1, 0));
	assert_true(names(job, 3, 0));
	test_job_start(job, 2);
	for (int r = 0; r < 4; r++) {
		wait_join(job->ranks[r].thread);
		assert_int_equal(job->ranks[r].status, LS_OK);
	}
	check_all_see_all(job);
	test_job_close(job);
}

/* ---- across processes ---- */

enum { PROCESSES = 4, LAPS = 200 };

/* A token goes around the ring; each rank adds one. */
static bool run_ring(struct test_job *job, int rank)
{
	struct transport_team *team = &job->ranks[rank].team;
	int right = (rank + 1) % PROCESSES, left = (rank + PROCESSES - 1) % PROCESSES;
	for (uint64_t lap = 0; lap < LAPS; lap++) {
		struct wait_word blocked;
		uint64_t ticket, token = lap * PROCESSES;
		struct transport_envelope envelope = {.seq = lap, .bytes = sizeof token};
		if (rank != 0) {
			struct transport_message *message;
			while (!(message = transport_channel_match(team, left, (int64_t)lap,
								   &blocked)))
				if (test_job_await(&job->ranks[rank], &blocked) != LS_OK)
					return false;
			memcpy(&token, transport_channel_payload(team, left, message), sizeof token);
			transport_channel_take(team, left, message, LS_OK);
		}
		if (token != lap * PROCESSES + (uint64_t)rank)
			return false;
		token++;
		while (!transport_channel_post(team, right, &envelope, &token, 0, &ticket, &blocked))
			if (test_job_await(&job->ranks[rank], &blocked) != LS_OK)
				return false;
		struct transport_message *message = NULL;
		while (rank == 0 &&
		       !(message = transport_channel_match(team, left, (int64_t)lap, &blocked)))
			if (test_job_await(&job->ranks[rank], &blocked) != LS_OK)
				return false;
		if (message)
			transport_channel_take(team, left, message, LS_OK);
	}
	return true;
}

/* A rank in a process of its own: makes its own memory, as it must after fork. */
static int run_process(struct test_job *job, int rank)
{
	test_job_init_rank(job, rank);
	bool good = test_job_connect_rank(&job->ranks[rank]) == LS_OK && run_ring(job, rank) &&
		    transport_is_valid(&job->ranks[rank].team);
	test_job_fini_rank(job, rank);
	return good ? 0 : 1;
}

static void test_processes(void **state)
{
	(void)state;
	struct test_job *job = calloc(1, sizeof *job);
	assert_non_null(job);
	job->size = PROCESSES;
	job->deadline_ns = clock_deadline_ns(TEST_JOB_LIMIT_MS);
	assert_int_equal(transport_listen(job->address, sizeof job->address, &job->listen_fd),
			 LS_OK);
	pid_t children[PROCESSES];
	for (int r = 0; r < PROCESSES; r++) {
		children[r] = fork();
		assert_true(children[r] >= 0);
		if (children[r] == 0)
			_exit(run_process(job, r));
	}
	for (int r = 0; r < PROCESSES; r++) {
		int status;
		assert_int_equal(waitpid(children[r], &status, 0), children[r]);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
	close(job->listen_fd);
	free(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few),       cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_most),      cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_segment),   cmocka_unit_test(test_slots_name_whom),
		cmocka_unit_test(test_processes), cmocka_unit_test(test_held),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
