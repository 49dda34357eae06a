/* SPDX-License-Identifier: BSD-3-Clause
 * Adds to a snapshot the unreceived messages of ranks that wait, with the call sites of their
 * sends. */
#include "diagnose/diagnose.h"
#include "engine/engine.h"
#include "transport/observe.h"
#include "failure/unexpected.h"

enum { EACH = 2 }; /* messages of one rank to another: the oldest, which say enough */

static bool is_wait(const struct wait_slot_body *wait)
{
	return wait->state == WAIT_WORDS || wait->state == WAIT_ANY_WORD;
}

/* Whether a rank waits in this group, or has just given up to: its send or receive is still on
 * record. */
static bool is_needed_by(const struct diagnose_rank *rank, uint32_t group)
{
	for (uint32_t i = 0; i < rank->thread_count; i++)
		if (rank->threads[i].wait.group == group && is_wait(&rank->threads[i].wait))
			return true;
	for (uint32_t i = 0; i < rank->record_count; i++) {
		const struct trace_record *record = &rank->records[i].record;
		if (record->group == group && record->state == TRACE_RUNNING &&
		    !op_is_collective((enum trace_kind)record->kind))
			return true;
	}
	return false;
}

static bool is_needed(const struct diagnose_snapshot *snapshot, uint32_t group)
{
	for (int r = 0; r < snapshot->size; r++)
		if (is_needed_by(&snapshot->ranks[r], group))
			return true;
	return false;
}

/* Whether the rank asks for a message, which may be in another group. */
static bool may_receive(const struct diagnose_rank *rank)
{
	for (uint32_t i = 0; i < rank->record_count; i++) {
		const struct trace_record *record = &rank->records[i].record;
		if (record->state == TRACE_RUNNING &&
		    (record->kind == TRACE_RECV || record->kind == TRACE_PROBE))
			return true;
	}
	return false;
}

/* The send that the lowest bits of a record's index name. */
static void find_send(const struct trace_view *trace, uint32_t record,
		      struct diagnose_message *message)
{
	struct trace_record send;
	uint32_t step;
	if (!trace_read(trace, trace_index(trace, record), &send, &step) || send.kind != TRACE_SEND)
		return;
	message->seq = send.seq;
	trace_site(trace, &send, message->site, sizeof message->site);
}

static void add_from(const struct diagnose_source *owner, const struct diagnose_source *source,
		     int area, int member, uint32_t group, struct diagnose_snapshot *snapshot)
{
	struct transport_unexpected unexpected[EACH];
	int total;
	int count = transport_unexpected(owner->segment, owner->segment_bytes, snapshot->size,
					 (unsigned)area, member, unexpected, EACH, &total);
	for (int i = 0; i < count && snapshot->message_count < DIAGNOSE_MESSAGE_MAX; i++) {
		struct diagnose_message *message = &snapshot->messages[snapshot->message_count++];
		*message = (struct diagnose_message){.group = group,
						     .from = source->rank,
						     .to = owner->rank,
						     .tag = unexpected[i].tag,
						     .dtype = unexpected[i].dtype,
						     .total = total,
						     .count = unexpected[i].count,
						     .position = unexpected[i].position};
		if (source->trace)
			find_send(source->trace, unexpected[i].record, message);
	}
}

static const struct diagnose_source *find_source(const struct diagnose_source *sources, int count,
						 int rank)
{
	for (int i = 0; i < count; i++)
		if (sources[i].rank == rank)
			return &sources[i];
	return NULL;
}

static void add_messages(const struct diagnose_source *sources, int count,
			 const struct diagnose_source *owner, int area,
			 struct diagnose_snapshot *snapshot)
{
	const struct trace_group *group = &owner->trace->groups[area];
	uint32_t id = atomic_load_explicit(&group->id, memory_order_acquire);
	uint16_t members[TRACE_MEMBER_MAX];
	uint32_t size = trace_read_members(owner->trace, area, members);
	for (uint32_t q = 0; q < size; q++) {
		const struct diagnose_source *source = find_source(sources, count, members[q]);
		if (source)
			add_from(owner, source, area, (int)q, id, snapshot);
	}
}

/* First the messages of the groups in which ranks wait, then those of other groups to ranks that
 * wait for messages. */
void failure_add_unexpected(const struct diagnose_source *sources, int count,
			    struct diagnose_snapshot *snapshot)
{
	snapshot->message_count = 0;
	for (int turn = 0; turn < 2 * count; turn++) {
		const struct diagnose_source *owner = &sources[turn % count];
		bool needed = turn < count;
		if (!owner->trace || !owner->segment || owner->rank < 0 ||
		    owner->rank >= snapshot->size ||
		    (!needed && !may_receive(&snapshot->ranks[owner->rank])))
			continue;
		for (int i = 0; i < TRACE_GROUP_MAX; i++) {
			const struct trace_group *group = &owner->trace->groups[i];
			uint32_t id = atomic_load_explicit(&group->id, memory_order_acquire);
			bool open = atomic_load_explicit(&group->state, memory_order_acquire) !=
				    TRACE_GROUP_CLOSED;
			if (id != 0 && (needed || open) && is_needed(snapshot, id) == needed)
				add_messages(sources, count, owner, i, snapshot);
		}
	}
}
