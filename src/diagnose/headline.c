/* SPDX-License-Identifier: BSD-3-Clause
 * The first line of a report: which rank is the cause and why, and which ranks wait where. It looks
 * everything up in the snapshot again, which may be a later one than the judged one, so nothing
 * need be there. */
#include "diagnose/facts.h"

#include <inttypes.h>
#include <string.h>

static const struct diagnose_rank *rank_of(const struct diagnose_snapshot *snapshot, int rank)
{
	return rank >= 0 && rank < snapshot->size ? &snapshot->ranks[rank] : NULL;
}

static const struct diagnose_record *witness_record(const struct diagnose_snapshot *snapshot,
						    const struct diagnose_verdict *verdict)
{
	return diagnose_record_at(rank_of(snapshot, verdict->witness), verdict->record);
}

/* ---- a rank's part ---- */

/* The thread that has waited longest for one of the ranks `whom`. */
static const struct diagnose_thread *longest_wait(const struct diagnose_snapshot *snapshot, int r,
						  const struct ranks *whom)
{
	const struct diagnose_rank *rank = &snapshot->ranks[r];
	const struct diagnose_thread *longest = NULL;
	if (!rank->known || diagnose_is_gone(rank))
		return NULL;
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		const struct diagnose_thread *thread = &rank->threads[i];
		struct ranks needs = diagnose_thread_needs(snapshot, thread);
		if (ranks_meet(&needs, whom) &&
		    (!longest || thread->wait.since_ns < longest->wait.since_ns))
			longest = thread;
	}
	return longest;
}

static struct diagnose_part waiting_part(const struct diagnose_snapshot *snapshot,
					 const struct diagnose_verdict *verdict, int r)
{
	struct ranks whom = verdict->culprits;
	ranks_join(&whom, &verdict->waiting);
	const struct diagnose_thread *longest = longest_wait(snapshot, r, &whom);
	whom = ranks_below(RANKS_JOB_MAX);
	if (!longest)
		longest = longest_wait(snapshot, r, &whom);
	if (longest)
		return (struct diagnose_part){
			diagnose_record_for(&snapshot->ranks[r], longest, &verdict->culprits),
			longest->wait.since_ns};
	if (r == verdict->witness) {
		const struct diagnose_record *record = witness_record(snapshot, verdict);
		return (struct diagnose_part){record, record ? record->begin_ns : 0};
	}
	return (struct diagnose_part){NULL, 0};
}

static const struct diagnose_record *mismatch_record(const struct diagnose_snapshot *snapshot,
						     const struct diagnose_verdict *verdict, int r)
{
	if (!(verdict->fields & DIAGNOSE_PAIR))
		return diagnose_collective_at(&snapshot->ranks[r], verdict->group, verdict->seq);
	/* If a rank sends to itself: the receive has seen the difference. */
	if (r == verdict->to)
		return diagnose_find_receive(snapshot, verdict);
	return r == verdict->from ? diagnose_find_send(snapshot, verdict) : NULL;
}

struct diagnose_part diagnose_part_of(const struct diagnose_snapshot *snapshot,
				      const struct diagnose_verdict *verdict, int r)
{
	const struct diagnose_rank *rank = &snapshot->ranks[r];
	const struct diagnose_record *newest = diagnose_newest(rank), *like;
	struct diagnose_part part = waiting_part(snapshot, verdict, r);
	bool culprit = ranks_have(&verdict->culprits, r);
	if (verdict->cause == DIAGNOSE_MISMATCH) {
		const struct diagnose_record *record = mismatch_record(snapshot, verdict, r);
		if (record && record != part.record)
			return (struct diagnose_part){record, 0};
	}
	/* A culprit may have another thread that waits; what counts is what it did itself. */
	if (part.since_ns && (!culprit || verdict->cause == DIAGNOSE_DEADLOCK ||
			      verdict->cause == DIAGNOSE_MISMATCH))
		return part;
	/* Nobody has waited for this rank: it has left before a collective, and after the one
	 * before that. */
	if (culprit && verdict->cause == DIAGNOSE_LEFT && verdict->seq && !verdict->record) {
		like = diagnose_collective_at(rank, verdict->group, verdict->seq - 1);
		if (like)
			return (struct diagnose_part){like, 0};
	}
	like = diagnose_newest_like(rank,
				    culprit && witness_record(snapshot, verdict)
					    ? &witness_record(snapshot, verdict)->record
					    : NULL,
				    verdict->witness);
	if (!like || (newest->record.state == TRACE_RUNNING && like->record.state != TRACE_RUNNING))
		like = newest;
	return (struct diagnose_part){like, 0};
}

/* ---- which ranks wait ---- */

static bool is_same_operation(const struct diagnose_record *a, const struct diagnose_record *b)
{
	return a && b && diagnose_is_collective(&a->record) && a->record.kind == b->record.kind &&
	       a->record.group == b->record.group && a->record.seq == b->record.seq;
}

/* " but rank 1 called reduce #58, called from a.c:10", if a rank left before that collective.
 * False, and writes nothing: the ranks that called it have continued, because they needed nothing
 * from the one that left. */
static bool write_called(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			 const struct diagnose_verdict *verdict)
{
	const struct diagnose_record *first = NULL;
	struct ranks callers = {{0}};
	for (int r = 0; verdict->cause == DIAGNOSE_LEFT && verdict->seq && r < snapshot->size; r++) {
		const struct diagnose_record *record =
			diagnose_collective_at(&snapshot->ranks[r], verdict->group, verdict->seq);
		if (!record || ranks_have(&verdict->culprits, r))
			continue;
		ranks_add(&callers, r);
		first = first ? first : record;
	}
	if (!first)
		return false;
	diagnose_write(writer, " but ");
	diagnose_write_ranks(writer, &callers);
	diagnose_write(writer, " called ");
	diagnose_write_operation(writer, first);
	diagnose_write_site(writer, first);
	return true;
}

/* " while ranks 0 and 1 wait in all-reduce #58, called from a.c:10", or nothing. */
static void write_while(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			const struct diagnose_verdict *verdict, bool with_duration)
{
	const struct diagnose_record *record = witness_record(snapshot, verdict);
	struct ranks together = ranks_of(verdict->witness);
	bool same_site = true;
	ranks_keep(&together, &verdict->waiting);
	if (!record)
		together = verdict->waiting;
	for (int r = 0; record && r < snapshot->size; r++) {
		if (!ranks_have(&verdict->waiting, r))
			continue;
		const struct diagnose_record *other = diagnose_part_of(snapshot, verdict, r).record;
		if (!is_same_operation(record, other))
			continue;
		ranks_add(&together, r);
		same_site &= !strcmp(record->site, other->site);
	}
	/* A rank that is seen to wait for something unknown may wait elsewhere, for something
	 * else. */
	if ((!record && write_called(writer, snapshot, verdict)) || !ranks_any(&together))
		return;
	diagnose_write(writer, " while ");
	diagnose_write_ranks(writer, &together);
	diagnose_write(writer, ranks_count(&together) == 1 ? " waits" : " wait");
	if (record) {
		diagnose_write(writer, " in ");
		diagnose_write_operation(writer, record);
	}
	if (with_duration && verdict->since_ns && verdict->since_ns < snapshot->now_ns) {
		diagnose_write(writer, " for ");
		diagnose_write_duration(writer, snapshot->now_ns - verdict->since_ns);
	}
	diagnose_write_site(writer, record);
	if (record && record->site[0] && !same_site)
		diagnose_write(writer, " (rank %d)", verdict->witness);
}

/* ---- which ranks do not come ---- */

/* " in all-reduce #58", " after all-reduce #57", … */
static void write_last(struct diagnose_writer *writer, const struct diagnose_rank *rank,
		       const struct diagnose_record *last)
{
	if (!rank->known)
		return;
	if (!last) {
		diagnose_write(writer, " before its first operation");
		return;
	}
	bool failed = last->record.state == TRACE_FAILED;
	diagnose_write(writer, last->record.state == TRACE_RUNNING ? " in "
			       : failed                            ? " after its "
								   : " after ");
	diagnose_write_operation(writer, last);
	if (failed)
		diagnose_write(writer, " failed (%s)",
			       ls_status_name((ls_status)last->record.status));
}

/* A rank may have closed a group and gone on in others: then its last operation is no part of what
 * it did before it closed the group. */
static void write_left(struct diagnose_writer *writer, const struct diagnose_verdict *verdict,
		       const struct diagnose_rank *rank, const struct diagnose_record *last)
{
	bool in_another = !rank->left && last && last->record.group != verdict->group;
	diagnose_write(writer, rank->left ? "finished" : "closed the group");
	if (!in_another || !verdict->group) {
		write_last(writer, rank, last);
		return;
	}
	bool running = last->record.state == TRACE_RUNNING;
	diagnose_write(writer, running ? " and is in " : " (its last operation was ");
	diagnose_write_operation(writer, last);
	diagnose_write(writer, running ? "" : ")");
}

/* What a rank that is elsewhere did last, and what it does now. */
static void write_whereabouts(struct diagnose_writer *writer,
			      const struct diagnose_snapshot *snapshot,
			      const struct diagnose_rank *rank, const struct diagnose_record *last)
{
	diagnose_write(writer, " (");
	if (rank->known && (rank->awake || rank->incomplete))
		diagnose_write(writer, "a thread that is not seen to wait may still act; ");
	if (!rank->known) {
		diagnose_write_unseen(writer, rank);
	} else if (!last) {
		diagnose_write(writer, "it has called nothing yet");
	} else if (last->record.state == TRACE_RUNNING) {
		diagnose_write(writer, "busy in ");
		diagnose_write_operation(writer, last);
		if (last->record.step_count)
			diagnose_write(writer, ", step %" PRIu32 " of %u", last->step + 1,
				       last->record.step_count);
		diagnose_write_stream(writer, &last->record);
	} else {
		diagnose_write(writer, "its last operation was ");
		diagnose_write_operation(writer, last);
		if (last->end_ns && last->end_ns <= snapshot->now_ns) {
			diagnose_write(writer, ", finished ");
			diagnose_write_duration(writer, snapshot->now_ns - last->end_ns);
			diagnose_write(writer, " ago");
		}
	}
	diagnose_write_site(writer, last);
	diagnose_write_foreign_call(writer, snapshot, rank);
	diagnose_write_python(writer, rank);
	diagnose_write(writer, "; it is %s)",
		       rank->process == DIAGNOSE_PROCESS_SLEEPING
			       ? "sleeping in a system call"
			       : diagnose_process_text(rank->process));
}

static void write_pid(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
		      int r)
{
	if (snapshot->ranks[r].pid <= 0)
		return;
	diagnose_write(writer, "(pid %d", snapshot->ranks[r].pid);
	diagnose_write_host(writer, snapshot, r);
	diagnose_write(writer, ") ");
}

static void write_one_missing(struct diagnose_writer *writer,
			      const struct diagnose_snapshot *snapshot,
			      const struct diagnose_verdict *verdict, int r)
{
	const struct diagnose_rank *rank = &snapshot->ranks[r];
	const struct diagnose_record *last = diagnose_part_of(snapshot, verdict, r).record;
	diagnose_write(writer, "rank %d ", r);
	switch (verdict->cause) {
	case DIAGNOSE_DIED:
		write_pid(writer, snapshot, r);
		diagnose_write_end(writer, rank);
		write_last(writer, rank, last);
		if (rank->signal == 0)
			diagnose_write(writer, " without closing its group");
		break;
	case DIAGNOSE_LEFT:
		write_left(writer, verdict, rank, last);
		break;
	case DIAGNOSE_STOPPED:
		write_pid(writer, snapshot, r);
		diagnose_write(writer, "is stopped");
		write_last(writer, rank, last);
		break;
	default:
		diagnose_write(writer, rank->known ? "is elsewhere" : "is not seen");
		write_whereabouts(writer, snapshot, rank, last);
		break;
	}
}

static void write_missing(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			  const struct diagnose_verdict *verdict)
{
	struct ranks who = verdict->culprit >= 0 ? ranks_of(verdict->culprit) : verdict->culprits;
	bool reported = verdict->cause == DIAGNOSE_STOPPED || verdict->cause == DIAGNOSE_ELSEWHERE;
	bool all_left = true, all_seen = true, any_seen = false;
	RANKS_EACH (r, &who) {
		all_left &=
			r >= snapshot->size || snapshot->ranks[r].left || !snapshot->ranks[r].known;
		all_seen &= r >= snapshot->size || snapshot->ranks[r].known;
		any_seen |= r < snapshot->size && snapshot->ranks[r].known;
	}
	if (ranks_count(&who) == 1) {
		write_one_missing(writer, snapshot, verdict, ranks_first(&who));
	} else if (!ranks_any(&who)) {
		diagnose_write(writer,
			       verdict->cause == DIAGNOSE_LEFT ? "a rank finished" : "a rank died");
	} else {
		diagnose_write_ranks(writer, &who);
		diagnose_write(writer, verdict->cause == DIAGNOSE_DIED ? " died"
				       : verdict->cause == DIAGNOSE_LEFT
					       ? (all_left ? " finished" : " closed the group")
				       : verdict->cause == DIAGNOSE_STOPPED ? " are stopped"
				       : all_seen                           ? " are elsewhere"
				       : any_seen ? " are elsewhere or not seen"
						  : " are not seen");
	}
	write_while(writer, snapshot, verdict, reported);
}

/* ---- the others ---- */

enum { HOP_MAX = 8 }; /* hops of a cycle told in the first line */

static void write_hop(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
		      const struct diagnose_hop *hop)
{
	struct ranks peer = ranks_of(hop->peer);
	const struct diagnose_record *record =
		diagnose_record_for(&snapshot->ranks[hop->rank], hop->thread, &peer);
	bool any = record && diagnose_is_p2p(&record->record) && record->record.peer < 0;
	diagnose_write(writer, "rank %d waits for ", hop->rank);
	if (hop->peer == hop->rank)
		diagnose_write(writer, "itself");
	else if (any)
		diagnose_write(writer, "any rank");
	else
		diagnose_write(writer, "rank %d", hop->peer);
	if (!record)
		return;
	diagnose_write(writer, " (%s", trace_kind_name(record->record.kind));
	if (record->record.seq)
		diagnose_write(writer, " #%" PRIu64, record->record.seq);
	diagnose_write_group(writer, record->record.group);
	if (diagnose_is_p2p(&record->record) && record->record.tag < 0)
		diagnose_write(writer, ", any tag");
	else if (diagnose_is_p2p(&record->record))
		diagnose_write(writer, ", tag %d", record->record.tag);
	diagnose_write_site(writer, record);
	diagnose_write(writer, ")");
}

/* "; rank 2 has left, rank 3 died": ranks that might have ended the cycle, because one of several
 * would have sufficed. */
static void write_gone(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
		       const struct diagnose_hop *hops, int length)
{
	struct ranks left = {{0}}, died = {{0}};
	struct diagnose_gone last = {0};
	for (int i = 0; i < length && i < DIAGNOSE_HOP_MAX; i++) {
		const struct diagnose_thread *thread = hops[i].thread;
		uint32_t group = thread->wait.group;
		struct ranks gone = diagnose_thread_needs(snapshot, thread);
		if (thread->wait.state != WAIT_ANY_WORD)
			continue;
		ranks_keep(&gone, diagnose_gone_again(snapshot, group, &last));
		RANKS_EACH (r, &gone)
			ranks_add(diagnose_has_left(&snapshot->ranks[r], group) ? &left : &died, r);
	}
	if (ranks_any(&left)) {
		diagnose_write(writer, "; ");
		diagnose_write_ranks(writer, &left);
		diagnose_write(writer, ranks_count(&left) == 1 ? " has left" : " have left");
	}
	if (ranks_any(&died)) {
		diagnose_write(writer, ranks_any(&left) ? ", " : "; ");
		diagnose_write_ranks(writer, &died);
		diagnose_write(writer, " died");
	}
}

static void write_cycle(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			const struct diagnose_verdict *verdict)
{
	struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
	struct ranks cycle;
	int length =
		diagnose_find_cycle(snapshot, &verdict->culprits, hops, DIAGNOSE_HOP_MAX, &cycle);
	if (length != 1) {
		if (ranks_any(&verdict->culprits))
			diagnose_write_ranks(writer, &verdict->culprits);
		else
			diagnose_write(writer, "ranks");
		diagnose_write(writer, " wait for each other and can never go on%s",
			       length ? ": " : "");
	}
	for (int i = 0; i < length && i < HOP_MAX; i++) {
		diagnose_write(writer, i ? ", " : "");
		write_hop(writer, snapshot, &hops[i]);
	}
	if (length == 1)
		diagnose_write(writer, " and can never go on");
	if (length > HOP_MAX)
		diagnose_write(writer, ", and so on to rank %d", hops[0].rank);
	write_gone(writer, snapshot, hops, length);
}

static void write_own_doing(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			    const struct diagnose_verdict *verdict)
{
	const struct diagnose_record *record = witness_record(snapshot, verdict);
	if (verdict->culprit >= 0)
		diagnose_write(writer, "rank %d ", verdict->culprit);
	else
		diagnose_write(writer, "a rank ");
	diagnose_write(writer, verdict->closes                     ? "closed the group"
			       : verdict->status == LS_ABORTED     ? "aborted the group"
			       : verdict->status == LS_INTERRUPTED ? "was interrupted by a signal"
								   : "failed");
	/* An abort belongs to no operation: the record is that of a rank which was in one. */
	if (record && verdict->status != LS_ABORTED) {
		diagnose_write(writer, " in ");
		diagnose_write_operation(writer, record);
		diagnose_write_site(writer, record);
	}
	if (verdict->status != LS_ABORTED && verdict->status != LS_INTERRUPTED)
		diagnose_write(writer, ": %s", ls_status_text(verdict->status));
	if (verdict->note[0]) {
		diagnose_write(writer, verdict->closes ? " " : ": ");
		diagnose_write_foreign(writer, verdict->note);
	}
}

static void write_time_out(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			   const struct diagnose_verdict *verdict)
{
	const struct diagnose_record *record = witness_record(snapshot, verdict);
	if (verdict->witness >= 0)
		diagnose_write(writer, "rank %d timed out in ", verdict->witness);
	else
		diagnose_write(writer, "timed out in ");
	diagnose_write_operation(writer, record);
	if (verdict->cause != DIAGNOSE_TIMED_OUT) {
		/* A rank that is blamed for its own time-out is not listed among the waiting
		 * ranks. */
		if (verdict->witness >= 0 && ranks_have(&verdict->culprits, verdict->witness))
			diagnose_write_site(writer, record);
		diagnose_write(writer, ": ");
		return;
	}
	if (verdict->since_ns && verdict->since_ns < snapshot->now_ns) {
		diagnose_write(writer, " after ");
		diagnose_write_duration(writer, snapshot->now_ns - verdict->since_ns);
	}
	diagnose_write_site(writer, record);
	diagnose_write(writer, "; no rank is known to be dead, stopped or elsewhere");
}

void diagnose_write_headline(struct diagnose_writer *writer,
			     const struct diagnose_snapshot *snapshot,
			     const struct diagnose_verdict *verdict)
{
	if (verdict->timed_out)
		write_time_out(writer, snapshot, verdict);
	switch (verdict->cause) {
	case DIAGNOSE_MISMATCH:
		diagnose_write_mismatch(writer, snapshot, verdict);
		break;
	case DIAGNOSE_DEADLOCK:
		write_cycle(writer, snapshot, verdict);
		break;
	case DIAGNOSE_ABORTED:
		write_own_doing(writer, snapshot, verdict);
		break;
	case DIAGNOSE_HEALTHY:
		diagnose_write(writer, "no rank waits for a rank that does not come");
		break;
	case DIAGNOSE_TIMED_OUT:
		break;
	default:
		write_missing(writer, snapshot, verdict);
		break;
	}
}

void diagnose_headline(const struct diagnose_snapshot *snapshot,
		       const struct diagnose_verdict *verdict, char *out, size_t bytes)
{
	struct diagnose_writer writer;
	diagnose_writer_init(&writer, snapshot, out, bytes);
	diagnose_write_headline(&writer, snapshot, verdict);
	diagnose_write_ellipsis(&writer);
}
