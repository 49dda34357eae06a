/* SPDX-License-Identifier: BSD-3-Clause
 * What a job on several hosts leaves behind, for its launcher: each host packs the part that it can
 * see, its own ranks, and the launcher makes one report of all parts. All hosts have the same
 * version of Lockstep. Yet every length and every number of a part is checked. */
#ifndef INSPECT_HOST_PART_H
#define INSPECT_HOST_PART_H

#include "inspect/inspect.h"

enum {
	INSPECT_PART_BYTES_MAX = 256 << 20
}; /* of one host; traces that would make it longer are
						left out */

/* The ranks of this host, in a block on the heap; NULL without memory. Looks up call sites, for at
 * most 2 s: they are known only on this host. */
void *inspect_part_pack(const struct inspect_view *view, struct inspect_report *report,
			const struct ranks *here, size_t *bytes);

/* What the launcher has of one host. */
struct inspect_part {
	const char *host;  /* its name */
	int first, ranks;  /* its ranks: first to first + ranks - 1 */
	const void *block; /* made by inspect_part_pack; NULL: the host has not told */
	size_t bytes;
	/* How far its clock_now_ns is ahead of that of this host, and by how much that may be
	 * wrong. */
	int64_t offset_ns;
	uint64_t error_ns;
};

/* One report of `count` parts, which have all of `size` ranks, with report->hosts; waited_ms: how
 * long hosts that have not told were waited for. Nothing points into the parts. The ranks of
 * different hosts were not copied at one moment, so they prove neither a deadlock nor that a needed
 * rank has left; the ranks have published it if there was one. NULL without memory, or if no part
 * is good. */
struct inspect_report *inspect_parts_join(const struct inspect_part *parts, int count, int size,
					  uint64_t waited_ms);

#endif
