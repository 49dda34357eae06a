/* SPDX-License-Identifier: BSD-3-Clause
 * Pipeline parallelism on one group: an interleaved 1F1B schedule, activations and gradients told
 * apart by tags, and an all-reduce that begins while they still go to and fro. lockstep run -n 4
 * ./pipeline; --steps N --microbatches N --width N --batch N change it, --check compares with one
 * process. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <lockstep/lockstep.h>

#include "pipeline_model.h"
#include "pipeline_order.h"

/* The data of one micro-batch in one chunk, and the receives and sends of these data. */
struct cell {
	double *x, *y, *dy, *dx;
	ls_request *receives[2],
		*sends[2]; /* [0] forward pass, [1] backward pass; NULL: not under way */
};

/* A chunk: one layer of the model, which this rank computes. */
struct chunk {
	double *weights, *weight_gradients;
	double *bias;
	/* the gradients of the bias, then this rank's loss: an all-reduce adds up both */
	double *sums;
	ls_request *adds;   /* the all-reduce; NULL: not under way */
	struct cell *cells; /* one for each micro-batch */
};

struct pipeline {
	ls_group *group;
	struct pipeline_shape shape;
	struct pipeline_order order;
	struct chunk chunks[PIPELINE_CHUNKS];
	int steps;
	bool checks;
	struct pipeline_whole whole;
	double difference; /* the largest difference from the results of one process */
};

static bool is_good(const char *what, ls_status status)
{
	if (status != LS_OK)
		fprintf(stderr, "%s: %s\n", what, ls_status_text(status));
	return status == LS_OK;
}

/* Waits for the operation, and frees its handle. */
static ls_status end_of(ls_request **request)
{
	if (!*request)
		return LS_OK;
	ls_status status = ls_wait(*request, 0);
	ls_request_free(*request);
	*request = NULL;
	return status;
}

/* ---- messages ---- */

/* Returns a tag that no other message of this step between the same two ranks has. */
static int tag_of(enum pipeline_pass pass, int chunk, int microbatch)
{
	return (microbatch * PIPELINE_CHUNKS + chunk) * 2 + (int)pass;
}

static ls_status receive(struct pipeline *p, const struct pipeline_input *input)
{
	struct cell *cell = &p->chunks[input->chunk].cells[input->microbatch];
	struct ls_call_options options = {
		.size = sizeof options, .tag = tag_of(input->pass, input->chunk, input->microbatch)};
	return ls_irecv(p->group, input->pass == PIPELINE_FORWARD ? cell->x : cell->dy,
			pipeline_rows(&p->shape), LS_FLOAT64, input->source, &options,
			&cell->receives[input->pass]);
}

/* Sends to the rank of the next stage, or of the one before, which may be this rank itself. */
static ls_status send(struct pipeline *p, const struct pipeline_task *task)
{
	struct cell *cell = &p->chunks[task->chunk].cells[task->microbatch];
	bool forward = task->pass == PIPELINE_FORWARD;
	int ranks = p->order.ranks, stage = task->chunk * ranks + p->order.rank;
	int next = forward ? stage + 1 : stage - 1;
	if (next < 0 || next == PIPELINE_CHUNKS * ranks)
		return LS_OK;
	struct ls_call_options options = {
		.size = sizeof options, .tag = tag_of(task->pass, next / ranks, task->microbatch)};
	return ls_isend(p->group, forward ? cell->y : cell->dx, pipeline_rows(&p->shape),
			LS_FLOAT64, next % ranks, &options, &cell->sends[task->pass]);
}

/* ---- a step ---- */

static bool is_first(const struct pipeline *p, const struct pipeline_task *task)
{
	return task->chunk == 0 && p->order.rank == 0;
}

static bool is_last(const struct pipeline *p, const struct pipeline_task *task)
{
	return task->chunk == PIPELINE_CHUNKS - 1 && p->order.rank == p->order.ranks - 1;
}

static void compute(struct pipeline *p, const struct pipeline_task *task)
{
	struct chunk *chunk = &p->chunks[task->chunk];
	struct cell *cell = &chunk->cells[task->microbatch];
	if (task->pass == PIPELINE_FORWARD) {
		if (is_first(p, task))
			pipeline_sample(&p->shape, task->microbatch, cell->x, NULL);
		pipeline_forward(&p->shape, chunk->weights, chunk->bias, cell->x, cell->y);
		return;
	}
	if (is_last(p, task))
		chunk->sums[p->shape.width] +=
			pipeline_loss(&p->shape, task->microbatch, cell->y, cell->dy);
	pipeline_backward(&p->shape, chunk->weights, cell->x, cell->y, cell->dy,
			  chunk->weight_gradients, chunk->sums, is_first(p, task) ? NULL : cell->dx);
}

/* Begins the all-reduce of a chunk once its last micro-batch has come back, because its gradients
 * are complete then. The other chunk goes on meanwhile. */
static ls_status add_up(struct pipeline *p, const struct pipeline_task *task)
{
	struct chunk *chunk = &p->chunks[task->chunk];
	struct ls_call_options options = {.size = sizeof options, .request = &chunk->adds};
	if (task->pass == PIPELINE_FORWARD || task->microbatch < p->shape.microbatches - 1)
		return LS_OK;
	return ls_allreduce(p->group, chunk->sums, chunk->sums, (uint64_t)p->shape.width + 1,
			    LS_FLOAT64, LS_SUM, &options);
}

static void begin_step(struct pipeline *p)
{
	for (int c = 0; c < PIPELINE_CHUNKS; c++) {
		struct chunk *chunk = &p->chunks[c];
		memset(chunk->weight_gradients, 0, pipeline_weights(&p->shape) * sizeof(double));
		memset(chunk->sums, 0, ((size_t)p->shape.width + 1) * sizeof(double));
	}
}

static ls_status run_tasks(struct pipeline *p)
{
	const struct pipeline_order *order = &p->order;
	ls_status status = LS_OK;
	int received = 0;
	for (int i = 0; i < order->task_count && status == LS_OK; i++) {
		const struct pipeline_task *task = &order->tasks[i];
		struct cell *cell = &p->chunks[task->chunk].cells[task->microbatch];
		while (received < task->receives && status == LS_OK)
			status = receive(p, &order->inputs[received++]);
		if (status == LS_OK)
			status = end_of(&cell->receives[task->pass]);
		if (status != LS_OK)
			break;
		compute(p, task);
		status = send(p, task);
		if (status == LS_OK)
			status = add_up(p, task);
	}
	return status;
}

/* Waits for all operations that are under way, also after a failure, and frees their handles.
 * Returns the first status that is not LS_OK. */
static ls_status end_of_all(struct pipeline *p, ls_status first)
{
	for (int c = 0; c < PIPELINE_CHUNKS; c++) {
		struct chunk *chunk = &p->chunks[c];
		for (int m = 0; m < p->shape.microbatches; m++)
			for (int pass = 0; pass < 2; pass++) {
				ls_status received = end_of(&chunk->cells[m].receives[pass]);
				ls_status sent = end_of(&chunk->cells[m].sends[pass]);
				first = first != LS_OK      ? first
					: received != LS_OK ? received
							    : sent;
			}
		ls_status added = end_of(&chunk->adds);
		first = first != LS_OK ? first : added;
	}
	return first;
}

static void compare(struct pipeline *p, double mine, double theirs)
{
	double difference = fabs(mine - theirs) / (fabs(theirs) + 1e-6);
	/* Written so that NaN counts as a difference, too. */
	if (!(difference <= p->difference))
		p->difference = difference;
}

/* Compares this rank's chunks with the whole model, which each rank also computes by itself. */
static void check_step(struct pipeline *p, double loss)
{
	struct pipeline_whole *whole = &p->whole;
	size_t matrix = pipeline_weights(&p->shape), width = (size_t)p->shape.width;
	compare(p, loss, pipeline_whole_step(whole));
	for (size_t c = 0; c < PIPELINE_CHUNKS; c++) {
		size_t stage = c * (size_t)p->order.ranks + (size_t)p->order.rank;
		for (size_t i = 0; i < matrix; i++)
			compare(p, p->chunks[c].weight_gradients[i],
				whole->weight_gradients[stage * matrix + i]);
		for (size_t i = 0; i < width; i++)
			compare(p, p->chunks[c].sums[i], whole->bias_gradients[c * width + i]);
	}
	pipeline_whole_update(whole);
}

static ls_status step(struct pipeline *p, double *loss)
{
	begin_step(p);
	ls_status status = end_of_all(p, run_tasks(p));
	if (status != LS_OK)
		return status;
	*loss = p->chunks[PIPELINE_CHUNKS - 1].sums[p->shape.width];
	if (p->checks)
		check_step(p, *loss);
	for (int c = 0; c < PIPELINE_CHUNKS; c++) {
		struct chunk *chunk = &p->chunks[c];
		pipeline_update(chunk->weights, chunk->weight_gradients,
				pipeline_weights(&p->shape));
		pipeline_update(chunk->bias, chunk->sums, (size_t)p->shape.width);
	}
	return LS_OK;
}

/* ---- training ---- */

static double now_ms(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static int by_size(const void *left, const void *right)
{
	const double *a = left, *b = right;
	return (*a > *b) - (*a < *b);
}

/* Prints which rank is at fault, as ls_group_failure tells every rank. */
static bool stopped(struct pipeline *p, int number, ls_status status)
{
	struct ls_failure failure = {.size = sizeof failure, .rank = -1};
	if (ls_group_failure(p->group, &failure) != LS_OK)
		failure.rank = -1;
	fprintf(stderr, "rank %d cannot go on in step %d: %s, rank %d\n", p->order.rank, number,
		ls_status_name(status), failure.rank);
	return false;
}

static bool report_check(struct pipeline *p)
{
	ls_status status =
		ls_allreduce(p->group, &p->difference, &p->difference, 1, LS_FLOAT64, LS_MAX, NULL);
	if (!is_good("all-reduce of the comparison", status))
		return false;
	bool equal = p->difference <= 1e-9;
	if (p->order.rank == 0)
		printf("loss and gradients are %s to those of one process: at most %.1e apart\n",
		       equal ? "equal" : "NOT EQUAL", p->difference);
	return equal;
}

static bool train(struct pipeline *p, double *times)
{
	for (int i = 0; i < p->steps; i++) {
		double begin_ms = now_ms(), loss;
		ls_status status = step(p, &loss);
		if (status != LS_OK)
			return stopped(p, i + 1, status);
		times[i] = now_ms() - begin_ms;
		if (p->order.rank == 0)
			printf("step %3d  loss %.6f  %8.3f ms\n", i + 1, loss, times[i]);
	}
	qsort(times, (size_t)p->steps, sizeof *times, by_size);
	if (p->order.rank == 0)
		printf("step time %.3f ms, the median of %d\n", times[p->steps / 2], p->steps);
	return !p->checks || report_check(p);
}

/* Allocates numbers that are 0, in memory that the other ranks reach without a copy. */
static double *numbers(struct pipeline *p, size_t count)
{
	void *out;
	if (!is_good("ls_alloc", ls_alloc(p->group, count * sizeof(double), &out)))
		return NULL;
	memset(out, 0, count * sizeof(double));
	return out;
}

static bool open_chunk(struct pipeline *p, int c)
{
	struct chunk *chunk = &p->chunks[c];
	size_t matrix = pipeline_weights(&p->shape), width = (size_t)p->shape.width;
	size_t rows = pipeline_rows(&p->shape), microbatches = (size_t)p->shape.microbatches;
	double *own = numbers(p, 2 * matrix + 2 * width + 1);
	double *values = numbers(p, 4 * rows * microbatches);
	chunk->cells = calloc(microbatches, sizeof *chunk->cells);
	if (!own || !values || !chunk->cells)
		return false;
	chunk->weights = own;
	chunk->weight_gradients = own + matrix;
	chunk->bias = own + 2 * matrix;
	chunk->sums = own + 2 * matrix + width;
	for (size_t m = 0; m < microbatches; m++, values += 4 * rows)
		chunk->cells[m] = (struct cell){.x = values,
						.y = values + rows,
						.dy = values + 2 * rows,
						.dx = values + 3 * rows};
	pipeline_init(&p->shape, c * p->order.ranks + p->order.rank, chunk->weights);
	return true;
}

static bool run(struct pipeline *p)
{
	int ranks = ls_group_size(p->group);
	double *times = calloc((size_t)p->steps, sizeof *times);
	bool good = times && pipeline_order_init(&p->order, ranks, ls_group_rank(p->group),
						 p->shape.microbatches);
	for (int c = 0; c < PIPELINE_CHUNKS && good; c++)
		good = open_chunk(p, c);
	if (good && p->checks)
		good = pipeline_whole_open(&p->whole, &p->shape, PIPELINE_CHUNKS * ranks);
	good = good && train(p, times);
	pipeline_whole_close(&p->whole);
	for (int c = 0; c < PIPELINE_CHUNKS; c++)
		free(p->chunks[c].cells);
	pipeline_order_fini(&p->order);
	free(times);
	return good;
}

static bool read_options(struct pipeline *p, int argc, char **argv)
{
	enum { STEPS, MICROBATCHES, WIDTH, BATCH, CHECK };
	static const struct option longs[] = {
		{"steps", 1, NULL, STEPS}, {"microbatches", 1, NULL, MICROBATCHES},
		{"width", 1, NULL, WIDTH}, {"batch", 1, NULL, BATCH},
		{"check", 0, NULL, CHECK}, {NULL, 0, NULL, 0}};
	int *const numbers_of[] = {[STEPS] = &p->steps,
				   [MICROBATCHES] = &p->shape.microbatches,
				   [WIDTH] = &p->shape.width,
				   [BATCH] = &p->shape.batch};
	int option;
	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		long number = optarg ? strtol(optarg, NULL, 10) : 1;
		if (option == CHECK)
			p->checks = true;
		else if (option == '?' || number < 1 || number > 1000000)
			return false;
		else
			*numbers_of[option] = (int)number;
	}
	return optind == argc;
}

int main(int argc, char **argv)
{
	struct pipeline p = {.steps = 20, .shape = {.width = 64, .batch = 16, .microbatches = 8}};
	if (!read_options(&p, argc, argv)) {
		fprintf(stderr,
			"usage: %s [--steps N] [--microbatches N] [--width N] [--batch N] "
			"[--check]\n",
			argv[0]);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (ls_group_open(NULL, &p.group) != LS_OK)
		return 1;
	bool good = ls_group_size(p.group) > 1;
	if (good)
		good = run(&p);
	else
		fprintf(stderr, "a pipeline needs at least two ranks\n");
	ls_group_close(p.group);
	return !good;
}
