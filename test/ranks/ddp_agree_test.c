/* SPDX-License-Identifier: BSD-3-Clause
 * Models that differ between ranks: every rank gets the error, one message names the first
 * parameter that differs, and the group continues to work. */
#include <stdio.h>

#include "caught.h"
#include "model.h"
#include "tests.h"

enum { MANY = 40 };

static void change_shape(struct model *model)
{
	model->shapes[31][1]++;
	model->shapes[35][0]++;
}

static void swap_shape(struct model *model)
{
	int64_t *shape = model->shapes[0], swap = shape[0];
	shape[0] = shape[1];
	shape[1] = swap;
}

static void change_dtype(struct model *model)
{
	model->parameters[7].dtype = LS_FLOAT32;
}

static void change_name(struct model *model)
{
	model->parameters[MANY - 1].name = "other";
}

static void drop_last(struct model *model)
{
	model->count--;
}

static void change_dims(struct model *model)
{
	model->parameters[2].dims = 1;
}

struct difference {
	void (*change)(struct model *model);
	int parameter;
};

static void describe(const struct model *model, int p, char *out, size_t bytes)
{
	const struct ls_ddp_parameter *parameter = &model->parameters[p];
	char second[16];
	snprintf(second, sizeof second, ", %lld", (long long)parameter->shape[1]);
	if (p < model->count)
		snprintf(out, bytes, "'%s' %s [%lld%s]", parameter->name,
			 parameter->dtype == LS_FLOAT64 ? "float64" : "float32",
			 (long long)parameter->shape[0], parameter->dims == 2 ? second : "");
	else
		snprintf(out, bytes, "missing");
}

/* The model of rank 1 differs. */
static void differ(const struct runner_rank *self, ls_group *group, const struct difference *d)
{
	struct model model, same;
	struct caught caught;
	char want[256], left[64], right[64];
	ls_ddp *ddp = (ls_ddp *)&model;
	model_init(&model, MANY, false, 1, self->rank);
	model_init(&same, MANY, false, 1, self->rank);
	describe(&model, d->parameter, left, sizeof left);
	d->change(&model);
	describe(&model, d->parameter, right, sizeof right);
	snprintf(want, sizeof want, "parameter %d is %s on rank%s, but %s on rank 1 ", d->parameter,
		 left,
		 self->size == 2   ? " 0"
		 : self->size == 3 ? "s 0 and 2"
				   : "s 0, 2 and 3",
		 right);
	caught_begin(&caught);
	const struct model *mine = self->rank == 1 ? &model : &same;
	ls_status status = ls_ddp_open(group, mine->parameters, mine->count, NULL, &ddp);
	caught_end(&caught);
	CHECK_THAT(status == LS_INCONSISTENT && !ddp, "%s", ls_status_name(status));
	if (self->rank == 0)
		SAYS(caught.text, want);
	else
		CHECK_THAT(!caught.text[0], "rank %d says %s", self->rank, caught.text);
	model.count = MANY;
	model_free(&model);
	model_free(&same);
}

void ddp_differences_are_named(struct runner_rank *self)
{
	static const struct difference differences[] = {
		{change_shape, 31},      {swap_shape, 0},       {change_dtype, 7},
		{change_name, MANY - 1}, {drop_last, MANY - 1}, {change_dims, 2},
	};
	ls_group *group = runner_open(self);
	for (size_t i = 0; i < sizeof differences / sizeof *differences; i++) {
		differ(self, group, &differences[i]);
		OK(ls_barrier(group, NULL)); /* it goes on */
	}
	ls_group_close(group);
}

/* What is wrong on one rank alone is told to all. */
void ddp_open_fails_on_all(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct model model;
	struct caught caught;
	ls_ddp *ddp;
	model_init(&model, 4, false, 1, self->rank);
	bool wrong = self->rank == self->size - 1;
	struct ls_ddp_parameter *p = model.parameters;
	for (int turn = 0; turn < 6; turn++) {
		struct ls_ddp_options options = {.size = sizeof options};
		struct ls_ddp_parameter before = p[2];
		int count = model.count;
		if (wrong && turn == 0)
			p[2].name = NULL;
		if (wrong && turn == 1)
			p[2].dtype = LS_INT32;
		if (wrong && turn == 2)
			p[2].dims = LS_DDP_DIMS_MAX + 1;
		if (wrong && turn == 3)
			count = 0;
		if (wrong && turn == 4)
			options.size = 1000;
		caught_begin(&caught);
		ddp = NULL;
		ls_status status =
			ls_ddp_open(group, p, count, &options, wrong && turn == 5 ? NULL : &ddp);
		caught_end(&caught);
		CHECK_THAT(status == LS_BAD_ARGUMENT && !ddp, "turn %d: %s", turn,
			   ls_status_name(status));
		CHECK_THAT(wrong == (strstr(caught.text, "ls_ddp_open") != NULL), "%s", caught.text);
		if (wrong && turn < 3)
			SAYS(caught.text, "parameters[2]");
		p[2] = before;
	}
	struct ls_ddp_options options = {.size = sizeof options, .bucket_bytes = wrong ? 77 : 88};
	caught_begin(&caught);
	GIVES(self->size == 1 ? LS_OK : LS_INCONSISTENT, ls_ddp_open(group, p, 4, &options, &ddp));
	caught_end(&caught);
	if (self->rank == 0 && self->size > 1)
		SAYS(caught.text, "1048576 and 88 bytes on rank 0, 1048576 and 77 on rank");
	ls_ddp_close(ddp);
	OK(ls_ddp_open(group, p, 4, NULL, &ddp));
	ls_ddp_close(ddp);
	ls_group_close(group);
	caught_begin(&caught);
	GIVES(LS_BAD_ARGUMENT, ls_ddp_open(group, p, 4, NULL, &ddp));
	SAYS(caught_end(&caught), "ls_ddp_open: group is ");
	CHECK(!ddp && !strstr(caught.text, "ls_alloc"));
	model_free(&model);
}
