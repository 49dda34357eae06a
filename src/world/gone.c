/* SPDX-License-Identifier: BSD-3-Clause
 * Members that are dead or have left. A waiting thread learns of it in its wait (base/wait.c:
 * missing_peer); a thread that only checks now and then learns of it here. */
#include "world/registry.h"

/* The members that this rank knows to be gone; NULL: none. */
static const struct ranks *known_gone(const struct ls_group *group, struct ranks *room)
{
	if (!atomic_load_explicit(&group->any_gone, memory_order_acquire))
		return NULL;
	*room = (struct ranks){{0}};
	for (int w = 0; w < RANKS_WORLD_WORDS; w++)
		room->words[w] = atomic_load_explicit(&group->gone[w], memory_order_acquire);
	return room;
}

const struct ranks *world_gone_now(struct ls_group *group, struct ranks *room)
{
	for (int q = 0; q < group->size; q++) {
		const struct wait_peer *peer = &group->peers[group->team.members[q].world];
		if (!wait_peer_is_dead(peer) && !wait_peer_has_left(peer))
			continue;
		atomic_fetch_or(&group->gone[q / 64], ranks_bit(q));
		atomic_store(&group->any_gone, true);
	}
	return known_gone(group, room);
}

/* All members that were gone at a number of `departures` are seen then, because a member is gone
 * before it raises the number. If two threads look at once, the older number may be stored last;
 * then the next call looks once more. */
const struct ranks *world_gone_update(struct ls_group *group, struct ranks *room)
{
	uint64_t now = world_departures(group);
	if (atomic_load_explicit(&group->gone_seen, memory_order_acquire) == now)
		return known_gone(group, room);
	const struct ranks *gone = world_gone_now(group, room);
	atomic_store_explicit(&group->gone_seen, now, memory_order_release);
	return gone;
}
