/* SPDX-License-Identifier: BSD-3-Clause
 * All-reduce, barrier and all-gather in two levels, by messages alone: for payloads so short that
 * the number of messages decides. The first rank of each host is its leader. On each host a
 * binomial tree goes up to the leader. The leaders combine, or gather, by recursive doubling. The
 * trees go down again. So one message each way goes between two hosts in a round, where PLAN_RAILS
 * sends one for each rank of a host. */
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

/* The parts of the ranks of `count` hosts, from `first` on round the circle: ranges of neighbours,
 * in the order of the ranks. */
struct parts {
	const struct plan_params *params;
	int first, count;
	int at; /* the ranks before are done */
};

static bool has_part(const struct parts *parts, int rank)
{
	const struct plan_topology *topology = parts->params->topology;
	int behind = topology->hosts[rank] - parts->first;
	return (behind + topology->host_count) % topology->host_count < parts->count;
}

/* False: there are no more. */
static bool next_parts(struct parts *parts, int *block, int *blocks)
{
	int size = parts->params->size;
	while (parts->at < size && !has_part(parts, parts->at))
		parts->at++;
	*block = parts->at;
	while (parts->at < size && has_part(parts, parts->at))
		parts->at++;
	*blocks = parts->at - *block;
	return *blocks > 0;
}

/* Messages that are sent and messages that are received take turns, because a channel is promised
 * to hold one. */
static void add_exchange(struct plan *plan, int to, struct parts *sent, int from,
			 struct parts *received)
{
	int block, blocks;
	bool sends, receives;
	do {
		sends = next_parts(sent, &block, &blocks);
		if (sends)
			plan_add_send(plan, to, PLAN_OUTPUT, block, blocks);
		receives = next_parts(received, &block, &blocks);
		if (receives)
			plan_add_recv(plan, from, PLAN_OUTPUT, block, blocks);
	} while (sends || receives);
}

/* After the round with distance d a leader has the parts of 2 d hosts. If the number of hosts is a
 * power of two, these are an aligned block of them (recursive doubling), and so one range where
 * the ranks of a host are neighbours; else the hosts from its own on, round the circle (Bruck). */
static void add_leaders_gather(const struct plan_params *params, const struct leaders *leaders,
			       struct plan *plan)
{
	int mine = leaders->mine, count = leaders->count;
	bool doubles = (count & (count - 1)) == 0;
	for (int distance = 1; distance < count; distance *= 2) {
		int hosts = distance < count - distance ? distance : count - distance;
		int to = doubles ? mine ^ distance : (mine + count - distance) % count;
		int from = doubles ? to : (mine + distance) % count;
		int align = doubles ? -distance : -1;
		struct parts sent = {.params = params, .first = mine & align, .count = hosts};
		struct parts received = {.params = params, .first = from & align, .count = hosts};
		add_exchange(plan, leaders->of[to], &sent, leaders->of[from], &received);
	}
}

/* My part leaves from OUTPUT too, so that only one buffer has to be where peers reach it. */
void plan_leaders_allgather(const struct plan_params *params, struct plan *plan)
{
	struct leaders leaders;
	find_leaders(params, &leaders);
	plan_add_local_copy(plan, params);
	plan_add_gathering(&leaders.here, plan);
	if (leaders.here.place == 0)
		add_leaders_gather(params, &leaders, plan);
	plan_add_descent(&leaders.here, PLAN_OUTPUT, plan);
}
