/* SPDX-License-Identifier: BSD-3-Clause
 * Members that are dead or have left. A waiting thread learns of it in its wait (base/wait.c:
 * missing_peer); a thread that only checks now and then learns of it here. */
#include "registry.h"

uint64_t world_gone_now(struct ls_group *group)
{
	uint64_t gone = 0;
	for (int q = 0; q < group->size; q++) {
		const struct wait_peer *peer = &group->peers[group->team.members[q].world];
		if (wait_peer_is_dead(peer) || wait_peer_has_left(peer))
			gone |= UINT64_C(1) << q;
	}
	return atomic_fetch_or(&group->gone, gone) | gone;
}

/* All members that were gone at a number of `departures` are seen then, because a member is gone
 * before it raises the number. If two threads look at once, the older number may be stored last;
 * then the next call looks once more. */
uint64_t world_gone(struct ls_group *group)
{
	const struct transport_segment *mine = group->world->transport.segment;
	uint64_t now = atomic_load_explicit(&mine->departures, memory_order_acquire) + 1;
	if (atomic_load_explicit(&group->gone_seen, memory_order_acquire) == now)
		return atomic_load_explicit(&group->gone, memory_order_relaxed);
	uint64_t gone = world_gone_now(group);
	atomic_store_explicit(&group->gone_seen, now, memory_order_release);
	return gone;
}
