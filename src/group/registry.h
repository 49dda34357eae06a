/* SPDX-License-Identifier: BSD-3-Clause
 * The open groups of a rank, and who is in them. */
#ifndef GROUP_REGISTRY_H
#define GROUP_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include <lockstep/group.h>

struct group_world;

/* Whether this is a child that was forked from the process which opened the group. */
bool group_is_forked(const ls_group *group);
/* The open group of this number, held until group_release; NULL: none. */
struct ls_group *group_hold(struct group_world *world, uint32_t id);
/* All of them, up to TRANSPORT_AREAS; how many. */
int group_hold_all(struct group_world *world, struct ls_group **out);
void group_release(struct ls_group *group);
/* Its members, as ranks of the world; empty if these are all. */
uint64_t group_members(const struct ls_group *group);
/* Its rank in the group, -1: no member. */
int group_rank_of(const struct ls_group *group, int world_rank);

#endif
