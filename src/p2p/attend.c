/* SPDX-License-Identifier: BSD-3-Clause
 * What the progress thread of a rank does. It makes progress on nonblocking collectives, in all
 * groups, and on sends and receives that would hold up a peer, as long as no calling thread waits
 * for them. It never waits for only one operation. If the first operation of a lane waits,
 * the thread leaves the lane to any thread that comes, and waits for all such lanes at once. With
 * nothing to wait for it sleeps until wait_wake_progress wakes it, so it costs nothing. */
#include "world/registry.h"
#include "progress/lane.h"
#include "progress/progress.h"
#include "p2p/p2p_private.h"

/* ---- the lanes that the thread attends ---- */

/* If this thread has handed over, the next progress thread may have been woken for the group
 * meanwhile, and found it attended. */
static void release_group(ls_group *group)
{
	atomic_store(&group->is_attended, false);
	if (!progress_thread_is_me(group->world) && progress_lane_length(group) > 0)
		progress_thread_wake(group);
	world_release(group);
}

static void take_requesting(struct world *world)
{
	struct world_attended *attended = &world->progress.attended;
	ls_group *group = atomic_exchange(&world->progress.requesting, NULL);
	while (group) {
		ls_group *next = group->next_requesting;
		/* Before the lane is checked: a thread that queues a collective afterwards wakes
		 * this one again. */
		atomic_store(&group->requests_progress, false);
		if (atomic_exchange(&group->is_attended, true))
			world_release(group);
		else
			attended->groups[attended->count++] = group;
		group = next;
	}
}

/* Keeps the groups whose first operation waits. This thread may hand over while it makes progress
 * on a lane: the group is not in the list meanwhile, and the groups behind it have been checked. */
static void attend_lanes(struct world *world)
{
	struct world_attended *attended = &world->progress.attended;
	for (int i = attended->count - 1; i >= 0 && progress_thread_is_me(world); i--) {
		ls_group *group = attended->groups[i];
		if (progress_lane_waits(group))
			continue;
		attended->groups[i] = attended->groups[--attended->count];
		if (progress_lane_attend(group) && progress_thread_is_me(world))
			attended->groups[attended->count++] = group;
		else
			release_group(group);
	}
}

static void wait_for_all(struct world *world, uint32_t seen, uint64_t until_ns)
{
	const struct world_attended *attended = &world->progress.attended;
	struct wait_item *items[TRANSPORT_AREAS];
	struct wait_set set = {.items = items,
			       .count = attended->count,
			       .bell = world_bell(world),
			       .seen = seen,
			       .until_ns = until_ns,
			       .yield = world->waiter.yield};
	for (int i = 0; i < attended->count; i++)
		items[i] = &attended->groups[i]->lane.unattended;
	if (attended->count > 0)
		set.spin_ns = items[0]->waiter->spin_ns;
	wait_for_set(&set);
}

void p2p_thread_run(struct world *world)
{
	const struct world_attended *attended = &world->progress.attended;
	uint64_t until_ns = 0;
	uint32_t last = 0;
	/* The groups of the thread that has handed over. */
	for (int i = 0; i < attended->count; i++)
		progress_lane_adopt(attended->groups[i]);
	for (;;) {
		/* Read before `stop`, which is set before `requests` changes. */
		uint32_t seen = atomic_load(&world_bell(world)->requests);
		if (atomic_load(&world->progress.stop))
			return;
		progress_thread_begin(world);
		take_requesting(world);
		attend_lanes(world);
		bool looks = seen != last || clock_now_ns() >= until_ns;
		if (progress_thread_is_me(world) && looks)
			p2p_attend(world);
		if (!progress_thread_is_me(world))
			return;
		/* Only a thread that then sleeps until that time may store it. */
		if (looks)
			until_ns = p2p_sleep_until(&world->p2p);
		last = seen;
		if (progress_thread_end(world))
			wait_for_all(world, seen, until_ns);
	}
}
