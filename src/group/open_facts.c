/* SPDX-License-Identifier: BSD-3-Clause
 * What the ranks of a job have to agree on, or have to know of each other, before they call
 * collectives. */
#include <sched.h>
#include <string.h>

#include "base/messages.h"
#include "group/open_hosts.h"

struct open_facts group_facts_find(const struct settings *settings, const struct plan_table *table)
{
	struct open_facts facts = {.table = plan_table_hash(table),
				   .algorithm = settings->algorithm,
				   .blocking = settings->blocking};
	cpu_set_t set;
	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof set, &set) == 0)
		memcpy(facts.cpus, &set, sizeof facts.cpus);
	return facts;
}

void group_facts_publish(struct transport_segment *segment, const struct open_facts *facts)
{
	segment->table = facts->table;
	segment->algorithm = facts->algorithm;
	segment->blocking = facts->blocking;
	memcpy(segment->cpus, facts->cpus, sizeof segment->cpus);
}

ls_status group_facts_compare(const struct world *world)
{
	const struct transport_segment *first = world->transport.peers[0].segment;
	for (int q = 1; q < world->size; q++) {
		const struct transport_segment *other = world->transport.peers[q].segment;
		const char *what = other->table != first->table           ? "LOCKSTEP_TABLE"
				   : other->algorithm != first->algorithm ? "LOCKSTEP_ALGORITHM"
				   : other->blocking != first->blocking   ? "LOCKSTEP_BLOCKING"
									  : NULL;
		if (what) {
			MESSAGE_SAY(MESSAGE_GROUP_SETTINGS, q, what);
			return LS_INCONSISTENT;
		}
	}
	return LS_OK;
}
