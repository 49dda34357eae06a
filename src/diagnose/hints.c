/* SPDX-License-Identifier: BSD-3-Clause
 * What else is known of sends and receives that match nothing: messages that nearly fit, and what
 * lies in the way of others. Lines under the report's lines on the ranks. */
#include <inttypes.h>
#include <string.h>

#include "diagnose/facts.h"

enum { HINT_MAX = 4, MESSAGE_BYTES = 512 };

static void write_message(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			  const struct diagnose_message *message)
{
	char text[MESSAGE_BYTES];
	diagnose_message_text(message, diagnose_members(snapshot, message->group), text,
			      sizeof text);
	diagnose_write(writer, "%s", text);
}

enum { OTHER_TAG = 1, OTHER_SOURCE = 2, OTHER_GROUP = 4 }; /* the first is the likeliest slip */

/* In which fields an unreceived message of the rank differs from what the rank asks for. */
static unsigned fields_that_differ(const struct diagnose_message *message,
				   const struct trace_record *asked)
{
	unsigned fields = 0;
	if (asked->tag >= 0 && message->tag != asked->tag)
		fields |= OTHER_TAG;
	if (asked->peer >= 0 && message->from != asked->peer)
		fields |= OTHER_SOURCE;
	if (message->group != asked->group)
		fields |= OTHER_GROUP;
	return fields;
}

/* The message that differs from the receive in one field only. */
static const struct diagnose_message *find_nearly(const struct diagnose_snapshot *snapshot, int rank,
						  const struct trace_record *asked, unsigned *field)
{
	const struct diagnose_message *best = NULL;
	*field = 0;
	for (int i = 0; i < snapshot->message_count; i++) {
		const struct diagnose_message *message = &snapshot->messages[i];
		unsigned fields = fields_that_differ(message, asked);
		if (message->to != rank || __builtin_popcount(fields) != 1 ||
		    (best && fields >= *field))
			continue;
		best = message;
		*field = fields;
	}
	return best;
}

/* "rank 1 asks it for tag 5", "rank 1 asks rank 2 for tag 5", "rank 1 asks for a message of the
 * world group" */
static void write_asked(struct diagnose_writer *writer, int rank, const struct trace_record *asked,
			unsigned field)
{
	diagnose_write(writer, "rank %d asks ", rank);
	if (field == OTHER_GROUP) {
		diagnose_write(writer, "for a message");
		if (asked->group == TRACE_GROUP_WORLD)
			diagnose_write(writer, " of the world group");
		else
			diagnose_write_group(writer, asked->group);
		return;
	}
	if (asked->peer < 0)
		diagnose_write(writer, "any rank");
	else if (field == OTHER_SOURCE)
		diagnose_write(writer, "rank %d", asked->peer);
	else
		diagnose_write(writer, "it");
	diagnose_write(writer, " for ");
	diagnose_write_tag(writer, asked->tag);
}

static bool hint_message(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			 int rank, const struct trace_record *asked)
{
	unsigned field;
	const struct diagnose_message *message = find_nearly(snapshot, rank, asked, &field);
	if (!message)
		return false;
	diagnose_write(writer, "\n  not received: ");
	write_message(writer, snapshot, message);
	diagnose_write(writer, "; ");
	write_asked(writer, rank, asked, field);
	if (message->total > 1)
		diagnose_write(writer, " (%d messages of rank %d to rank %d wait)", message->total,
			       message->from, message->to);
	return true;
}

/* The newest receive of the rank with a wildcard for source or tag that took a message which the
 * waiting receive would match. */
static const struct diagnose_record *find_taker(const struct diagnose_rank *rank,
						const struct trace_record *asked)
{
	for (uint32_t i = 0; i < rank->record_count; i++) {
		const struct trace_record *took = &rank->records[i].record;
		if (took->kind == TRACE_RECV && took->state == TRACE_DONE && took->wildcards &&
		    took->index < asked->index && took->group == asked->group &&
		    (asked->peer < 0 || took->peer == asked->peer) &&
		    (asked->tag < 0 || took->tag == asked->tag) &&
		    (took->wildcards & ~asked->wildcards))
			return &rank->records[i];
	}
	return NULL;
}

static bool hint_taken(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
		       int rank, const struct trace_record *asked)
{
	const struct diagnose_record *took = find_taker(&snapshot->ranks[rank], asked);
	if (!took)
		return false;
	diagnose_write(writer, "\n  taken before: ");
	diagnose_write_name(writer, &took->record);
	diagnose_write(writer, " of rank %d from ", rank);
	if (took->record.wildcards & TRACE_ANY_SOURCE)
		diagnose_write(writer, "any rank");
	else
		diagnose_write(writer, "rank %d", took->record.peer);
	if (took->record.wildcards & TRACE_ANY_TAG)
		diagnose_write(writer, " with any tag");
	diagnose_write_site(writer, took);
	diagnose_write(writer, ", took a message of rank %d (tag %d)", took->record.peer,
		       took->record.tag);
	return true;
}

static unsigned hint_receive(struct diagnose_writer *writer,
			     const struct diagnose_snapshot *snapshot, int rank,
			     const struct diagnose_verdict *verdict,
			     const struct trace_record *asked)
{
	if (hint_message(writer, snapshot, rank, asked))
		return DIAGNOSE_HINT_NEARLY;
	bool taken = verdict->cause != DIAGNOSE_DIED && hint_taken(writer, snapshot, rank, asked);
	return taken ? DIAGNOSE_HINT_TAKEN : 0;
}

/* A send that waits for room stands behind messages that nobody receives. */
static unsigned hint_send(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			  int rank, const struct trace_record *record)
{
	int to = record->peer;
	for (int i = 0; i < snapshot->message_count; i++) {
		const struct diagnose_message *message = &snapshot->messages[i];
		if (message->group != record->group || message->from != rank || message->to != to ||
		    message->seq == record->seq)
			continue;
		diagnose_write(writer,
			       "\n  in the way: %d message%s of rank %d to rank %d that nobody "
			       "receives, the oldest is ",
			       message->total, message->total == 1 ? "" : "s", rank, to);
		write_message(writer, snapshot, message);
		return DIAGNOSE_HINT_IN_THE_WAY;
	}
	return 0;
}

unsigned diagnose_write_hints(struct diagnose_writer *writer,
			      const struct diagnose_snapshot *snapshot,
			      const struct diagnose_verdict *verdict)
{
	struct ranks ranks = verdict->culprits;
	unsigned hints = 0;
	int count = 0;
	if (verdict->cause == DIAGNOSE_MISMATCH)
		return 0;
	ranks_join(&ranks, &verdict->waiting);
	for (int r = 0; r < snapshot->size && count < HINT_MAX; r++) {
		if (!ranks_have(&ranks, r))
			continue;
		const struct diagnose_record *part = diagnose_part_of(snapshot, verdict, r).record;
		if (!part || !diagnose_is_p2p(&part->record) || (part->record.state == TRACE_DONE))
			continue;
		unsigned hint = part->record.kind == TRACE_SEND
					? hint_send(writer, snapshot, r, &part->record)
					: hint_receive(writer, snapshot, r, verdict, &part->record);
		count += hint != 0;
		hints |= hint;
	}
	return hints;
}
