/* SPDX-License-Identifier: BSD-3-Clause
 * The open groups of a rank, and who is in them. */
#ifndef WORLD_REGISTRY_H
#define WORLD_REGISTRY_H

#include "ls_group.h"

/* Whether this is a child that was forked from the process which opened the group. */
bool world_is_forked(const ls_group *group);
/* The open group of this number, held until world_release; NULL: none. */
struct ls_group *world_hold(struct world *world, uint32_t id);
/* All of them, up to TRANSPORT_AREAS; how many. */
int world_hold_all(struct world *world, struct ls_group **out);
void world_release(struct ls_group *group);
/* Its members, as ranks of the world; empty if these are all. */
uint64_t world_members(const struct ls_group *group);
/* Its rank in the group, -1: no member. */
int world_rank_in(const struct ls_group *group, int world_rank);
/* Its rank in the world, -1: it has no such rank. */
int world_rank_of(const ls_group *group, int rank);

/* ---- gone.c ---- */

/* Members, by their rank in the group, that are dead or have left: two loads while nobody goes. */
uint64_t world_gone(struct ls_group *group);
/* The same for one who has seen it himself, a moment before those who go have told everybody. */
uint64_t world_gone_now(struct ls_group *group);

#endif
