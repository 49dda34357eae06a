/* SPDX-License-Identifier: BSD-3-Clause
 * Adds to a snapshot the collectives that ranks have entered and have not recorded: a short
 * collective publishes its entry first, and a rank may be killed or stopped before its record is
 * written. */
#include "failure/entered.h"
#include "engine/engine.h"
#include "transport/observe.h"

/* The area of the group in the rank's segment; TRACE_GROUP_MAX: the rank has closed it. */
static unsigned area_of(const struct trace_view *trace, uint32_t id)
{
	unsigned area = 0;
	while (area < TRACE_GROUP_MAX &&
	       atomic_load_explicit(&trace->groups[area].id, memory_order_acquire) != id)
		area++;
	return area;
}

/* Adds the collective after the last one on record, if its entry is there and its record is not.
 * Reads the trace once more: the snapshot may be older than the entry, and then the area may be
 * another group's. */
static void add_entered(const struct diagnose_source *source, const struct diagnose_group *known,
			struct diagnose_snapshot *snapshot)
{
	struct transport_entered entry;
	struct engine_signature signature;
	uint64_t seq = known->entered + 1;
	unsigned area = area_of(source->trace, known->id);
	if (known->state == TRACE_GROUP_CLOSED || area == TRACE_GROUP_MAX)
		return;
	const struct trace_group *group = &source->trace->groups[area];
	if (!transport_read_entered(source->segment, source->segment_bytes, snapshot->size, area,
				    seq, &entry) ||
	    !engine_signature_read(entry.signature, (int)known->size, &signature) ||
	    atomic_load_explicit(&group->entered, memory_order_acquire) >= seq ||
	    atomic_load_explicit(&group->id, memory_order_acquire) != known->id)
		return;
	struct trace_record record = {
		.group = known->id,
		.seq = seq,
		.count = entry.count,
		.kind = (uint16_t)signature.kind,
		.dtype = signature.dtype,
		.reduce_op = signature.reduce,
		.algorithm = signature.algorithm,
		.peer = signature.root,
	};
	diagnose_add_entered(source, &record, snapshot);
}

void failure_add_entered(const struct diagnose_source *sources, int count,
			 struct diagnose_snapshot *snapshot)
{
	for (int i = 0; i < count; i++) {
		const struct diagnose_source *source = &sources[i];
		if (!source->trace || !source->segment || source->rank < 0 ||
		    source->rank >= snapshot->size)
			continue;
		const struct diagnose_rank *rank = &snapshot->ranks[source->rank];
		for (uint32_t g = 0; g < rank->group_count; g++)
			add_entered(source, &rank->groups[g], snapshot);
	}
}
