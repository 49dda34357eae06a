/* SPDX-License-Identifier: BSD-3-Clause
 * The groups of a rank, and who is in them. */
#include "world/registry.h"

#include "base/clock.h"

struct ls_group *world_hold(struct world *world, uint32_t id)
{
	lock_rank_acquire(&world->lock);
	struct ls_group *group = world->open;
	while (group && group->id != id)
		group = group->next;
	if (group)
		atomic_fetch_add(&group->holders, 1);
	lock_rank_release(&world->lock);
	return group;
}

int world_hold_all(struct world *world, struct ls_group **out)
{
	int count = 0;
	lock_rank_acquire(&world->lock);
	for (struct ls_group *group = world->open; group; group = group->next) {
		atomic_fetch_add(&group->holders, 1);
		out[count++] = group;
	}
	lock_rank_release(&world->lock);
	return count;
}

struct ls_group *world_hold_area(struct world *world, unsigned area)
{
	struct ls_group *found = NULL;
	lock_rank_acquire(&world->lock);
	struct ls_group *lists[] = {world->open, world->closed};
	for (int i = 0; i < 2; i++)
		for (struct ls_group *group = lists[i]; group; group = group->next)
			if (group->area == area)
				found = group;
	if (found)
		atomic_fetch_add(&found->holders, 1);
	lock_rank_release(&world->lock);
	return found;
}

void world_release(struct ls_group *group)
{
	atomic_fetch_sub(&group->holders, 1);
}

struct ranks world_members_if_part(const struct ls_group *group)
{
	return group->id == WORLD_GROUP_ID ? (struct ranks){{0}}
					   : transport_team_ranks(&group->team);
}

int world_rank_in(const struct ls_group *group, int world_rank)
{
	for (int q = 0; q < group->size; q++)
		if (group->team.members[q].world == world_rank)
			return q;
	return -1;
}

int world_rank_of(const ls_group *group, int rank)
{
	return rank >= 0 && rank < group->size ? group->team.members[rank].world : -1;
}

void world_leave(struct world *world)
{
	uint64_t not_yet = 0;
	if (world->trace.header)
		atomic_compare_exchange_strong(&world->trace.header->left_ns, &not_yet,
					       clock_now_ns());
}
