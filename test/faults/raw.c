/* SPDX-License-Identifier: BSD-3-Clause
 * Plain calls that fail on one rank: raw SCENARIO FAULTY_RANK. Each survivor prints one line, "rank
 * R: STATUS blamed B operation N after M ms", with the cause as ls_group_failure gives it. The
 * comments "site: NAME" are before lines that faults_test.py looks up to check call sites. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum { COUNT = 1000, HEALTHY_STEPS = 3 };

static ls_group *group;
static int rank, size, faulty;
static float values[COUNT];

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static ls_status reduce(uint64_t count, ls_dtype dtype, ls_reduce_op op)
{
	/* site: reduce */
	return ls_allreduce(group, values, values, count, dtype, op, NULL);
}

static ls_status broadcast(int root)
{
	/* site: broadcast */
	return ls_broadcast(group, values, values, COUNT, LS_FLOAT32, root, NULL);
}

static ls_status receive(int from)
{
	/* site: receive */
	return ls_recv(group, values, 1, LS_FLOAT32, from, NULL);
}

/* Two workers that live on when their parent dies, as data loaders do. They hold its sockets
 * open. */
static void fork_workers(void)
{
	for (int i = 0; i < 2; i++)
		if (fork() == 0)
			for (;;)
				pause();
}

static void compute_forever(void)
{
	volatile double x = 1;
	for (;;)
		x = x * 1.0000001;
}

/* What the faulty rank does while the others call the second all-reduce. */
static ls_status go_wrong(const char *scenario)
{
	if (strcmp(scenario, "leave") == 0) {
		ls_group_close(group);
		exit(0);
	}
	if (strcmp(scenario, "exit") == 0)
		_exit(7);
	if (strcmp(scenario, "killed") == 0)
		raise(SIGKILL);
	if (strcmp(scenario, "workers") == 0) {
		fork_workers();
		raise(SIGKILL);
	}
	if (strcmp(scenario, "stopped") == 0)
		raise(SIGSTOP);
	if (strcmp(scenario, "slow") == 0)
		compute_forever();
	if (strcmp(scenario, "abort") == 0)
		return ls_group_abort(group, "because the test says so");
	if (strcmp(scenario, "operation") == 0)
		return broadcast(faulty);
	if (strcmp(scenario, "count") == 0)
		return reduce(COUNT - 1, LS_FLOAT32, LS_SUM);
	if (strcmp(scenario, "dtype") == 0)
		return reduce(COUNT, LS_INT32, LS_SUM);
	return reduce(COUNT, LS_FLOAT32, LS_MAX);
}

static ls_status run_fault(const char *scenario)
{
	ls_status status = reduce(COUNT, LS_FLOAT32, LS_SUM);
	if (status != LS_OK)
		return status;
	if (strcmp(scenario, "cycle") == 0)
		return receive((rank + 1) % size);
	if (strcmp(scenario, "root") == 0)
		status = broadcast(rank == faulty ? faulty : (faulty + 1) % size);
	else if (rank == faulty)
		status = go_wrong(scenario);
	else
		status = reduce(COUNT, LS_FLOAT32, LS_SUM);
	/* A rank whose own part was done learns of the failure from its next call. */
	return status == LS_OK ? reduce(COUNT, LS_FLOAT32, LS_SUM) : status;
}

static void dawdle(unsigned *seed)
{
	struct timespec t = {.tv_nsec = rand_r(seed) % 3000000};
	nanosleep(&t, NULL);
}

/* Nothing is wrong, but every rank is late at random. */
static ls_status run_healthy(void)
{
	unsigned seed = (unsigned)getpid();
	ls_status status = LS_OK;
	for (int i = 0; i < HEALTHY_STEPS && status == LS_OK; i++) {
		dawdle(&seed);
		status = reduce(COUNT, LS_FLOAT32, LS_SUM);
		if (status == LS_OK && rank < 2 && size > 1) {
			dawdle(&seed);
			struct ls_call_options tag = {.size = sizeof tag, .tag = i};
			status = rank == 0 ? ls_send(group, values, 100, LS_FLOAT32, 1, &tag)
					   : ls_recv(group, values, 100, LS_FLOAT32, 0, &tag);
		}
		if (status == LS_OK)
			status = ls_barrier(group, NULL);
	}
	return status;
}

/* Says who it is, waits for a message, and answers it. The test stops it in between. */
static ls_status run_answer(void)
{
	int peer = 1 - rank;
	printf("rank %d is %d\n", rank, getpid());
	if (rank == faulty) {
		ls_status status = receive(peer);
		return status == LS_OK ? ls_send(group, values, 1, LS_FLOAT32, peer, NULL) : status;
	}
	char go;
	int fifo = open(getenv("RAW_GO"), O_RDONLY | O_CLOEXEC);
	if (read(fifo, &go, 1) != 1) /* until the test has stopped the other rank */
		return LS_SYSTEM;
	close(fifo);
	ls_status status = ls_send(group, values, 1, LS_FLOAT32, peer, NULL);
	printf("rank %d has sent\n", rank);
	return status == LS_OK ? receive(peer) : status;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	faulty = (int)strtol(argv[2], NULL, 10);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (ls_group_open(NULL, &group) != LS_OK)
		return 3;
	rank = ls_group_rank(group);
	size = ls_group_size(group);
	double start = now_ms();
	ls_status status = strcmp(argv[1], "healthy") == 0  ? run_healthy()
			   : strcmp(argv[1], "answer") == 0 ? run_answer()
							    : run_fault(argv[1]);
	struct ls_failure failure = {.size = sizeof failure};
	if (ls_group_failure(group, &failure) == LS_OK && failure.status != LS_OK)
		printf("rank %d: %s blamed %d operation %llu after %.0f ms\n", rank,
		       ls_status_name(status), failure.rank, (unsigned long long)failure.operation,
		       now_ms() - start);
	ls_group_close(group);
	return status == LS_OK ? 0 : 1;
}
