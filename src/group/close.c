/* SPDX-License-Identifier: BSD-3-Clause
 * Closing a group, and with the world group all that the rank has. */
#include <stdlib.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fork.h"
#include "failure/failure.h"
#include "heartbeat/heartbeat.h"
#include "p2p/p2p.h"
#include "progress/progress.h"
#include "progress/warn.h"
#include "world/registry.h"
#include "group/group_private.h"
#include "group/open_hosts.h"
#include "group/arguments.h"
#include "group/group.h"

void group_close_world(struct world *world, uint32_t timeout_ms)
{
	world_leave(world);
	heartbeat_stop(world);
	failure_watch_stop(world);
	progress_thread_stop(world);
	p2p_fini(world);
	group_races_close(world);
	group_device_close(world, timeout_ms);
	world->transport.keeps_segment = world->device != NULL; /* it may ring the doorbell there */
	group_hosts_close(world);
	/* Until here the thread that makes progress on the link ran: other hosts may have asked for
	 * a look, and its waits write to the descriptor of the watch. */
	failure_watch_fini(&world->watch);
	wait_close(&world->waiter);
	group_free_all(world);
	for (int q = 0; q < world->size; q++)
		trace_unmap(&world->views[q]);
	transport_fini(&world->transport);
	if (world->keeps_memory)
		memory_keep(&world->memory);
	else
		memory_fini(&world->memory);
	trace_fini(&world->trace);
	/* A child has closed what is marked when it was forked. */
	bool holds = world->control_mark < 0 || fork_is_in(world->fork_generation);
	if (holds && world->control_mark >= 0)
		fork_forget(world->control_mark);
	if (holds && world->control_fd >= 0)
		close(world->control_fd);
	lock_rank_fini(&world->lock);
	if (!world->device)
		free(world);
}

/* Whether the slot shows a call of another thread of the program that waits. What the progress
 * thread waits for has slots of its own. */
static bool shows_call(const struct world *world, int slot, struct wait_slot_body *wait)
{
	const struct wait_table *wait_table = world->trace.wait_table;
	uint32_t epoch;
	return atomic_load(&wait_table->slots[slot].taken) == WAIT_TAKEN_BY_THREAD &&
	       trace_read_slot(&world->views[world->rank], slot, wait, &epoch) &&
	       (wait->state == WAIT_WORDS || wait->state == WAIT_ANY_WORD) &&
	       wait->tid != trace_thread_id() && wait->tid != atomic_load(&wait_table->progress_tid);
}

/* Refuses the close because of this wait in the group; NULL: the group is not open any more. */
static bool refuse_for(const ls_group *group, const struct wait_slot_body *wait)
{
	char text[PROGRESS_DESCRIBED_BYTES], state[PROGRESS_DESCRIBED_BYTES + 64];
	if (!group)
		return false;
	progress_describe_record(group, wait->record, text, sizeof text);
	snprintf(state, sizeof state, "in use: thread %u waits in %s", wait->tid, text);
	(void)group_bad_state("ls_group_close", "group", state,
			      "without calls: ls_group_abort ends them");
	return true;
}

/* Refuses the close while another thread waits in a call on the group, or with the world group on
 * any, as far as the wait table shows it: that thread would go on with memory that is gone. */
static bool other_thread_waits(const ls_group *group, bool all)
{
	struct world *world = group->world;
	/* With LOCKSTEP_P2P=serial a thread may be shown with a message of another group that its
	 * own comes after. */
	if (!world->views[world->rank].header || (!all && world->settings.p2p == SETTING_P2P_SERIAL))
		return false;
	bool refused = false;
	for (int i = 0; i < WAIT_SLOT_MAX && !refused; i++) {
		struct wait_slot_body wait;
		if (!shows_call(world, i, &wait) || (!all && wait.group != group->id))
			continue;
		struct ls_group *in = world_hold(world, wait.group);
		refused = refuse_for(in, &wait);
		if (in)
			world_release(in);
	}
	return refused;
}

/* Ends the claims of the other open groups, from the newest to the one before `end`. */
static void unclaim_others(const ls_group *group, const struct ls_group *end) LOCK_REQUIRES(rank)
{
	for (struct ls_group *one = group->world->open; one != end; one = one->next)
		if (one != group)
			atomic_store(&one->is_closing, false);
}

/* Makes this thread the one that closes the group, and with the world group all that are open.
 * False: another thread is closing one of them. The first access is to the group: if that thread
 * closes the world group, the world may be gone. */
static bool claim(ls_group *group, bool all)
{
	if (atomic_exchange(&group->is_closing, true))
		return false;
	struct world *world = group->world;
	if (!all) {
		atomic_fetch_add(&world->closers, 1);
		return true;
	}
	lock_rank_acquire(&world->lock);
	struct ls_group *one = world->open;
	while (one && (one == group || !atomic_exchange(&one->is_closing, true)))
		one = one->next;
	/* A group that another thread closes is not open any more before that thread is done. */
	bool claimed = !one && atomic_load(&world->closers) == 0;
	if (!claimed)
		unclaim_others(group, one);
	lock_rank_release(&world->lock);
	if (!claimed)
		atomic_store(&group->is_closing, false);
	return claimed;
}

static void unclaim(ls_group *group, bool all)
{
	struct world *world = group->world;
	if (all) {
		lock_rank_acquire(&world->lock);
		unclaim_others(group, NULL);
		lock_rank_release(&world->lock);
	}
	atomic_store(&group->is_closing, false);
	if (!all)
		atomic_fetch_sub(&world->closers, 1);
}

void ls_group_close(ls_group *group)
{
	if (!group)
		return;
	if (!world_is_usable(group)) {
		/* a child has no arena and no watch, and nothing to release */
		if (group_is_closed(group))
			group_not_open("ls_group_close", group);
		return;
	}
	bool all = group->id == WORLD_GROUP_ID;
	if (group_check_may_wait("ls_group_close") != LS_OK)
		return;
	if (!claim(group, all)) {
		group_bad("ls_group_close", "group", (long long)(uintptr_t)group,
			  "an open group: another thread is closing this one");
		return;
	}
	if (other_thread_waits(group, all) || (all && group_device_refuses_close(group->world))) {
		unclaim(group, all);
		return;
	}
	group_launch_close(group);
	struct world *world = group->world;
	uint32_t timeout_ms = group->timeout_ms;
	if (all) {
		failure_warn_open(world);
		group_leave_all(world);
		/* calls have returned the failure, so the job continues */
	} else if (failure_status(group) != LS_OK && !failure_is_unreturned(group)) {
		trace_report(&world->trace, group->id, LS_OK, -1, 0, "");
	}
	group_leave(group);
	if (!all) {
		atomic_fetch_sub(&world->closers, 1);
		return;
	}
	failure_ends_await(world);
	group_close_world(world, timeout_ms);
}
