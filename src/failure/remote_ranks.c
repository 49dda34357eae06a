/* SPDX-License-Identifier: BSD-3-Clause
 * Failures of ranks on other hosts, as their connections show them: the end of a rank, and the
 * cause of a group that has failed there. */
#include "failure/failure_private.h"

/* The connection of a rank is broken: its process has ended; or has closed the world group, and has
 * said so before. Or one of the two ranks has cut the other off, after a failure: then neither can
 * do anything for the other any more. Behind a link that is proved to be broken, the rank may have
 * ended because of that: then the thread of the heartbeats decides (heartbeat/silence.c). */
static void note_lost(void *context, int rank)
{
	struct world *world = context;
	if (!atomic_load(&world->behind_broken_link[rank]))
		failure_mark_dead(world, rank);
}

static void note_failed(void *context, const struct hosts_failure *told)
{
	failure_raise_told(context, told);
}

struct hosts_events failure_hosts_events(struct world *world)
{
	struct hosts_events events = {.context = world, .lost = note_lost, .failed = note_failed};
	failure_remote_events(&events);
	failure_ends_events(&events);
	return events;
}
