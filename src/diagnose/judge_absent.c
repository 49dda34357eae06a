/* SPDX-License-Identifier: BSD-3-Clause
 * Somebody is waited for and does not come: dead, left, stopped, or elsewhere. Every unsatisfied
 * edge leads to a rank; one that waits itself only passes the blame on, along its own edges. */
#include "diagnose/facts.h"

/* Whom an operation that has been given up must have waited for, as far as others' traces tell. */
static uint64_t needs_of_record(const struct diagnose_job *job, int rank,
				const struct diagnose_record *record)
{
	if (diagnose_is_p2p(&record->record))
		return record->record.peer < job->size ? diagnose_bit(record->record.peer) : 0;
	return diagnose_absent_from(job, rank, record);
}

static const struct diagnose_record *find_hint_record(const struct diagnose_rank *rank,
						      const struct diagnose_hint *hint)
{
	const struct diagnose_record *best = diagnose_record_at(rank, hint->record);
	for (uint32_t i = 0; !best && i < rank->record_count; i++) {
		const struct trace_record *record = &rank->records[i].record;
		if (hint->collective && !diagnose_is_collective(record))
			continue;
		if (record->group == hint->group && record->seq == hint->seq &&
		    (!diagnose_is_p2p(record) || hint->peer < 0 || record->peer == hint->peer) &&
		    record->state != TRACE_DONE)
			best = &rank->records[i];
	}
	return best;
}

/* Ranks that are in the same collective as the one that speaks, and have not blocked yet or have
 * seen the same failure: they need whom it needs. */
static void share_needs(const struct diagnose_job *job, const struct trace_record *spoken,
			struct diagnose_needs *out)
{
	for (int r = 0; r < job->size; r++)
		for (uint32_t i = 0; i < job->ranks[r].record_count; i++) {
			const struct trace_record *record = &job->ranks[r].records[i].record;
			if (record->group != spoken->group || record->state != TRACE_RUNNING)
				continue;
			bool same = diagnose_is_p2p(spoken)
					    ? diagnose_is_p2p(record) && record->peer >= 0 &&
						      record->peer < job->size &&
						      (out->hint_needs & diagnose_bit(record->peer))
					    : diagnose_is_collective(record) &&
						      record->seq == spoken->seq;
			if (same)
				out->of[r] |= out->hint_needs & ~diagnose_bit(r);
		}
}

void diagnose_find_needs(const struct diagnose_job *job, const struct diagnose_hint *hint,
			 struct diagnose_needs *out)
{
	*out = (struct diagnose_needs){.hint_rank = -1};
	for (int r = 0; r < job->size; r++)
		out->of[r] = diagnose_rank_needs(job, r);
	if (!hint || hint->status == LS_OK || hint->rank < 0 || hint->rank >= job->size)
		return;
	out->hint_rank = hint->rank;
	out->hint_record = find_hint_record(&job->ranks[hint->rank], hint);
	if (!out->hint_record)
		return; /* it saw the cause from outside, such as a watch that looks for others */
	if (hint->needs)
		out->hint_needs = hint->needs;
	else if (hint->peer >= 0 && hint->peer < job->size)
		out->hint_needs = diagnose_bit(hint->peer);
	else
		out->hint_needs = needs_of_record(job, hint->rank, out->hint_record);
	out->of[hint->rank] |= out->hint_needs;
	share_needs(job, &out->hint_record->record, out);
}

uint64_t diagnose_find_gone(const struct diagnose_job *job, const struct diagnose_needs *needs,
			    uint32_t group)
{
	uint64_t found = 0;
	for (int r = 0; r < job->size; r++) {
		const struct diagnose_rank *rank = &job->ranks[r];
		if (!rank->known || diagnose_is_gone(rank))
			continue;
		for (uint32_t i = 0; i < rank->thread_count; i++) {
			uint64_t wanted = diagnose_thread_needs(job, &rank->threads[i]);
			if (!wanted || !diagnose_is_in(&rank->threads[i], group))
				continue;
			uint64_t gone = diagnose_gone_from(job, rank->threads[i].wait.group);
			if (diagnose_is_in_vain(job, &rank->threads[i], gone))
				found |= wanted & gone;
		}
	}
	/* A receive of any source needs those that are gone only if nobody else is left. */
	uint64_t gone = needs->hint_needs & diagnose_gone_from(job, group);
	bool any = needs->hint_record && diagnose_is_p2p(&needs->hint_record->record) &&
		   needs->hint_record->record.peer < 0;
	return found | (any && gone != needs->hint_needs ? 0 : gone);
}

enum standing {
	GOES_ON, /* its wait is over, or it moved between the two looks */
	BLOCKED,
	AWAY,
};

static enum standing standing_of_thread(const struct diagnose_job *job,
					const struct diagnose_thread *thread)
{
	if (diagnose_thread_needs(job, thread))
		return BLOCKED;
	return thread->wait.state == WAIT_OUTSIDE && thread->stable ? AWAY : GOES_ON;
}

/* How the rank stands to whoever waits for it in `record`. Of several threads the one counts that
 * made the previous call of the same sort, as it is the one to make the next: the main thread that
 * only opened the group is outside for good, and a thread that serves receives is blocked for
 * good. */
static enum standing standing_of(const struct diagnose_job *job, int r,
				 const struct diagnose_record *record, int waiter)
{
	const struct diagnose_rank *rank = &job->ranks[r];
	const struct diagnose_record *last =
		diagnose_newest_like(rank, record ? &record->record : NULL, waiter);
	bool goes_on = false, away = false, blocked = false;
	if (!last)
		last = diagnose_newest(rank);
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		const struct diagnose_thread *thread = &rank->threads[i];
		if (thread->wait.state == WAIT_UNUSED || diagnose_is_armed(thread))
			continue;
		enum standing standing = standing_of_thread(job, thread);
		if (last && thread->wait.tid == last->record.tid)
			return standing;
		goes_on |= standing == GOES_ON;
		away |= standing == AWAY;
		blocked |= standing == BLOCKED;
	}
	if (away || !(goes_on || blocked))
		return AWAY;
	return goes_on ? GOES_ON : BLOCKED;
}

static void sort_out(const struct diagnose_job *job, uint64_t wanted,
		     const struct diagnose_record *record, int waiter, uint64_t *stopped,
		     uint64_t *elsewhere)
{
	for (; wanted; wanted &= wanted - 1) {
		int r = diagnose_lowest_rank(wanted);
		enum standing standing = standing_of(job, r, record, waiter);
		if (standing == BLOCKED || diagnose_is_gone(&job->ranks[r]))
			continue;
		if (job->ranks[r].process == DIAGNOSE_STOPPED)
			*stopped |= diagnose_bit(r);
		else if (standing == AWAY)
			*elsewhere |= diagnose_bit(r);
	}
}

/* Of them those that somebody waits for in this group. */
static uint64_t needed(const struct diagnose_job *job, uint32_t group, uint64_t ranks)
{
	uint64_t needs = 0;
	for (int r = 0; r < job->size; r++) {
		const struct diagnose_rank *rank = &job->ranks[r];
		if (diagnose_is_gone(rank))
			continue;
		for (uint32_t i = 0; i < rank->thread_count; i++)
			if (diagnose_is_in(&rank->threads[i], group))
				needs |= diagnose_thread_needs(job, &rank->threads[i]);
	}
	return needs & ranks;
}

void diagnose_find_away(const struct diagnose_job *job, const struct diagnose_needs *needs,
			uint32_t group, uint64_t *stopped, uint64_t *elsewhere)
{
	*stopped = *elsewhere = 0;
	for (int r = 0; r < job->size; r++) {
		const struct diagnose_rank *rank = &job->ranks[r];
		if (!rank->known || diagnose_is_gone(rank))
			continue;
		for (uint32_t i = 0; i < rank->thread_count; i++) {
			const struct diagnose_thread *thread = &rank->threads[i];
			if (!diagnose_is_in(thread, group))
				continue;
			sort_out(job, diagnose_thread_needs(job, thread),
				 diagnose_record_at(rank, thread->wait.record), r, stopped,
				 elsewhere);
		}
	}
	if (needs->hint_rank >= 0)
		sort_out(job, needs->hint_needs, needs->hint_record, needs->hint_rank, stopped,
			 elsewhere);
	/* Everybody is seen to wait, but that may not be all that they do. */
	if (!*stopped && !*elsewhere)
		*elsewhere = needed(job, group, diagnose_find_unproved(job));
}
