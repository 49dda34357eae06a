/* SPDX-License-Identifier: BSD-3-Clause
 * What programs and the rooms above can query about a group. */
#include "base/fork.h"
#include "engine/payload.h"
#include "world/registry.h"
#include "group/arguments.h"
#include "group/group.h"

int ls_group_rank(const ls_group *group)
{
	return group && !group_is_closed(group) ? group->rank : -1;
}

int ls_group_size(const ls_group *group)
{
	return group && !group_is_closed(group) ? group->size : -1;
}

struct trace *group_trace(ls_group *group)
{
	return &group->world->trace;
}

const struct trace_view *group_view(const ls_group *group, int rank)
{
	int world_rank = world_rank_of(group, rank);
	const struct trace_view *view = world_rank < 0 ? NULL : &group->world->views[world_rank];
	return view && view->header ? view : NULL;
}

uint64_t group_note_pass(ls_group *group, uint64_t ddp)
{
	uint64_t hash = engine_mix(atomic_load_explicit(&group->passes, memory_order_relaxed), ddp);
	group_set_passes(group, hash);
	return hash;
}

void group_set_passes(ls_group *group, uint64_t hash)
{
	atomic_store_explicit(&group->passes, hash, memory_order_relaxed);
}

const struct settings *group_settings(const ls_group *group)
{
	return &group->world->settings;
}

static bool is_of(const ls_group *group, const ls_group *parent, const int *ranks, int count)
{
	if (group->parent != parent->id || group->size != count)
		return false;
	for (int i = 0; i < count; i++)
		if (ranks[i] < 0 || ranks[i] >= parent->size ||
		    group->team.members[i].world != parent->team.members[ranks[i]].world)
			return false;
	return true;
}

ls_group *ls_group_get(ls_group *parent, const int *ranks, int count)
{
	if (!parent || !ranks || count < 1 || !world_is_usable(parent))
		return NULL;
	struct world *world = parent->world;
	lock_rank_acquire(&world->lock);
	struct ls_group *group = world->open; /* the newest first */
	while (group && !is_of(group, parent, ranks, count))
		group = group->next;
	lock_rank_release(&world->lock);
	return group;
}

int ls_group_rank_in(const ls_group *group, int rank, const ls_group *other)
{
	if (!group || !other || group_is_closed(group) || group_is_closed(other) ||
	    group->world != other->world)
		return -1;
	int world_rank = world_rank_of(group, rank);
	return world_rank < 0 ? -1 : world_rank_in(other, world_rank);
}

int group_world_rank(const ls_group *group, int rank)
{
	return world_rank_of(group, rank);
}
