/* SPDX-License-Identifier: BSD-3-Clause
 * A rank is missing: others wait for it, and it is dead, has left, is stopped, or is elsewhere.
 * Every unsatisfied edge leads to a rank. A rank that waits itself passes the blame on, along its
 * own edges. */
#include "diagnose/facts.h"

/* The ranks that an operation which has been given up must have waited for, as far as the traces of
 * others show. */
static struct ranks needs_of_record(const struct diagnose_snapshot *snapshot, int rank,
				    const struct diagnose_record *record)
{
	if (diagnose_is_p2p(&record->record))
		return ranks_of(record->record.peer < snapshot->size ? record->record.peer : -1);
	return diagnose_missing_from(snapshot, rank, record);
}

static const struct diagnose_record *find_hint_record(const struct diagnose_rank *rank,
						      const struct diagnose_hint *hint)
{
	const struct diagnose_record *best = diagnose_record_at(rank, hint->record);
	for (uint32_t i = 0; !best && hint->seq && i < rank->record_count; i++) {
		const struct trace_record *record = &rank->records[i].record;
		if (hint->seq_is_collective && !diagnose_is_collective(record))
			continue;
		if (record->group == hint->group && record->seq == hint->seq &&
		    (!diagnose_is_p2p(record) || hint->peer < 0 || record->peer == hint->peer) &&
		    record->state != TRACE_DONE)
			best = &rank->records[i];
	}
	return best;
}

/* Adds ranks that are in the same collective as the hint's rank, and have not blocked yet or have
 * seen the same failure: they need the same ranks. */
static void share_needs(const struct diagnose_snapshot *snapshot, const struct trace_record *spoken,
			struct diagnose_needs *out)
{
	for (int r = 0; r < snapshot->size; r++)
		for (uint32_t i = 0; i < snapshot->ranks[r].record_count; i++) {
			const struct trace_record *record = &snapshot->ranks[r].records[i].record;
			if (record->group != spoken->group || record->state != TRACE_RUNNING)
				continue;
			bool same = diagnose_is_p2p(spoken)
					    ? diagnose_is_p2p(record) && record->peer >= 0 &&
						      record->peer < snapshot->size &&
						      ranks_have(&out->hint_needs, record->peer)
					    : diagnose_is_collective(record) &&
						      record->seq == spoken->seq;
			if (same)
				ranks_add(&out->sharers, r);
		}
}

void diagnose_find_needs(const struct diagnose_snapshot *snapshot, const struct diagnose_hint *hint,
			 struct diagnose_needs *out)
{
	*out = (struct diagnose_needs){.hint_rank = -1};
	if (!hint || hint->status == LS_OK || hint->rank < 0 || hint->rank >= snapshot->size)
		return;
	out->hint_rank = hint->rank;
	out->hint_record = find_hint_record(&snapshot->ranks[hint->rank], hint);
	if (!out->hint_record)
		/* the hint's rank saw the cause from outside, such as a watch that looks for
		 * others */
		return;
	if (ranks_any(&hint->needs))
		out->hint_needs = hint->needs;
	else if (hint->peer >= 0 && hint->peer < snapshot->size)
		out->hint_needs = ranks_of(hint->peer);
	else
		out->hint_needs = needs_of_record(snapshot, hint->rank, out->hint_record);
	share_needs(snapshot, &out->hint_record->record, out);
}

/* A rank that gave up may have waited for its own threads. */
struct ranks diagnose_needs_of(const struct diagnose_snapshot *snapshot,
			       const struct diagnose_needs *needs, int rank)
{
	struct ranks all = diagnose_rank_needs(snapshot, rank), more = needs->hint_needs;
	if (rank != needs->hint_rank && ranks_have(&needs->sharers, rank))
		ranks_remove(&more, rank);
	if (rank == needs->hint_rank || ranks_have(&needs->sharers, rank))
		ranks_join(&all, &more);
	return all;
}

struct ranks diagnose_find_gone(const struct diagnose_snapshot *snapshot,
				const struct diagnose_needs *needs, uint32_t group)
{
	struct ranks found = {{0}};
	struct diagnose_gone last = {0};
	for (int r = 0; r < snapshot->size; r++) {
		const struct diagnose_rank *rank = &snapshot->ranks[r];
		if (!rank->known || diagnose_is_gone(rank))
			continue;
		for (uint32_t i = 0; i < rank->thread_count; i++) {
			const struct diagnose_thread *thread = &rank->threads[i];
			struct ranks wanted = diagnose_thread_needs(snapshot, thread);
			/* What it needs behind a stream may be of another group. */
			if (!ranks_any(&wanted) || !diagnose_is_in(thread, group) || thread->behind)
				continue;
			const struct ranks *gone =
				diagnose_gone_again(snapshot, thread->wait.group, &last);
			ranks_keep(&wanted, gone);
			if (ranks_any(&wanted) && diagnose_is_in_vain(snapshot, thread, gone))
				ranks_join(&found, &wanted);
		}
	}
	/* A receive of any source needs the ranks that are gone only if no other rank is left. */
	struct ranks gone = needs->hint_needs;
	ranks_keep(&gone, diagnose_gone_again(snapshot, group, &last));
	bool any = needs->hint_record && diagnose_is_p2p(&needs->hint_record->record) &&
		   needs->hint_record->record.peer < 0;
	if (!any || ranks_are_equal(&gone, &needs->hint_needs))
		ranks_join(&found, &gone);
	return found;
}

enum standing {
	GOES_ON, /* its wait is over, or it moved between the two looks */
	BLOCKED,
	ELSEWHERE,
};

static enum standing standing_of_thread(const struct diagnose_snapshot *snapshot,
					const struct diagnose_thread *thread)
{
	if (diagnose_waits(snapshot, thread))
		return BLOCKED;
	bool elsewhere = thread->wait.state == WAIT_OUTSIDE || thread->wait.state == WAIT_FOREIGN ||
			 diagnose_awaits_device(thread);
	return elsewhere && thread->stable ? ELSEWHERE : GOES_ON;
}

/* What the rank does for ranks that wait for it in `record`. If it has several threads, the one
 * counts that made the previous call of the same sort, because it will most likely make the next: a
 * main thread that only opened the group is outside for good, and a thread that serves receives is
 * blocked for good. */
static enum standing standing_of(const struct diagnose_snapshot *snapshot, int r,
				 const struct diagnose_record *record, int waiter)
{
	const struct diagnose_rank *rank = &snapshot->ranks[r];
	const struct diagnose_record *last =
		diagnose_newest_like(rank, record ? &record->record : NULL, waiter);
	bool goes_on = false, elsewhere = false, blocked = false;
	if (!last)
		last = diagnose_newest(rank);
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		const struct diagnose_thread *thread = &rank->threads[i];
		if (thread->wait.state == WAIT_UNUSED || diagnose_is_armed(thread))
			continue;
		enum standing standing = standing_of_thread(snapshot, thread);
		if (last && thread->wait.tid == last->record.tid)
			return standing;
		goes_on |= standing == GOES_ON;
		elsewhere |= standing == ELSEWHERE;
		blocked |= standing == BLOCKED;
	}
	if (elsewhere || !(goes_on || blocked))
		return ELSEWHERE;
	return goes_on ? GOES_ON : BLOCKED;
}

static void sort_by_standing(const struct diagnose_snapshot *snapshot, const struct ranks *wanted,
			     const struct diagnose_record *record, int waiter,
			     struct ranks *stopped, struct ranks *elsewhere)
{
	RANKS_EACH (r, wanted) {
		if (r >= snapshot->size)
			break;
		enum standing standing = standing_of(snapshot, r, record, waiter);
		if (standing == BLOCKED || diagnose_is_gone(&snapshot->ranks[r]))
			continue;
		if (snapshot->ranks[r].process == DIAGNOSE_PROCESS_STOPPED)
			ranks_add(stopped, r);
		else if (standing == ELSEWHERE)
			ranks_add(elsewhere, r);
	}
}

/* Those of `ranks` that some rank waits for in this group. */
static struct ranks find_needed(const struct diagnose_snapshot *snapshot, uint32_t group,
				const struct ranks *ranks)
{
	struct ranks needs = {{0}};
	for (int r = 0; r < snapshot->size; r++) {
		const struct diagnose_rank *rank = &snapshot->ranks[r];
		if (diagnose_is_gone(rank))
			continue;
		for (uint32_t i = 0; i < rank->thread_count; i++) {
			if (!diagnose_is_in(&rank->threads[i], group))
				continue;
			struct ranks its = diagnose_thread_needs(snapshot, &rank->threads[i]);
			ranks_join(&needs, &its);
		}
	}
	ranks_keep(&needs, ranks);
	return needs;
}

void diagnose_find_elsewhere(const struct diagnose_snapshot *snapshot,
			     const struct diagnose_needs *needs, uint32_t group,
			     struct ranks *stopped, struct ranks *elsewhere)
{
	*stopped = *elsewhere = (struct ranks){{0}};
	for (int r = 0; r < snapshot->size; r++) {
		const struct diagnose_rank *rank = &snapshot->ranks[r];
		if (!rank->known || diagnose_is_gone(rank))
			continue;
		for (uint32_t i = 0; i < rank->thread_count; i++) {
			const struct diagnose_thread *thread = &rank->threads[i];
			if (!diagnose_is_in(thread, group))
				continue;
			struct ranks wanted = diagnose_thread_needs(snapshot, thread);
			sort_by_standing(snapshot, &wanted,
					 diagnose_record_at(rank, thread->wait.record), r, stopped,
					 elsewhere);
		}
	}
	if (needs->hint_rank >= 0)
		sort_by_standing(snapshot, &needs->hint_needs, needs->hint_record, needs->hint_rank,
				 stopped, elsewhere);
	/* All ranks are seen to wait, but that may not be all that they do. */
	if (!ranks_any(stopped) && !ranks_any(elsewhere)) {
		struct ranks unproved = diagnose_find_unproved(snapshot);
		*elsewhere = find_needed(snapshot, group, &unproved);
	}
}

/* Whether the rank may have given up as well, and wait until the cause is known: it is not seen, or
 * it is in a collective of that group and is not seen to wait there. */
static bool is_unclear(const struct diagnose_rank *rank, const struct trace_record *spoken)
{
	const struct diagnose_record *last = diagnose_newest_like(rank, spoken, -1);
	return !rank->known || (last && last->record.state == TRACE_RUNNING);
}

struct ranks diagnose_find_behind(const struct diagnose_snapshot *snapshot,
				  const struct diagnose_needs *needs, const struct ranks *elsewhere)
{
	struct ranks behind = {{0}};
	const struct trace_record *spoken = needs->hint_record ? &needs->hint_record->record : NULL;
	if (!spoken || !diagnose_is_collective(spoken))
		return behind;
	RANKS_EACH (r, elsewhere)
		if (r < snapshot->size && !is_unclear(&snapshot->ranks[r], spoken))
			return behind;
	for (int r = 0; r < snapshot->size; r++) {
		const struct diagnose_rank *rank = &snapshot->ranks[r];
		const struct diagnose_record *last = diagnose_newest_like(rank, spoken, -1);
		if (rank->process == DIAGNOSE_PROCESS_STOPPED && !diagnose_is_gone(rank) && last &&
		    (last->record.seq < spoken->seq || last->record.state == TRACE_RUNNING))
			ranks_add(&behind, r);
	}
	return behind;
}
