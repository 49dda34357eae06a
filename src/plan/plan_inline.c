/* SPDX-License-Identifier: BSD-3-Clause
 * Small payloads travel in the entries (24 bytes) or in pages beside them (16 KiB): a rank that
 * needs one reads it there. There is no second synchronisation, as a rank writes its entry again
 * only when all ranks have left the collective. */
#include "plan/plan_build.h"

static void add_reduction(struct plan *plan, int block)
{
	plan_add_await(plan, PLAN_ALL, 0);
	PLAN_ADD(plan, .kind = PLAN_STEP_REDUCE, .flags = PLAN_TO_SELF, .peer = PLAN_ALL,
		 .from = PLAN_INPUT, .to = PLAN_OUTPUT, .block = (uint16_t)block, .blocks = 1);
}

void plan_inline_allreduce(const struct plan_params *params, struct plan *plan)
{
	(void)params;
	add_reduction(plan, 0);
}

void plan_inline_reduce(const struct plan_params *params, struct plan *plan)
{
	if (params->rank == params->root)
		add_reduction(plan, 0);
}

void plan_inline_reduce_scatter(const struct plan_params *params, struct plan *plan)
{
	add_reduction(plan, params->rank);
}

/* Takes what the root has for me: the only block, or my part. */
static void add_from_root(struct plan *plan, const struct plan_params *params, int block)
{
	if (params->rank == params->root) {
		plan_add_local_copy(plan, params);
		return;
	}
	plan_add_await(plan, params->root, 0);
	plan_add_copy(plan, params->root, block, 0);
}

void plan_inline_broadcast(const struct plan_params *params, struct plan *plan)
{
	add_from_root(plan, params, 0);
}

void plan_inline_scatter(const struct plan_params *params, struct plan *plan)
{
	add_from_root(plan, params, params->rank);
}

/* Takes what all ranks have for me. My own part comes first, while the others enter. */
static void add_from_all(struct plan *plan, const struct plan_params *params, int flags)
{
	plan_add_local_copy(plan, params);
	plan_add_await(plan, PLAN_ALL, 0);
	plan_add_copies(plan, flags);
}

void plan_inline_allgather(const struct plan_params *params, struct plan *plan)
{
	add_from_all(plan, params, 0);
}

void plan_inline_gather(const struct plan_params *params, struct plan *plan)
{
	if (params->rank == params->root)
		add_from_all(plan, params, 0);
}

void plan_inline_alltoall(const struct plan_params *params, struct plan *plan)
{
	add_from_all(plan, params, PLAN_TRANSPOSE);
}
