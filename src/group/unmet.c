/* SPDX-License-Identifier: BSD-3-Clause
 * Adds to a snapshot which messages lie with ranks that wait, and who has sent them from where. */
#include "diagnose/diagnose.h"
#include "group.h"
#include "transport/transport.h"

enum { EACH = 2 }; /* of one rank to another: the oldest, which says enough */

/* Whether a thread of any rank waits in this group. */
static bool is_waited_in(const struct diagnose_job *job, uint32_t group)
{
	for (int r = 0; r < job->size; r++)
		for (uint32_t i = 0; i < job->ranks[r].thread_count; i++) {
			const struct wait_slot_body *wait = &job->ranks[r].threads[i].wait;
			if (wait->group == group &&
			    (wait->state == WAIT_WORDS || wait->state == WAIT_ANY_WORD))
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
		     int area, int member, uint32_t group, struct diagnose_job *job)
{
	struct transport_unmet unmet[EACH];
	int total;
	int count = transport_unmet(owner->segment, owner->segment_bytes, job->size, (unsigned)area,
				    member, unmet, EACH, &total);
	for (int i = 0; i < count && job->message_count < DIAGNOSE_MESSAGE_MAX; i++) {
		struct diagnose_message *message = &job->messages[job->message_count++];
		*message = (struct diagnose_message){.group = group,
						     .from = source->rank,
						     .to = owner->rank,
						     .tag = unmet[i].tag,
						     .dtype = unmet[i].dtype,
						     .total = total,
						     .count = unmet[i].count,
						     .position = unmet[i].position};
		if (source->trace)
			find_send(source->trace, unmet[i].record, message);
	}
}

static const struct diagnose_source *find(const struct diagnose_source *sources, int count, int rank)
{
	for (int i = 0; i < count; i++)
		if (sources[i].rank == rank)
			return &sources[i];
	return NULL;
}

void group_add_messages(const struct diagnose_source *sources, int count, struct diagnose_job *job)
{
	job->message_count = 0;
	for (int s = 0; s < count; s++) {
		const struct diagnose_source *owner = &sources[s];
		for (int i = 0; owner->trace && owner->segment && i < TRACE_GROUP_MAX; i++) {
			const struct trace_group *group = &owner->trace->groups[i];
			uint32_t id = atomic_load_explicit(&group->id, memory_order_acquire);
			uint32_t size = __atomic_load_n(&group->size, __ATOMIC_RELAXED);
			if (id == 0 || size > (uint32_t)job->size || !is_waited_in(job, id))
				continue;
			for (uint32_t q = 0; q < size; q++) {
				const struct diagnose_source *source =
					find(sources, count,
					     __atomic_load_n(&group->members[q], __ATOMIC_RELAXED));
				if (source)
					add_from(owner, source, i, (int)q, id, job);
			}
		}
	}
}
