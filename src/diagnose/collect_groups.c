/* SPDX-License-Identifier: BSD-3-Clause
 * The groups of a snapshot. The snapshot reads which ranks have closed the groups of waits before
 * it reads the awaited words: a rank that had closed a group by then cannot store a word any more.
 * The counts of collectives come last. */
#include <string.h>

#include "base/seqlock.h"
#include "diagnose/facts.h"

/* Acquire: the last look at the id stays behind them. */
#define GET(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)

/* False if the entry is not used, or was changed meanwhile. */
static bool copy_group(const struct trace_group *from, struct diagnose_group *to)
{
	to->id = atomic_load_explicit(&from->id, memory_order_acquire);
	to->parent = GET(from->parent);
	to->size = GET(from->size);
	to->state = atomic_load_explicit(&from->state, memory_order_acquire);
	to->first_area = GET(from->first_area);
	to->claim_offset = GET(from->claim_offset);
	to->cause_offset = GET(from->cause_offset);
	to->rank = GET(from->rank);
	to->entered = atomic_load_explicit(&from->entered, memory_order_acquire);
	to->finished = atomic_load_explicit(&from->finished, memory_order_acquire);
	seqlock_load(to->members, from->members, sizeof to->members);
	return to->id && atomic_load_explicit(&from->id, memory_order_relaxed) == to->id;
}

static bool find_group(const struct trace_view *trace, uint32_t id, struct diagnose_group *out)
{
	for (int i = 0; id != 0 && i < TRACE_GROUP_MAX; i++)
		if (atomic_load_explicit(&trace->groups[i].id, memory_order_relaxed) == id &&
		    copy_group(&trace->groups[i], out))
			return true;
	return false;
}

const struct diagnose_group *diagnose_group_of(const struct diagnose_rank *rank, uint32_t id)
{
	for (uint32_t i = 0; id != 0 && i < rank->group_count; i++)
		if (rank->groups[i].id == id)
			return &rank->groups[i];
	return NULL;
}

/* NULL: there is no such group, or no room (*full), or it is there already. */
static struct diagnose_group *add_group(const struct trace_view *trace, uint32_t id,
					struct diagnose_rank *rank, bool *full)
{
	struct diagnose_group group = {0};
	*full = false;
	if (diagnose_group_of(rank, id) || !find_group(trace, id, &group))
		return NULL;
	*full = rank->group_count == DIAGNOSE_GROUP_MAX;
	if (*full)
		return NULL;
	rank->groups[rank->group_count] = group;
	return &rank->groups[rank->group_count++];
}

/* ---- before anything else ---- */

enum { WANTED_MAX = DIAGNOSE_RANK_MAX * WAIT_SLOT_MAX }; /* each thread waits in one */

struct wanted {
	int count;
	uint32_t ids[WANTED_MAX];
};

static void want(struct wanted *wanted, uint32_t id)
{
	for (int i = 0; i < wanted->count; i++)
		if (wanted->ids[i] == id)
			return;
	if (id != 0 && wanted->count < WANTED_MAX)
		wanted->ids[wanted->count++] = id;
}

/* In which the threads of a rank wait just now. */
static void want_waiting(const struct trace_view *trace, struct wanted *wanted)
{
	for (int i = 0; i < WAIT_SLOT_MAX; i++) {
		const struct wait_slot *slot = &trace->wait_table->slots[i];
		if (atomic_load_explicit(&slot->taken, memory_order_acquire))
			want(wanted, __atomic_load_n(&slot->body.group, __ATOMIC_RELAXED));
	}
}

void diagnose_copy_groups_first(const struct trace_view *const *traces, struct diagnose_job *job)
{
	struct wanted wanted = {.count = 1, .ids = {TRACE_GROUP_WORLD}};
	for (int r = 0; r < job->size; r++)
		if (traces[r])
			want_waiting(traces[r], &wanted);
	for (int r = 0; r < job->size; r++)
		for (int i = 0; traces[r] && i < wanted.count; i++) {
			bool full;
			struct diagnose_group *group =
				add_group(traces[r], wanted.ids[i], &job->ranks[r], &full);
			if (group)
				group->closed = group->state == TRACE_GROUP_CLOSED;
			/* Whether a wait in it is about to end is not known. */
			job->ranks[r].incomplete |= full;
		}
}

/* ---- at last ---- */

void diagnose_copy_groups_last(const struct trace_view *trace, struct diagnose_rank *rank)
{
	for (uint32_t i = 0; i < rank->group_count; i++) {
		struct diagnose_group *group = &rank->groups[i], now = {0};
		if (!find_group(trace, group->id, &now))
			continue;
		now.closed = group->closed;
		*group = now;
	}
	bool full;
	for (uint32_t i = 0; i < rank->record_count; i++)
		add_group(trace, rank->records[i].record.group, rank, &full);
	for (int i = 0; i < TRACE_GROUP_MAX && rank->group_count < DIAGNOSE_GROUP_MAX; i++)
		add_group(trace, atomic_load_explicit(&trace->groups[i].id, memory_order_relaxed),
			  rank, &full);
}

void diagnose_translate(const struct trace_view *trace, int size, struct diagnose_record *record)
{
	struct diagnose_group group;
	int32_t peer = record->record.peer;
	record->members = 0;
	if (record->record.group == TRACE_GROUP_WORLD)
		return;
	record->record.peer = -1;
	if (!find_group(trace, record->record.group, &group) || group.size > TRACE_MEMBER_MAX)
		return;
	for (uint32_t i = 0; i < group.size; i++)
		if (group.members[i] < size)
			record->members |= diagnose_bit(group.members[i]);
	if (peer >= 0 && (uint32_t)peer < group.size && group.members[peer] < size)
		record->record.peer = group.members[peer];
}
