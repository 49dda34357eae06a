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
static void write_sends(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			const struct ranks *cycle)
{
	const struct diagnose_record *first = NULL, *second = NULL; /* the oldest ones */
	int r;
	for (r = 0; r < snapshot->size && !second; r++) {
		const struct diagnose_rank *rank = &snapshot->ranks[r];
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

/* Whether the two are the same operation on two ranks, the first of them on rank r. */
static bool is_part_of_same(const struct trace_record *op, int r, const struct trace_record *other)
{
	if (op->group != other->group)
		return false;
	if (!diagnose_is_p2p(op))
		return diagnose_is_collective(other) && other->seq == op->seq;
	bool any = other->peer < 0 && other->wildcards & TRACE_ANY_SOURCE;
	return diagnose_is_p2p(other) && (any || other->peer == r) && other->kind != op->kind;
}

/* Whether another rank of the cycle waits for this operation of rank r. */
static bool is_awaited(const struct diagnose_snapshot *snapshot, const struct ranks *cycle, int r,
		       const struct diagnose_record *op)
{
	const struct ranks here = ranks_of(r);
	RANKS_EACH (q, cycle) {
		const struct diagnose_rank *rank =
			q < snapshot->size && q != r ? &snapshot->ranks[q] : NULL;
		for (uint32_t i = 0; rank && i < rank->thread_count; i++) {
			struct ranks needs = diagnose_thread_needs(snapshot, &rank->threads[i]);
			const struct diagnose_record *other =
				diagnose_record_for(rank, &rank->threads[i], &here);
			if (ranks_have(&needs, r) && other &&
			    is_part_of_same(&op->record, r, &other->record))
				return true;
		}
	}
	return false;
}

/* Names an operation that another rank of the cycle waits for and that a stream has not come to,
 * and the one in front of it. */
static void write_streams(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			  const struct ranks *cycle)
{
	RANKS_EACH (r, cycle) {
		const struct diagnose_rank *rank = r < snapshot->size ? &snapshot->ranks[r] : NULL;
		for (uint32_t i = 0; rank && i < rank->record_count; i++) {
			const struct diagnose_record *op = &rank->records[i];
			const struct diagnose_record *front = diagnose_in_front(rank, op);
			if (!front || !is_awaited(snapshot, cycle, r, op))
				continue;
			diagnose_write(writer, "\nA stream does its work in order: o");
			write_pair(writer, r, op, front);
			return;
		}
	}
}

void diagnose_write_in_turn(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			    const struct diagnose_verdict *verdict)
{
	if (verdict->serial)
		write_sends(writer, snapshot, &verdict->culprits);
	write_streams(writer, snapshot, &verdict->culprits);
}
