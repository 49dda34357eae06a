/* SPDX-License-Identifier: BSD-3-Clause
 * Failures of ranks on other hosts, as far as their connections tell: a rank's end, and the cause
 * of a group that has failed there. */
#include "world/registry.h"
#include "failure.h"

/* Its connection is broken: its process has ended, or has closed the group of all ranks; then it
 * has said so before. */
static void note_lost(void *context, int rank)
{
	failure_mark_dead(context, rank);
}

static void note_failed(void *context, const struct transport_failure *told)
{
	struct ls_group *group = world_hold(context, told->group);
	if (!group)
		return;
	failure_raise_told(group, told);
	/* Also for threads that are in no call of the group now. */
	transport_withdraw(&group->team);
	world_release(group);
}

struct transport_hosts_events failure_hosts_events(struct world *world)
{
	struct transport_hosts_events events = {
		.context = world, .lost = note_lost, .failed = note_failed};
	failure_far_events(&events);
	return events;
}
