/* SPDX-License-Identifier: BSD-3-Clause
 * Gradient averaging when ranks do not fit together: one forgets a parameter, is late, dies,
 * closes, or holds back while others average. No rank waits forever, and the message names the
 * rank. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "caught.h"
#include "common.h"
#include "model.h"
#include "tests.h"

enum { PARAMETERS = 9 };

/* All that a rank of these tests has. */
struct fixture {
	ls_group *group;
	struct model model;
	ls_ddp *ddp;
};

static void open_fixture(struct fixture *f, const struct runner_rank *self,
			 const struct ls_ddp_options *options)
{
	f->group = runner_open(self);
	model_init(&f->model, PARAMETERS, false, 3, self->rank);
	OK(ls_ddp_open(f->group, f->model.parameters, PARAMETERS, options, &f->ddp));
	runner_meet(self); /* everybody has opened it */
}

static void close_fixture(struct fixture *f)
{
	ls_ddp_close(f->ddp);
	model_free(&f->model);
	ls_group_close(f->group);
}

/* A bucket for each parameter. */
static const struct ls_ddp_options apart = {
	.size = sizeof apart, .bucket_first_bytes = 1, .bucket_bytes = 1};

static bool is_last(const struct runner_rank *self)
{
	return self->rank == self->size - 1;
}

/* All parameters down to `lowest` are ready, unless the group has been closed with `closed`. */
static void ready_down_to(const struct fixture *f, int lowest, ls_status closed)
{
	for (int p = PARAMETERS - 1; p >= lowest; p--) {
		ls_status status = ls_ddp_ready(f->ddp, p);
		CHECK_THAT(status == LS_OK || status == closed, "%s", ls_status_name(status));
	}
}

static void check_failure(const struct fixture *f, ls_status status, int rank, const char *text)
{
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(f->group, &failure));
	CHECK_THAT(failure.status == status && failure.rank == rank, "%s, rank %d",
		   ls_status_name(failure.status), failure.rank);
	SAYS(failure.text, text);
}

/* ---- parameters that are not ready ---- */

/* The last rank forgets two parameters, one of them in the first bucket. */
static bool forgets(const struct runner_rank *self, int parameter)
{
	return is_last(self) && (parameter == 3 || parameter == 8);
}

static void ready_but_forgotten(const struct fixture *f, const struct runner_rank *self)
{
	for (int p = PARAMETERS - 1; p >= 0; p--)
		if (!forgets(self, p)) {
			ls_status status = ls_ddp_ready(f->ddp, p);
			CHECK(status == LS_OK || status == LS_ABORTED); /* it may have happened */
		}
}

void ddp_unused_is_named(struct runner_rank *self)
{
	struct fixture f;
	struct ls_ddp_options options = apart;
	char want[128];
	options.bucket_bytes = 5000;
	open_fixture(&f, self, &options);
	ready_but_forgotten(&f, self);
	double begin_s = now_s();
	GIVES(LS_ABORTED, ls_ddp_finish(f.ddp));
	CHECK(now_s() - begin_s < 1.0 * RUNNER_PATIENCE);
	snprintf(want, sizeof want,
		 "parameters 'p8' and 'p3' were not ready on rank %d when it finished its backward "
		 "pass",
		 self->size - 1);
	check_failure(&f, LS_ABORTED, self->size - 1, want);
	GIVES(LS_ABORTED, ls_ddp_finish(f.ddp));
	close_fixture(&f);
}

/* Of the names of many parameters the first few, and their ends. */
void ddp_unused_with_long_names(struct runner_rank *self)
{
	static const int64_t one = 1;
	ls_group *group = runner_open(self);
	float value = 0;
	struct fixture f = {.group = group};
	struct ls_ddp_parameter parameters[PARAMETERS];
	char names[PARAMETERS][80];
	for (int p = 0; p < PARAMETERS; p++) {
		snprintf(names[p], sizeof names[p],
			 "module.transformer.encoder.layers.%d.self_attention.in_proj.weight", p);
		parameters[p] = (struct ls_ddp_parameter){.name = names[p],
							  .data = &value,
							  .shape = &one,
							  .dims = 1,
							  .dtype = LS_FLOAT32};
	}
	OK(ls_ddp_open(group, parameters, PARAMETERS, &apart, &f.ddp));
	runner_meet(self);
	if (!is_last(self))
		ready_down_to(&f, 0, LS_ABORTED);
	GIVES(LS_ABORTED, ls_ddp_finish(f.ddp));
	check_failure(&f, LS_ABORTED, self->size - 1,
		      "parameters '...coder.layers.8.self_attention.in_proj.weight', "
		      "'...coder.layers.7.self_attention.in_proj.weight', "
		      "'...coder.layers.6.self_attention.in_proj.weight' and 6 more were not ready "
		      "on rank ");
	ls_ddp_close(f.ddp);
	ls_group_close(group);
}

void ddp_find_unused(struct runner_rank *self)
{
	struct fixture f;
	struct ls_ddp_options options = apart;
	options.bucket_bytes = 5000;
	options.find_unused = 1;
	open_fixture(&f, self, &options);
	for (unsigned pass = 0; pass < 5; pass++) {
		OK(ls_ddp_zero_gradients(f.ddp));
		for (int p = PARAMETERS - 1; p >= 0; p--) {
			if (forgets(self, p))
				continue;
			model_add(&f.model, f.ddp, p, self->rank, pass, 1);
			OK(ls_ddp_ready(f.ddp, p));
		}
		OK(ls_ddp_finish(f.ddp));
		for (int p = 0; p < PARAMETERS; p++) {
			int givers = p == 3 || p == 8 ? self->size - 1 : self->size;
			double want = 0, got = model_gradient(&f.model, f.ddp, p, 2);
			for (int r = 0; r < givers; r++)
				want += model_value(p, 2, r, pass) / self->size;
			CHECK_THAT(fabs(got - want) < 1e-9, "%s: %g, not %g", f.model.names[p], got,
				   want);
		}
	}
	close_fixture(&f);
}

/* ---- ranks that go, or stay away ---- */

/* The last rank gives up in the middle of its step, after `ready` parameters. */
static void close_in_a_step(struct runner_rank *self, int ready,
			    const struct ls_ddp_options *options)
{
	struct fixture f;
	open_fixture(&f, self, options);
	ready_down_to(&f, is_last(self) ? PARAMETERS - ready : 0, LS_ABORTED);
	if (!is_last(self))
		GIVES(LS_ABORTED, ls_ddp_finish(f.ddp));
	ls_ddp_close(f.ddp);
	f.ddp = NULL;
	check_failure(&f, LS_ABORTED, self->size - 1,
		      "ls_ddp_close in the middle of a backward pass");
	close_fixture(&f);
}

void ddp_closed_in_a_step(struct runner_rank *self)
{
	close_in_a_step(self, 2, &apart);
}

/* No bucket of it has begun, but those of the others have. */
void ddp_closed_before_a_bucket(struct runner_rank *self)
{
	close_in_a_step(self, 1, NULL);
}

void ddp_ends_when_a_rank_dies(struct runner_rank *self)
{
	struct fixture f;
	open_fixture(&f, self, &apart);
	ready_down_to(&f, self->rank == 1 ? 5 : 0, LS_PEER_DIED);
	if (self->rank == 1)
		raise(SIGKILL);
	GIVES(LS_PEER_DIED, ls_ddp_finish(f.ddp));
	check_failure(&f, LS_PEER_DIED, 1, "was killed by SIGKILL");
	check_failure(&f, LS_PEER_DIED, 1, "ddp_failure_test.c:"); /* of ls_ddp_ready */
	close_fixture(&f);
}

/* The last rank computes for longer than a bucket may take. */
void ddp_late_rank(struct runner_rank *self)
{
	struct fixture f;
	struct ls_ddp_options options = apart;
	char want[64];
	options.timeout_ms = 300;
	open_fixture(&f, self, &options);
	if (!is_last(self)) {
		ready_down_to(&f, 0, LS_TIMED_OUT);
		GIVES(LS_TIMED_OUT, ls_ddp_finish(f.ddp));
	}
	runner_meet(self);
	if (is_last(self)) {
		GIVES(LS_TIMED_OUT, ls_ddp_ready(f.ddp, PARAMETERS - 1));
		GIVES(LS_TIMED_OUT, ls_ddp_finish(f.ddp));
	}
	snprintf(want, sizeof want, "rank %d is elsewhere", self->size - 1);
	check_failure(&f, LS_TIMED_OUT, self->size - 1, want);
	close_fixture(&f);
}

/* ---- accumulation that differs ---- */

/* The last rank holds back where the others average, and goes on to something else. */
void ddp_holds_back_alone(struct runner_rank *self)
{
	struct fixture f;
	open_fixture(&f, self, &apart);
	OK(ls_ddp_no_sync(f.ddp, is_last(self)));
	ready_down_to(&f, 0, LS_MISMATCH);
	ls_status status = ls_ddp_finish(f.ddp);
	CHECK(status == LS_MISMATCH || (is_last(self) && status == LS_OK));
	if (is_last(self))
		GIVES(LS_MISMATCH, ls_barrier(f.group, NULL));
	close_fixture(&f);
}

/* All average in every second pass, but the last rank in the other ones: calls fit, gradients do
 * not. */
void ddp_accumulates_out_of_step(struct runner_rank *self)
{
	struct fixture f;
	struct caught caught;
	char want[128];
	open_fixture(&f, self, NULL);
	for (int pass = 0; pass < (is_last(self) ? 1 : 2); pass++) {
		OK(ls_ddp_no_sync(f.ddp, pass == 0 && !is_last(self)));
		ready_down_to(&f, 0, LS_OK);
		caught_begin(&caught);
		ls_status status = ls_ddp_finish(f.ddp);
		caught_end(&caught);
		bool averaged = is_last(self) || pass == 1;
		CHECK_THAT(status == (averaged ? LS_INCONSISTENT : LS_OK), "%s",
			   ls_status_name(status));
	}
	snprintf(want, sizeof want,
		 "gradients of backward pass 2 of rank 0 were averaged with those of rank %d's pass 1",
		 self->size - 1);
	if (self->rank == 0)
		SAYS(caught.text, want);
	else
		CHECK_THAT(!caught.text[0], "%s", caught.text);
	/* It goes on; but the ls_ddp counts the passes of each rank. */
	ls_ddp_close(f.ddp);
	OK(ls_ddp_open(f.group, f.model.parameters, PARAMETERS, NULL, &f.ddp));
	ready_down_to(&f, 0, LS_OK);
	OK(ls_ddp_finish(f.ddp));
	close_fixture(&f);
}

/* Two models of the same size. The last rank takes a step of the second one first: calls fit,
 * gradients do not. */
void ddp_steps_in_another_order(struct runner_rank *self)
{
	struct fixture f;
	struct caught caught;
	char want[128];
	ls_ddp *other;
	open_fixture(&f, self, NULL);
	OK(ls_ddp_open(f.group, f.model.parameters, PARAMETERS, NULL, &other));
	for (int turn = 0; turn < 2; turn++) {
		ls_ddp *ddp = (turn == 0) == is_last(self) ? other : f.ddp;
		for (int p = PARAMETERS - 1; p >= 0; p--)
			OK(ls_ddp_ready(ddp, p));
		caught_begin(&caught);
		ls_status status = ls_ddp_finish(ddp);
		caught_end(&caught);
		CHECK_THAT(status == LS_INCONSISTENT, "%s", ls_status_name(status));
		snprintf(want, sizeof want,
			 "rank 0 averaged bucket 0 ('p8' to 'p0') with gradients of another ls_ddp on "
			 "rank %d",
			 self->size - 1);
		if (self->rank == 0)
			SAYS(caught.text, want);
		else
			CHECK_THAT(!caught.text[0], "%s", caught.text);
	}
	OK(ls_barrier(f.group, NULL)); /* it goes on */
	ls_ddp_close(other);
	close_fixture(&f);
}

static ls_status take_step(ls_ddp *ddp)
{
	for (int p = PARAMETERS - 1; p >= 0; p--)
		OK(ls_ddp_ready(ddp, p));
	return ls_ddp_finish(ddp);
}

/* The last rank does so in a pass that is not checked, and only there. The next check finds it.
 * After that the ranks begin anew. */
void ddp_once_in_another_order(struct runner_rank *self)
{
	enum { UNCHECKED = 3 };
	struct fixture f;
	struct caught caught;
	char want[128];
	ls_ddp *other;
	open_fixture(&f, self, NULL);
	OK(ls_ddp_open(f.group, f.model.parameters, PARAMETERS, NULL, &other));
	for (int pass = 0; pass <= UNCHECKED; pass++)
		for (int turn = 0; turn < 2; turn++) {
			bool swaps = pass == UNCHECKED && is_last(self);
			OK(take_step((turn == 0) == swaps ? other : f.ddp));
		}
	caught_begin(&caught);
	GIVES(LS_INCONSISTENT, take_step(f.ddp));
	caught_end(&caught);
	snprintf(want, sizeof want,
		 "ranks 0 and %d took earlier steps of the group's ls_ddp in a different order",
		 self->size - 1);
	if (self->rank == 0)
		SAYS(caught.text, want);
	else
		CHECK_THAT(!caught.text[0], "%s", caught.text);
	OK(take_step(other));
	ls_ddp_close(other);
	OK(ls_ddp_open(f.group, f.model.parameters, PARAMETERS, NULL, &other));
	OK(take_step(other));
	ls_ddp_close(other);
	close_fixture(&f);
}

/* ---- in a group whose ranks have other numbers than in the world ---- */

/* Ranks 2 and 1 of the world, in this order. What is said names them by these numbers. */
void ddp_names_world_ranks(struct runner_rank *self)
{
	struct fixture f;
	struct caught caught;
	ls_group *world = runner_open(self);
	struct ls_ddp_options sizes = apart;
	struct ls_ddp_join_options join = {.size = sizeof join, .mode = LS_JOIN_ERROR};
	bool first = self->rank == 2;
	ls_status status = ls_group_split(world, self->rank == 0 ? -1 : 0, -self->rank, &f.group);
	CHECK(status == (self->rank == 0 ? LS_NOT_MEMBER : LS_OK));
	if (!f.group) {
		runner_meet(self);
		ls_group_close(world);
		return;
	}
	model_init(&f.model, PARAMETERS, false, 3, self->rank);
	sizes.bucket_bytes += first;
	caught_begin(&caught);
	GIVES(LS_INCONSISTENT, ls_ddp_open(f.group, f.model.parameters, PARAMETERS, &sizes, &f.ddp));
	GIVES(LS_INCONSISTENT,
	      ls_ddp_open(f.group, f.model.parameters, PARAMETERS - first, &apart, &f.ddp));
	OK(ls_ddp_open(f.group, f.model.parameters, PARAMETERS, &apart, &f.ddp));
	OK(ls_ddp_join_begin(f.ddp, &join));
	GIVES(LS_UNEVEN, first ? ls_ddp_join_end(f.ddp, NULL) : ls_ddp_join_step(f.ddp));
	for (int turn = 0; turn < 1 + !first; turn++) {
		OK(ls_ddp_no_sync(f.ddp, !first && turn == 0));
		ready_down_to(&f, 0, LS_OK);
		GIVES(first || turn == 1 ? LS_INCONSISTENT : LS_OK, ls_ddp_finish(f.ddp));
	}
	caught_end(&caught);
	runner_meet(self); /* the next step fails the group */
	if (first) {
		SAYS(caught.text, "1 and 2 bytes on rank 2, 1 and 1 on rank 1");
		SAYS(caught.text, "parameter 8 is missing on rank 2, but 'p8' ");
		SAYS(caught.text, "] on rank 1 ");
		SAYS(caught.text, "rank 2 ended after 0 batches, while rank 1 has more");
		SAYS(caught.text, "pass 1 of rank 2 were averaged with those of rank 1's pass 2");
	}
	ready_down_to(&f, first ? 1 : 0, LS_ABORTED);
	GIVES(LS_ABORTED, ls_ddp_finish(f.ddp));
	check_failure(&f, LS_ABORTED, 0, "parameter 'p0' was not ready on rank 2 when");
	close_fixture(&f);
	ls_group_close(world);
}
