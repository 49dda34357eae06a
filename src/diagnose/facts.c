/* SPDX-License-Identifier: BSD-3-Clause
 * Simple facts read out of a job; see facts.h. */
#include "diagnose/facts.h"

#include <stdlib.h>
#include <string.h>

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

int diagnose_set_max(int size)
{
	return 128 + 2 * size;
}

static size_t sets_at(int size)
{
	return sizeof(struct diagnose_snapshot) + (size_t)size * sizeof(struct diagnose_rank);
}

size_t diagnose_snapshot_bytes(int size)
{
	if (size < 0 || size > RANKS_JOB_MAX)
		return 0;
	return sets_at(size) + (size_t)diagnose_set_max(size) * sizeof(struct diagnose_set);
}

struct diagnose_snapshot *diagnose_snapshot_new(int size)
{
	size_t bytes = diagnose_snapshot_bytes(size);
	struct diagnose_snapshot *job = bytes ? calloc(1, bytes) : NULL;
	if (job)
		job->size = size;
	return job;
}

void diagnose_snapshot_clear(struct diagnose_snapshot *job, int size)
{
	size_t sets = sets_at(size);
	memset(job, 0, offsetof(struct diagnose_snapshot, ranks));
	for (int r = 0; r < size; r++)
		memset(&job->ranks[r], 0, offsetof(struct diagnose_rank, groups));
	memset((char *)job + sets, 0, diagnose_snapshot_bytes(size) - sets);
	job->size = size;
}

/* A byte that is neither 0 nor 1 must not be read as a bool. */
static bool is_flag(const bool *flag)
{
	unsigned char byte;
	memcpy(&byte, flag, 1);
	return byte <= 1;
}

static bool rank_is_valid(const struct diagnose_rank *rank, int r)
{
	uint32_t process;
	memcpy(&process, &rank->process, sizeof process);
	if (!is_flag(&rank->known) || !is_flag(&rank->incomplete) || !is_flag(&rank->awake) ||
	    !is_flag(&rank->idle) || !is_flag(&rank->has_callbacks) || !is_flag(&rank->calls_back) ||
	    !is_flag(&rank->serial) || !is_flag(&rank->awaits_mutex) || !is_flag(&rank->left) ||
	    process > DIAGNOSE_PROCESS_DEAD || rank->rank != r ||
	    rank->group_count > DIAGNOSE_GROUP_MAX || rank->thread_count > WAIT_SLOT_MAX ||
	    rank->record_count > DIAGNOSE_RECORD_MAX || !memchr(rank->host, 0, sizeof rank->host) ||
	    !memchr(rank->program, 0, sizeof rank->program) ||
	    !memchr(rank->python, 0, sizeof rank->python))
		return false;
	for (uint32_t i = 0; i < rank->thread_count; i++)
		if (!is_flag(&rank->threads[i].stable) || !is_flag(&rank->threads[i].asleep) ||
		    rank->threads[i].wait.edge_count > WAIT_EDGE_MAX ||
		    !memchr(rank->threads[i].wait.foreign, 0, WAIT_FOREIGN_BYTES))
			return false;
	for (uint32_t i = 0; i < rank->record_count; i++)
		if (!memchr(rank->records[i].site, 0, sizeof rank->records[i].site))
			return false;
	return true;
}

bool diagnose_snapshot_is_valid(const struct diagnose_snapshot *job, size_t bytes)
{
	if (bytes < sizeof *job || job->size < 0 || job->size > RANKS_JOB_MAX ||
	    bytes != diagnose_snapshot_bytes(job->size))
		return false;
	if (job->message_count < 0 || job->message_count > DIAGNOSE_MESSAGE_MAX)
		return false;
	for (int i = 0; i < job->message_count; i++)
		if (!memchr(job->messages[i].site, 0, sizeof job->messages[i].site))
			return false;
	for (int r = 0; r < job->size; r++)
		if (!rank_is_valid(&job->ranks[r], r))
			return false;
	return true;
}

/* ---- groups ---- */

const struct diagnose_set *diagnose_sets(const struct diagnose_snapshot *job)
{
	return (const struct diagnose_set *)((uintptr_t)job + sets_at(job->size));
}

/* The place of a group, or the free place where the group belongs; NULL: other groups have all
 * places. */
static struct diagnose_set *find_set(const struct diagnose_snapshot *job, uint32_t id)
{
	struct diagnose_set *sets = (struct diagnose_set *)((uintptr_t)job + sets_at(job->size));
	uint32_t max = (uint32_t)diagnose_set_max(job->size);
	uint32_t first = id * UINT32_C(0x9e3779b1) % max;
	for (uint32_t i = 0; i < max; i++) {
		struct diagnose_set *set = &sets[(first + i) % max];
		if (set->group == id || set->group == 0)
			return set;
	}
	return NULL;
}

void diagnose_add_members(struct diagnose_snapshot *job, uint32_t id, const struct ranks *members)
{
	struct diagnose_set *set = id == 0 || id == TRACE_GROUP_WORLD ? NULL : find_set(job, id);
	if (!set || set->group == id)
		return;
	set->group = id;
	set->members = *members;
	job->set_count++;
}

const struct ranks *diagnose_members(const struct diagnose_snapshot *job, uint32_t id)
{
	const struct diagnose_set *set =
		id == 0 || id == TRACE_GROUP_WORLD ? NULL : find_set(job, id);
	return set && set->group == id ? &set->members : NULL;
}

const struct diagnose_group *diagnose_find_group(const struct diagnose_snapshot *job, uint32_t id)
{
	for (int r = 0; id != 0 && r < job->size; r++) {
		const struct diagnose_group *group = diagnose_group_of(&job->ranks[r], id);
		if (group && group->first >= 0 && group->first < job->size)
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

struct ranks diagnose_gone_from(const struct diagnose_snapshot *job, uint32_t group)
{
	struct ranks gone = {{0}};
	for (int r = 0; r < job->size; r++)
		if (diagnose_is_gone(&job->ranks[r]) || diagnose_has_left(&job->ranks[r], group))
			ranks_add(&gone, r);
	return gone;
}

const struct ranks *diagnose_gone_again(const struct diagnose_snapshot *job, uint32_t group,
					struct diagnose_gone *last)
{
	if (!last->known || last->group != group)
		*last = (struct diagnose_gone){true, group, diagnose_gone_from(job, group)};
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

static bool is_satisfied(const struct diagnose_snapshot *job, const struct diagnose_thread *thread,
			 uint32_t edge)
{
	int32_t peer = thread->wait.edges[edge].peer;
	return peer < 0 || peer >= job->size || (thread->satisfied >> edge & 1);
}

/* Whether another rank is about to end the thread's wait. A dead or stopped rank is not. */
static bool is_about_to_end(const struct diagnose_snapshot *job,
			    const struct diagnose_thread *thread)
{
	uint32_t closing_rank = thread->closing_rank;
	if (closing_rank == 0 || closing_rank > (uint32_t)job->size)
		return false;
	enum diagnose_process process = job->ranks[closing_rank - 1].process;
	return process != DIAGNOSE_PROCESS_DEAD && process != DIAGNOSE_PROCESS_STOPPED;
}

/* A thread may wait until a collective is over that another thread of its rank runs. Returns the
 * next thread after `last` that runs it. NULL: no thread is seen to run it, and one may be about
 * to. */
static const struct diagnose_thread *next_running(const struct diagnose_snapshot *job,
						  const struct diagnose_thread *thread,
						  const struct diagnose_thread *last)
{
	size_t r = (size_t)((const char *)thread - (const char *)job->ranks) / sizeof job->ranks[0];
	const struct diagnose_rank *rank = &job->ranks[r];
	const struct diagnose_thread *other = last ? last + 1 : rank->threads;
	for (; other < rank->threads + rank->thread_count; other++) {
		const struct diagnose_record *record = diagnose_record_at(rank, other->wait.record);
		if (other != thread && other->wait.state == WAIT_WORDS &&
		    other->wait.group == thread->wait.group && record &&
		    diagnose_is_collective(&record->record) && diagnose_waits(job, other))
			return other;
	}
	return NULL;
}

/* Whether word i says that a collective is over that another thread of the rank runs
 * (next_running). */
static bool is_run_here(const struct diagnose_snapshot *job, const struct diagnose_thread *thread,
			uint32_t i)
{
	const struct wait_edge *edge = &thread->wait.edges[i];
	return thread->wait.state == WAIT_ANY_WORD && edge->record && edge->peer < 0 &&
	       edge->record != WAIT_RECORD_OTHERS && !(thread->satisfied >> i & 1) &&
	       next_running(job, thread, NULL);
}

/* Words of other threads' operations are no needs of this thread. But it is not blocked if one of
 * these words has come, because it would act on that. */
static bool is_blocked(const struct diagnose_snapshot *job, const struct diagnose_thread *thread)
{
	const struct wait_slot_body *wait = &thread->wait;
	if (is_about_to_end(job, thread) || !thread->stable ||
	    (wait->state != WAIT_WORDS && wait->state != WAIT_ANY_WORD))
		return false;
	for (uint32_t i = 0; wait->state == WAIT_ANY_WORD && i < wait->edge_count; i++) {
		bool others = wait->edges[i].record == WAIT_RECORD_OTHERS;
		if (others ? thread->satisfied >> i & 1
			   : is_satisfied(job, thread, i) && !is_run_here(job, thread, i))
			return false;
	}
	return true;
}

struct ranks diagnose_thread_needs(const struct diagnose_snapshot *job,
				   const struct diagnose_thread *thread)
{
	const struct wait_slot_body *wait = &thread->wait;
	const struct diagnose_thread *running = NULL;
	struct ranks needs = {{0}};
	if (!is_blocked(job, thread))
		return needs;
	for (uint32_t i = 0; i < wait->edge_count; i++) {
		if (wait->edges[i].record == WAIT_RECORD_OTHERS)
			continue;
		if (is_run_here(job, thread, i)) {
			while ((running = next_running(job, thread, running))) {
				struct ranks its = diagnose_thread_needs(job, running);
				ranks_join(&needs, &its);
			}
		} else if (!is_satisfied(job, thread, i)) {
			ranks_add(&needs, wait->edges[i].peer);
		}
	}
	return needs;
}

bool diagnose_waits(const struct diagnose_snapshot *job, const struct diagnose_thread *thread)
{
	struct ranks needs = diagnose_thread_needs(job, thread);
	return ranks_any(&needs);
}

static bool running_is_in_vain(const struct diagnose_snapshot *job,
			       const struct diagnose_thread *thread, const struct ranks *silent)
{
	const struct diagnose_thread *running = NULL;
	while ((running = next_running(job, thread, running))) {
		struct ranks needs = diagnose_thread_needs(job, running);
		if (ranks_meet(&needs, silent))
			return true;
	}
	return false;
}

static uint64_t alternative_bit(uint16_t alternative)
{
	return alternative >= 1 && alternative <= 64 ? UINT64_C(1) << (alternative - 1) : 0;
}

bool diagnose_is_in_vain(const struct diagnose_snapshot *job, const struct diagnose_thread *thread,
			 const struct ranks *silent)
{
	const struct wait_slot_body *wait = &thread->wait;
	struct ranks needs = diagnose_thread_needs(job, thread);
	uint64_t alternatives = 0, ruled_out = 0;
	if (wait->state != WAIT_ANY_WORD)
		return ranks_meet(&needs, silent);
	for (uint32_t i = 0; i < wait->edge_count; i++) {
		const struct wait_edge *edge = &wait->edges[i];
		uint64_t alternative = alternative_bit(edge->alternative);
		if (edge->record == WAIT_RECORD_OTHERS)
			continue;
		bool out = is_run_here(job, thread, i) ? running_is_in_vain(job, thread, silent)
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

struct ranks diagnose_rank_needs(const struct diagnose_snapshot *job, int r)
{
	const struct diagnose_rank *rank = &job->ranks[r];
	struct ranks needs = {{0}};
	if (!rank->known || diagnose_is_gone(rank))
		return needs;
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		struct ranks its = diagnose_thread_needs(job, &rank->threads[i]);
		ranks_join(&needs, &its);
	}
	return needs;
}

static void add_waiter(struct ranks *waiters_on, int size, int rank, int waiter)
{
	if (rank >= 0 && rank < size)
		ranks_add(&waiters_on[rank], waiter);
}

struct ranks *diagnose_find_waiters(const struct diagnose_snapshot *job)
{
	struct ranks *waiters_on = calloc((size_t)job->size + 1, sizeof *waiters_on);
	for (int r = 0; waiters_on && r < job->size; r++)
		for (uint32_t i = 0; i < job->ranks[r].thread_count; i++) {
			const struct diagnose_thread *thread = &job->ranks[r].threads[i];
			RANKS_EACH (q, &thread->others)
				add_waiter(waiters_on, job->size, q, r);
			for (uint32_t e = 0; e < thread->wait.edge_count; e++)
				add_waiter(waiters_on, job->size, thread->wait.edges[e].peer, r);
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

struct ranks diagnose_missing_from(const struct diagnose_snapshot *job, int rank,
				   const struct diagnose_record *record)
{
	const struct ranks *members = diagnose_members(job, record->record.group);
	struct ranks missing = {{0}};
	for (int r = 0; r < job->size; r++)
		if (r != rank && (!members || ranks_have(members, r)) &&
		    collectives_entered(&job->ranks[r], record->record.group) < record->record.seq)
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
