/* SPDX-License-Identifier: BSD-3-Clause
 * The text of a report, with what only this moment can show: lines of Python, call sites, messages
 * that nobody expects. */
#include "failure/failure_private.h"
#include "failure/unexpected.h"

void failure_report(struct world *world, struct diagnose_snapshot *snapshot,
		    const struct diagnose_verdict *verdict, char *text, size_t bytes)
{
	struct diagnose_source sources[RANKS_WORLD_MAX];
	failure_add_python(world, snapshot, verdict);
	failure_fill_sources(world, sources);
	diagnose_add_sites(sources, world->size, snapshot);
	failure_add_unexpected(sources, world->size, snapshot);
	diagnose_text(snapshot, verdict, text, bytes);
}
