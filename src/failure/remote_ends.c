/* SPDX-License-Identifier: BSD-3-Clause
 * The ends of members on other hosts (engine/end.c, hosts/parting.c). The thread that makes
 * progress on the link compares an end when it arrives, and leaves a difference to the watch,
 * because a report may take a second. Until that is done the group's area is not reused. */
#include "base/clock.h"
#include "engine/end.h"
#include "world/registry.h"
#include "failure/failure_private.h"
#include "failure/remote_look.h"

enum {
	LEAVE_MS = 1000,
	OTHERS_MS = 1000, /* how long the watch waits for the host that is to say what differs */
};

/* ---- from the thread that makes progress on the link ---- */

/* Compares now, because the mirror of the member's area may be another group's before the watch
 * looks. Only the first difference counts, because the group fails for it. */
static void note_ended(void *context, const struct transport_team *team, int rank)
{
	struct world *world = context;
	struct failure_remote *remote = world->watch.remote;
	const struct ls_group *group =
		(const struct ls_group *)((uintptr_t)team - offsetof(struct ls_group, team));
	struct engine_difference found;
	int q = world_rank_in(group, rank);
	if (q < 0 || failure_ends_are_due(group) || !engine_end_arrived(&group->engine, q, &found))
		return;
	remote->differences[group->area] = found;
	atomic_fetch_or(&remote->differs[group->area / 64], failure_area_bit(group->area));
	failure_watch_serve(&world->watch);
}

void failure_ends_events(struct hosts_events *events)
{
	events->ended = note_ended;
}

/* ---- what differs ---- */

bool failure_ends_are_due(const struct ls_group *group)
{
	struct failure_remote *remote = group->world->watch.remote;
	return remote &&
	       atomic_load(&remote->differs[group->area / 64]) & failure_area_bit(group->area);
}

/* False: another host reports the difference. As in failure_compare_ends, a rank that knows of a
 * failure does not compare. */
static bool raise_one(struct ls_group *group, const struct engine_difference *found, bool waits)
{
	struct failure_remote *remote = group->world->watch.remote;
	const struct transport_area *mine = transport_area_of(&group->team, group->rank);
	struct diagnose_hint hint = failure_difference_hint(group, found);
	bool closed = atomic_load(&mine->ended) != 0;
	if (failure_status(group) != LS_OK ||
	    atomic_load(&group->world->failures) != group->failures_before)
		return true;
	if (waits && !failure_is_speaker(group, &hint))
		return false;
	if (!closed)
		atomic_fetch_or(&remote->raised[group->area / 64], failure_area_bit(group->area));
	failure_raise_difference(group, found, closed);
	return true;
}

/* Serves one area. False: another host reports the difference. */
static bool serve_area(struct world *world, unsigned area, bool waits)
{
	struct failure_remote *remote = world->watch.remote;
	struct ls_group *group = world_hold_area(world, area);
	bool done = true;
	if (!group)
		return true; /* see failure_ends_closed */
	if (failure_ends_are_due(group)) {
		struct engine_difference found = remote->differences[area];
		done = raise_one(group, &found, waits);
	}
	if (done)
		atomic_fetch_and(&remote->differs[area / 64], ~failure_area_bit(area));
	world_release(group);
	return done;
}

static bool serve_areas(struct world *world, bool waits)
{
	struct failure_remote *remote = world->watch.remote;
	bool done = true;
	for (unsigned w = 0; remote && w < FAILURE_AREA_WORDS; w++)
		for (uint64_t left = atomic_load(&remote->differs[w]); left; left &= left - 1)
			done &= serve_area(world, w * 64 + (unsigned)__builtin_ctzll(left), waits);
	return done;
}

void failure_ends_serve(struct world *world)
{
	struct failure_remote *remote = world->watch.remote;
	if (!remote)
		return;
	if (serve_areas(world,
			!remote->differs_until_ns || clock_now_ns() < remote->differs_until_ns))
		remote->differs_until_ns = 0;
	else if (!remote->differs_until_ns)
		remote->differs_until_ns = clock_deadline_ns(OTHERS_MS);
}

uint64_t failure_ends_due_ns(const struct world *world)
{
	const struct failure_remote *remote = world->watch.remote;
	return remote && remote->differs_until_ns ? remote->differs_until_ns : CLOCK_NEVER;
}

/* ---- closing ---- */

void failure_ends_closed(struct ls_group *group)
{
	struct failure_remote *remote = group->world->watch.remote;
	if (remote)
		atomic_fetch_and(&remote->raised[group->area / 64], ~failure_area_bit(group->area));
	if (failure_ends_are_due(group))
		failure_watch_serve(&group->world->watch);
}

void failure_ends_await(struct world *world)
{
	struct ls_group *group = world_hold_area(world, 0);
	struct wait_word parted;
	struct wait_call call = {
		.words = &parted, .count = 1, .deadline_ns = clock_deadline_ns(LEAVE_MS)};
	ls_status status = LS_INTERRUPTED;
	int peer;
	if (!group)
		return;
	if (failure_status(group) == LS_OK && hosts_leave(&world->transport, &parted))
		while (status == LS_INTERRUPTED && clock_now_ns() < call.deadline_ns)
			status = wait_words(&group->quiet, &call, &peer);
	world_release(group);
	serve_areas(world, false);
}
