/* SPDX-License-Identifier: BSD-3-Clause
 * Short blocking collectives like the last one of their kind: how many instructions each takes, and
 * how many of them are locked. In a group of one rank, which never waits: the lane, the entry, the
 * record and the result are all there. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "cost.h"
#include "count.h"

enum { BARRIERS, BROADCASTS, REDUCTIONS, LABELLED_REDUCTIONS, GATHERS, WHATS, EACH = 8, WARM = 40 };

static const char *const names[WHATS] = {
	"ls_barrier",       "ls_broadcast 8 B", "ls_allreduce 8 B", "ls_allreduce 8 B, label",
	"ls_allgather 8 B",
};
static const struct cost_limit limits[WHATS] = {
	{COST_LIMITS(690, 710), 3},   {COST_LIMITS(785, 810), 3}, {COST_LIMITS(1115, 1145), 3},
	{COST_LIMITS(1310, 1365), 3}, {COST_LIMITS(890, 905), 3},
};
static const struct cost_limit limits_without_membarrier[WHATS] = {
	{COST_LIMITS(690, 710), 5},   {COST_LIMITS(785, 810), 5}, {COST_LIMITS(1115, 1145), 5},
	{COST_LIMITS(1310, 1365), 5}, {COST_LIMITS(890, 905), 5},
};

static void call(ls_group *group, int what)
{
	static double from = 1, to;
	const struct ls_call_options labelled = {.size = sizeof labelled, .label = "train.py:42"};
	switch (what) {
	case BARRIERS:
		cost_must(ls_barrier(group, NULL));
		break;
	case BROADCASTS:
		cost_must(ls_broadcast(group, &from, &to, 1, LS_FLOAT64, 0, NULL));
		break;
	case GATHERS:
		cost_must(ls_allgather(group, &from, &to, 1, LS_FLOAT64, NULL));
		break;
	default:
		cost_must(ls_allreduce(group, &from, &to, 1, LS_FLOAT64, LS_SUM,
				       what == LABELLED_REDUCTIONS ? &labelled : NULL));
		break;
	}
}

int main(void)
{
	struct count counts[WHATS * EACH];
	char rendezvous[64];
	ls_group *group;
	snprintf(rendezvous, sizeof rendezvous, "unix:lockstep-cost-%d", (int)getpid());
	struct ls_group_options options = {
		.size = sizeof options, .rank = 0, .world_size = 1, .rendezvous = rendezvous};
	if (!count_init())
		return 1;
	cost_must(ls_group_open(&options, &group));
	for (int what = 0; what < WHATS; what++) {
		for (int i = 0; i < WARM; i++)
			call(group, what);
		for (int i = 0; i < EACH; i++) {
			count_begin();
			call(group, what);
			counts[what * EACH + i] = count_end();
		}
	}
	ls_group_close(group);
	return cost_judge(names, cost_has_membarrier() ? limits : limits_without_membarrier, counts,
			  WHATS, EACH);
}
