/* SPDX-License-Identifier: BSD-3-Clause
 * Trains a classifier of handwritten digits on all ranks: each works on its share of every batch,
 * and the gradients are averaged while the backward pass goes on. lockstep run -n 4 ./train_digits;
 * --help lists the options. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <lockstep/lockstep.h>

#include "digits.h"
#include "evaluate.h"
#include "fault.h"
#include "mlp.h"

struct options {
	const char *data, *losses;
	int epochs, batch;
	uint64_t seed;
	enum fault_kind fault;
	int fault_rank, fault_step; /* fault_rank -1: rank 2, or the last if fewer */
};

struct training {
	struct options options;
	ls_group *group;
	int rank, size;
	struct digits digits;
	uint32_t *order;
	real *parameters, *velocity, *scratch;
	ls_ddp *ddp;
	struct mlp_pass *pass;
	FILE *losses;
	int step;
	bool left;                      /* this rank leaves: --fault leave */
	double busy_s, communication_s; /* in this epoch */
};

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The forward pass of this rank's share of a batch; returns its part of the batch's loss. ls_ddp
 * divides gradients by the number of ranks, so each image has to count `size` times. */
static double forward(struct training *t, size_t first)
{
	int batch = t->options.batch;
	int begin = batch * t->rank / t->size, end = batch * (t->rank + 1) / t->size;
	real weight = (real)t->size / (real)batch;
	double loss = 0;
	t->pass->count = 0;
	for (int i = begin; i < end; i++) {
		uint32_t image = t->order[first + (size_t)i];
		loss += mlp_forward(t->parameters, t->digits.pixels[image], t->digits.labels[image],
				    weight, t->pass);
	}
	return loss / batch;
}

/* Declares each gradient ready as soon as it is complete: first those of the last layer. */
static ls_status ready(struct training *t, enum mlp_part weights, enum mlp_part biases)
{
	double start = now_s();
	ls_status status = ls_ddp_ready(t->ddp, (int)biases);
	if (status == LS_OK)
		status = ls_ddp_ready(t->ddp, (int)weights);
	t->communication_s += now_s() - start;
	return status;
}

static ls_status finish(struct training *t)
{
	double start = now_s();
	ls_status status = ls_ddp_finish(t->ddp);
	t->communication_s += now_s() - start;
	return status;
}

static ls_status backward(struct training *t)
{
	if (t->options.fault != FAULT_NONE && t->step == t->options.fault_step) {
		bool done = false;
		ls_status status = fault_strike(t->options.fault, t->rank == t->options.fault_rank,
						t->group, t->scratch, MLP_PARAMETERS, &done);
		if (done || status != LS_OK)
			return status;
	}
	mlp_backward_second(t->pass, ls_ddp_gradient(t->ddp, MLP_W2),
			    ls_ddp_gradient(t->ddp, MLP_B2));
	ls_status status = ready(t, MLP_W2, MLP_B2);
	if (status != LS_OK)
		return status;
	mlp_backward_first(t->parameters, t->pass, ls_ddp_gradient(t->ddp, MLP_W1),
			   ls_ddp_gradient(t->ddp, MLP_B1));
	status = ready(t, MLP_W1, MLP_B1);
	return status == LS_OK ? finish(t) : status;
}

/* Trains on one batch. The loss is that of the whole batch, the same on all ranks. */
static bool train_step(struct training *t, size_t first, double *loss)
{
	double start = now_s(), communicated_s = t->communication_s;
	*loss = forward(t, first);
	if (failed(t->group, "all-reduce of the gradients", backward(t)))
		return false;
	double begin = now_s();
	ls_status status = ls_allreduce(t->group, loss, loss, 1, LS_FLOAT64, LS_SUM, NULL);
	t->communication_s += now_s() - begin;
	if (failed(t->group, "all-reduce of the loss", status))
		return false;
	for (int part = 0; part < MLP_PARTS; part++)
		mlp_update(t->parameters, t->velocity, ls_ddp_gradient(t->ddp, part),
			   (enum mlp_part)part);
	if (t->losses)
		fprintf(t->losses, "%.17g\n", *loss);
	t->busy_s += now_s() - start - (t->communication_s - communicated_s);
	t->step++;
	return true;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Finds the rank that computed longest in this epoch, and how many times the median it took. */
static bool find_slowest(struct training *t, int *rank, double *factor)
{
	double busy[128] = {0}, sorted[128];
	busy[t->rank] = t->busy_s;
	ls_status status =
		ls_allreduce(t->group, busy, busy, (uint64_t)t->size, LS_FLOAT64, LS_SUM, NULL);
	if (failed(t->group, "all-reduce of the times", status))
		return false;
	*rank = 0;
	for (int i = 1; i < t->size; i++)
		if (busy[i] > busy[*rank])
			*rank = i;
	memcpy(sorted, busy, sizeof sorted);
	qsort(sorted, (size_t)t->size, sizeof sorted[0], compare);
	double median = (sorted[(t->size - 1) / 2] + sorted[t->size / 2]) / 2;
	*factor = median > 0 ? busy[*rank] / median : 1;
	return true;
}

static bool train_epoch(struct training *t, int epoch, double *accuracy)
{
	size_t images = t->digits.count - DIGITS_TEST, batch = (size_t)t->options.batch;
	size_t batches = images / batch;
	double loss = 0, sum = 0, factor, start = now_s();
	int slowest;
	t->busy_s = t->communication_s = 0;
	digits_permute(t->options.seed + 1 + (uint64_t)epoch, t->order, images);
	for (size_t b = 0; b < batches; b++) {
		if (t->options.fault == FAULT_LEAVE && t->rank == t->options.fault_rank &&
		    t->step == t->options.fault_step)
			return t->left = true; /* one batch early: the other ranks continue */
		if (!train_step(t, b * batch, &loss))
			return false;
		sum += loss;
	}
	double seconds = now_s() - start;
	if (!evaluate_accuracy(t->group, &t->digits, t->parameters, accuracy) ||
	    !find_slowest(t, &slowest, &factor))
		return false;
	if (t->rank == 0)
		printf("epoch %2d  loss %.4f  test accuracy %.4f  %7.0f samples/s  communication "
		       "%4.1f %%  slowest rank %d (%.2fx)\n",
		       epoch + 1, sum / (double)batches, *accuracy,
		       (double)(batches * batch) / seconds, 100 * t->communication_s / seconds,
		       slowest, factor);
	return true;
}

static bool prepare(struct training *t)
{
	struct ls_ddp_parameter parameters[MLP_PARTS];
	if (!digits_load(t->options.data, t->options.seed, &t->digits))
		return false;
	t->order = calloc(t->digits.count, sizeof *t->order);
	t->parameters = calloc(MLP_PARAMETERS, sizeof *t->parameters);
	t->velocity = calloc(MLP_PARAMETERS, sizeof *t->velocity);
	t->scratch = calloc(MLP_PARAMETERS, sizeof *t->scratch);
	t->pass = calloc(1, sizeof *t->pass);
	if (!t->order || !t->parameters || !t->velocity || !t->scratch || !t->pass)
		return false;
	if (t->options.losses && t->rank == 0) {
		t->losses = fopen(t->options.losses, "we");
		if (!t->losses) {
			fprintf(stderr, "%s: %s\n", t->options.losses, strerror(errno));
			return false;
		}
	}
	/* Rank 0 gives all ranks its parameters; each of them could compute the same. */
	if (t->rank == 0)
		mlp_init(t->parameters, t->options.seed);
	mlp_describe(t->parameters, parameters);
	ls_status status = ls_ddp_open(t->group, parameters, MLP_PARTS, NULL, &t->ddp);
	return !failed(t->group, "averaging of the gradients", status);
}

static bool train(struct training *t)
{
	double accuracy = 0;
	if (!prepare(t))
		return false;
	for (int epoch = 0; epoch < t->options.epochs; epoch++) {
		if (!train_epoch(t, epoch, &accuracy))
			return false;
		if (t->left)
			return true;
	}
	if (!evaluate_equal(t->group, t->parameters, t->scratch))
		return false;
	if (t->rank == 0)
		printf("test accuracy %.4f\n", accuracy);
	return true;
}

static void usage(FILE *out)
{
	fprintf(out, "usage: train_digits [--data FILE] [--epochs N] [--batch N] [--seed N]\n"
		     "                    [--losses FILE] [--fault KIND [--fault-rank R] "
		     "[--fault-step S]]\n"
		     "kinds of faults: ");
	fault_print_names(out);
}

static bool read_number(const char *text, long low, long high, long *out)
{
	char *end;
	*out = strtol(text, &end, 10);
	return end != text && *end == '\0' && *out >= low && *out <= high;
}

/* --help prints the options and exits, unless an option before it is wrong. */
static bool read_options(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{"data", 1, NULL, 'd'}, {"epochs", 1, NULL, 'e'},     {"batch", 1, NULL, 'b'},
		{"seed", 1, NULL, 's'}, {"losses", 1, NULL, 'l'},     {"fault", 1, NULL, 'f'},
		{"help", 0, NULL, 'h'}, {"fault-rank", 1, NULL, 'r'}, {"fault-step", 1, NULL, 't'},
		{NULL, 0, NULL, 0},
	};
	int c, kind, at = 0;
	long n = 0;
	while ((c = getopt_long(argc, argv, "", longs, &at)) != -1) {
		bool ok = true;
		switch (c) {
		case 'd':
			o->data = optarg;
			break;
		case 'l':
			o->losses = optarg;
			break;
		case 'e':
			ok = read_number(optarg, 1, 10000, &n);
			o->epochs = (int)n;
			break;
		case 'b':
			ok = read_number(optarg, 1, 1000, &n);
			o->batch = (int)n;
			break;
		case 's':
			ok = read_number(optarg, 0, 1000000000, &n);
			o->seed = (uint64_t)n;
			break;
		case 'r':
			ok = read_number(optarg, 0, 63, &n);
			o->fault_rank = (int)n;
			break;
		case 't':
			ok = read_number(optarg, 0, 1000000, &n);
			o->fault_step = (int)n;
			break;
		case 'f':
			kind = fault_from(optarg);
			ok = kind >= 0;
			o->fault = ok ? (enum fault_kind)kind : FAULT_NONE;
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			return false;
		}
		if (!ok) {
			fprintf(stderr, "train_digits: --%s cannot be '%s'\n", longs[at].name,
				optarg);
			return false;
		}
	}
	return optind == argc;
}

int main(int argc, char **argv)
{
	struct training t = {.options = {.data = DIGITS_DATA,
					 .epochs = 20,
					 .batch = 64,
					 .seed = 7,
					 .fault_rank = -1,
					 .fault_step = 43}};
	if (!read_options(argc, argv, &t.options)) {
		usage(stderr);
		return 2;
	}
	if (ls_group_open(NULL, &t.group) != LS_OK)
		return 1;
	t.rank = ls_group_rank(t.group);
	t.size = ls_group_size(t.group);
	if (t.options.fault_rank < 0)
		t.options.fault_rank = t.size > 2 ? 2 : t.size - 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	bool ok = train(&t);
	if (t.losses)
		fclose(t.losses);
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
