/* SPDX-License-Identifier: BSD-3-Clause
 * Copies of the traces of one host's ranks, in one block: a rank of another host asks for it, and
 * shows the copies to commands. */
#ifndef FAILURE_TRACES_H
#define FAILURE_TRACES_H

#include "base/ranks.h"
#include "world/world.h"

enum { FAILURE_COPIES_ALIGN = 64 };

/* A block: this, then the copies, in the order of the ranks that are set. All hosts of a job have
 * the same version of Lockstep. */
struct failure_copies {
	_Alignas(FAILURE_COPIES_ALIGN) uint64_t magic;
	uint64_t job, bytes, now_ns;
	uint64_t of[RANKS_WORLD_MAX]; /* the bytes of each rank's copy, which is aligned; 0: none */
};

static inline uint64_t failure_copies_align(uint64_t bytes)
{
	return (bytes + FAILURE_COPIES_ALIGN - 1) / FAILURE_COPIES_ALIGN * FAILURE_COPIES_ALIGN;
}

/* A block with copies of the traces of these ranks; NULL without memory. */
void *failure_pack_traces(const struct world *world, const struct ranks *ranks, size_t *bytes);
/* Whether a block of `bytes` that another rank has sent may begin so. */
bool failure_copies_are_good(const struct world *world, const struct failure_copies *head,
			     size_t bytes);

#endif
