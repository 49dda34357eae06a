/* SPDX-License-Identifier: BSD-3-Clause
 * Simple facts read out of a snapshot; see facts.h. */
#include "diagnose/facts.h"

#include <stdlib.h>

const struct diagnose_group *diagnose_group_of(const struct diagnose_rank *rank, uint32_t id)
{
	for (uint32_t i = 0; id != 0 && i < rank->group_count; i++)
		if (rank->groups[i].id == id)
			return &rank->groups[i];
	return NULL;
}

const _Atomic uint64_t *diagnose_find_word(const struct diagnose_source *const *by_rank, int size,
					   int owner, uint64_t offset)
{
	if (owner < 0 || owner >= size || !by_rank[owner])
		return NULL;
	const struct diagnose_source *source = by_rank[owner];
	if (!source->segment || source->segment_bytes < 8 || offset % 8 ||
	    offset > source->segment_bytes - 8 || (uintptr_t)source->segment % 8)
		return NULL;
	return (const void *)((const unsigned char *)source->segment + offset);
}

const struct diagnose_group *diagnose_find_group(const struct diagnose_snapshot *snapshot,
						 uint32_t id)
{
	for (int r = 0; id != 0 && r < snapshot->size; r++) {
		const struct diagnose_group *group = diagnose_group_of(&snapshot->ranks[r], id);
		if (group && group->first >= 0 && group->first < snapshot->size)
			return group;
	}
	return NULL;
}

bool diagnose_has_left(const struct diagnose_rank *rank, uint32_t group)
{
	const struct diagnose_group *entry = diagnose_group_of(rank, group);
	return rank->left || (entry && entry->closed);
}

bool diagnose_is_gone(const struct diagnose_rank *rank)
{
	return rank->left || rank->process == DIAGNOSE_PROCESS_DEAD;
}

struct ranks diagnose_gone_from(const struct diagnose_snapshot *snapshot, uint32_t group)
{
	struct ranks gone = {{0}};
	for (int r = 0; r < snapshot->size; r++)
		if (diagnose_is_gone(&snapshot->ranks[r]) ||
		    diagnose_has_left(&snapshot->ranks[r], group))
			ranks_add(&gone, r);
	return gone;
}

const struct ranks *diagnose_gone_again(const struct diagnose_snapshot *snapshot, uint32_t group,
					struct diagnose_gone *last)
{
	if (!last->known || last->group != group)
		*last = (struct diagnose_gone){true, group, diagnose_gone_from(snapshot, group)};
	return &last->ranks;
}

bool diagnose_has_failed(const struct diagnose_rank *rank)
{
	const struct diagnose_record *last = diagnose_newest(rank);
	/* The rank ended by itself before it had a group, so ls_group_open is what has failed. */
	if (!last && rank->known && rank->group_count == 0 && rank->process == DIAGNOSE_PROCESS_DEAD)
		return rank->signal == 0 && rank->exit_code > 0;
	return last && last->record.state == TRACE_FAILED &&
	       ls_status_scope((ls_status)last->record.status) == LS_SCOPE_GROUP;
}

static bool is_satisfied(const struct diagnose_snapshot *snapshot,
			 const struct diagnose_thread *thread, uint32_t edge)
{
	int32_t peer = thread->wait.edges[edge].peer;
	return peer < 0 || peer >= snapshot->size || (thread->satisfied >> edge & 1);
}

/* Whether another rank is about to end the thread's wait. A dead or stopped rank is not. */
static bool is_about_to_end(const struct diagnose_snapshot *snapshot,
			    const struct diagnose_thread *thread)
{
	uint32_t closing_rank = thread->closing_rank;
	if (closing_rank == 0 || closing_rank > (uint32_t)snapshot->size)
		return false;
	enum diagnose_process process = snapshot->ranks[closing_rank - 1].process;
	return process != DIAGNOSE_PROCESS_DEAD && process != DIAGNOSE_PROCESS_STOPPED;
}

/* A thread may wait until a collective is over that another thread of its rank runs. Returns the
 * next thread after `last` that runs it. NULL: no thread is seen to run it, and one may be about
 * to. */
static const struct diagnose_thread *next_running(const struct diagnose_snapshot *snapshot,
						  const struct diagnose_thread *thread,
						  const struct diagnose_thread *last)
{
	size_t r = (size_t)((const char *)thread - (const char *)snapshot->ranks) /
		   sizeof snapshot->ranks[0];
	const struct diagnose_rank *rank = &snapshot->ranks[r];
	const struct diagnose_thread *other = last ? last + 1 : rank->threads;
	for (; other < rank->threads + rank->thread_count; other++) {
		const struct diagnose_record *record = diagnose_record_at(rank, other->wait.record);
		if (other != thread && other->wait.state == WAIT_WORDS &&
		    other->wait.group == thread->wait.group && record &&
		    diagnose_is_collective(&record->record) && diagnose_waits(snapshot, other))
			return other;
	}
	return NULL;
}

/* Whether word i says that a collective is over that another thread of the rank runs
 * (next_running). */
static bool is_run_here(const struct diagnose_snapshot *snapshot,
			const struct diagnose_thread *thread, uint32_t i)
{
	const struct wait_edge *edge = &thread->wait.edges[i];
	return thread->wait.state == WAIT_ANY_WORD && edge->record && edge->peer < 0 &&
	       edge->record != WAIT_RECORD_OTHERS && !(thread->satisfied >> i & 1) &&
	       next_running(snapshot, thread, NULL);
}

/* Words of other threads' operations are no needs of this thread. But it is not blocked if one of
 * these words has come, because it would act on that. */
static bool is_blocked(const struct diagnose_snapshot *snapshot,
		       const struct diagnose_thread *thread)
{
	const struct wait_slot_body *wait = &thread->wait;
	if (is_about_to_end(snapshot, thread) || !thread->stable ||
	    (wait->state != WAIT_WORDS && wait->state != WAIT_ANY_WORD))
		return false;
	for (uint32_t i = 0; wait->state == WAIT_ANY_WORD && i < wait->edge_count; i++) {
		bool others = wait->edges[i].record == WAIT_RECORD_OTHERS;
		if (others ? thread->satisfied >> i & 1
			   : is_satisfied(snapshot, thread, i) && !is_run_here(snapshot, thread, i))
			return false;
	}
	return true;
}

struct ranks diagnose_thread_needs(const struct diagnose_snapshot *snapshot,
				   const struct diagnose_thread *thread)
{
	const struct wait_slot_body *wait = &thread->wait;
	const struct diagnose_thread *running = NULL;
	struct ranks needs = {{0}};
	if (!is_blocked(snapshot, thread))
		return needs;
	for (uint32_t i = 0; i < wait->edge_count; i++) {
		if (wait->edges[i].record == WAIT_RECORD_OTHERS)
			continue;
		if (is_run_here(snapshot, thread, i)) {
			while ((running = next_running(snapshot, thread, running))) {
				struct ranks its = diagnose_thread_needs(snapshot, running);
				ranks_join(&needs, &its);
			}
		} else if (!is_satisfied(snapshot, thread, i)) {
			ranks_add(&needs, wait->edges[i].peer);
		}
	}
	return needs;
}

bool diagnose_waits(const struct diagnose_snapshot *snapshot, const struct diagnose_thread *thread)
{
	struct ranks needs = diagnose_thread_needs(snapshot, thread);
	return ranks_any(&needs);
}

static bool running_is_in_vain(const struct diagnose_snapshot *snapshot,
			       const struct diagnose_thread *thread, const struct ranks *silent)
{
	const struct diagnose_thread *running = NULL;
	while ((running = next_running(snapshot, thread, running))) {
		struct ranks needs = diagnose_thread_needs(snapshot, running);
		if (ranks_meet(&needs, silent))
			return true;
	}
	return false;
}

static uint64_t alternative_bit(uint16_t alternative)
{
	return alternative >= 1 && alternative <= 64 ? UINT64_C(1) << (alternative - 1) : 0;
}

bool diagnose_is_in_vain(const struct diagnose_snapshot *snapshot,
			 const struct diagnose_thread *thread, const struct ranks *silent)
{
	const struct wait_slot_body *wait = &thread->wait;
	struct ranks needs = diagnose_thread_needs(snapshot, thread);
	uint64_t alternatives = 0, ruled_out = 0;
	if (wait->state != WAIT_ANY_WORD)
		return ranks_meet(&needs, silent);
	for (uint32_t i = 0; i < wait->edge_count; i++) {
		const struct wait_edge *edge = &wait->edges[i];
		uint64_t alternative = alternative_bit(edge->alternative);
		if (edge->record == WAIT_RECORD_OTHERS)
			continue;
		bool out = is_run_here(snapshot, thread, i)
				   ? running_is_in_vain(snapshot, thread, silent)
				   : ranks_have(silent, edge->peer);
		if (!out && !alternative)
			return false;
		alternatives |= alternative;
		ruled_out |= out ? alternative : 0;
	}
	return ranks_any(&needs) && !(alternatives & ~ruled_out);
}

const struct diagnose_thread *diagnose_foreign_call(const struct diagnose_rank *rank)
{
	const struct diagnose_thread *longest = NULL;
	if (!rank->known || diagnose_is_gone(rank))
		return NULL;
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		const struct diagnose_thread *thread = &rank->threads[i];
		if (thread->wait.state == WAIT_FOREIGN && thread->stable &&
		    (!longest || thread->wait.since_ns < longest->wait.since_ns))
			longest = thread;
	}
	return longest;
}

bool diagnose_is_armed(const struct diagnose_thread *thread)
{
	const struct wait_slot_body *wait = &thread->wait;
	for (uint32_t i = 0; i < wait->edge_count; i++)
		if (wait->edges[i].record != WAIT_RECORD_OTHERS)
			return false;
	return wait->state == WAIT_ANY_WORD;
}

struct ranks diagnose_rank_needs(const struct diagnose_snapshot *snapshot, int r)
{
	const struct diagnose_rank *rank = &snapshot->ranks[r];
	struct ranks needs = {{0}};
	if (!rank->known || diagnose_is_gone(rank))
		return needs;
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		struct ranks its = diagnose_thread_needs(snapshot, &rank->threads[i]);
		ranks_join(&needs, &its);
	}
	return needs;
}

static void add_waiter(struct ranks *waiters_on, int size, int rank, int waiter)
{
	if (rank >= 0 && rank < size)
		ranks_add(&waiters_on[rank], waiter);
}

struct ranks *diagnose_find_waiters(const struct diagnose_snapshot *snapshot)
{
	struct ranks *waiters_on = calloc((size_t)snapshot->size + 1, sizeof *waiters_on);
	for (int r = 0; waiters_on && r < snapshot->size; r++)
		for (uint32_t i = 0; i < snapshot->ranks[r].thread_count; i++) {
			const struct diagnose_thread *thread = &snapshot->ranks[r].threads[i];
			RANKS_EACH (q, &thread->others)
				add_waiter(waiters_on, snapshot->size, q, r);
			for (uint32_t e = 0; e < thread->wait.edge_count; e++)
				add_waiter(waiters_on, snapshot->size, thread->wait.edges[e].peer,
					   r);
		}
	return waiters_on;
}

struct ranks diagnose_waiters_on(const struct ranks *waiters_on, int size, const struct ranks *ranks)
{
	struct ranks all = ranks_below(waiters_on ? 0 : size);
	for (int r = ranks_first(ranks); waiters_on && r >= 0 && r < size;
	     r = ranks_from(ranks, r + 1))
		ranks_join(&all, &waiters_on[r]);
	return all;
}

bool diagnose_is_collective(const struct trace_record *record)
{
	return trace_kind_facts(record->kind).collective;
}

bool diagnose_is_p2p(const struct trace_record *record)
{
	return record->kind == TRACE_SEND || record->kind == TRACE_RECV ||
	       record->kind == TRACE_PROBE;
}

const struct diagnose_record *diagnose_record_at(const struct diagnose_rank *rank, uint64_t index)
{
	for (uint32_t i = 0; rank && index && i < rank->record_count; i++)
		if (rank->records[i].record.index == index)
			return &rank->records[i];
	return NULL;
}

const struct diagnose_record *diagnose_record_low(const struct diagnose_rank *rank, uint32_t low)
{
	for (uint32_t i = 0; low && i < rank->record_count; i++)
		if ((uint32_t)rank->records[i].record.index == low)
			return &rank->records[i];
	return NULL;
}

const struct diagnose_record *diagnose_record_for(const struct diagnose_rank *rank,
						  const struct diagnose_thread *thread,
						  const struct ranks *whom)
{
	for (uint32_t i = 0; i < thread->wait.edge_count; i++) {
		const struct wait_edge *edge = &thread->wait.edges[i];
		if (!ranks_have(whom, edge->peer) || thread->satisfied >> i & 1 ||
		    edge->record == WAIT_RECORD_OTHERS)
			continue;
		const struct diagnose_record *record = diagnose_record_low(rank, edge->record);
		if (record)
			return record;
	}
	return diagnose_record_at(rank, thread->wait.record);
}

const struct diagnose_record *diagnose_collective_at(const struct diagnose_rank *rank,
						     uint32_t group, uint64_t seq)
{
	for (uint32_t i = 0; rank && i < rank->record_count; i++) {
		const struct trace_record *record = &rank->records[i].record;
		if (record->seq == seq && record->group == group && diagnose_is_collective(record))
			return &rank->records[i];
	}
	return NULL;
}

static uint64_t collectives_entered(const struct diagnose_rank *rank, uint32_t group)
{
	uint64_t entered = 0;
	for (uint32_t i = 0; i < rank->group_count; i++)
		if (rank->groups[i].id == group)
			entered = rank->groups[i].entered;
	for (uint32_t i = 0; i < rank->record_count; i++) {
		const struct trace_record *record = &rank->records[i].record;
		if (record->group == group && diagnose_is_collective(record) && record->seq > entered)
			entered = record->seq;
	}
	return entered;
}

struct ranks diagnose_missing_from(const struct diagnose_snapshot *snapshot, int rank,
				   const struct diagnose_record *record)
{
	const struct ranks *members = diagnose_members(snapshot, record->record.group);
	struct ranks missing = {{0}};
	for (int r = 0; r < snapshot->size; r++)
		if (r != rank && (!members || ranks_have(members, r)) &&
		    collectives_entered(&snapshot->ranks[r], record->record.group) <
			    record->record.seq)
			ranks_add(&missing, r);
	return missing;
}

const struct diagnose_record *diagnose_newest(const struct diagnose_rank *rank)
{
	return rank && rank->record_count ? &rank->records[0] : NULL;
}

const struct diagnose_record *diagnose_newest_like(const struct diagnose_rank *rank,
						   const struct trace_record *like, int other)
{
	for (uint32_t i = 0; rank && like && i < rank->record_count; i++) {
		const struct trace_record *record = &rank->records[i].record;
		if (record->group != like->group)
			continue;
		if (diagnose_is_collective(like) ? diagnose_is_collective(record)
						 : diagnose_is_p2p(record) && record->peer == other)
			return &rank->records[i];
	}
	return NULL;
}
