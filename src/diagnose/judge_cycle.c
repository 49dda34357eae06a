/* SPDX-License-Identifier: BSD-3-Clause
 * Deadlock: the largest set of ranks in which every thread waits for the set. Start with all ranks
 * whose every thread is certainly blocked. Remove each rank that a rank outside of the set can
 * still wake, until nothing changes. The remaining ranks can never continue, because only their own
 * threads could change anything. */
#include "diagnose/facts.h"

#include <stdlib.h>

struct search {
	const struct diagnose_snapshot *snapshot;
	/* also ranks that have threads which are not seen to wait, or are in foreign calls */
	bool likely;
	struct ranks assumed; /* they are stuck, whatever is known of them */
	struct ranks stuck;
	/* remembered: ranks that are dead or have left the group of a wait, or the world group */
	struct diagnose_gone gone, lost;
};

/* Whether `thread` can never continue if no rank of search->stuck does anything again. Ranks that
 * are dead or have left do nothing either; but a wait that fails because of those alone ends by
 * itself, so it is not stuck. */
static bool is_stuck(struct search *search, const struct diagnose_rank *rank,
		     const struct diagnose_thread *thread)
{
	const struct diagnose_snapshot *snapshot = search->snapshot;
	const struct ranks *gone = diagnose_gone_again(snapshot, thread->wait.group, &search->gone);
	struct ranks silent = search->stuck;
	ranks_join(&silent, gone);
	return !thread->wait.has_own_limit && diagnose_is_in_vain(snapshot, thread, &silent) &&
	       !diagnose_is_in_vain(snapshot, thread, gone) &&
	       !diagnose_awaits_gone_behind(snapshot, rank, thread);
}

/* A thread that waits for another thread of its own rank: until the rank has completed this many
 * collectives, or until no thread makes progress on them. If that other thread is not among the
 * blocked threads of the rank, it may be about to act. */
static bool is_follower(const struct diagnose_rank *rank, const struct diagnose_thread *thread)
{
	const struct wait_slot_body *wait = &thread->wait;
	const struct diagnose_record *record = diagnose_record_at(rank, wait->record);
	bool waits = wait->state == WAIT_WORDS || wait->state == WAIT_ANY_WORD;
	if (!waits || wait->edge_count == 0 || wait->further || !record ||
	    !diagnose_is_collective(&record->record))
		return false;
	for (uint32_t i = 0; i < wait->edge_count; i++)
		if (wait->edges[i].peer >= 0 || wait->edges[i].segment != WAIT_SEGMENT_MAPPED)
			return false;
	return true;
}

static bool follower_is_blocked(const struct diagnose_thread *thread)
{
	return thread->stable && !thread->satisfied && !thread->wait.has_own_limit;
}

/* Whether one of the rank's threads is blocked in a collective of this group. */
static bool is_in_collective(const struct diagnose_rank *rank, uint32_t group)
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

/* Whether all that the thread waits for, for itself or for others, can only come from ranks that do
 * nothing any more: words of others may be those of a call with a callback. */
static bool is_cut_off(struct search *search, const struct diagnose_thread *thread)
{
	struct ranks silent = search->stuck;
	ranks_join(&silent, diagnose_gone_again(search->snapshot, TRACE_GROUP_WORLD, &search->lost));
	return thread->wait.state != WAIT_ANY_WORD ||
	       (!thread->others_unclear && ranks_are_in(&thread->others, &silent));
}

/* Whether a thread is outside and asleep. */
static bool has_sleeper(const struct diagnose_rank *rank)
{
	for (uint32_t i = 0; i < rank->thread_count; i++)
		if (rank->threads[i].wait.state == WAIT_OUTSIDE && rank->threads[i].asleep)
			return true;
	return false;
}

/* Whether a proof need not ask what the thread does. */
static bool is_ignored(const struct search *search, const struct diagnose_thread *thread)
{
	return thread->wait.state == WAIT_UNUSED ||
	       (thread->wait.state == WAIT_OUTSIDE && thread->asleep) ||
	       (thread->wait.state == WAIT_FOREIGN && search->likely);
}

static bool rank_is_stuck(struct search *search, int r)
{
	const struct diagnose_rank *rank = &search->snapshot->ranks[r];
	bool blocked = false;
	bool may_wake = rank->has_callbacks && (rank->idle || has_sleeper(rank));
	/* What ends a send of the rank begins the next one, for which another rank may wait. */
	bool may_go_on = may_wake || rank->serial;
	if (ranks_have(&search->assumed, r))
		return true;
	if (!rank->known || diagnose_is_gone(rank) ||
	    (!search->likely && (rank->incomplete || rank->awake)))
		return false;
	if (may_wake && rank->calls_back)
		return false;
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		const struct diagnose_thread *thread = &rank->threads[i];
		if (is_ignored(search, thread))
			continue;
		if (may_go_on && !is_cut_off(search, thread))
			return false;
		if (diagnose_is_armed(thread)) {
			if (!thread->stable || thread->satisfied)
				return false;
			continue;
		}
		bool ends_here = is_follower(rank, thread)
					 ? follower_is_blocked(thread) &&
						   is_in_collective(rank, thread->wait.group)
					 : is_stuck(search, rank, thread);
		if (!ends_here)
			return false;
		blocked |= !is_follower(rank, thread);
	}
	return blocked;
}

/* A rank needs another check only when a rank that it names was removed from the set. */
static struct ranks find_stuck(const struct diagnose_snapshot *snapshot, bool likely,
			       const struct ranks *assumed)
{
	struct search search = {.snapshot = snapshot,
				.likely = likely,
				.assumed = *assumed,
				.stuck = ranks_below(snapshot->size)};
	struct ranks *waiters_on = diagnose_find_waiters(snapshot);
	for (struct ranks left = search.stuck, taken; ranks_any(&left);) {
		taken = (struct ranks){{0}};
		RANKS_EACH (r, &left) {
			if (rank_is_stuck(&search, r))
				continue;
			ranks_remove(&search.stuck, r);
			ranks_add(&taken, r);
		}
		if (!ranks_any(&taken))
			break;
		left = diagnose_waiters_on(waiters_on, snapshot->size, &taken);
		ranks_keep(&left, &search.stuck);
	}
	free(waiters_on);
	return search.stuck;
}

struct ranks diagnose_find_stuck(const struct diagnose_snapshot *snapshot)
{
	return find_stuck(snapshot, false, &(struct ranks){{0}});
}

struct ranks diagnose_find_stuck_if(const struct diagnose_snapshot *snapshot,
				    const struct ranks *assumed)
{
	return find_stuck(snapshot, false, assumed);
}

struct ranks diagnose_find_unproved(const struct diagnose_snapshot *snapshot)
{
	struct ranks unproved = find_stuck(snapshot, true, &(struct ranks){{0}});
	for (int r = 0; r < snapshot->size; r++)
		if (!snapshot->ranks[r].incomplete && !snapshot->ranks[r].awake &&
		    !diagnose_foreign_call(&snapshot->ranks[r]))
			ranks_remove(&unproved, r);
	return unproved;
}

/* Where any of several ranks would do, those that are dead or have left the group of the wait do
 * not matter, although they may be stuck elsewhere. */
static void drop_gone(const struct diagnose_snapshot *snapshot, const struct diagnose_thread *thread,
		      struct diagnose_gone *last, struct ranks *needs)
{
	struct ranks here = *needs;
	if (thread->wait.state != WAIT_ANY_WORD)
		return;
	ranks_drop(&here, diagnose_gone_again(snapshot, thread->wait.group, last));
	if (ranks_any(&here))
		*needs = here;
}

/* A thread that waits for a message, or for a collective that another thread runs, waits for the
 * ranks of both. What it waits for itself is told, if there is such a rank. */
static void keep_own(const struct diagnose_thread *thread, struct ranks *needs)
{
	const struct wait_slot_body *wait = &thread->wait;
	struct ranks own = {{0}};
	if (wait->state != WAIT_ANY_WORD)
		return;
	for (uint32_t i = 0; i < wait->edge_count; i++)
		if (wait->edges[i].record != WAIT_RECORD_OTHERS && !(thread->satisfied >> i & 1))
			ranks_add(&own, wait->edges[i].peer);
	if (ranks_meet(&own, needs))
		ranks_keep(needs, &own);
}

/* Chooses among the ranks that a thread waits for. If all ranks contribute to a collective, the
 * ranks in it only wait as well: the ones that they all wait for are those that have not come. */
static struct ranks reduce_needs(const struct diagnose_snapshot *snapshot, int r,
				 const struct diagnose_thread *thread, const struct ranks *stuck,
				 struct diagnose_gone *last)
{
	struct ranks needs = diagnose_thread_needs(snapshot, thread);
	const struct diagnose_record *record =
		diagnose_record_at(&snapshot->ranks[r], thread->wait.record);
	ranks_keep(&needs, stuck);
	drop_gone(snapshot, thread, last, &needs);
	keep_own(thread, &needs);
	if (!ranks_any(&needs) || !record || !diagnose_is_collective(&record->record))
		return needs;
	struct trace_kind_facts facts = trace_kind_facts(record->record.kind);
	if (facts.rooted || facts.own_counts)
		return needs;
	struct ranks missing = diagnose_missing_from(snapshot, r, record);
	ranks_keep(&missing, stuck);
	if (ranks_meet(&missing, &needs))
		ranks_keep(&missing, &needs);
	return ranks_any(&missing) ? missing : needs;
}

/* The first thread of rank r that waits for a rank of the set, and that rank: if there are several,
 * another rank than r. */
static struct diagnose_hop hop_from(const struct diagnose_snapshot *snapshot, int r,
				    const struct ranks *stuck, struct diagnose_gone *last)
{
	const struct diagnose_rank *rank = &snapshot->ranks[r];
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		struct ranks needs = reduce_needs(snapshot, r, &rank->threads[i], stuck, last);
		int peer = ranks_first(&needs);
		if (peer == r && r + 1 < RANKS_JOB_MAX && ranks_from(&needs, r + 1) >= 0)
			peer = ranks_from(&needs, r + 1);
		if (peer >= 0)
			return (struct diagnose_hop){r, peer, &rank->threads[i]};
	}
	return (struct diagnose_hop){r, -1, NULL}; /* not for a rank of the set */
}

int diagnose_find_cycle(const struct diagnose_snapshot *snapshot, const struct ranks *from,
			struct diagnose_hop *hops, int max, struct ranks *ranks)
{
	struct ranks stuck = diagnose_find_stuck(snapshot), begin = stuck, seen = {{0}};
	struct diagnose_gone last = {0};
	int r, length = 0;
	*ranks = (struct ranks){{0}};
	if (from && ranks_any(from))
		ranks_keep(&begin, from);
	if (!ranks_any(&begin))
		return 0;
	/* Every rank of the set waits for a rank of the set, so following these waits ends in a
	 * cycle. */
	for (r = ranks_first(&begin); !ranks_have(&seen, r);
	     r = hop_from(snapshot, r, &stuck, &last).peer)
		ranks_add(&seen, r);
	/* r lies on the cycle. Begin at its lowest rank, so that the same cycle is always told the
	 * same way. */
	int lowest = r;
	for (int q = hop_from(snapshot, r, &stuck, &last).peer; q != r;
	     q = hop_from(snapshot, q, &stuck, &last).peer)
		lowest = q < lowest ? q : lowest;
	r = lowest;
	do {
		struct diagnose_hop hop = hop_from(snapshot, r, &stuck, &last);
		if (length < max)
			hops[length] = hop;
		ranks_add(ranks, r);
		length++;
		r = hop.peer;
	} while (r != lowest);
	return length;
}

uint64_t diagnose_operation_in(const struct diagnose_snapshot *snapshot,
			       const struct diagnose_verdict *verdict, uint32_t group)
{
	struct ranks all = verdict->culprits;
	uint64_t since_ns = UINT64_MAX, seq = 0;
	if (verdict->group == group && verdict->seq)
		return verdict->seq;
	ranks_join(&all, &verdict->waiting);
	RANKS_EACH (r, &all) {
		for (uint32_t i = 0; r < snapshot->size && i < snapshot->ranks[r].thread_count; i++) {
			const struct diagnose_thread *thread = &snapshot->ranks[r].threads[i];
			const struct diagnose_record *record =
				diagnose_record_at(&snapshot->ranks[r], thread->wait.record);
			if (thread->wait.group != group || !record || record->record.group != group ||
			    thread->wait.since_ns >= since_ns || !diagnose_waits(snapshot, thread))
				continue;
			since_ns = thread->wait.since_ns;
			seq = record->record.seq;
		}
	}
	return seq;
}
