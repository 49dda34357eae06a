/* SPDX-License-Identifier: BSD-3-Clause
 * All-reduce and barrier in two levels, by messages alone: for payloads so short that the number of
 * messages decides. The first rank of each host is its leader. On each host a binomial tree goes up
 * to the leader. The leaders combine by recursive doubling. The trees go down again. So one message
 * each way goes between two hosts in a round, where PLAN_RAILS sends one for each rank of a
 * host. */
#include "plan/plan_build.h"

struct leaders {
	int mine, count;            /* my host, and how many there are */
	uint16_t of[RANKS_JOB_MAX]; /* the leader of each host */
	struct plan_tree here;      /* the ranks of my host */
};

static void find_leaders(const struct plan_params *params, struct leaders *out)
{
	const struct plan_topology *topology = params->topology;
	bool has_leader[RANKS_JOB_MAX] = {false};
	out->mine = topology->hosts[params->rank];
	out->count = topology->host_count;
	out->here.size = 0;
	for (int q = 0; q < params->size; q++) {
		int host = topology->hosts[q];
		if (!has_leader[host])
			out->of[host] = (uint16_t)q;
		has_leader[host] = true;
		if (host != out->mine)
			continue;
		if (q == params->rank)
			out->here.place = out->here.size;
		out->here.ranks[out->here.size++] = (uint16_t)q;
	}
}

void plan_leaders_allreduce(const struct plan_params *params, struct plan *plan)
{
	struct leaders leaders;
	find_leaders(params, &leaders);
	if (leaders.here.size == 1)
		plan_add_local_copy(plan, params);
	plan_add_reduction(params, &leaders.here, plan);
	if (leaders.here.place == 0)
		plan_add_doubling(plan, leaders.mine, leaders.count, leaders.of, 0);
	plan_add_descent(&leaders.here, PLAN_OUTPUT, plan);
}

void plan_leaders_barrier(const struct plan_params *params, struct plan *plan)
{
	struct leaders leaders;
	find_leaders(params, &leaders);
	plan_add_arrival(&leaders.here, plan);
	if (leaders.here.place == 0)
		plan_add_dissemination(plan, leaders.mine, leaders.count, leaders.of);
	plan_add_release(&leaders.here, plan);
}
