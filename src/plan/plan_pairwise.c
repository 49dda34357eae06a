/* SPDX-License-Identifier: BSD-3-Clause
 * Messages between each pair of ranks, or between the root and each rank, with a part in each. In
 * round i a rank receives from the i-th rank behind it and sends to the i-th rank before it: each
 * rank has one message to send and one to receive, and no two ranks send to the same rank. */
#include "plan/plan_build.h"

static int rank_behind(const struct plan *plan, int distance)
{
	return (plan->rank + distance) % plan->size;
}

static int rank_before(const struct plan *plan, int distance)
{
	return (plan->rank + plan->size - distance) % plan->size;
}

void plan_pairwise_gather(const struct plan_params *params, struct plan *plan)
{
	if (params->rank != params->root) {
		plan_add_send(plan, params->root, PLAN_INPUT, params->rank, 1);
		return;
	}
	plan_add_local_copy(plan, params); /* while the others send */
	for (int distance = 1; distance < params->size; distance++)
		plan_add_recv(plan, rank_behind(plan, distance), PLAN_OUTPUT,
			      rank_behind(plan, distance), 1);
}

void plan_pairwise_scatter(const struct plan_params *params, struct plan *plan)
{
	if (params->rank != params->root) {
		plan_add_recv(plan, params->root, PLAN_OUTPUT, params->rank, 1);
		return;
	}
	for (int distance = 1; distance < params->size; distance++)
		plan_add_send(plan, rank_behind(plan, distance), PLAN_INPUT,
			      rank_behind(plan, distance), 1);
	plan_add_local_copy(plan, params); /* while the others take theirs */
}

/* Combines parts in the order of the ranks: mine, that of the rank behind me, and so on round the
 * circle. In place this writes only to the one part of INPUT that is not sent. */
void plan_pairwise_reduce_scatter(const struct plan_params *params, struct plan *plan)
{
	int rank = params->rank;
	plan->needs_scratch = true;
	plan_add_local_copy(plan, params);
	for (int distance = 1; distance < params->size; distance++) {
		int to = rank_before(plan, distance);
		plan_add_send(plan, to, PLAN_INPUT, to, 1);
		plan_add_recv(plan, rank_behind(plan, distance), PLAN_SCRATCH, rank, 1);
		plan_add_combine(plan, rank, 0);
	}
	plan_add_scale(plan, rank);
}

void plan_pairwise_alltoall(const struct plan_params *params, struct plan *plan)
{
	for (int distance = 1; distance < params->size; distance++) {
		int to = rank_before(plan, distance), from = rank_behind(plan, distance);
		plan_add_send(plan, to, PLAN_INPUT, to, 1);
		plan_add_recv(plan, from, PLAN_OUTPUT, from, 1);
	}
	plan_add_local_copy(plan, params); /* while the others take theirs */
}
