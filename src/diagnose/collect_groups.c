/* SPDX-License-Identifier: BSD-3-Clause
 * The groups of a snapshot. The snapshot reads which ranks have closed the groups of waits before
 * it reads the awaited words: a rank that had closed a group by then cannot store a word any more.
 * The counts of collectives come last. */
#include <string.h>

#include "base/seqlock.h"
#include "diagnose/facts.h"

/* Acquire: the last look at the id stays behind these loads. */
#define GET(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)

/* False if the entry is not used, or was changed meanwhile. */
static bool copy_group(const struct trace_view *trace, int at, struct diagnose_group *to,
		       struct ranks *members)
{
	const struct trace_group *from = &trace->groups[at];
	uint16_t numbers[TRACE_MEMBER_MAX];
	*members = (struct ranks){{0}};
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
	uint32_t count = trace_read_members(trace, at, numbers);
	to->first = count > 0 ? numbers[0] : -1;
	for (uint32_t i = 0; i < count; i++)
		ranks_add(members, numbers[i]);
	return to->id && atomic_load_explicit(&from->id, memory_order_relaxed) == to->id;
}

static bool find_group(const struct trace_view *trace, uint32_t id, struct diagnose_group *out,
		       struct ranks *members)
{
	for (int i = 0; id != 0 && i < TRACE_GROUP_MAX; i++)
		if (atomic_load_explicit(&trace->groups[i].id, memory_order_relaxed) == id &&
		    copy_group(trace, i, out, members))
			return true;
	return false;
}

/* Adds the members only if all of them are ranks of the job. */
static void add_members(struct diagnose_snapshot *snapshot, const struct diagnose_group *group,
			const struct ranks *members)
{
	struct ranks all = ranks_below(snapshot->size);
	if (group->size <= TRACE_MEMBER_MAX && (uint32_t)ranks_count(members) == group->size &&
	    ranks_are_in(members, &all))
		diagnose_add_members(snapshot, group->id, members);
}

/* NULL: there is no such group, or no room (*full), or the rank has it already. */
static struct diagnose_group *add_group(const struct trace_view *trace, uint32_t id,
					struct diagnose_snapshot *snapshot,
					struct diagnose_rank *rank, bool *full)
{
	struct diagnose_group group = {0};
	struct ranks members;
	*full = false;
	if (diagnose_group_of(rank, id) || !find_group(trace, id, &group, &members))
		return NULL;
	add_members(snapshot, &group, &members);
	*full = rank->group_count == DIAGNOSE_GROUP_MAX;
	if (*full)
		return NULL;
	rank->groups[rank->group_count] = group;
	return &rank->groups[rank->group_count++];
}

/* ---- before anything else ---- */

enum { WANTED_MAX = 2048 };

struct wanted {
	int count;
	uint32_t ids[WANTED_MAX];
};

static bool is_wanted(const struct wanted *wanted, uint32_t id)
{
	for (int i = 0; i < wanted->count; i++)
		if (wanted->ids[i] == id)
			return true;
	return false;
}

/* Adds the groups in which the threads of a rank wait now. False: there are too many. */
static bool want_waiting(const struct trace_view *trace, struct wanted *wanted)
{
	for (int i = 0; i < WAIT_SLOT_MAX; i++) {
		const struct wait_slot *slot = &trace->wait_table->slots[i];
		uint32_t id = __atomic_load_n(&slot->body.group, __ATOMIC_RELAXED);
		if (!atomic_load_explicit(&slot->taken, memory_order_acquire) || id == 0 ||
		    is_wanted(wanted, id))
			continue;
		if (wanted->count == WANTED_MAX)
			return false;
		wanted->ids[wanted->count++] = id;
	}
	return true;
}

/* Copies the wanted groups of one rank. */
static void add_wanted(const struct trace_view *trace, const struct wanted *wanted,
		       struct diagnose_snapshot *snapshot, struct diagnose_rank *rank)
{
	for (int i = 0; i < TRACE_GROUP_MAX; i++) {
		bool full;
		uint32_t id = atomic_load_explicit(&trace->groups[i].id, memory_order_relaxed);
		if (id == 0 || !is_wanted(wanted, id))
			continue;
		struct diagnose_group *group = add_group(trace, id, snapshot, rank, &full);
		if (group)
			group->closed = group->state == TRACE_GROUP_CLOSED;
		/* Whether a wait in that group is about to end is not known. */
		rank->incomplete |= full;
	}
}

void diagnose_copy_groups_first(const struct trace_view *const *traces,
				struct diagnose_snapshot *snapshot)
{
	struct wanted wanted = {.count = 1, .ids = {TRACE_GROUP_WORLD}};
	for (int r = 0; r < snapshot->size; r++)
		if (traces[r] && !want_waiting(traces[r], &wanted))
			snapshot->ranks[r].incomplete = true;
	for (int r = 0; r < snapshot->size; r++)
		if (traces[r])
			add_wanted(traces[r], &wanted, snapshot, &snapshot->ranks[r]);
}

/* ---- at last ---- */

void diagnose_copy_groups_last(const struct trace_view *trace, struct diagnose_snapshot *snapshot,
			       struct diagnose_rank *rank)
{
	struct ranks members;
	for (uint32_t i = 0; i < rank->group_count; i++) {
		struct diagnose_group *group = &rank->groups[i], now = {0};
		if (!find_group(trace, group->id, &now, &members))
			continue;
		now.closed = group->closed;
		*group = now;
	}
	bool full;
	for (uint32_t i = 0; i < rank->record_count; i++)
		add_group(trace, rank->records[i].record.group, snapshot, rank, &full);
	for (int i = 0; i < TRACE_GROUP_MAX && rank->group_count < DIAGNOSE_GROUP_MAX; i++)
		add_group(trace, atomic_load_explicit(&trace->groups[i].id, memory_order_relaxed),
			  snapshot, rank, &full);
}

void diagnose_translate(const struct trace_view *trace, struct diagnose_snapshot *snapshot,
			struct diagnose_record *record)
{
	struct diagnose_group group;
	struct ranks members;
	int32_t peer = record->record.peer;
	if (record->record.group == TRACE_GROUP_WORLD)
		return;
	record->record.peer = -1;
	for (int i = 0; i < TRACE_GROUP_MAX; i++) {
		uint16_t numbers[TRACE_MEMBER_MAX];
		if (atomic_load_explicit(&trace->groups[i].id, memory_order_relaxed) !=
			    record->record.group ||
		    !copy_group(trace, i, &group, &members) || group.size > trace->member_max)
			continue;
		add_members(snapshot, &group, &members);
		if (peer < 0 || (uint32_t)peer >= trace_read_members(trace, i, numbers))
			return;
		int number = numbers[peer];
		if (number < snapshot->size)
			record->record.peer = number;
		return;
	}
}
