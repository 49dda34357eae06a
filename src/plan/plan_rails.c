/* SPDX-License-Identifier: BSD-3-Clause
 * All-reduce in two levels. The ranks of a host have local ranks 0, 1, …; there are as many slices
 * as the smallest host has ranks, and further ranks of a host own no slice. Entering says "my INPUT
 * is ready", phase 1 "I no longer read yours, and my slice of OUTPUT is ready", phase 2 "I no
 * longer read that either". Between hosts ranks of equal local rank, a rail, exchange their slice.
 * */
#include "plan/plan_build.h"

struct rails {
	int mine;                   /* my host */
	int local_rank;             /* mine on it */
	int width;                  /* rails, and slices */
	int here;                   /* ranks of my host */
	uint16_t on[RANKS_JOB_MAX]; /* my rail: the rank of each host */
};

static void find_rails(const struct plan_params *params, struct rails *out)
{
	const struct plan_topology *topology = params->topology;
	uint16_t seen[RANKS_JOB_MAX] = {0};
	out->mine = topology->hosts[params->rank];
	out->local_rank = 0;
	for (int q = 0; q < params->rank; q++)
		out->local_rank += topology->hosts[q] == out->mine;
	for (int q = 0; q < params->size; q++) {
		int host = topology->hosts[q];
		if (seen[host] == out->local_rank)
			out->on[host] = (uint16_t)q;
		seen[host]++;
	}
	out->here = out->width = seen[out->mine];
	for (int host = 0; host < topology->host_count; host++)
		out->width = seen[host] < out->width ? seen[host] : out->width;
}

/* Reduces my slice: first over the ranks of my host, then over the hosts. */
static void add_slice(const struct plan_params *params, const struct rails *rails, struct plan *plan)
{
	if (rails->here == 1)
		plan_add_local_copy(plan, params);
	if (rails->here > 1) {
		plan_add_await(plan, PLAN_ALL, 0);
		PLAN_ADD(plan, .kind = PLAN_STEP_REDUCE, .flags = PLAN_TO_SELF | PLAN_PARTIAL,
			 .peer = PLAN_ALL, .from = PLAN_INPUT, .to = PLAN_OUTPUT,
			 .block = (uint16_t)rails->local_rank, .blocks = 1);
	}
	plan_add_doubling(plan, rails->mine, plan->hosts, rails->on, rails->local_rank);
	if (rails->here > 1)
		plan_add_signal(plan, 1);
}

/* Copies the slices of the others, beginning with the rank behind me, so that not all ranks read
 * from the same owner at a time. */
static void add_copies(const struct plan_params *params, const struct rails *rails,
		       struct plan *plan)
{
	uint16_t owners[RANKS_HOST_MAX];
	for (int q = 0, slice = 0; slice < rails->width; q++)
		if (params->topology->hosts[q] == rails->mine)
			owners[slice++] = (uint16_t)q;
	for (int i = 1; i <= rails->width; i++) {
		int slice = (rails->local_rank + i) % rails->width;
		if (owners[slice] == plan->rank)
			continue;
		plan_add_await(plan, owners[slice], 1);
		PLAN_ADD(plan, .kind = PLAN_STEP_COPY, .peer = (int16_t)owners[slice],
			 .from = PLAN_OUTPUT, .to = PLAN_OUTPUT, .block = (uint16_t)slice,
			 .blocks = 1);
	}
}

/* Only the owner of a slice has to wait until the others have copied the slice. */
void plan_rails_allreduce(const struct plan_params *params, struct plan *plan)
{
	struct rails rails;
	find_rails(params, &rails);
	bool owns = rails.local_rank < rails.width;
	bool copies = rails.width > 1 || !owns;
	plan->blocks = (uint16_t)rails.width;
	plan->own = (uint16_t)(owns ? rails.local_rank : rails.width);
	plan->phase_end = 2;
	if (copies)
		plan->reach[PLAN_INPUT] = PLAN_REACH_READ;
	if (owns)
		add_slice(params, &rails, plan);
	if (copies) {
		add_copies(params, &rails, plan);
		plan_add_signal(plan, 2);
	}
	if (owns && rails.here > 1)
		plan_add_await(plan, PLAN_ALL, 2);
}
