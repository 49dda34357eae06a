/* SPDX-License-Identifier: BSD-3-Clause
 * Gradient averaging: the same gradients as one rank alone would have, for all buckets, all orders
 * in which parameters become ready, and all threads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "caught.h"
#include "model.h"
#include "tests.h"
#include "values.h"

static struct ls_ddp_options bucket_options(uint64_t first_bytes, uint64_t bucket_bytes)
{
	return (struct ls_ddp_options){.size = sizeof(struct ls_ddp_options),
				       .bucket_first_bytes = first_bytes,
				       .bucket_bytes = bucket_bytes};
}

static ls_ddp *open_ddp(ls_group *group, const struct model *model,
			const struct ls_ddp_options *options)
{
	ls_ddp *ddp;
	OK(ls_ddp_open(group, model->parameters, model->count, options, &ddp));
	CHECK(ddp);
	return ddp;
}

/* An order of this rank's own. */
static void shuffle(int *order, int count, uint64_t *random)
{
	for (int i = 0; i < count; i++)
		order[i] = i;
	for (int i = count; i > 1; i--) {
		int k = (int)(values_random(random) % (uint32_t)i), swap = order[i - 1];
		order[i - 1] = order[k];
		order[k] = swap;
	}
}

static void backward(const struct model *model, ls_ddp *ddp, int rank, unsigned pass,
		     uint64_t *random)
{
	int order[MODEL_MAX];
	shuffle(order, model->count, random);
	for (int i = 0; i < model->count; i++) {
		model_add(model, ddp, order[i], rank, pass, 1);
		OK(ls_ddp_ready(ddp, order[i]));
	}
}

/* The same bits on all ranks, beside the library. */
static void check_same_bits(const struct runner_rank *self, const struct model *model,
			    const ls_ddp *ddp)
{
	uint64_t hash = 0;
	for (int p = 0; p < model->count; p++)
		hash = hash * 31 +
		       values_hash(ls_ddp_gradient(ddp, p),
				   model->elements[p] * ls_dtype_bytes(model->parameters[p].dtype));
	atomic_store(&self->shared->words[self->rank], hash);
	runner_meet(self);
	CHECK(atomic_load(&self->shared->words[0]) == hash);
	runner_meet(self);
}

static void average(struct runner_rank *self, bool mixed)
{
	static const uint64_t bytes[][2] = {{0, 0}, {1, 1}, {64, 300}, {5000, 20000}, {1 << 20, 1}};
	ls_group *group = runner_open(self);
	uint64_t random = 100 + (uint64_t)self->rank;
	for (unsigned b = 0; b < sizeof bytes / sizeof *bytes; b++) {
		struct model model;
		struct ls_ddp_options options = bucket_options(bytes[b][0], bytes[b][1]);
		model_init(&model, b == 3 ? 1 : 23, mixed, b, self->rank);
		ls_ddp *ddp = open_ddp(group, &model, &options);
		if (bytes[b][0] == 1) /* one for each parameter */
			for (int p = 0; p < model.count; p++)
				CHECK(ls_ddp_bucket(ddp, p) == model.count - 1 - p);
		for (unsigned pass = 0; pass < 6; pass++) {
			OK(ls_ddp_zero_gradients(ddp));
			backward(&model, ddp, self->rank, pass, &random);
			OK(ls_ddp_finish(ddp));
			model_check_averages(&model, ddp, self->size, pass);
			check_same_bits(self, &model, ddp);
		}
		ls_ddp_close(ddp);
		model_free(&model);
	}
	ls_group_close(group);
}

void ddp_averages(struct runner_rank *self)
{
	average(self, false);
}

void ddp_averages_mixed_dtypes(struct runner_rank *self)
{
	average(self, true);
}

/* On a group of all but rank 0, in the opposite order, while rank 0 does something else. */
void ddp_averages_in_a_group(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	ls_status status = ls_group_split(world, self->rank ? 0 : -1, -self->rank, &group);
	CHECK(status == (self->rank ? LS_OK : LS_NOT_MEMBER));
	if (group) {
		int rank = ls_group_rank(group), size = ls_group_size(group);
		uint64_t random = 7 + (uint64_t)rank;
		struct model model;
		model_init(&model, 23, true, 3, rank);
		ls_ddp *ddp = open_ddp(group, &model, NULL);
		for (unsigned pass = 0; pass < 4; pass++) {
			OK(ls_ddp_zero_gradients(ddp));
			backward(&model, ddp, rank, pass, &random);
			OK(ls_ddp_finish(ddp));
			model_check_averages(&model, ddp, size, pass);
		}
		ls_ddp_close(ddp);
		model_free(&model);
		ls_group_close(group);
	}
	OK(ls_barrier(world, NULL));
	ls_group_close(world);
}

/* Every rank begins with rank 0's parameters; gradients are zero and lie apart. */
void ddp_begins_alike(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct model model;
	model_init(&model, 17, true, 5, self->rank);
	ls_ddp *ddp = open_ddp(group, &model, NULL);
	for (int p = 0; p < model.count; p++) {
		size_t bytes = ls_dtype_bytes(model.parameters[p].dtype);
		CHECK((uintptr_t)ls_ddp_gradient(ddp, p) % bytes == 0);
		for (uint64_t i = 0; i < model.elements[p]; i++) {
			const unsigned char *at = model.parameters[p].data;
			float narrow;
			double wide;
			memcpy(&narrow, at + i * bytes, sizeof narrow);
			if (model.parameters[p].dtype == LS_FLOAT64)
				memcpy(&wide, at + i * bytes, sizeof wide);
			else
				wide = (double)narrow;
			CHECK_THAT(wide == (double)i, "%s[%d] is %g", model.names[p], (int)i, wide);
			CHECK(model_gradient(&model, ddp, p, i) == 0);
		}
	}
	CHECK(!ls_ddp_gradient(ddp, -1) && !ls_ddp_gradient(ddp, 17) && !ls_ddp_gradient(NULL, 0));
	CHECK(ls_ddp_bucket(ddp, 17) == -1 && ls_ddp_bucket(ddp, -1) == -1);
	ls_ddp_close(ddp);
	ls_ddp_close(NULL);
	model_free(&model);
	ls_group_close(group);
}

/* ---- against training on one rank ---- */

enum { WEIGHTS = 40, SAMPLES = 24, STEPS = 60 };

/* Linear regression: targets come from known weights. */
static double input_of(int sample, int weight)
{
	return (double)((sample * 37 + weight * 101) % 29 - 14) / 29;
}

static double target_of(int sample)
{
	double sum = 0;
	for (int w = 0; w < WEIGHTS; w++)
		sum += input_of(sample, w) * (w % 7 - 3);
	return sum;
}

/* Adds the gradients of samples first, first + step, …, times `scale`; returns their loss. */
static double regress(const double *weights, double *gradients, int first, int step, double scale)
{
	double loss = 0;
	for (int s = first; s < SAMPLES; s += step) {
		double error = -target_of(s);
		for (int w = 0; w < WEIGHTS; w++)
			error += weights[w] * input_of(s, w);
		for (int w = 0; w < WEIGHTS; w++)
			gradients[w] += scale * error * input_of(s, w);
		loss += scale * error * error / 2;
	}
	return loss;
}

/* 60 steps of descent: losses and weights are those of a rank that sees all samples itself. */
void ddp_trains_like_one_rank(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	double weights[WEIGHTS], alone[WEIGHTS] = {0}, first_loss = 0, loss_alone = 0;
	for (int w = 0; w < WEIGHTS; w++)
		weights[w] = self->rank; /* rank 0 begins with zeros */
	int64_t half = WEIGHTS / 2;
	struct ls_ddp_parameter parameters[] = {
		{.name = "low", .data = weights, .shape = &half, .dims = 1, .dtype = LS_FLOAT64},
		{.name = "high",
		 .data = weights + half,
		 .shape = &half,
		 .dims = 1,
		 .dtype = LS_FLOAT64}};
	struct ls_ddp_options options = bucket_options(8, 8);
	ls_ddp *ddp;
	OK(ls_ddp_open(group, parameters, 2, &options, &ddp));
	for (int step = 0; step < STEPS; step++) {
		double mine[WEIGHTS] = {0}, all[WEIGHTS] = {0}, loss;
		OK(ls_ddp_zero_gradients(ddp));
		loss = regress(weights, mine, self->rank, self->size, (double)self->size / SAMPLES);
		loss_alone = regress(alone, all, 0, 1, 1.0 / SAMPLES);
		for (int p = 1; p >= 0; p--) {
			memcpy(ls_ddp_gradient(ddp, p), mine + p * half,
			       (size_t)half * sizeof *mine);
			OK(ls_ddp_ready(ddp, p));
		}
		OK(ls_ddp_finish(ddp));
		OK(ls_allreduce(group, &loss, &loss, 1, LS_FLOAT64, LS_AVERAGE, NULL));
		CHECK_THAT(fabs(loss - loss_alone) <= 1e-12 * fabs(loss_alone),
			   "step %d: %g, not %g", step, loss, loss_alone);
		for (int w = 0; w < WEIGHTS; w++) {
			const double *gradients = ls_ddp_gradient(ddp, w / (int)half);
			weights[w] -= 0.5 * gradients[w % half];
			alone[w] -= 0.5 * all[w];
			CHECK(fabs(weights[w] - alone[w]) <= 1e-12);
		}
		first_loss = step == 0 ? loss : first_loss;
	}
	CHECK(loss_alone < first_loss / 5);
	ls_ddp_close(ddp);
	ls_group_close(group);
}

/* ---- several threads ---- */

enum { THREADS = 4 };

struct worker {
	pthread_t thread;
	const struct model *model;
	ls_ddp *ddp;
	int rank, number;
	unsigned pass;
};

static void *work(void *argument)
{
	struct worker *worker = argument;
	for (int p = worker->number; p < worker->model->count; p += THREADS) {
		model_add(worker->model, worker->ddp, p, worker->rank, worker->pass, 1);
		OK(ls_ddp_ready(worker->ddp, p));
	}
	return NULL;
}

void ddp_ready_from_any_thread(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct model model;
	struct ls_ddp_options options = bucket_options(4000, 20000);
	model_init(&model, 40, true, 8, self->rank);
	ls_ddp *ddp = open_ddp(group, &model, &options);
	for (unsigned pass = 0; pass < 20; pass++) {
		struct worker workers[THREADS];
		OK(ls_ddp_zero_gradients(ddp));
		for (int t = 0; t < THREADS; t++) {
			workers[t] = (struct worker){.model = &model,
						     .ddp = ddp,
						     .rank = self->rank,
						     .number = t,
						     .pass = pass};
			CHECK(pthread_create(&workers[t].thread, NULL, work, &workers[t]) == 0);
		}
		for (int t = 0; t < THREADS; t++)
			pthread_join(workers[t].thread, NULL);
		OK(ls_ddp_finish(ddp));
		model_check_averages(&model, ddp, self->size, pass);
	}
	ls_ddp_close(ddp);
	model_free(&model);
	ls_group_close(group);
}

/* ---- accumulation, odd shapes, misuse ---- */

/* Three passes of which only the last is averaged: the sum of all three. */
void ddp_accumulates(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct model model;
	struct ls_ddp_options options = bucket_options(500, 5000);
	uint64_t random = 7;
	model_init(&model, 9, false, 3, self->rank);
	ls_ddp *ddp = open_ddp(group, &model, &options);
	for (int turn = 0; turn < 3; turn++) {
		OK(ls_ddp_zero_gradients(ddp));
		OK(ls_ddp_no_sync(ddp, 1));
		for (unsigned pass = 0; pass < 2; pass++) {
			backward(&model, ddp, self->rank, pass, &random);
			OK(ls_ddp_finish(ddp));
		}
		for (int p = 0; p < model.count; p++) /* mine alone */
			CHECK(model_gradient(&model, ddp, p, 0) ==
			      model_value(p, 0, self->rank, 0) + model_value(p, 0, self->rank, 1));
		OK(ls_ddp_no_sync(ddp, 0));
		backward(&model, ddp, self->rank, 2, &random);
		OK(ls_ddp_finish(ddp));
		for (int p = 0; p < model.count; p++) {
			double want = 0, got = model_gradient(&model, ddp, p, 0);
			for (int r = 0; r < self->size; r++)
				for (unsigned pass = 0; pass < 3; pass++)
					want += model_value(p, 0, r, pass) / self->size;
			CHECK_THAT(fabs(got - want) < 1e-9, "%g, not %g", got, want);
		}
	}
	ls_ddp_close(ddp);
	model_free(&model);
	ls_group_close(group);
}

/* No elements at all, no dimensions, and an empty bucket. */
void ddp_empty_parameters(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	float scalar = (float)self->rank + 3, row[4] = {0};
	int64_t none[] = {4, 0, 3}, four = 4;
	struct ls_ddp_parameter parameters[] = {
		{.name = "none", .shape = none, .dims = 3, .dtype = LS_FLOAT32},
		{.name = "scalar", .data = &scalar, .dtype = LS_FLOAT32},
		{.name = "", .data = row, .shape = &four, .dims = 1, .dtype = LS_FLOAT32},
		{.name = "none16", .shape = none, .dims = 3, .dtype = LS_FLOAT16},
	};
	ls_ddp *ddp;
	OK(ls_ddp_open(group, parameters, 4, NULL, &ddp));
	CHECK(scalar == 3);
	for (int pass = 0; pass < 3; pass++) {
		*(float *)ls_ddp_gradient(ddp, 1) = (float)self->rank;
		for (int p = 3; p >= 0; p--)
			OK(ls_ddp_ready(ddp, p));
		OK(ls_ddp_finish(ddp));
		CHECK(*(float *)ls_ddp_gradient(ddp, 1) == (float)(self->size - 1) / 2);
	}
	ls_ddp_close(ddp);
	ls_group_close(group);
}

void ddp_ready_twice(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct model model;
	struct caught caught;
	model_init(&model, 4, false, 3, self->rank);
	ls_ddp *ddp = open_ddp(group, &model, NULL);
	for (unsigned pass = 0; pass < 2; pass++) {
		OK(ls_ddp_zero_gradients(ddp));
		for (int p = 0; p < 4; p++) {
			model_add(&model, ddp, p, self->rank, pass, 1);
			OK(ls_ddp_ready(ddp, p));
			caught_begin(&caught);
			GIVES(LS_BAD_ARGUMENT, ls_ddp_ready(ddp, p));
			SAYS(caught_end(&caught), "ready already");
			SAYS(caught.text, model.names[p]);
		}
		caught_begin(&caught);
		GIVES(LS_BAD_ARGUMENT, ls_ddp_ready(ddp, 4));
		GIVES(LS_BAD_ARGUMENT, ls_ddp_no_sync(ddp, 1));
		GIVES(LS_BAD_ARGUMENT, ls_ddp_zero_gradients(ddp));
		GIVES(LS_BAD_ARGUMENT, ls_ddp_join_begin(ddp, NULL));
		caught_end(&caught);
		OK(ls_ddp_finish(ddp));
		model_check_averages(&model, ddp, self->size, pass);
	}
	ls_ddp_close(ddp);
	model_free(&model);
	ls_group_close(group);
}
