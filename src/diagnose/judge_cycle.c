/* SPDX-License-Identifier: BSD-3-Clause
 * Deadlock: the largest set of ranks in which every thread waits for the set. Start with all ranks
 * whose every thread is certainly blocked. Remove each rank that a rank outside of the set can
 * still wake, until nothing changes. The remaining ranks can never continue, because only their own
 * threads could change anything. */
#include "diagnose/facts.h"

/* Whether `thread` can never continue if no rank of `stuck` does anything again. Ranks that are
 * dead or have left do nothing either; but a wait that fails because of those alone ends by itself,
 * so it is not stuck. */
static bool is_stuck(const struct diagnose_job *job, const struct diagnose_thread *thread,
		     uint64_t stuck)
{
	uint64_t gone = diagnose_gone_from(job, thread->wait.group);
	return !thread->wait.may_leave && diagnose_is_in_vain(job, thread, stuck | gone) &&
	       !diagnose_is_in_vain(job, thread, gone);
}

/* A thread that waits for another thread of its own rank: until the rank has completed so many
 * collectives, or until no thread drives them. If that other thread is not among the blocked
 * threads of the rank, it may be about to act. */
static bool is_follower(const struct diagnose_rank *rank, const struct diagnose_thread *thread)
{
	const struct wait_slot_body *wait = &thread->wait;
	const struct diagnose_record *record = diagnose_record_at(rank, wait->record);
	bool waits = wait->state == WAIT_WORDS || wait->state == WAIT_ANY_WORD;
	if (!waits || wait->edge_count == 0 || wait->further || !record ||
	    !diagnose_is_collective(&record->record))
		return false;
	for (uint32_t i = 0; i < wait->edge_count; i++)
		if (wait->edges[i].peer >= 0 || wait->edges[i].segment != WAIT_SEGMENT_LINK)
			return false;
	return true;
}

static bool follower_is_blocked(const struct diagnose_thread *thread)
{
	return thread->stable && !thread->satisfied && !thread->wait.may_leave;
}

/* Whether one of the rank's threads is blocked in a collective of this group. */
static bool has_driver(const struct diagnose_rank *rank, uint32_t group)
{
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		const struct diagnose_thread *thread = &rank->threads[i];
		const struct diagnose_record *record = diagnose_record_at(rank, thread->wait.record);
		if (thread->wait.state != WAIT_UNUSED && !is_follower(rank, thread) && record &&
		    thread->wait.group == group && diagnose_is_collective(&record->record))
			return true;
	}
	return false;
}

/* Whether what such a thread waits for, for itself or for others, can only come from ranks that do
 * nothing any more: words of others may be those of a call with a callback. */
static bool is_cut_off(const struct diagnose_job *job, const struct diagnose_thread *thread,
		       uint64_t stuck)
{
	uint64_t silent = stuck | diagnose_gone_from(job, TRACE_GROUP_WORLD);
	return thread->wait.state != WAIT_ANY_WORD ||
	       (!thread->others_unclear && !(thread->others & ~silent));
}

/* Whether a thread is outside and asleep. */
static bool has_sleeper(const struct diagnose_rank *rank)
{
	for (uint32_t i = 0; i < rank->thread_count; i++)
		if (rank->threads[i].wait.state == WAIT_OUTSIDE && rank->threads[i].asleep)
			return true;
	return false;
}

/* likely: it seems so, though not all of its threads are seen. */
static bool rank_is_stuck(const struct diagnose_job *job, int r, uint64_t stuck, bool likely)
{
	const struct diagnose_rank *rank = &job->ranks[r];
	bool blocked = false;
	bool may_wake = rank->has_callbacks && (rank->idle || has_sleeper(rank));
	/* What ends a send of the rank begins the next one, for which somebody else may wait. */
	bool may_go_on = may_wake || rank->serial;
	if (!rank->known || diagnose_is_gone(rank) || (!likely && (rank->incomplete || rank->awake)))
		return false;
	if (may_wake && rank->calls_back)
		return false;
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		const struct diagnose_thread *thread = &rank->threads[i];
		if (thread->wait.state == WAIT_UNUSED ||
		    (thread->wait.state == WAIT_OUTSIDE && thread->asleep))
			continue;
		if (may_go_on && !is_cut_off(job, thread, stuck))
			return false;
		if (diagnose_is_armed(thread)) {
			if (!thread->stable || thread->satisfied)
				return false;
			continue;
		}
		bool ends_here = is_follower(rank, thread)
					 ? follower_is_blocked(thread) &&
						   has_driver(rank, thread->wait.group)
					 : is_stuck(job, thread, stuck);
		if (!ends_here)
			return false;
		blocked |= !is_follower(rank, thread);
	}
	return blocked;
}

static uint64_t find_stuck(const struct diagnose_job *job, bool likely)
{
	uint64_t stuck = 0, before;
	for (int r = 0; r < job->size; r++)
		stuck |= diagnose_bit(r);
	do { /* each round but the last takes at least one rank away */
		before = stuck;
		for (int r = 0; r < job->size; r++)
			if (!rank_is_stuck(job, r, stuck, likely))
				stuck &= ~diagnose_bit(r);
	} while (stuck != before);
	return stuck;
}

uint64_t diagnose_find_stuck(const struct diagnose_job *job)
{
	return find_stuck(job, false);
}

uint64_t diagnose_find_unproved(const struct diagnose_job *job)
{
	uint64_t likely = find_stuck(job, true), unproved = 0;
	for (int r = 0; r < job->size; r++)
		if (job->ranks[r].incomplete || job->ranks[r].awake)
			unproved |= likely & diagnose_bit(r);
	return unproved;
}

/* Chooses among the ranks that a thread waits for. If all ranks contribute to a collective, the
 * ranks in it only wait as well: the ones that they all wait for are those that have not come. */
static uint64_t reduce_needs(const struct diagnose_job *job, int r,
			     const struct diagnose_thread *thread, uint64_t stuck)
{
	uint64_t needs = diagnose_thread_needs(job, thread) & stuck;
	const struct diagnose_record *record =
		diagnose_record_at(&job->ranks[r], thread->wait.record);
	if (!needs || !record || !diagnose_is_collective(&record->record))
		return needs;
	struct trace_kind_facts facts = trace_kind_facts(record->record.kind);
	uint64_t absent =
		facts.rooted || facts.own_counts ? 0 : diagnose_absent_from(job, r, record) & stuck;
	return absent & needs ? absent & needs : absent ? absent : needs;
}

/* The first thread of rank r that waits for someone of the set, and whom: for another rank, if it
 * may be one of several. */
static struct diagnose_hop hop_from(const struct diagnose_job *job, int r, uint64_t stuck)
{
	const struct diagnose_rank *rank = &job->ranks[r];
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		uint64_t needs = reduce_needs(job, r, &rank->threads[i], stuck);
		if (needs & ~diagnose_bit(r))
			needs &= ~diagnose_bit(r);
		if (needs)
			return (struct diagnose_hop){r, diagnose_lowest_rank(needs),
						     &rank->threads[i]};
	}
	return (struct diagnose_hop){r, -1, NULL}; /* not for a rank of the set */
}

int diagnose_find_cycle(const struct diagnose_job *job, struct diagnose_hop *hops)
{
	uint64_t stuck = diagnose_find_stuck(job), seen = 0;
	int r, length = 0;
	if (!stuck)
		return 0;
	/* Every rank of the set waits for one of the set: whoever follows comes round in the
	 * end. */
	for (r = diagnose_lowest_rank(stuck); !(seen & diagnose_bit(r));
	     r = hop_from(job, r, stuck).peer)
		seen |= diagnose_bit(r);
	/* r lies on the cycle. Begin at its lowest rank, so that the same cycle is always told the
	 * same way. */
	int lowest = r;
	for (int q = hop_from(job, r, stuck).peer; q != r; q = hop_from(job, q, stuck).peer)
		lowest = q < lowest ? q : lowest;
	r = lowest;
	do {
		hops[length] = hop_from(job, r, stuck);
		r = hops[length++].peer;
	} while (r != lowest);
	return length;
}
