/* SPDX-License-Identifier: BSD-3-Clause
 * Operations of a rank that may end although no awaited word changes: nonblocking messages have
 * time limits, and end when their group fails or when a needed member is dead or has left. The
 * callback of such an operation may wake a thread that sleeps outside of Lockstep. Collectives need
 * no such check: the thread that runs them is in a wait. */
#include "base/seqlock.h"
#include "diagnose/facts.h"

static bool is_gone(const struct diagnose_snapshot *snapshot,
		    const struct diagnose_source *const *by_rank, int q, uint32_t id)
{
	const struct trace_view *trace = by_rank[q] ? by_rank[q]->trace : NULL;
	if (diagnose_is_gone(&snapshot->ranks[q]))
		return true;
	for (int i = 0; trace && i < TRACE_GROUP_MAX; i++)
		if (atomic_load_explicit(&trace->groups[i].id, memory_order_acquire) == id)
			return atomic_load(&trace->groups[i].state) == TRACE_GROUP_CLOSED;
	return false;
}

/* Members that are dead or have left, unless the rank has found that no operation with a callback
 * needs them. */
static bool has_unspared(const struct diagnose_snapshot *snapshot,
			 const struct diagnose_source *const *by_rank,
			 const struct trace_view *trace, int at, uint32_t id)
{
	const struct trace_group *group = &trace->groups[at];
	uint16_t members[TRACE_MEMBER_MAX];
	uint32_t size = trace_read_members(trace, at, members);
	for (uint32_t i = 0; i < size; i++)
		if (!(atomic_load(&group->spared[i / 64]) & ranks_bit((int)i)) &&
		    (members[i] >= snapshot->size || is_gone(snapshot, by_rank, members[i], id)))
			return true;
	return false;
}

/* Whether the group has failed, or a rank is about to say why. */
static bool is_ending(const struct diagnose_snapshot *snapshot,
		      const struct diagnose_source *const *by_rank, const struct trace_view *trace,
		      int at)
{
	const struct trace_group *group = &trace->groups[at];
	uint64_t claim_at = __atomic_load_n(&group->claim_offset, __ATOMIC_ACQUIRE);
	uint64_t cause_at = __atomic_load_n(&group->cause_offset, __ATOMIC_ACQUIRE);
	uint16_t members[TRACE_MEMBER_MAX] = {0};
	(void)trace_read_members(trace, at, members);
	int owner = members[0];
	const _Atomic uint64_t *claim = diagnose_find_word(by_rank, snapshot->size, owner, claim_at);
	const _Atomic uint64_t *cause = diagnose_find_word(by_rank, snapshot->size, owner, cause_at);
	if (cause_at == 0 || !claim || !cause)
		return false; /* nor is the group's failure seen for threads that wait in it */
	uint32_t holder = (uint32_t)atomic_load_explicit(claim, memory_order_acquire);
	if (wait_has_failed(atomic_load_explicit(cause, memory_order_acquire)))
		return true;
	if (holder == 0 || holder > (uint32_t)snapshot->size)
		return false;
	enum diagnose_process process = snapshot->ranks[holder - 1].process;
	return process != DIAGNOSE_PROCESS_DEAD && process != DIAGNOSE_PROCESS_STOPPED;
}

bool diagnose_may_end(const struct diagnose_source *const *by_rank,
		      const struct diagnose_snapshot *snapshot, const struct trace_view *trace,
		      uint32_t group)
{
	for (int i = 0; i < TRACE_GROUP_MAX; i++)
		if (atomic_load_explicit(&trace->groups[i].id, memory_order_acquire) == group)
			return atomic_load(&trace->groups[i].limits) != 0 ||
			       is_ending(snapshot, by_rank, trace, i);
	return true;
}

/* Marks the threads that wait in a group: they may go on when a nonblocking message of the group
 * reaches its time limit. */
static void set_limited(struct diagnose_rank *rank, uint32_t id)
{
	for (uint32_t i = 0; i < rank->thread_count; i++)
		if (rank->threads[i].wait.group == id)
			rank->threads[i].wait.has_own_limit = 1;
}

void diagnose_look_at_callbacks(const struct diagnose_source *const *by_rank,
				struct diagnose_snapshot *snapshot)
{
	for (int r = 0; r < snapshot->size; r++) {
		const struct trace_view *trace = by_rank[r] ? by_rank[r]->trace : NULL;
		struct diagnose_rank *rank = &snapshot->ranks[r];
		for (int i = 0; trace && i < TRACE_GROUP_MAX; i++) {
			const struct trace_group *group = &trace->groups[i];
			uint32_t id = atomic_load_explicit(&group->id, memory_order_acquire);
			bool limited = atomic_load(&group->limits) != 0;
			if (id && limited)
				set_limited(rank, id);
			if (!id || atomic_load(&group->callbacks) == 0)
				continue;
			rank->has_callbacks = true;
			rank->calls_back |= limited || is_ending(snapshot, by_rank, trace, i) ||
					    has_unspared(snapshot, by_rank, trace, i, id);
		}
	}
}
