/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: a job of ranks as threads of one process, each with a transport, an arena and a
 * waiter of its own, connected through real sockets. */
#ifndef TRANSPORT_TRANSPORT_FIXTURE_H
#define TRANSPORT_TRANSPORT_FIXTURE_H

#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ranks.h"
#include "transport/transport.h"

enum { TEST_JOB_ARENA_BYTES = 1 << 20, TEST_JOB_LIMIT_MS = 30000 };
#define TEST_JOB_ID UINT64_C(0x1122334455667788)

struct test_rank {
	struct test_job *job;
	struct transport transport;
	struct transport_team team; /* of all ranks, once they are connected */
	struct memory memory;
	struct wait_table *wait_table;
	struct waiter waiter;
	int trace_fd;
	ls_status status; /* of transport_connect */
	pthread_t thread;
};

struct test_job {
	int size;
	int listen_fd;
	char address[64];
	uint64_t deadline_ns;
	const int *pids; /* as in struct transport_exchange */
	bool no_cma;     /* the same */
	bool mirrors;    /* the ranks stand on several hosts */
	struct test_rank ranks[RANKS_WORLD_MAX];
};

static inline void test_job_init_rank(struct test_job *job, int r)
{
	struct test_rank *rank = &job->ranks[r];
	rank->job = job;
	rank->wait_table = aligned_alloc(64, sizeof *rank->wait_table);
	assert_non_null(rank->wait_table);
	memset(rank->wait_table, 0, sizeof *rank->wait_table);
	rank->trace_fd = memfd_create("lockstep-trace", MFD_CLOEXEC);
	assert_true(rank->trace_fd >= 0);
	assert_int_equal(memory_init(&rank->memory, TEST_JOB_ARENA_BYTES, TEST_JOB_ID, r), LS_OK);
	assert_int_equal(
		job->mirrors ? transport_init_mirrors(&rank->transport, TEST_JOB_ID, r, job->size)
			     : transport_init(&rank->transport, TEST_JOB_ID, r, job->size),
		LS_OK);
	assert_int_equal(transport_team_init(&rank->team, &rank->transport), LS_OK);
	rank->waiter = (struct waiter){
		.wait_table = rank->wait_table,
		.bell = &rank->transport.segment->bell,
		.look_fd = -1,
		.yield = true,
	};
	assert_int_equal(wait_open(&rank->waiter), LS_OK);
}

static inline void test_job_fini_rank(struct test_job *job, int r)
{
	struct test_rank *rank = &job->ranks[r];
	wait_close(&rank->waiter);
	transport_team_fini(&rank->team);
	transport_fini(&rank->transport);
	memory_fini(&rank->memory);
	close(rank->trace_fd);
	free(rank->wait_table);
}

/* A job without ranks: processes make their own ranks, as they must after fork. */
static inline struct test_job *test_job_empty(int size, unsigned limit_ms)
{
	struct test_job *job = calloc(1, sizeof *job);
	assert_non_null(job);
	job->size = size;
	job->deadline_ns = clock_deadline_ns(limit_ms);
	assert_int_equal(transport_listen(job->address, sizeof job->address, &job->listen_fd),
			 LS_OK);
	return job;
}

/* A job with all but the connections. */
static inline struct test_job *test_job_new_of(int size, unsigned limit_ms, bool mirrors)
{
	struct test_job *job = test_job_empty(size, limit_ms);
	job->mirrors = mirrors;
	for (int r = 0; r < size; r++)
		test_job_init_rank(job, r);
	return job;
}

static inline struct test_job *test_job_new(int size, unsigned limit_ms)
{
	return test_job_new_of(size, limit_ms, false);
}

static inline ls_status test_job_connect_rank(struct test_rank *rank)
{
	struct test_job *job = rank->job;
	struct transport_exchange exchange = {
		.address = job->address,
		.listen_fd = rank->transport.rank == 0 ? job->listen_fd : -1,
		.arena_fd = rank->memory.fd,
		.trace_fd = rank->trace_fd,
		.waiter = &rank->waiter,
		.deadline_ns = job->deadline_ns,
		.pids = job->pids,
		.no_cma = job->no_cma,
	};
	ls_status status = transport_connect(&rank->transport, &exchange);
	if (status == LS_OK)
		transport_team_set_world(&rank->team);
	return status;
}

static inline void *test_job_connect_thread(void *argument)
{
	struct test_rank *rank = argument;
	rank->status = test_job_connect_rank(rank);
	if (rank->transport.rank == 0) {
		close(rank->job->listen_fd);
		rank->job->listen_fd = -1;
	}
	wait_thread_leave(&rank->waiter);
	return NULL;
}

static inline void test_job_start(struct test_job *job, int r)
{
	struct test_rank *rank = &job->ranks[r];
	assert_int_equal(pthread_create(&rank->thread, NULL, test_job_connect_thread, rank), 0);
}

static inline void test_job_close(struct test_job *job)
{
	for (int r = 0; r < job->size; r++)
		test_job_fini_rank(job, r);
	if (job->listen_fd >= 0)
		close(job->listen_fd);
	free(job);
}

/* A job whose ranks are connected. */
static inline struct test_job *test_job_open(int size)
{
	struct test_job *job = test_job_new(size, TEST_JOB_LIMIT_MS);
	for (int r = 0; r < size; r++)
		test_job_start(job, r);
	for (int r = 0; r < size; r++) {
		wait_join(job->ranks[r].thread);
		assert_int_equal(job->ranks[r].status, LS_OK);
	}
	return job;
}

/* How many descriptors this process has open. */
static inline int test_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	assert_non_null(directory);
	int count = 0;
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

/* Blocks on one word, as a thread of `rank`. */
static inline ls_status test_job_await(struct test_rank *rank, const struct wait_word *word)
{
	struct wait_call call = {
		.words = word,
		.count = 1,
		.deadline_ns = rank->job->deadline_ns,
	};
	int peer;
	return wait_words(&rank->waiter, &call, &peer);
}

#endif
