/* SPDX-License-Identifier: BSD-3-Clause
 * Uneven inputs: ranks that run out of batches shadow the others, in general and with gradient
 * averaging; or all ranks get an error. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "caught.h"
#include "model.h"
#include "tests.h"

/* How many batches a rank has in an epoch: all the same, one with none, and in between. */
static unsigned batches_of(int rank, int size, int epoch)
{
	switch (epoch) {
	case 0:
		return 4;
	case 1:
		return (unsigned)rank * 3; /* rank 0 has none */
	case 2:
		return (unsigned)(size - 1 - rank) * 2 + 1;
	case 3:
		return 0;
	default:
		return rank == size / 2 ? 7 : (unsigned)rank % 2;
	}
}
enum { EPOCHS = 5 };

static unsigned most_batches(int size, int epoch)
{
	unsigned most = 0;
	for (int r = 0; r < size; r++)
		most = batches_of(r, size, epoch) > most ? batches_of(r, size, epoch) : most;
	return most;
}

/* Ranks that have a batch in this step, and the lowest of them. */
static int active_in(int size, int epoch, unsigned step, int *lead)
{
	int active = 0;
	for (int r = size - 1; r >= 0; r--)
		if (batches_of(r, size, epoch) > step) {
			active++;
			*lead = r;
		}
	return active;
}

/* ---- in general ---- */

struct general {
	struct runner_rank *self;
	ls_group *group;
	int epoch;
	unsigned shadowed;
};

static ls_status shadow(void *data, const struct ls_join_round *round)
{
	struct general *general = data;
	const struct runner_rank *self = general->self;
	int64_t value = 0;
	int lead = -1, active = active_in(self->size, general->epoch, (unsigned)round->step, &lead);
	CHECK(round->active == active && round->lead == lead);
	CHECK(round->word == 1000 * round->step + (uint64_t)lead);
	CHECK(round->step == batches_of(self->rank, self->size, general->epoch) + general->shadowed);
	general->shadowed++;
	ls_status status = ls_allreduce(general->group, &value, &value, 1, LS_INT64, LS_SUM, NULL);
	CHECK(value == active);
	return status;
}

void join_shadows(struct runner_rank *self)
{
	struct general general = {.self = self, .group = runner_open(self)};
	struct ls_join_options options = {.size = sizeof options, .shadow = shadow, .data = &general};
	ls_join *join;
	OK(ls_join_open(general.group, &options, &join));
	for (int epoch = 0; epoch < EPOCHS; epoch++) {
		struct ls_join_round round;
		unsigned mine = batches_of(self->rank, self->size, epoch);
		unsigned most = most_batches(self->size, epoch);
		int lead = 0;
		general.epoch = epoch;
		general.shadowed = 0;
		for (unsigned step = 0; step < mine; step++) {
			int64_t value = 1;
			OK(ls_join_step(join, 1000 * step + (unsigned)self->rank, &round));
			OK(ls_allreduce(general.group, &value, &value, 1, LS_INT64, LS_SUM, NULL));
			CHECK(round.step == step && round.active == value);
			CHECK(value == active_in(self->size, epoch, step, &lead));
		}
		OK(ls_join_end(join, &round));
		CHECK(general.shadowed == most - mine);
		if (most == 0)
			CHECK(round.active == 0);
		else
			CHECK(round.active == active_in(self->size, epoch, most - 1, &lead) &&
			      round.lead == lead && round.step == most - 1);
	}
	ls_join_close(join);
	ls_join_close(NULL);
	ls_group_close(general.group);
}

static ls_status fail(void *data, const struct ls_join_round *round)
{
	(void)data;
	return round->step == 1 ? LS_UNSUPPORTED : LS_OK;
}

/* A shadow that fails does not leave the others waiting. */
void join_shadow_fails(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct ls_join_options options = {.size = sizeof options, .shadow = fail};
	struct ls_failure failure = {.size = sizeof failure};
	ls_join *join;
	OK(ls_join_open(group, &options, &join));
	if (self->rank == 0) {
		GIVES(LS_UNSUPPORTED, ls_join_end(join, NULL));
	} else {
		ls_status status = LS_OK;
		for (int step = 0; step < 3 && status == LS_OK; step++)
			status = ls_join_step(join, 0, NULL);
		CHECK(status == LS_ABORTED);
	}
	OK(ls_group_failure(group, &failure));
	CHECK(failure.status == LS_ABORTED && failure.rank == 0);
	SAYS(failure.text, "rank 0 could not shadow step 1: ");
	ls_join_close(join);
	ls_group_close(group);
}

/* ---- as an error ---- */

/* Rank 1 has one batch, the others have two or more. */
static void run_out(struct runner_rank *self, uint32_t mode)
{
	ls_group *group = runner_open(self);
	struct ls_join_options options = {.size = sizeof options, .mode = mode};
	struct caught caught;
	ls_join *join;
	OK(ls_join_open(group, &options, &join));
	for (int turn = 0; turn < 2; turn++) { /* it begins again as if new */
		caught_begin(&caught);
		OK(ls_join_step(join, 0, NULL));
		if (self->rank == 1)
			GIVES(LS_UNEVEN, ls_join_end(join, NULL));
		else
			GIVES(LS_UNEVEN, ls_join_step(join, 0, NULL));
		caught_end(&caught);
		if (self->rank == 0)
			SAYS(caught.text,
			     self->size == 2 ? "rank 1 ended after 1 batch, while rank 0 has more"
					     : "rank 1 ended after 1 batch, while ranks 0 and "
					       "2 have more");
		else
			CHECK_THAT(!caught.text[0], "%s", caught.text);
		OK(ls_barrier(group, NULL));
	}
	OK(ls_join_step(join, 0, NULL));
	OK(ls_join_end(join, NULL)); /* the same number on all ranks is none */
	ls_join_close(join);
	ls_group_close(group);
}

void join_error_by_setting(struct runner_rank *self)
{
	run_out(self, LS_JOIN_SETTING);
}

/* One rank's wish suffices. */
void join_error_by_mode(struct runner_rank *self)
{
	run_out(self, self->rank == 1 ? LS_JOIN_ERROR : LS_JOIN_SHADOW);
}

void join_wrong_arguments(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct ls_join_options options = {.size = sizeof options, .mode = 3};
	struct caught caught;
	ls_join *join;
	caught_begin(&caught);
	GIVES(LS_BAD_ARGUMENT, ls_join_open(group, &options, &join));
	CHECK(!join);
	GIVES(LS_BAD_ARGUMENT, ls_join_open(NULL, NULL, &join));
	GIVES(LS_BAD_ARGUMENT, ls_join_step(NULL, 0, NULL));
	GIVES(LS_BAD_ARGUMENT, ls_join_end(NULL, NULL));
	SAYS(caught_end(&caught), "options->mode is 3");
	ls_group_close(group);
	caught_begin(&caught);
	GIVES(LS_BAD_ARGUMENT, ls_join_open(group, NULL, &join));
	SAYS(caught_end(&caught), "ls_group_close has closed this one");
}

/* ---- with gradient averaging ---- */

/* A step of descent, so that parameters tell the whole history. */
static void update(const struct model *model, const ls_ddp *ddp)
{
	for (int p = 0; p < model->count; p++) {
		double *weights = model->parameters[p].data;
		for (uint64_t i = 0; i < model->elements[p]; i++)
			weights[i] -= 0.01 * model_gradient(model, ddp, p, i);
	}
}

static void train_batch(const struct runner_rank *self, const struct model *model, ls_ddp *ddp,
			int epoch, unsigned step, bool by_active)
{
	int lead = 0, active = active_in(self->size, epoch, step, &lead);
	OK(ls_ddp_zero_gradients(ddp));
	OK(ls_ddp_join_step(ddp));
	for (int p = model->count - 1; p >= 0; p--) {
		model_add(model, ddp, p, self->rank, step, 1);
		OK(ls_ddp_ready(ddp, p));
	}
	OK(ls_ddp_finish(ddp));
	for (int p = 0; p < model->count; p++) {
		double want = 0, got = model_gradient(model, ddp, p, 0);
		for (int r = 0; r < self->size; r++)
			if (batches_of(r, self->size, epoch) > step)
				want += model_value(p, 0, r, step);
		want /= by_active ? active : self->size;
		CHECK_THAT(fabs(got - want) < 1e-9, "epoch %d step %u: %g, not %g", epoch, step,
			   got, want);
	}
	update(model, ddp);
}

/* What the parameters must be: all steps from the beginning, on one rank. */
static double replay(const struct runner_rank *self, int p, int epochs, bool by_active)
{
	double weight = 0; /* element 0 of rank 0 */
	for (int epoch = 0; epoch < epochs; epoch++)
		for (unsigned step = 0; step < most_batches(self->size, epoch); step++) {
			int lead = 0, active = active_in(self->size, epoch, step, &lead);
			double sum = 0;
			for (int r = 0; r < self->size; r++)
				if (batches_of(r, self->size, epoch) > step)
					sum += model_value(p, 0, r, step);
			weight -= 0.01 * sum / (by_active ? active : self->size);
		}
	return weight;
}

static void train_uneven(struct runner_rank *self, bool by_active)
{
	ls_group *group = runner_open(self);
	struct model model;
	struct ls_ddp_options options = {
		.size = sizeof options, .bucket_first_bytes = 3000, .bucket_bytes = 9000};
	struct ls_ddp_join_options join = {
		.size = sizeof join, .mode = LS_JOIN_SHADOW, .divide_by_active = by_active};
	ls_ddp *ddp;
	model_init(&model, 9, false, 3, self->rank);
	OK(ls_ddp_open(group, model.parameters, model.count, &options, &ddp));
	for (int epoch = 0; epoch < EPOCHS; epoch++) {
		int last, lead = 0;
		unsigned most = most_batches(self->size, epoch);
		OK(ls_ddp_join_begin(ddp, &join));
		for (unsigned b = 0; b < batches_of(self->rank, self->size, epoch); b++)
			train_batch(self, &model, ddp, epoch, b, by_active);
		OK(ls_ddp_join_end(ddp, &last));
		if (most > 0 && active_in(self->size, epoch, most - 1, &lead) < self->size)
			CHECK_THAT(last == lead, "epoch %d: %d, not %d", epoch, last, lead);
		for (int p = 0; p < model.count; p++) {
			double want = replay(self, p, epoch + 1, by_active);
			double got = *(const double *)model.parameters[p].data;
			CHECK_THAT(fabs(got - want) < 1e-9, "epoch %d: %s is %g, not %g", epoch,
				   model.names[p], got, want);
		}
	}
	ls_ddp_close(ddp);
	model_free(&model);
	ls_group_close(group);
}

void join_ddp_by_all(struct runner_rank *self)
{
	train_uneven(self, false);
}

void join_ddp_by_active(struct runner_rank *self)
{
	train_uneven(self, true);
}

/* Accumulation inside a join: a shadowing rank knows in which steps nothing is averaged. */
void join_ddp_accumulates(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct model model;
	ls_ddp *ddp;
	model_init(&model, 3, false, 3, self->rank);
	OK(ls_ddp_open(group, model.parameters, model.count, NULL, &ddp));
	OK(ls_ddp_join_begin(ddp, NULL));
	for (unsigned step = 0; self->rank == self->size - 1 && step < 6; step++) {
		bool sync = step % 3 == 2;
		if (step % 3 == 0)
			OK(ls_ddp_zero_gradients(ddp));
		OK(ls_ddp_no_sync(ddp, !sync));
		OK(ls_ddp_join_step(ddp));
		for (int p = 2; p >= 0; p--) {
			model_add(&model, ddp, p, self->rank, 0, 1);
			OK(ls_ddp_ready(ddp, p));
		}
		OK(ls_ddp_finish(ddp));
		double want = model_value(0, 0, self->rank, 0) * (step % 3 + 1);
		CHECK(fabs(model_gradient(&model, ddp, 0, 0) - (sync ? want / self->size : want)) <
		      1e-9);
	}
	OK(ls_ddp_join_end(ddp, NULL));
	ls_ddp_close(ddp);
	model_free(&model);
	ls_group_close(group);
}

/* LS_UNEVEN ends the join on all ranks, and training may go on without it. */
void join_ddp_error(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct model model;
	struct caught caught;
	struct ls_ddp_join_options join = {.size = sizeof join, .mode = LS_JOIN_ERROR};
	ls_ddp *ddp;
	model_init(&model, 3, false, 3, self->rank);
	OK(ls_ddp_open(group, model.parameters, model.count, NULL, &ddp));
	OK(ls_ddp_join_begin(ddp, &join));
	caught_begin(&caught);
	GIVES(LS_BAD_ARGUMENT, ls_ddp_ready(ddp, 0)); /* not without a step */
	GIVES(LS_BAD_ARGUMENT, ls_ddp_join_begin(ddp, &join));
	if (self->rank == 0)
		GIVES(LS_UNEVEN, ls_ddp_join_end(ddp, NULL));
	else
		GIVES(LS_UNEVEN, ls_ddp_join_step(ddp));
	GIVES(LS_BAD_ARGUMENT, ls_ddp_join_step(ddp));
	caught_end(&caught);
	if (self->rank == 0)
		SAYS(caught.text, "rank 0 ended after 0 batches, while rank");
	for (int p = 2; p >= 0; p--) {
		model_add(&model, ddp, p, self->rank, 0, 1);
		OK(ls_ddp_ready(ddp, p));
	}
	OK(ls_ddp_finish(ddp));
	model_check_averages(&model, ddp, self->size, 0);
	ls_ddp_close(ddp);
	model_free(&model);
	ls_group_close(group);
}

/* The last rank gives up after it has said that it has a batch. */
void join_ddp_closed_in_a_step(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct model model;
	struct ls_failure failure = {.size = sizeof failure};
	ls_ddp *ddp;
	model_init(&model, 3, false, 3, self->rank);
	OK(ls_ddp_open(group, model.parameters, model.count, NULL, &ddp));
	OK(ls_ddp_join_begin(ddp, NULL));
	if (self->rank == self->size - 1) {
		OK(ls_ddp_join_step(ddp));
	} else {
		GIVES(LS_ABORTED, ls_ddp_join_end(ddp, NULL)); /* in the shadow of that step */
	}
	ls_ddp_close(ddp);
	OK(ls_group_failure(group, &failure));
	CHECK(failure.status == LS_ABORTED && failure.rank == self->size - 1);
	SAYS(failure.text, "ls_ddp_close in the middle of a backward pass");
	model_free(&model);
	ls_group_close(group);
}

/* Rank 1 dies between two batches, while others have some left and others none. */
void join_ends_when_a_rank_dies(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct ls_join_options options = {.size = sizeof options};
	struct ls_failure failure = {.size = sizeof failure};
	ls_join *join;
	OK(ls_join_open(group, &options, &join));
	OK(ls_join_step(join, 0, NULL));
	/* What rank 1 has sent to another host might end with it. */
	runner_meet(self);
	if (self->rank == 1)
		raise(SIGKILL);
	if (self->rank % 2 == 0)
		GIVES(LS_PEER_DIED, ls_join_step(join, 0, NULL));
	else
		GIVES(LS_PEER_DIED, ls_join_end(join, NULL));
	OK(ls_group_failure(group, &failure));
	CHECK(failure.rank == 1);
	SAYS(failure.text, self->rank % 2 == 0 ? "ls_join_step" : "all-gather #");
	ls_join_close(join);
	ls_group_close(group);
}
