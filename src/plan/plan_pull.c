/* SPDX-License-Identifier: BSD-3-Clause
 * All-reduce where peers can read each other's buffers, but not write them. Entering says "my INPUT
 * is ready", phase 1 "I no longer read yours, and my block of OUTPUT is ready", phase 2 "I no
 * longer read that either". */
#include "plan/plan_build.h"

/* In place the block that I copy from a peer's OUTPUT goes to where that peer, and nobody else,
 * read from my INPUT; that peer has signalled that it no longer reads there. */
void plan_pull_allreduce(const struct plan_params *params, struct plan *plan)
{
	int rank = params->rank, size = params->size;
	plan->blocks = plan->size;
	plan->phase_end = 2;
	plan->reach[PLAN_INPUT] = plan->reach[PLAN_OUTPUT] = PLAN_REACH_READ;
	plan_add_await(plan, PLAN_ALL, 0);
	PLAN_ADD(plan, .kind = PLAN_STEP_REDUCE, .flags = PLAN_TO_SELF, .peer = PLAN_ALL,
		 .from = PLAN_INPUT, .to = PLAN_OUTPUT, .block = plan->rank, .blocks = 1);
	plan_add_signal(plan, 1);
	for (int distance = 1; distance < size; distance++) {
		int peer = (rank + distance) % size; /* not all from one peer at a time */
		plan_add_await(plan, peer, 1);
		PLAN_ADD(plan, .kind = PLAN_STEP_COPY, .peer = (int16_t)peer, .from = PLAN_OUTPUT,
			 .to = PLAN_OUTPUT, .block = (uint16_t)peer, .blocks = 1);
	}
	plan_add_signal(plan, 2);
	plan_add_await(plan, PLAN_ALL, 2);
}
