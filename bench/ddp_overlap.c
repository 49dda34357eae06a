/* SPDX-License-Identifier: BSD-3-Clause
 * What averaging gradients costs a training step: lockstep run -n 2 ./ddp_overlap [STEPS
 * [BUCKET_KIB]]. A perceptron with 32 MiB of float32 gradients trains, in turn, alone (no_sync),
 * with gradients averaged while the backward pass goes on, and with all of them averaged after it.
 * Rank 0 prints medians of the slowest rank's step and their ratios to the first. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum {
	LAYERS = 8,
	WIDTH = 1024, /* of every layer: 4 MiB of weights each */
	BATCH = 24,
	STEPS = 41,
	BUCKET_KIB = 4096,
};
enum mode { ALONE, OVERLAPPED, AFTERWARDS, MODES };

struct bench {
	ls_group *group;
	ls_ddp *ddps[MODES]; /* of the same weights; ALONE has that of OVERLAPPED */
	float *weights[LAYERS];
	float (*values)[BATCH][WIDTH]; /* [LAYERS + 1] */
	float (*deltas)[BATCH][WIDTH]; /* [2] */
	double times[MODES][1000];
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

static void *must_have(void *memory)
{
	if (!memory) {
		fprintf(stderr, "ddp_overlap: no memory\n");
		exit(1);
	}
	return memory;
}

/* In sums apart, as a compiler may not reorder one. */
static float dot(const float *restrict a, const float *restrict b)
{
	enum { SUMS = 32 };
	float sums[SUMS] = {0}, sum = 0;
	for (int i = 0; i < WIDTH; i += SUMS)
		for (int k = 0; k < SUMS; k++)
			sums[k] += a[i + k] * b[i + k];
	for (int k = 0; k < SUMS; k++)
		sum += sums[k];
	return sum;
}

static void add_times(float *restrict to, float factor, const float *restrict from)
{
	for (int i = 0; i < WIDTH; i++)
		to[i] += factor * from[i];
}

/* Half of the units are cut off, as by a ReLU. */
static void forward(const float *weights, float (*in)[WIDTH], float (*out)[WIDTH])
{
	for (int o = 0; o < WIDTH; o++)
		for (int b = 0; b < BATCH; b++) {
			float sum = dot(weights + (size_t)o * WIDTH, in[b]);
			out[b][o] = sum > 0 ? sum : 0;
		}
}

static void backward(const float *weights, float (*in)[WIDTH], float (*delta)[WIDTH],
		     float *gradient, float (*delta_in)[WIDTH])
{
	memset(delta_in, 0, sizeof(float[BATCH][WIDTH]));
	for (int o = 0; o < WIDTH; o++) {
		float *row = gradient + (size_t)o * WIDTH;
		memset(row, 0, WIDTH * sizeof *row);
		for (int b = 0; b < BATCH; b++) {
			add_times(row, delta[b][o], in[b]);
			add_times(delta_in[b], delta[b][o], weights + (size_t)o * WIDTH);
		}
	}
	for (int b = 0; b < BATCH; b++)
		for (int i = 0; i < WIDTH; i++)
			delta_in[b][i] = in[b][i] > 0 ? delta_in[b][i] : 0;
}

static void step(struct bench *b, enum mode mode)
{
	ls_ddp *ddp = b->ddps[mode];
	must(ls_ddp_no_sync(ddp, mode == ALONE));
	for (int l = 0; l < LAYERS; l++)
		forward(b->weights[l], b->values[l], b->values[l + 1]);
	memcpy(b->deltas[LAYERS % 2], b->values[LAYERS], sizeof *b->deltas);
	for (int l = LAYERS - 1; l >= 0; l--) {
		backward(b->weights[l], b->values[l], b->deltas[(l + 1) % 2],
			 ls_ddp_gradient(ddp, l), b->deltas[l % 2]);
		must(ls_ddp_ready(ddp, l));
	}
	must(ls_ddp_finish(ddp));
}

/* Seconds of the slowest rank. */
static double measure(struct bench *b, enum mode mode)
{
	must(ls_barrier(b->group, NULL));
	double start = now_s();
	step(b, mode);
	double took = now_s() - start;
	must(ls_allreduce(b->group, &took, &took, 1, LS_FLOAT64, LS_MAX, NULL));
	return took;
}

static void prepare(struct bench *b, uint64_t bucket_bytes)
{
	static const int64_t shape[] = {WIDTH, WIDTH};
	struct ls_ddp_parameter parameters[LAYERS];
	char names[LAYERS][16];
	b->values = must_have(calloc(LAYERS + 1, sizeof *b->values));
	b->deltas = must_have(calloc(2, sizeof *b->deltas));
	for (int i = 0; i < BATCH * WIDTH; i++)
		b->values[0][i / WIDTH][i % WIDTH] = (float)((i * 37) % 101 - 50) / 101;
	for (int l = 0; l < LAYERS; l++) {
		b->weights[l] = must_have(calloc((size_t)WIDTH * WIDTH, sizeof(float)));
		for (int i = 0; i < WIDTH * WIDTH; i++)
			b->weights[l][i] = (float)((i * 61 + l) % 103 - 51) / (103 * 16);
		snprintf(names[l], sizeof names[l], "layer%d.weight", l);
		parameters[l] = (struct ls_ddp_parameter){.name = names[l],
							  .data = b->weights[l],
							  .shape = shape,
							  .dims = 2,
							  .dtype = LS_FLOAT32};
	}
	struct ls_ddp_options options = {.size = sizeof options,
					 .bucket_first_bytes = bucket_bytes,
					 .bucket_bytes = bucket_bytes};
	must(ls_ddp_open(b->group, parameters, LAYERS, &options, &b->ddps[OVERLAPPED]));
	b->ddps[ALONE] = b->ddps[OVERLAPPED];
	options.bucket_first_bytes = options.bucket_bytes = UINT64_C(1) << 40;
	must(ls_ddp_open(b->group, parameters, LAYERS, &options, &b->ddps[AFTERWARDS]));
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median_ms(double *times, int count)
{
	qsort(times, (size_t)count, sizeof *times, compare);
	return times[count / 2] * 1e3;
}

/* A core of its own for each rank while there are enough: as a launcher with binding would do. */
static void pin(int rank)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((unsigned)(rank % cores), &set);
	if (sched_setaffinity(0, sizeof set, &set))
		fprintf(stderr, "ddp_overlap: could not pin rank %d\n", rank);
}

int main(int argc, char **argv)
{
	struct bench b = {0};
	long steps = argc > 1 ? strtol(argv[1], NULL, 10) : STEPS;
	long bucket_kib = argc > 2 ? strtol(argv[2], NULL, 10) : BUCKET_KIB;
	if (steps < 1 || steps > 1000 || bucket_kib < 1) {
		fprintf(stderr, "usage: ddp_overlap [STEPS [BUCKET_KIB]]\n");
		return 2;
	}
	const char *rank = getenv("RANK");
	pin(rank ? (int)strtol(rank, NULL, 10) : 0);
	must(ls_group_open(NULL, &b.group));
	prepare(&b, (uint64_t)bucket_kib << 10);
	for (int mode = 0; mode < MODES; mode++)
		measure(&b, (enum mode)mode); /* fresh pages and caches */
	for (long i = 0; i < steps; i++)
		for (int mode = 0; mode < MODES; mode++)
			b.times[mode][i] = measure(&b, (enum mode)mode);
	double alone = median_ms(b.times[ALONE], (int)steps);
	double overlapped = median_ms(b.times[OVERLAPPED], (int)steps);
	double afterwards = median_ms(b.times[AFTERWARDS], (int)steps);
	if (ls_group_rank(b.group) == 0)
		printf("ranks %d  step alone %.2f ms  overlapped %.2f ms (%.3f)  afterwards %.2f ms "
		       "(%.3f)\n",
		       ls_group_size(b.group), alone, overlapped, overlapped / alone, afterwards,
		       afterwards / alone);
	ls_ddp_close(b.ddps[OVERLAPPED]);
	ls_ddp_close(b.ddps[AFTERWARDS]);
	ls_group_close(b.group);
	for (int l = 0; l < LAYERS; l++)
		free(b.weights[l]);
	free(b.values);
	free(b.deltas);
	return 0;
}
