/* SPDX-License-Identifier: BSD-3-Clause
 * Trains on handwritten digits that are spread unevenly: each rank has images of its own, and fewer
 * of them the higher its number, so that ranks run out of batches one after the other while the
 * rest goes on. lockstep run -n 4 ./train_uneven; with LOCKSTEP_JOIN=error that is an error. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lockstep/lockstep.h>

#include "digits.h"
#include "evaluate.h"
#include "mlp.h"

enum { BATCH = 16, EPOCHS = 30 };

struct training {
	ls_group *group;
	int rank, size;
	struct ls_ddp_join_options join;
	struct digits digits;
	size_t images; /* of this rank */
	uint32_t *order;
	real *parameters, *velocity, *scratch;
	ls_ddp *ddp;
	struct mlp_pass *pass;
};

/* This rank's i-th image: the ranks take the images in turn. */
static size_t image_of(const struct training *t, uint32_t i)
{
	return (size_t)i * (size_t)t->size + (size_t)t->rank;
}

static double forward(struct training *t, size_t first)
{
	double loss = 0;
	t->pass->count = 0;
	for (size_t i = 0; i < BATCH; i++) {
		size_t image = image_of(t, t->order[first + i]);
		loss += mlp_forward(t->parameters, t->digits.pixels[image], t->digits.labels[image],
				    (real)1 / BATCH, t->pass);
	}
	return loss / BATCH;
}

static ls_status backward(struct training *t)
{
	ls_ddp *ddp = t->ddp;
	mlp_backward_second(t->pass, ls_ddp_gradient(ddp, MLP_W2), ls_ddp_gradient(ddp, MLP_B2));
	ls_status status = ls_ddp_ready(ddp, MLP_B2);
	if (status == LS_OK)
		status = ls_ddp_ready(ddp, MLP_W2);
	if (status != LS_OK)
		return status;
	mlp_backward_first(t->parameters, t->pass, ls_ddp_gradient(ddp, MLP_W1),
			   ls_ddp_gradient(ddp, MLP_B1));
	status = ls_ddp_ready(ddp, MLP_B1);
	if (status == LS_OK)
		status = ls_ddp_ready(ddp, MLP_W1);
	return status == LS_OK ? ls_ddp_finish(ddp) : status;
}

/* Trains on all batches of this rank, then shadows the ranks that still have some. */
static bool train_batches(struct training *t, size_t batches, double *loss)
{
	int last;
	ls_status status = ls_ddp_join_begin(t->ddp, &t->join);
	for (size_t b = 0; status == LS_OK && b < batches; b++) {
		status = ls_ddp_join_step(t->ddp);
		if (status != LS_OK)
			break;
		*loss += forward(t, b * BATCH);
		status = backward(t);
		for (int part = 0; status == LS_OK && part < MLP_PARTS; part++)
			mlp_update(t->parameters, t->velocity, ls_ddp_gradient(t->ddp, part),
				   (enum mlp_part)part);
	}
	if (status == LS_OK)
		status = ls_ddp_join_end(t->ddp, &last);
	if (failed(t->group, "a step of training", status))
		return false;
	/* A rank that ran out of batches early has missed updates. ls_ddp_join_end has given it the
	 * parameters of rank `last`; the state of the optimizer has to be that rank's too. */
	status = ls_broadcast(t->group, t->velocity, t->velocity, MLP_PARAMETERS, REAL_DTYPE, last,
			      NULL);
	return !failed(t->group, "broadcast of the optimizer's state", status);
}

static bool train_epoch(struct training *t, int epoch, double *accuracy)
{
	uint64_t batches = t->images / BATCH, counts[64];
	double loss = 0;
	digits_permute((uint64_t)(epoch * t->size + t->rank), t->order, t->images);
	if (!train_batches(t, batches, &loss) ||
	    !evaluate_accuracy(t->group, &t->digits, t->parameters, accuracy))
		return false;
	ls_status status = ls_allgather(t->group, &batches, counts, 1, LS_UINT64, NULL);
	if (status == LS_OK)
		status = ls_allreduce(t->group, &loss, &loss, 1, LS_FLOAT64, LS_SUM, NULL);
	if (failed(t->group, "exchange of the losses", status))
		return false;
	uint64_t sum = 0;
	for (int r = 0; r < t->size; r++)
		sum += counts[r];
	if (t->rank > 0)
		return true;
	printf("epoch %2d  loss %.4f  test accuracy %.4f  batches", epoch + 1,
	       sum ? loss / (double)sum : 0, *accuracy);
	for (int r = 0; r < t->size; r++)
		printf(" %llu", (unsigned long long)counts[r]);
	printf("\n");
	return true;
}

static bool prepare(struct training *t, const char *data)
{
	struct ls_ddp_parameter parameters[MLP_PARTS];
	if (!digits_load(data, 7, &t->digits))
		return false;
	/* Rank r keeps (2 size - r) / 2 size of its share: rank 0 all of it, the last rank little
	 * more than half. */
	size_t size = (size_t)t->size, share = (t->digits.count - DIGITS_TEST) / size;
	t->images = share * (2 * size - (size_t)t->rank) / (2 * size);
	t->order = calloc(share, sizeof *t->order);
	t->parameters = calloc(MLP_PARAMETERS, sizeof *t->parameters);
	t->velocity = calloc(MLP_PARAMETERS, sizeof *t->velocity);
	t->scratch = calloc(MLP_PARAMETERS, sizeof *t->scratch);
	t->pass = calloc(1, sizeof *t->pass);
	if (!t->order || !t->parameters || !t->velocity || !t->scratch || !t->pass)
		return false;
	if (t->rank == 0)
		mlp_init(t->parameters, 7);
	mlp_describe(t->parameters, parameters);
	ls_status status = ls_ddp_open(t->group, parameters, MLP_PARTS, NULL, &t->ddp);
	return !failed(t->group, "averaging of the gradients", status);
}

static bool train(struct training *t, const char *data)
{
	double accuracy = 0;
	if (!prepare(t, data))
		return false;
	for (int epoch = 0; epoch < EPOCHS; epoch++)
		if (!train_epoch(t, epoch, &accuracy))
			return false;
	if (!evaluate_equal(t->group, t->parameters, t->scratch))
		return false;
	if (t->rank == 0)
		printf("test accuracy %.4f\n", accuracy);
	return true;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"data", 1, NULL, 'd'}, {"by-active", 0, NULL, 'a'}, {NULL, 0, NULL, 0}};
	struct training t = {.join = {.size = sizeof t.join}};
	const char *data = DIGITS_DATA;
	int c;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'd')
			data = optarg;
		else if (c == 'a')
			t.join.divide_by_active = 1;
		else {
			fprintf(stderr, "usage: train_uneven [--data FILE] [--by-active]\n");
			return 2;
		}
	}
	if (ls_group_open(NULL, &t.group) != LS_OK)
		return 1;
	t.rank = ls_group_rank(t.group);
	t.size = ls_group_size(t.group);
	setvbuf(stdout, NULL, _IOLBF, 0);
	bool ok = train(&t, data);
	ls_ddp_close(t.ddp);
	ls_group_close(t.group);
	digits_free(&t.digits);
	free(t.order);
	free(t.parameters);
	free(t.velocity);
	free(t.scratch);
	free(t.pass);
	return ok ? 0 : 1;
}
