/* SPDX-License-Identifier: BSD-3-Clause
 * Where the calls of a job were made. */
#include <string.h>

#include "diagnose/diagnose.h"

static void add_sites(const struct trace_view *trace, struct diagnose_rank *rank)
{
	for (uint32_t i = 0; i < rank->record_count; i++) {
		struct diagnose_record *record = &rank->records[i];
		uint32_t j = 0; /* a loop calls from one place: each place is looked up once */
		while (j < i && (rank->records[j].record.site != record->record.site ||
				 rank->records[j].record.label != record->record.label))
			j++;
		if (j < i)
			memcpy(record->site, rank->records[j].site, sizeof record->site);
		else
			trace_site(trace, &record->record, record->site, sizeof record->site);
	}
}

void diagnose_add_sites(const struct diagnose_source *sources, int count,
			struct diagnose_snapshot *snapshot)
{
	for (int i = 0; i < count; i++)
		if (sources[i].trace && sources[i].rank >= 0 && sources[i].rank < snapshot->size)
			add_sites(sources[i].trace, &snapshot->ranks[sources[i].rank]);
}
