/* SPDX-License-Identifier: BSD-3-Clause
 * All-reduce beside compute. The compute is a fixed amount of arithmetic on data that stays in the
 * cache of one core, so that it does not compete for memory, only for the core. */
#include "beside.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = 9, WARM = 2, ELEMENTS = 16384 };
static const double compute_s = 0.02;

struct compute {
	float *data;
	long rounds;
};

struct transfer {
	struct bench_runtime *runtime;
	float *buffer;
	size_t count;
	bool good;
};

static double now(void)
{
	struct timespec time;
	if (clock_gettime(CLOCK_MONOTONIC, &time) != 0)
		abort();
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Converges to 1 from any start, so it never meets slow numbers. */
static void compute(const struct compute *work)
{
	for (long round = 0; round < work->rounds; round++)
		for (int i = 0; i < ELEMENTS; i++)
			work->data[i] = work->data[i] * 0.5f + 0.5f;
	__asm__ volatile("" ::"r"(work->data) : "memory");
}

static bool barrier(const struct bench_runtime *runtime)
{
	return runtime->run(runtime->state, BENCH_BARRIER, NULL, NULL, 0);
}

static bool transfer_once(struct transfer *transfer)
{
	struct bench_runtime *runtime = transfer->runtime;
	return runtime->run(runtime->state, BENCH_ALLREDUCE, transfer->buffer, transfer->buffer,
			    transfer->count);
}

static void *transfer_main(void *argument)
{
	struct transfer *transfer = argument;
	transfer->good = transfer_once(transfer);
	return NULL;
}

/* Both begun together. times[0] the compute, times[1] until both are over. */
static bool step(const struct compute *work, struct transfer *transfer, bool thread, double times[2])
{
	pthread_t id;
	if (!barrier(transfer->runtime))
		return false;
	double start = now();
	if (thread) {
		if (pthread_create(&id, NULL, transfer_main, transfer) != 0) {
			fprintf(stderr, "beside: pthread_create failed\n");
			return false;
		}
	} else if (!bench_begin(transfer->runtime, transfer->buffer, transfer->count)) {
		return false;
	}
	compute(work);
	times[0] = now() - start;
	if (thread)
		pthread_join(id, NULL);
	bool good = thread ? transfer->good : bench_finish(transfer->runtime);
	times[1] = now() - start;
	return good;
}

static bool alone(const struct compute *work, struct transfer *transfer, double times[2])
{
	if (!barrier(transfer->runtime))
		return false;
	double start = now();
	compute(work);
	times[0] = now() - start;
	if (!barrier(transfer->runtime))
		return false;
	start = now();
	bool good = transfer_once(transfer);
	times[1] = now() - start;
	return good;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, STEPS, sizeof *values, compare);
	return values[STEPS / 2];
}

static double time_compute(const struct compute *work)
{
	double start = now();
	compute(work);
	return now() - start;
}

/* All ranks do the same amount of work. What disturbs a try makes it longer, so the shortest
 * counts. */
static bool calibrate(struct bench_runtime *runtime, struct compute *work)
{
	work->rounds = 16;
	double one = time_compute(work);
	while (one < compute_s / 4) {
		work->rounds *= 2;
		one = time_compute(work);
	}
	for (int i = 0; i < STEPS; i++) {
		double again = time_compute(work);
		one = again < one ? again : one;
	}
	double rounds = (double)work->rounds * compute_s / one;
	if (!runtime->combine(runtime->state, BENCH_MAX, &rounds))
		return false;
	work->rounds = (long)rounds;
	return true;
}

bool beside_measure(struct bench_runtime *runtime, float *buffer, size_t bytes, bool thread,
		    struct beside_times *out)
{
	struct compute work = {.data = calloc(ELEMENTS, sizeof(float))};
	struct transfer transfer = {
		.runtime = runtime, .buffer = buffer, .count = bytes / sizeof(float)};
	double times[4][STEPS];

	bool good = work.data && calibrate(runtime, &work);
	memset(buffer, 0, bytes);
	for (int i = -WARM; good && i < STEPS; i++) {
		double here[4];
		good = alone(&work, &transfer, here) && step(&work, &transfer, thread, here + 2);
		for (int k = 0; good && k < 4; k++) {
			good = runtime->combine(runtime->state, BENCH_MAX, &here[k]);
			if (i >= 0)
				times[k][i] = here[k];
		}
	}
	free(work.data);
	if (good)
		*out = (struct beside_times){median(times[0]), median(times[1]), median(times[3]),
					     median(times[2])};
	return good;
}
