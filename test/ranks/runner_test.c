/* SPDX-License-Identifier: BSD-3-Clause
 * Tests of the runner: that it tells a pass from a failure, a crash and a hang. */
#include <signal.h>
#include <stdio.h>

#include "tests.h"

void runner_all_ranks_run(struct runner_rank *self)
{
	CHECK(self->rank >= 0 && self->rank < self->size);
	atomic_fetch_or(&self->shared->words[0], UINT64_C(1) << self->rank);
	runner_meet(self);
	CHECK(atomic_load(&self->shared->words[0]) == (UINT64_C(1) << self->size) - 1);
}

void runner_one_rank_fails(struct runner_rank *self)
{
	CHECK(self->rank != self->size - 1);
}

void runner_wrong_status(struct runner_rank *self)
{
	(void)self;
	OK(LS_TIMED_OUT);
}

void runner_one_rank_crashes(struct runner_rank *self)
{
	if (self->rank == self->size - 1)
		raise(SIGUSR1);
}

/* The others wait for a rank that is gone. */
void runner_one_rank_hangs(struct runner_rank *self)
{
	if (self->rank != self->size - 1)
		runner_meet(self);
}

/* It was to be killed. */
void runner_nobody_dies(struct runner_rank *self)
{
	(void)self;
}
