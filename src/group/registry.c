/* SPDX-License-Identifier: BSD-3-Clause
 * The open groups of a rank, who is in them, and what rooms above may know of one. */
#include "base/fork.h"
#include "group_private.h"
#include "registry.h"

int ls_group_rank(const ls_group *group)
{
	return group ? group->rank : -1;
}

int ls_group_size(const ls_group *group)
{
	return group ? group->size : -1;
}

bool group_is_forked(const ls_group *group)
{
	return group->world->fork_generation != fork_generation();
}

struct trace *group_trace(ls_group *group)
{
	return &group->world->trace;
}

const struct trace_view *group_view(const ls_group *group, int rank)
{
	int world_rank = group_world_rank(group, rank);
	const struct trace_view *view = world_rank < 0 ? NULL : &group->world->views[world_rank];
	return view && view->header ? view : NULL;
}

const struct settings *group_settings(const ls_group *group)
{
	return &group->world->settings;
}

int group_world_rank(const ls_group *group, int rank)
{
	return rank >= 0 && rank < group->size ? group->team.seats[rank].world : -1;
}

struct ls_group *group_hold(struct group_world *world, uint32_t id)
{
	lock_group_acquire(&world->lock);
	struct ls_group *group = world->open;
	while (group && group->id != id)
		group = group->next;
	if (group)
		atomic_fetch_add(&group->holders, 1);
	lock_group_release(&world->lock);
	return group;
}

int group_hold_all(struct group_world *world, struct ls_group **out)
{
	int count = 0;
	lock_group_acquire(&world->lock);
	for (struct ls_group *group = world->open; group; group = group->next) {
		atomic_fetch_add(&group->holders, 1);
		out[count++] = group;
	}
	lock_group_release(&world->lock);
	return count;
}

void group_release(struct ls_group *group)
{
	atomic_fetch_sub(&group->holders, 1);
}

uint64_t group_members(const struct ls_group *group)
{
	uint64_t members = 0;
	for (int q = 0; q < group->size && group->id != GROUP_WORLD_ID; q++)
		members |= UINT64_C(1) << group->team.seats[q].world;
	return members;
}

int group_rank_of(const struct ls_group *group, int world_rank)
{
	for (int q = 0; q < group->size; q++)
		if (group->team.seats[q].world == world_rank)
			return q;
	return -1;
}

static bool is_of(const ls_group *group, const ls_group *parent, const int *ranks, int count)
{
	if (group->parent != parent->id || group->size != count)
		return false;
	for (int i = 0; i < count; i++)
		if (ranks[i] < 0 || ranks[i] >= parent->size ||
		    group->team.seats[i].world != parent->team.seats[ranks[i]].world)
			return false;
	return true;
}

ls_group *ls_group_get(ls_group *parent, const int *ranks, int count)
{
	if (!parent || !ranks || count < 1 || group_is_forked(parent))
		return NULL;
	struct group_world *world = parent->world;
	lock_group_acquire(&world->lock);
	struct ls_group *group = world->open; /* the newest first */
	while (group && !is_of(group, parent, ranks, count))
		group = group->next;
	lock_group_release(&world->lock);
	return group;
}

int ls_group_rank_in(const ls_group *group, int rank, const ls_group *other)
{
	if (!group || !other || group->world != other->world)
		return -1;
	int world_rank = group_world_rank(group, rank);
	return world_rank < 0 ? -1 : group_rank_of(other, world_rank);
}
