/* SPDX-License-Identifier: BSD-3-Clause
 * Members that are dead or have left. A waiting thread learns of it in its wait (base/wait.c:
 * missing_peer); a thread that only checks now and then learns of it here. */
#include "registry.h"

/* What is known of them. */
static const struct ranks *known(const struct ls_group *group, struct ranks *room)
{
	if (!atomic_load_explicit(&group->any_gone, memory_order_acquire))
		return NULL;
	*room = (struct ranks){{0}};
	for (int w = 0; w < RANKS_WORLD_WORDS; w++)
		room->words[w] = atomic_load_explicit(&group->gone[w], memory_order_relaxed);
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
	return known(group, room);
}

/* What was seen at a number of departures is all that had gone by then, as they are raised
 * afterwards. If two threads look at once the older number may stand last: then it is looked once
 * more. */
const struct ranks *world_gone(struct ls_group *group, struct ranks *room)
{
	const struct transport_segment *mine = group->world->transport.segment;
	uint64_t now = atomic_load_explicit(&mine->departures, memory_order_acquire) + 1;
	if (atomic_load_explicit(&group->gone_seen, memory_order_acquire) == now)
		return known(group, room);
	const struct ranks *gone = world_gone_now(group, room);
	atomic_store_explicit(&group->gone_seen, now, memory_order_release);
	return gone;
}

bool world_any_gone(struct ls_group *group)
{
	struct ranks room;
	return world_gone(group, &room) != NULL;
}
