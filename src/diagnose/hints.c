/* SPDX-License-Identifier: BSD-3-Clause
 * What else is known of sends and receives that meet nothing: messages that nearly fit, and what lies in the
 * way of others. Lines under the report's lines on the ranks. */
#include <inttypes.h>
#include <string.h>

#include "diagnose/facts.h"

enum { HINT_MAX = 4 };

static void write_message(struct diagnose_writer *writer, const struct diagnose_message *message)
{
	diagnose_write(writer, "send");
	if (message->seq)
		diagnose_write(writer, " #%" PRIu64, message->seq);
	diagnose_write(writer, " of %" PRIu64 " %s from rank %d to rank %d (tag %d)", message->count,
		       trace_dtype_name(message->dtype), message->from, message->to, message->tag);
	if (message->site[0]) {
		diagnose_write(writer, ", called from ");
		diagnose_write_foreign(writer, message->site);
	}
}

/* Of what lies with the receiver: one of another tag from whom it asks, or one of its tag from another. */
static const struct diagnose_message *nearly(const struct diagnose_job *job, int rank,
					     const struct trace_record *record)
{
	const struct diagnose_message *best = NULL;
	int from = record->peer;
	for (int i = 0; i < job->message_count; i++) {
		const struct diagnose_message *message = &job->messages[i];
		if (message->group != record->group || message->to != rank)
			continue;
		if (message->from == from)
			return message;
		if (message->tag == record->tag && !best)
			best = message;
	}
	return best;
}

static bool hint_receive(struct diagnose_writer *writer, const struct diagnose_job *job, int rank,
			 const struct trace_record *record)
{
	const struct diagnose_message *message = nearly(job, rank, record);
	if (!message || record->peer < 0)
		return false;
	bool same_peer = message->from == record->peer;
	diagnose_write(writer, "\n  not received: ");
	write_message(writer, message);
	diagnose_write(writer,
		       same_peer ? "; rank %d asks it for tag %d"
				 : "; rank %d asks another rank for tag %d",
		       rank, record->tag);
	if (message->total > 1)
		diagnose_write(writer, " (%d such messages wait)", message->total);
	return true;
}

/* A send that waits for room stands behind messages that nobody receives. */
static bool hint_send(struct diagnose_writer *writer, const struct diagnose_job *job, int rank,
		      const struct trace_record *record)
{
	int to = record->peer;
	for (int i = 0; i < job->message_count; i++) {
		const struct diagnose_message *message = &job->messages[i];
		if (message->group != record->group || message->from != rank || message->to != to ||
		    message->seq == record->seq)
			continue;
		diagnose_write(writer,
			       "\n  in the way: %d message%s of rank %d to rank %d that nobody "
			       "receives, the oldest is ",
			       message->total, message->total == 1 ? "" : "s", rank, to);
		write_message(writer, message);
		return true;
	}
	return false;
}

void diagnose_write_hints(struct diagnose_writer *writer, const struct diagnose_job *job,
			  const struct diagnose_verdict *verdict)
{
	uint64_t ranks = verdict->culprits | verdict->waiting;
	int count = 0;
	if (verdict->cause == DIAGNOSE_MISMATCH)
		return;
	for (int r = 0; r < job->size && count < HINT_MAX; r++) {
		if (!(ranks & diagnose_bit(r)))
			continue;
		const struct diagnose_record *part = diagnose_part_of(job, verdict, r).record;
		if (!part || !diagnose_is_point(&part->record) || (part->record.state == TRACE_DONE))
			continue;
		count += part->record.kind == TRACE_SEND
				 ? hint_send(writer, job, r, &part->record)
				 : hint_receive(writer, job, r, &part->record);
	}
}
