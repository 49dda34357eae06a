/* SPDX-License-Identifier: BSD-3-Clause
 * The open groups of a rank, and their members. */
#ifndef WORLD_REGISTRY_H
#define WORLD_REGISTRY_H

#include "base/fork.h"
#include "world/ls_group.h"

/* Whether this process has opened the group, and not closed it. The object stays readable after the
 * group is closed (group/make.c). */
static inline bool world_is_usable(const ls_group *group)
{
	return fork_is_in(group->fork_generation);
}

/* The open group with this id, held until world_release; NULL: none. */
struct ls_group *world_hold(struct world *world, uint32_t id);
/* Holds all open groups, up to TRANSPORT_AREAS; returns their number. */
int world_hold_all(struct world *world, struct ls_group **out);
/* The open or closed group that has this area, held; NULL: none, or it is about to be closed. */
struct ls_group *world_hold_area(struct world *world, unsigned area);
void world_release(struct ls_group *group);
/* The members as a set of world ranks, if they are a part of the job; empty for the world group,
 * which has all ranks. */
struct ranks world_members_if_part(const struct ls_group *group);
/* The group rank of a world rank; -1: not a member. */
int world_rank_in(const struct ls_group *group, int world_rank);
/* The world rank of a group rank; -1: there is no such rank. */
int world_rank_of(const ls_group *group, int rank);

/* The bell on which this rank's progress thread sleeps, and its threads that wait. */
static inline struct wait_bell *world_bell(struct world *world)
{
	return &world->transport.segment->bell;
}
/* How many threads of this rank may act that its wait table does not show; and how many of its
 * messages linger (mailbox_linger), which end by themselves. Not 0: nothing is proved. */
static inline _Atomic uint32_t *world_unpublished(struct world *world)
{
	return &world->trace.wait_table->unpublished;
}

/* ---- gone.c ---- */

/* 1 + how many members of groups of this rank have gone so far. */
static inline uint64_t world_departures(const struct ls_group *group)
{
	const struct transport_segment *mine = group->world->transport.segment;
	return atomic_load_explicit(&mine->departures, memory_order_acquire) + 1;
}
/* As world_gone, for the case that some may be gone. */
const struct ranks *world_gone_update(struct ls_group *group, struct ranks *room);
/* The members that are gone: dead, or left; by group rank. NULL: none is; otherwise the set is in
 * *room. Three loads while no member goes. */
static inline const struct ranks *world_gone(struct ls_group *group, struct ranks *room)
{
	uint64_t seen = atomic_load_explicit(&group->gone_seen, memory_order_acquire);
	if (seen == world_departures(group) &&
	    !atomic_load_explicit(&group->any_gone, memory_order_acquire))
		return NULL;
	return world_gone_update(group, room);
}
/* Whether any member is gone. */
static inline bool world_any_gone(struct ls_group *group)
{
	struct ranks room;
	return world_gone(group, &room) != NULL;
}
/* From now on reports say that this rank has left. Also for a rank that could not open the world:
 * those that could must not wait for it. */
void world_leave(struct world *world);
/* As world_gone, for a thread that has seen a member go, which may be a moment before that member
 * has published it to all others. */
const struct ranks *world_gone_now(struct ls_group *group, struct ranks *room);

#endif
