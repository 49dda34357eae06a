/* SPDX-License-Identifier: BSD-3-Clause
 * Times all-reduce (float32, sum) from ls_alloc memory: lockstep run -n 2 ./allreduce [--fresh] BYTES…
 * One line a size on rank 0: "bytes microseconds". hot: the same buffer again and again. fresh: every
 * rank rewrites its whole buffer before each timed operation, as a gradient buffer is. */
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum { REPEATS = 9 };
static const double budget_s = 0.08; /* of one repeat */

struct bench {
	ls_group *group;
	int rank, size;
	float *buffer;
	bool fresh;
};

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(ls_status status)
{
	if (status != LS_OK)
		exit(1);
}

/* A core of its own for each rank while there are enough: as a launcher with binding would do. */
static void pin(int rank)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((unsigned)(rank % cores), &set);
	if (sched_setaffinity(0, sizeof set, &set))
		fprintf(stderr, "allreduce: could not pin rank %d\n", rank);
}

static void rewrite(const struct bench *b, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		b->buffer[i] = (float)b->rank;
}

static void reduce(const struct bench *b, uint64_t count)
{
	must(ls_allreduce(b->group, b->buffer, b->buffer, count, LS_FLOAT32, LS_SUM, NULL));
}

/* Seconds per operation: the slowest rank's. */
static double measure(const struct bench *b, uint64_t count, long rounds)
{
	double total = 0, slowest;
	must(ls_barrier(b->group, NULL));
	double start = now_s();
	for (long i = 0; i < rounds; i++) {
		if (b->fresh) {
			rewrite(b, count);
			must(ls_barrier(b->group, NULL));
			start = now_s();
		}
		reduce(b, count);
		if (b->fresh)
			total += now_s() - start;
	}
	if (!b->fresh)
		total = now_s() - start;
	total /= (double)rounds;
	must(ls_allreduce(b->group, &total, &slowest, 1, LS_FLOAT64, LS_MAX, NULL));
	return slowest;
}

static void check(const struct bench *b, uint64_t count)
{
	float want = (float)(b->size * (b->size - 1) / 2);
	rewrite(b, count);
	reduce(b, count);
	for (uint64_t i = 0; i < count; i++)
		if (b->buffer[i] != want) {
			fprintf(stderr, "allreduce: wrong result at %llu\n", (unsigned long long)i);
			exit(1);
		}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void run_size(const struct bench *b, uint64_t bytes)
{
	uint64_t count = bytes / sizeof(float);
	double times[REPEATS];
	check(b, count);
	memset(b->buffer, 0, bytes);
	double one = measure(b, count, 3);
	long rounds = (long)(budget_s / one);
	rounds = rounds < 3 ? 3 : rounds > 200000 ? 200000 : rounds;
	for (int i = 0; i < REPEATS; i++)
		times[i] = measure(b, count, rounds);
	qsort(times, REPEATS, sizeof times[0], compare);
	if (b->rank == 0)
		printf("%llu %.3f\n", (unsigned long long)bytes, times[REPEATS / 2] * 1e6);
}

int main(int argc, char **argv)
{
	struct bench b = {0};
	uint64_t largest = 0;
	int first = 1;
	if (argc > 1 && strcmp(argv[1], "--fresh") == 0) {
		b.fresh = true;
		first = 2;
	}
	const char *rank = getenv("RANK");
	pin(rank ? (int)strtol(rank, NULL, 10) : 0);
	must(ls_group_open(NULL, &b.group));
	b.rank = ls_group_rank(b.group);
	b.size = ls_group_size(b.group);
	for (int i = first; i < argc; i++) {
		uint64_t bytes = strtoull(argv[i], NULL, 10);
		largest = bytes > largest ? bytes : largest;
	}
	void *memory;
	must(ls_alloc(b.group, largest, &memory));
	b.buffer = memory;
	for (int i = first; i < argc; i++)
		run_size(&b, strtoull(argv[i], NULL, 10));
	ls_group_close(b.group);
	return 0;
}
