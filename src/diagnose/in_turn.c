/* SPDX-License-Identifier: BSD-3-Clause
 * In the report of a deadlock: which operation stands behind which, where that is why the ranks
 * wait for each other. */
#include "diagnose/facts.h"

static void write_pair(struct diagnose_writer *writer, int r, const struct diagnose_record *second,
		       const struct diagnose_record *first)
{
	diagnose_write(writer, "n rank %d ", r);
	diagnose_write_operation(writer, second);
	diagnose_write(writer, "\nstands behind ");
	diagnose_write_operation(writer, first);
	diagnose_write(writer, ".");
}

/* Names two sends, of the first rank of the cycle that has more than one under way. */
static void write_sends(struct diagnose_writer *writer, const struct diagnose_snapshot *job,
			const struct ranks *cycle)
{
	const struct diagnose_record *first = NULL, *second = NULL; /* the oldest ones */
	int r;
	for (r = 0; r < job->size && !second; r++) {
		const struct diagnose_rank *rank = &job->ranks[r];
		first = NULL;
		for (uint32_t i = 0; i < rank->record_count; i++) { /* the newest first */
			const struct diagnose_record *record = &rank->records[i];
			if (!ranks_have(cycle, r) || record->record.kind != TRACE_SEND ||
			    record->record.state != TRACE_RUNNING)
				continue;
			second = first;
			first = record;
		}
	}
	if (!second)
		return;
	diagnose_write(writer,
		       "\nLOCKSTEP_P2P=serial is set, with which a send begins only when the "
		       "one before it is over: without\nit these ranks may not wait for each "
		       "other at all. O");
	write_pair(writer, r - 1, second, first);
}

/* Names an operation that a stream has not come to, and the one in front of it, on the first such
 * rank of the cycle. */
static void write_streams(struct diagnose_writer *writer, const struct diagnose_snapshot *job,
			  const struct ranks *cycle)
{
	RANKS_EACH (r, cycle) {
		const struct diagnose_rank *rank = r < job->size ? &job->ranks[r] : NULL;
		for (uint32_t i = 0; rank && i < rank->record_count; i++) {
			const struct diagnose_record *front =
				diagnose_in_front(rank, &rank->records[i]);
			if (!front)
				continue;
			diagnose_write(writer, "\nA stream does its work in order: o");
			write_pair(writer, r, &rank->records[i], front);
			return;
		}
	}
}

void diagnose_write_in_turn(struct diagnose_writer *writer, const struct diagnose_snapshot *job,
			    const struct diagnose_verdict *verdict)
{
	if (verdict->serial)
		write_sends(writer, job, &verdict->culprits);
	write_streams(writer, job, &verdict->culprits);
}
