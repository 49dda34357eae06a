/* SPDX-License-Identifier: BSD-3-Clause
 * Simple facts read out of a job; see facts.h. */
#include "diagnose/facts.h"

#include <stdlib.h>
#include <string.h>

size_t diagnose_job_bytes(int size)
{
	if (size < 0 || size > DIAGNOSE_RANK_MAX)
		return 0;
	return sizeof(struct diagnose_job) + (size_t)size * sizeof(struct diagnose_rank);
}

struct diagnose_job *diagnose_job_new(int size)
{
	size_t bytes = diagnose_job_bytes(size);
	struct diagnose_job *job = bytes ? calloc(1, bytes) : NULL;
	if (job)
		job->size = size;
	return job;
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
	memcpy(&process, &rank->process, sizeof(process));
	if (!is_flag(&rank->known) || !is_flag(&rank->incomplete) || !is_flag(&rank->awake) ||
	    !is_flag(&rank->idle) || !is_flag(&rank->has_callbacks) || !is_flag(&rank->calls_back) ||
	    !is_flag(&rank->left) || process > DIAGNOSE_DEAD || rank->rank != r ||
	    rank->group_count > DIAGNOSE_GROUP_MAX || rank->thread_count > WAIT_SLOT_MAX ||
	    rank->record_count > DIAGNOSE_RECORD_MAX || !memchr(rank->host, 0, sizeof(rank->host)) ||
	    !memchr(rank->program, 0, sizeof(rank->program)) ||
	    !memchr(rank->python, 0, sizeof(rank->python)))
		return false;
	for (uint32_t i = 0; i < rank->thread_count; i++)
		if (!is_flag(&rank->threads[i].stable) || !is_flag(&rank->threads[i].asleep) ||
		    rank->threads[i].wait.edge_count > WAIT_EDGE_MAX)
			return false;
	for (uint32_t i = 0; i < rank->record_count; i++)
		if (!memchr(rank->records[i].site, 0, sizeof(rank->records[i].site)))
			return false;
	return true;
}

bool diagnose_job_is_valid(const struct diagnose_job *job, size_t bytes)
{
	if (bytes < sizeof(*job) || job->size < 0 || job->size > DIAGNOSE_RANK_MAX ||
	    bytes != diagnose_job_bytes(job->size))
		return false;
	if (job->message_count < 0 || job->message_count > DIAGNOSE_MESSAGE_MAX)
		return false;
	for (int i = 0; i < job->message_count; i++)
		if (!memchr(job->messages[i].site, 0, sizeof(job->messages[i].site)))
			return false;
	for (int r = 0; r < job->size; r++)
		if (!rank_is_valid(&job->ranks[r], r))
			return false;
	return true;
}

const struct diagnose_group *diagnose_find_group(const struct diagnose_job *job, uint32_t id)
{
	for (int r = 0; id != 0 && r < job->size; r++)
		for (uint32_t i = 0; i < job->ranks[r].group_count; i++) {
			const struct diagnose_group *group = &job->ranks[r].groups[i];
			uint32_t good = 0;
			if (group->id != id || group->size > TRACE_MEMBER_MAX)
				continue;
			while (good < group->size && group->members[good] < job->size)
				good++;
			if (good > 0 && good == group->size)
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
	return rank->left || rank->process == DIAGNOSE_DEAD;
}

uint64_t diagnose_gone_from(const struct diagnose_job *job, uint32_t group)
{
	uint64_t gone = 0;
	for (int r = 0; r < job->size; r++)
		if (diagnose_is_gone(&job->ranks[r]) || diagnose_has_left(&job->ranks[r], group))
			gone |= diagnose_bit(r);
	return gone;
}

bool diagnose_has_failed(const struct diagnose_rank *rank)
{
	const struct diagnose_record *last = diagnose_newest(rank);
	/* It ended by itself before it had a group, so ls_group_open is what has failed. */
	if (!last && rank->known && rank->group_count == 0 && rank->process == DIAGNOSE_DEAD)
		return rank->signal == 0 && rank->exit_code > 0;
	return last && last->record.state == TRACE_FAILED &&
	       ls_status_scope((ls_status)last->record.status) == LS_SCOPE_GROUP;
}

static bool is_satisfied(const struct diagnose_job *job, const struct diagnose_thread *thread,
			 uint32_t edge)
{
	int32_t peer = thread->wait.edges[edge].peer;
	return peer < 0 || peer >= job->size || (thread->satisfied >> edge & 1);
}

/* Whether somebody else is about to end the thread's wait. Who is dead or stopped is not. */
static bool is_about_to_end(const struct diagnose_job *job, const struct diagnose_thread *thread)
{
	uint32_t explainer = thread->explainer;
	if (explainer == 0 || explainer > (uint32_t)job->size)
		return false;
	enum diagnose_process process = job->ranks[explainer - 1].process;
	return process != DIAGNOSE_DEAD && process != DIAGNOSE_STOPPED;
}

/* One of the words is that a collective is over here, which another thread of the rank runs: that
 * one, the next after `last`; NULL: none is seen to run it, and then one may be about to. */
static const struct diagnose_thread *next_driver(const struct diagnose_job *job,
						 const struct diagnose_thread *thread,
						 const struct diagnose_thread *last)
{
	size_t r = (size_t)((const char *)thread - (const char *)job->ranks) / sizeof(job->ranks[0]);
	const struct diagnose_rank *rank = &job->ranks[r];
	const struct diagnose_thread *other = last ? last + 1 : rank->threads;
	for (; other < rank->threads + rank->thread_count; other++) {
		const struct diagnose_record *record = diagnose_record_at(rank, other->wait.record);
		if (other != thread && other->wait.state == WAIT_WORDS &&
		    other->wait.group == thread->wait.group && record &&
		    diagnose_is_collective(&record->record) && diagnose_thread_needs(job, other))
			return other;
	}
	return NULL;
}

/* Whether it is such a word. */
static bool is_driven(const struct diagnose_job *job, const struct diagnose_thread *thread,
		      uint32_t i)
{
	const struct wait_edge *edge = &thread->wait.edges[i];
	return thread->wait.state == WAIT_ANY_WORD && edge->record && edge->peer < 0 &&
	       edge->record != WAIT_RECORD_OTHERS && !(thread->satisfied >> i & 1) &&
	       next_driver(job, thread, NULL);
}

/* Of words that it would see to for others none is a need of its own, but it is not blocked if one
 * of them is there. */
static bool is_blocked(const struct diagnose_job *job, const struct diagnose_thread *thread)
{
	const struct wait_slot_body *wait = &thread->wait;
	if (is_about_to_end(job, thread) || !thread->stable ||
	    (wait->state != WAIT_WORDS && wait->state != WAIT_ANY_WORD))
		return false;
	for (uint32_t i = 0; wait->state == WAIT_ANY_WORD && i < wait->edge_count; i++) {
		bool others = wait->edges[i].record == WAIT_RECORD_OTHERS;
		if (others ? thread->satisfied >> i & 1
			   : is_satisfied(job, thread, i) && !is_driven(job, thread, i))
			return false;
	}
	return true;
}

uint64_t diagnose_thread_needs(const struct diagnose_job *job, const struct diagnose_thread *thread)
{
	const struct wait_slot_body *wait = &thread->wait;
	const struct diagnose_thread *driver = NULL;
	uint64_t needs = 0;
	if (!is_blocked(job, thread))
		return 0;
	for (uint32_t i = 0; i < wait->edge_count; i++) {
		if (wait->edges[i].record == WAIT_RECORD_OTHERS)
			continue;
		if (is_driven(job, thread, i))
			while ((driver = next_driver(job, thread, driver)))
				needs |= diagnose_thread_needs(job, driver);
		else if (!is_satisfied(job, thread, i))
			needs |= diagnose_bit(wait->edges[i].peer);
	}
	return needs;
}

static bool driver_is_in_vain(const struct diagnose_job *job, const struct diagnose_thread *thread,
			      uint64_t silent)
{
	const struct diagnose_thread *driver = NULL;
	while ((driver = next_driver(job, thread, driver)))
		if (diagnose_thread_needs(job, driver) & silent)
			return true;
	return false;
}

bool diagnose_is_in_vain(const struct diagnose_job *job, const struct diagnose_thread *thread,
			 uint64_t silent)
{
	const struct wait_slot_body *wait = &thread->wait;
	uint64_t needs = diagnose_thread_needs(job, thread), choices = 0, ruled_out = 0;
	if (wait->state != WAIT_ANY_WORD)
		return (needs & silent) != 0;
	for (uint32_t i = 0; i < wait->edge_count; i++) {
		const struct wait_edge *edge = &wait->edges[i];
		uint64_t choice = edge->choice ? diagnose_bit(edge->choice - 1) : 0;
		if (edge->record == WAIT_RECORD_OTHERS)
			continue;
		bool out = is_driven(job, thread, i) ? driver_is_in_vain(job, thread, silent)
						     : diagnose_bit(edge->peer) & silent;
		if (!out && !choice)
			return false;
		choices |= choice;
		ruled_out |= out ? choice : 0;
	}
	return needs && !(choices & ~ruled_out);
}

bool diagnose_is_armed(const struct diagnose_thread *thread)
{
	const struct wait_slot_body *wait = &thread->wait;
	for (uint32_t i = 0; i < wait->edge_count; i++)
		if (wait->edges[i].record != WAIT_RECORD_OTHERS)
			return false;
	return wait->state == WAIT_ANY_WORD;
}

uint64_t diagnose_rank_needs(const struct diagnose_job *job, int r)
{
	const struct diagnose_rank *rank = &job->ranks[r];
	uint64_t needs = 0;
	if (!rank->known || diagnose_is_gone(rank))
		return 0;
	for (uint32_t i = 0; i < rank->thread_count; i++)
		needs |= diagnose_thread_needs(job, &rank->threads[i]);
	return needs;
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

const struct diagnose_record *diagnose_record_for(const struct diagnose_rank *rank,
						  const struct diagnose_thread *thread,
						  uint64_t whom)
{
	for (uint32_t i = 0; i < thread->wait.edge_count; i++) {
		const struct wait_edge *edge = &thread->wait.edges[i];
		if (!(diagnose_bit(edge->peer) & whom) || thread->satisfied >> i & 1 ||
		    edge->record == 0 || edge->record == WAIT_RECORD_OTHERS)
			continue;
		for (uint32_t j = 0; j < rank->record_count; j++)
			if ((uint32_t)rank->records[j].record.index == edge->record)
				return &rank->records[j];
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

uint64_t diagnose_absent_from(const struct diagnose_job *job, int rank,
			      const struct diagnose_record *record)
{
	uint64_t absent = 0;
	for (int r = 0; r < job->size; r++)
		if (r != rank && (!record->members || (record->members & diagnose_bit(r))) &&
		    collectives_entered(&job->ranks[r], record->record.group) < record->record.seq)
			absent |= diagnose_bit(r);
	return absent;
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
