/* SPDX-License-Identifier: BSD-3-Clause
 * Finds the traces and segments of all ranks, and reads what a verdict needs. */
#include <stdlib.h>

#include "base/ranks.h"
#include "failure/entered.h"
#include "failure/failure_private.h"

/* Whether a rank of another host has closed the world group, which has the first area. */
static bool has_left(const struct transport *transport, const struct transport_peer *peer)
{
	const struct transport_area *area = transport_peer_area(transport, peer, 0);
	return atomic_load_explicit(&area->times_closed, memory_order_acquire) != 0;
}

void failure_fill_sources(const struct world *world, struct diagnose_source *sources)
{
	for (int q = 0; q < world->size; q++) {
		sources[q] = (struct diagnose_source){
			.rank = q,
			.pid = world->pids[q],
			.trace = world->views[q].header ? &world->views[q] : NULL,
			.segment = world->transport.peers[q].segment,
			.segment_bytes = world->transport.peers[q].segment_bytes,
			.process = DIAGNOSE_PROCESS_UNKNOWN,
			.signal = -1,
			.exit_code = -1,
		};
		if (world->transport.peers[q].mirror) {
			sources[q].host = world->remote_hosts[q];
			sources[q].left = has_left(&world->transport, &world->transport.peers[q]);
			sources[q].pid = world->remote_pids[q];
			sources[q].process = atomic_load(&world->dead[q]) ? DIAGNOSE_PROCESS_DEAD
									  : DIAGNOSE_PROCESS_UNKNOWN;
			continue;
		}
		/* Once a parent has fetched how the process ended, /proc does not show it. */
		bool known = diagnose_read_exit(world->watch.pid_fds[q], &sources[q]);
		(void)known;
	}
}

/* A parent may have fetched how a process ended after the kernel was asked, and before /proc was
 * read. */
static void add_ends(const struct world *world, struct diagnose_snapshot *snapshot)
{
	for (int q = 0; q < world->size; q++) {
		struct diagnose_rank *rank = &snapshot->ranks[q];
		struct diagnose_source end;
		if (rank->process != DIAGNOSE_PROCESS_DEAD || rank->signal != -1 ||
		    rank->exit_code != -1 || !diagnose_read_exit(world->watch.pid_fds[q], &end))
			continue;
		rank->signal = end.signal;
		rank->exit_code = end.exit_code;
	}
}

struct diagnose_snapshot *failure_collect(const struct world *world,
					  const struct diagnose_closing *closing)
{
	struct diagnose_source sources[RANKS_WORLD_MAX];
	/* The collector clears what it needs of the snapshot, which is little of 95 KB for each
	 * rank. After some large blocks calloc would clear all of it. */
	struct diagnose_snapshot *snapshot = malloc(diagnose_snapshot_bytes(world->size));
	if (!snapshot)
		return NULL;
	snapshot->size = world->size;
	failure_fill_sources(world, sources);
	diagnose_collect(sources, world->size, closing, snapshot);
	add_ends(world, snapshot);
	failure_add_entered(sources, world->size, snapshot);
	return snapshot;
}

uint64_t failure_add_record(const struct world *world, int rank, uint32_t low,
			    struct diagnose_snapshot *snapshot)
{
	struct diagnose_source sources[RANKS_WORLD_MAX];
	if (rank < 0 || rank >= world->size)
		return 0;
	failure_fill_sources(world, sources);
	return diagnose_add_record(&sources[rank], low, snapshot);
}

void failure_add_sites(const struct world *world, struct diagnose_snapshot *snapshot)
{
	struct diagnose_source sources[RANKS_WORLD_MAX];
	failure_fill_sources(world, sources);
	diagnose_add_sites(sources, world->size, snapshot);
}
