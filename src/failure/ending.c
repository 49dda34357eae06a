/* SPDX-License-Identifier: BSD-3-Clause
 * Checks that are made when a group is closed, because no later call could make them: whether the
 * last collectives were the same on all members (engine/end.c), and which groups the program forgot
 * to close. */
#include <stdio.h>

#include "base/messages.h"
#include "world/registry.h"
#include "failure/failure_private.h"

/* ---- collectives ---- */

/* Notes that this rank knows of the failure. False: it has known of it before. */
static bool note_failure(struct ls_group *group)
{
	if (atomic_load(&group->has_failed))
		return false;
	failure_await_together(group); /* first: no thread of this rank returns before */
	if (atomic_exchange(&group->has_failed, true))
		return false;
	atomic_fetch_add(&group->world->failures, 1);
	if (group->world->link) {
		hosts_withdraw(&group->team);
		transport_notify_all(&group->team); /* tells other hosts */
	}
	return true;
}

void failure_note(struct ls_group *group)
{
	if (note_failure(group))
		failure_note_returned(group);
}

/* Whether the collectives of this rank in the group can be compared. False once another group that
 * was open at the same time has failed: a rank may have given up in the middle because of that
 * failure. */
static bool ends_well(struct ls_group *group)
{
	if (failure_status(group) != LS_OK)
		(void)note_failure(group);
	return atomic_load(&group->world->failures) == group->failures_before;
}

/* Both ranks may find the difference. On several hosts they have to agree on which one reports
 * it. */
struct diagnose_hint failure_difference_hint(const struct ls_group *group,
					     const struct engine_difference *found)
{
	bool swaps = found->status == LS_PEER_LEFT ||
		     (group->team.host_count > 1 && found->one > found->other);
	return (struct diagnose_hint){
		.status = found->status,
		.rank = world_rank_of(group, swaps ? found->other : found->one),
		.peer = world_rank_of(group, swaps ? found->one : found->other),
		.group = group->id,
		.seq = found->seq,
		.seq_is_collective = true};
}

void failure_raise_difference(struct ls_group *group, const struct engine_difference *found,
			      bool closed)
{
	struct diagnose_hint hint = failure_difference_hint(group, found);
	/* Calls of other ranks return the status; closing a group returns nothing. */
	if (failure_raise(group, &hint, true) == LS_OK)
		failure_report_locally(group, &hint);
	if (!closed)
		return;
	failure_note_unreturned(group);
	(void)note_failure(group);
}

void failure_compare_ends(struct ls_group *group)
{
	uint64_t seq = atomic_load(&group->trace_entry->entered);
	struct engine_difference found;
	struct ranks room;
	if (failure_is_unreturned(group))
		failure_note_unreturned(group);
	if (!ends_well(group))
		return;
	engine_end_publish(&group->engine, seq);
	if (engine_end_compare(&group->engine, seq, world_gone_now(group, &room), &found))
		failure_raise_difference(group, &found, true);
}

/* ---- by this rank ---- */

void failure_abort(ls_group *group, const char *note, bool closes)
{
	struct diagnose_hint hint = {.status = LS_ABORTED,
				     .rank = group->world->rank,
				     .peer = -1,
				     .group = group->id,
				     .seq = atomic_load(&group->trace_entry->entered),
				     .note = note,
				     .closes = closes};
	failure_raise_aborted(group, &hint);
}

void failure_abort_by_close(ls_group *group, const char *why)
{
	bool sound = failure_status(group) == LS_OK;
	failure_abort(group, why, true);
	if (sound)
		failure_note_unreturned(group);
}

/* ---- groups that are open ---- */

enum {
	TOLD_MAX = 4, /* groups that are named */
	LIST_BYTES = 1024,
};

/* True once for each group: for the first of its members that closes the world group over it. */
static bool claim_open_report(const struct ls_group *group)
{
	_Atomic uint64_t *reported = &transport_head_of(&group->team)->reported;
	return group->id != WORLD_GROUP_ID && failure_status(group) == LS_OK &&
	       atomic_exchange(reported, UINT64_MAX) != UINT64_MAX;
}

/* "that of ranks 0, 2 and 3, made at train.c:12" */
static size_t describe_group(const struct ls_group *group, char *out, size_t bytes)
{
	const struct world *world = group->world;
	const struct trace_record record = {.site = group->site, .label = group->label};
	char site[DIAGNOSE_SITE_BYTES] = "";
	size_t used = (size_t)snprintf(out, bytes, "that of rank%s", group->size == 1 ? "" : "s");
	for (int q = 0; q < group->size && used < bytes; q++)
		used += (size_t)snprintf(out + used, bytes - used, "%s %d",
					 q == 0                 ? ""
					 : q == group->size - 1 ? " and"
								: ",",
					 group->team.members[q].world);
	if (world->views[world->rank].header)
		trace_site(&world->views[world->rank], &record, site, sizeof site);
	if (site[0] && used < bytes)
		used += (size_t)snprintf(out + used, bytes - used, ", made at %s", site);
	return used < bytes ? used : bytes;
}

void failure_warn_open(struct world *world)
{
	struct ls_group *groups[TRANSPORT_AREAS];
	char list[LIST_BYTES] = "";
	size_t used = 0;
	int count = 0, held = world_hold_all(world, groups); /* newest first */
	bool sound = held > 0 && atomic_load(&world->failures) == 0 &&
		     failure_status(groups[held - 1]) == LS_OK;
	for (int i = held; i-- > 0;) {
		if (sound && claim_open_report(groups[i]) && count++ < TOLD_MAX &&
		    used < sizeof list) {
			used += (size_t)snprintf(list + used, sizeof list - used, "%s",
						 count > 1 ? "; " : "");
			if (used < sizeof list)
				used += describe_group(groups[i], list + used, sizeof list - used);
		}
		world_release(groups[i]);
	}
	if (count > 0)
		MESSAGE_SAY(MESSAGE_GROUP_LEFT_OPEN, count, count == 1 ? " is" : "s are", list,
			    count > TOLD_MAX ? "; …" : "");
}
