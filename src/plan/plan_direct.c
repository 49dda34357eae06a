/* SPDX-License-Identifier: BSD-3-Clause
 * Ranks read large payloads from, and write them to, the peers' own buffers. Entering says "my
 * buffers are ready", phase 1 says "I no longer touch anybody's"; a rank leaves when all ranks that
 * touch its buffers have said that. */
#include "plan/plan_build.h"

/* Rank i alone reads and writes block i, in all ranks' buffers; so in place needs nothing
 * special. */
static void add_reduction(struct plan *plan, int flags, int target)
{
	plan->phase_end = 1;
	plan->reach[PLAN_INPUT] = PLAN_REACH_READ;
	plan_add_await(plan, PLAN_ALL, 0);
	PLAN_ADD(plan, .kind = PLAN_STEP_REDUCE, .flags = (uint8_t)flags, .peer = (int16_t)target,
		 .from = PLAN_INPUT, .to = PLAN_OUTPUT, .block = plan->rank, .blocks = 1);
	plan_add_signal(plan, 1);
	plan_add_await(plan, PLAN_ALL, 1);
}

void plan_direct_allreduce(const struct plan_params *params, struct plan *plan)
{
	(void)params;
	plan->blocks = plan->size;
	plan->reach[PLAN_OUTPUT] = PLAN_REACH_MAPPED;
	add_reduction(plan, 0, PLAN_ALL);
}

void plan_direct_reduce(const struct plan_params *params, struct plan *plan)
{
	bool root = params->rank == params->root;
	plan->blocks = plan->size;
	plan->reach[PLAN_OUTPUT] = root ? PLAN_REACH_MAPPED : PLAN_REACH_PRIVATE;
	add_reduction(plan, root ? PLAN_TO_SELF : PLAN_TO_PEER, root ? PLAN_ALL : params->root);
}

void plan_direct_reduce_scatter(const struct plan_params *params, struct plan *plan)
{
	(void)params;
	add_reduction(plan, PLAN_TO_SELF, PLAN_ALL);
}

/* Everybody reads the root's buffer; nobody but the root has to wait for another. */
static void add_from_root(struct plan *plan, const struct plan_params *params, int block)
{
	plan->phase_end = 1;
	if (params->rank == params->root) {
		plan->reach[PLAN_INPUT] = PLAN_REACH_READ;
		plan_add_local_copy(plan, params);
		plan_add_await(plan, PLAN_ALL, 1);
		return;
	}
	plan_add_await(plan, params->root, 0);
	plan_add_copy(plan, params->root, block, 0);
	plan_add_signal(plan, 1);
}

void plan_direct_broadcast(const struct plan_params *params, struct plan *plan)
{
	add_from_root(plan, params, 0);
}

void plan_direct_scatter(const struct plan_params *params, struct plan *plan)
{
	add_from_root(plan, params, params->rank);
}

/* My own part comes first, while the others enter. */
static void add_from_all(struct plan *plan, const struct plan_params *params, int flags)
{
	plan->phase_end = 1;
	plan_add_local_copy(plan, params);
	plan_add_await(plan, PLAN_ALL, 0);
	plan_add_copies(plan, flags);
	plan_add_signal(plan, 1);
}

/* The root reads from all ranks, which only wait until the root has. */
void plan_direct_gather(const struct plan_params *params, struct plan *plan)
{
	if (params->rank == params->root) {
		add_from_all(plan, params, 0);
		return;
	}
	plan->phase_end = 1;
	plan->reach[PLAN_INPUT] = PLAN_REACH_READ;
	plan_add_await(plan, params->root, 1);
}

void plan_direct_allgather(const struct plan_params *params, struct plan *plan)
{
	plan->reach[PLAN_INPUT] = PLAN_REACH_READ;
	add_from_all(plan, params, 0);
	plan_add_await(plan, PLAN_ALL, 1);
}

void plan_direct_alltoall(const struct plan_params *params, struct plan *plan)
{
	plan->reach[PLAN_INPUT] = PLAN_REACH_READ;
	add_from_all(plan, params, PLAN_TRANSPOSE);
	plan_add_await(plan, PLAN_ALL, 1);
}

/* A barrier only has to know that all ranks have entered. */
void plan_direct_barrier(const struct plan_params *params, struct plan *plan)
{
	(void)params;
	plan_add_await(plan, PLAN_ALL, 0);
}
