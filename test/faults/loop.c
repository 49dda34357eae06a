/* SPDX-License-Identifier: BSD-3-Clause
 * A job for kill_test.py to break: loop SEED ROUNDS. All ranks draw the same operations from SEED and
 * check what they receive; with LOOP_WORKER set each forks a worker that stays. Each tells the driver,
 * by single writes to descriptor LOOP_FD, when it is at main ("is PID"), "open", at its "last"
 * operation, "closing" and "done", and the failure of its group with the time. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum {
	SMALL = 8,               /* floats: inline in the entry, or in a message */
	MIDDLE = 16 * 1024,      /* 64 KiB */
	LARGE = 2 * 1024 * 1024, /* 8 MiB */
	LONG = 256 * 1024,       /* of a message: 1 MiB */
	CYCLE = 8,               /* values repeat after so many */
	WRONG_DATA = 5,
	WRONG_STATUS = 6,
	TOUCHED = 7,
	MARK = 0xa5,
};

static ls_group *group;
static int rank, size, tell_fd;
static unsigned seed;
/* Memory of either kind, LARGE floats each. */
static float *memory[2];

static void __attribute__((format(printf, 1, 2))) tell(const char *format, ...)
{
	char line[256];
	va_list arguments;
	va_start(arguments, format);
	int bytes = vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	if (write(tell_fd, line, (size_t)bytes) != bytes)
		_exit(99);
}

static void tell_failure(ls_status status, const char *where)
{
	struct timespec now;
	struct ls_failure failure = {.size = sizeof failure, .rank = -1};
	if (group && ls_group_failure(group, &failure) != LS_OK)
		exit(WRONG_STATUS);
	clock_gettime(CLOCK_MONOTONIC, &now);
	tell("rank %d: %s blamed %d operation %llu while %s at %lld\n", rank,
	     ls_status_name(status), failure.rank, (unsigned long long)failure.operation, where,
	     (long long)now.tv_sec * 1000000000 + now.tv_nsec);
}

/* What rank r sends as element i in a round: small integers, so that sums are exact. */
static float value(int r, int round, uint64_t i)
{
	return (float)((r + 1) * (round % 13 + 1 + (int)(i % CYCLE)));
}

static void fill(float *buffer, uint64_t count, int round)
{
	for (uint64_t i = 0; i < count; i++)
		buffer[i] = value(rank, round, i);
}

/* Each element is `factor` times what rank 0 would send. */
static void check(const float *buffer, uint64_t count, int round, int factor)
{
	float wrong = 0;
	for (uint64_t i = 0; i < count; i++)
		wrong += buffer[i] != (float)factor * value(0, round, i) ? 1 : 0;
	if (wrong == 0)
		return;
	tell("rank %d: %.0f of %llu elements are wrong in round %d\n", rank, (double)wrong,
	     (unsigned long long)count, round);
	_exit(WRONG_DATA);
}

static unsigned draw(unsigned below)
{
	return (unsigned)rand_r(&seed) % below;
}

static uint64_t draw_count(void)
{
	static const uint64_t counts[] = {SMALL, SMALL, SMALL, 300, MIDDLE, MIDDLE, LARGE, 0};
	return counts[draw(sizeof counts / sizeof counts[0])];
}

/* Which memory differs between ranks, too. */
static ls_status sum(int round)
{
	uint64_t count = draw_count();
	unsigned kinds = draw(64) >> (rank % 4);
	const float *from = memory[kinds & 1];
	float *to = memory[kinds >> 1 & 1];
	fill(memory[kinds & 1], count, round);
	ls_status status = ls_allreduce(group, from, to, count, LS_FLOAT32, LS_SUM, NULL);
	if (status == LS_OK)
		check(to, count, round, size * (size + 1) / 2);
	return status;
}

static ls_status spread(int round)
{
	uint64_t count = draw_count();
	int root = (int)draw((unsigned)size);
	float *buffer = memory[draw(64) >> (rank % 4) & 1];
	if (rank == root)
		fill(buffer, count, round);
	ls_status status = ls_broadcast(group, buffer, buffer, count, LS_FLOAT32, root, NULL);
	if (status == LS_OK)
		check(buffer, count, round, root + 1);
	return status;
}

/* A pair sends there and back; the others go on. */
static ls_status exchange(int round)
{
	uint64_t count = draw(2) ? LONG : SMALL;
	int first = (int)draw((unsigned)size);
	int second = (first + 1 + (int)draw((unsigned)size - 1)) % size;
	float *buffer = memory[draw(64) >> (rank % 4) & 1];
	struct ls_op_options tag = {.size = sizeof tag, .tag = round};
	if (rank != first && rank != second)
		return LS_OK;
	int peer = rank == first ? second : first;
	ls_status status = LS_OK;
	for (int turn = 0; turn < 2 && status == LS_OK; turn++) {
		if ((turn == 0) == (rank == first)) {
			fill(buffer, count, round);
			status = ls_send(group, buffer, count, LS_FLOAT32, peer, &tag);
		} else {
			status = ls_recv(group, buffer, count, LS_FLOAT32, peer, &tag);
			if (status == LS_OK)
				check(buffer, count, round, peer + 1);
		}
	}
	return status;
}

static ls_status loop(int rounds)
{
	ls_status status = LS_OK;
	for (int round = 0; round < rounds && status == LS_OK; round++) {
		unsigned kind = draw(8);
		status = kind < 4   ? sum(round)
			 : kind < 5 ? spread(round)
			 : kind < 6 ? ls_barrier(group, NULL)
				    : exchange(round);
	}
	if (status != LS_OK)
		return status;
	tell("rank %d last\n", rank);
	return ls_barrier(group, NULL);
}

/* The group stays closed with the same status, and nobody touches this rank's buffers any more. */
static void check_closed(ls_status status)
{
	for (int kind = 0; kind < 2; kind++)
		memset(memory[kind], MARK, LARGE * sizeof(float));
	if (ls_barrier(group, NULL) != status)
		_exit(WRONG_STATUS);
	for (int kind = 0; kind < 2; kind++)
		for (size_t i = 0; i < LARGE * sizeof(float); i++)
			if (((unsigned char *)memory[kind])[i] != MARK)
				_exit(TOUCHED);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	seed = (unsigned)strtoul(argv[1], NULL, 10);
	rank = (int)strtol(getenv("RANK"), NULL, 10);
	tell_fd = (int)strtol(getenv("LOOP_FD"), NULL, 10);
	tell("rank %d is %d\n", rank, getpid());
	if (getenv("LOOP_WORKER") && fork() == 0)
		for (;;)
			pause();
	ls_status status = ls_group_open(NULL, &group);
	if (status != LS_OK) {
		tell_failure(status, "opening");
		return 1;
	}
	size = ls_group_size(group);
	tell("rank %d open\n", rank);
	memory[0] = malloc(LARGE * sizeof(float));
	void *block;
	if (!memory[0] || ls_alloc(group, LARGE * sizeof(float), &block) != LS_OK)
		return 3;
	memory[1] = block;
	status = loop((int)strtol(argv[2], NULL, 10));
	if (status != LS_OK) {
		tell_failure(status, "looping");
		check_closed(status);
	}
	tell("rank %d closing\n", rank);
	ls_group_close(group);
	free(memory[0]);
	tell("rank %d done\n", rank);
	return status == LS_OK ? 0 : 1;
}
