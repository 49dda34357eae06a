/* SPDX-License-Identifier: BSD-3-Clause
 * The verdict: asks the finders in the order of what can be proved. Then it works out which ranks
 * wait for the culprits, in which operation, and since when. A hint fixes the status, and also the
 * cause, except after a time-out, whose cause is still to be found. */
#include "diagnose/facts.h"

#include <stdlib.h>
#include <string.h>

struct inquiry {
	const struct diagnose_snapshot *snapshot;
	const struct diagnose_hint *hint; /* NULL, or with a status that is not LS_OK */
	uint32_t group;                   /* the group whose waits are asked about, 0: all */
	struct diagnose_needs needs;
	const struct ranks *waiters_on; /* diagnose_find_waiters */
};

static ls_status status_of_cause(enum diagnose_cause cause)
{
	switch (cause) {
	case DIAGNOSE_HEALTHY:
		return LS_OK;
	case DIAGNOSE_MISMATCH:
		return LS_MISMATCH;
	case DIAGNOSE_DIED:
		return LS_PEER_DIED;
	case DIAGNOSE_LEFT:
		return LS_PEER_LEFT;
	case DIAGNOSE_DEADLOCK:
		return LS_DEADLOCK;
	case DIAGNOSE_ABORTED:
		return LS_ABORTED;
	case DIAGNOSE_STOPPED:
	case DIAGNOSE_ELSEWHERE:
	case DIAGNOSE_TIMED_OUT:
		break;
	}
	return LS_TIMED_OUT;
}

/* ---- the causes; each fills cause, culprits and what only it knows ---- */

static bool judge_mismatch(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	struct diagnose_mismatch mismatch;
	struct ranks all = {{0}};
	if (!diagnose_find_mismatch(inquiry->snapshot, inquiry->group, &mismatch))
		return false;
	for (int i = 0; i < mismatch.class_count; i++)
		ranks_join(&all, &mismatch.classes[i].ranks);
	out->cause = DIAGNOSE_MISMATCH;
	out->fields = mismatch.fields;
	out->group = mismatch.group;
	out->seq = mismatch.seq;
	out->culprits = all;
	if (mismatch.majority >= 0) {
		ranks_drop(&out->culprits, &mismatch.classes[mismatch.majority].ranks);
		out->waiting = mismatch.classes[mismatch.majority].ranks;
	}
	return true;
}

static bool hint_names_two(const struct inquiry *inquiry)
{
	const struct diagnose_hint *hint = inquiry->hint;
	int size = inquiry->snapshot->size;
	return hint->peer >= 0 && hint->peer < size && hint->rank >= 0 && hint->rank < size;
}

static void blame_both(const struct diagnose_hint *hint, struct diagnose_verdict *out)
{
	out->cause = DIAGNOSE_MISMATCH;
	out->culprits = ranks_of(hint->rank);
	ranks_add(&out->culprits, hint->peer);
	out->from = hint->peer;
	out->to = hint->rank;
	out->sent = hint->sent;
	out->expected = hint->expected;
}

/* A send and its receive. Only the receiver knows that they matched, and the message's envelope.
 * The send's record may have been overwritten, and other records may look like it. */
static bool judge_pair(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	const struct diagnose_hint *hint = inquiry->hint;
	if (!hint->matched.known || !hint_names_two(inquiry))
		return false;
	blame_both(hint, out);
	out->fields = DIAGNOSE_PAIR;
	if (hint->sent != hint->expected)
		out->fields |= DIAGNOSE_COUNT;
	if (hint->matched.sent_dtype != hint->matched.expected_dtype)
		out->fields |= DIAGNOSE_DTYPE;
	out->matched = hint->matched;
	out->group = hint->group;
	out->seq = hint->seq;
	return true;
}

/* Only the rank that expected another count has seen the difference: records have only each rank's
 * own counts. */
static bool judge_exchange(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	const struct diagnose_hint *hint = inquiry->hint;
	if (hint->sent == hint->expected || !hint_names_two(inquiry))
		return false;
	blame_both(hint, out);
	out->fields = DIAGNOSE_COUNT | DIAGNOSE_EXCHANGE;
	return true;
}

static struct ranks left_ranks(const struct inquiry *inquiry)
{
	const struct diagnose_snapshot *snapshot = inquiry->snapshot;
	struct ranks left = {{0}};
	for (int r = 0; r < snapshot->size; r++)
		if (diagnose_has_left(&snapshot->ranks[r], inquiry->group))
			ranks_add(&left, r);
	return left;
}

/* Whether the last operation of one of these ranks failed for another reason than a death. No
 * record says why ls_group_open failed; a rank that ended in another way is the likelier reason. */
static bool has_own_reason(const struct diagnose_snapshot *snapshot, const struct ranks *ranks)
{
	RANKS_EACH (r, ranks) {
		const struct diagnose_rank *rank = &snapshot->ranks[r];
		const struct diagnose_record *last = diagnose_newest(rank);
		if (!diagnose_has_failed(rank) || (last && last->record.status != LS_PEER_DIED))
			return true;
	}
	return false;
}

/* The ranks that went first among those that are gone: their own last operation had not failed
 * already. If a death has made them all go, as when some members of a new group have the group and
 * others do not, these are the dead members of the group. */
static struct ranks first_gone(const struct inquiry *inquiry, struct ranks gone)
{
	const struct diagnose_snapshot *snapshot = inquiry->snapshot;
	const struct ranks *members = diagnose_members(snapshot, inquiry->group);
	struct ranks failed = {{0}}, first = gone, left = left_ranks(inquiry);
	for (int r = 0; r < snapshot->size; r++)
		if (diagnose_has_failed(&snapshot->ranks[r]))
			ranks_add(&failed, r);
	struct ranks dead = diagnose_gone_from(snapshot, inquiry->group);
	ranks_drop(&dead, &left);
	ranks_drop(&dead, &failed);
	if (members)
		ranks_keep(&dead, members);
	ranks_drop(&first, &failed);
	if (ranks_any(&first))
		return first;
	bool dies = ranks_any(&gone) && ranks_any(&dead) && !has_own_reason(snapshot, &gone);
	return dies ? dead : gone;
}

static bool judge_gone(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	struct ranks left = left_ranks(inquiry);
	struct ranks gone = first_gone(
		inquiry, diagnose_find_gone(inquiry->snapshot, &inquiry->needs, inquiry->group));
	struct ranks dead = gone;
	ranks_drop(&dead, &left);
	if (!ranks_any(&gone))
		return false;
	out->cause = ranks_any(&dead) ? DIAGNOSE_DIED : DIAGNOSE_LEFT;
	out->culprits = ranks_any(&dead) ? dead : gone;
	return true;
}

/* The ranks that can never go on and for which others that cannot either wait in this group. */
static struct ranks find_awaited(const struct diagnose_snapshot *snapshot, uint32_t group)
{
	struct ranks stuck = diagnose_find_stuck(snapshot), awaited = {{0}};
	RANKS_EACH (r, &stuck)
		for (uint32_t i = 0; i < snapshot->ranks[r].thread_count; i++) {
			const struct diagnose_thread *thread = &snapshot->ranks[r].threads[i];
			struct ranks needs = diagnose_thread_needs(snapshot, thread);
			if (diagnose_is_in(thread, group))
				ranks_join(&awaited, &needs);
		}
	ranks_keep(&awaited, &stuck);
	return awaited;
}

/* There may be several cycles. The one that counts is that for which ranks wait in this group. */
static bool judge_cycle(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	struct ranks cycle, awaited = find_awaited(inquiry->snapshot, inquiry->group);
	const struct ranks *from = inquiry->group ? &awaited : NULL;
	if (!ranks_any(&awaited) ||
	    diagnose_find_cycle(inquiry->snapshot, from, NULL, 0, &cycle) == 0)
		return false;
	out->culprits = cycle;
	out->cause = DIAGNOSE_DEADLOCK;
	return true;
}

/* The ranks that the hint's operation waits for, and the ranks that these wait for in turn, unless
 * these are missing themselves. All ranks if there is no hint, or if its ranks are not known. */
static struct ranks hint_reaches(const struct inquiry *inquiry, const struct ranks *missing)
{
	struct ranks reached = inquiry->needs.hint_needs, done = *missing;
	int size = inquiry->snapshot->size;
	if (!ranks_any(&reached))
		return ranks_below(RANKS_JOB_MAX);
	for (struct ranks fresh = reached; ranks_any(&fresh); fresh = reached) {
		ranks_drop(&fresh, &done);
		ranks_join(&done, &fresh);
		RANKS_EACH (r, &fresh) {
			if (r >= size)
				break;
			struct ranks its = diagnose_needs_of(inquiry->snapshot, &inquiry->needs, r);
			ranks_join(&reached, &its);
		}
		if (ranks_are_in(&reached, &done))
			break;
	}
	return reached;
}

static bool judge_elsewhere(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	struct ranks stopped, elsewhere;
	diagnose_find_elsewhere(inquiry->snapshot, &inquiry->needs, inquiry->group, &stopped,
				&elsewhere);
	struct ranks missing = stopped;
	ranks_join(&missing, &elsewhere);
	struct ranks reached = hint_reaches(inquiry, &missing);
	ranks_keep(&stopped, &reached);
	ranks_keep(&elsewhere, &reached);
	if (inquiry->hint && !ranks_any(&stopped))
		stopped = diagnose_find_behind(inquiry->snapshot, &inquiry->needs, &elsewhere);
	out->cause = ranks_any(&stopped)     ? DIAGNOSE_STOPPED
		     : ranks_any(&elsewhere) ? DIAGNOSE_ELSEWHERE
					     : DIAGNOSE_HEALTHY;
	out->culprits = ranks_any(&stopped) ? stopped : elsewhere;
	return ranks_any(&out->culprits);
}

static bool judge_all(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	return judge_mismatch(inquiry, out) || judge_gone(inquiry, out) ||
	       judge_cycle(inquiry, out) || judge_elsewhere(inquiry, out);
}

/* ---- with a hint ---- */

static struct ranks hint_peer(const struct inquiry *inquiry)
{
	int peer = inquiry->hint->peer;
	return ranks_of(peer < inquiry->snapshot->size ? peer : -1);
}

static void judge_hinted_gone(const struct inquiry *inquiry, enum diagnose_cause cause,
			      struct diagnose_verdict *out)
{
	struct ranks left = left_ranks(inquiry), peer = hint_peer(inquiry);
	struct ranks gone = diagnose_find_gone(inquiry->snapshot, &inquiry->needs, inquiry->group);
	if (cause == DIAGNOSE_DIED)
		ranks_drop(&gone, &left);
	else
		ranks_keep(&gone, &left);
	ranks_join(&gone, &peer);
	out->culprits = gone = first_gone(inquiry, gone);
	if (ranks_meet(&gone, &peer))
		out->culprit = inquiry->hint->peer;
	ranks_drop(&gone, &left);
	ranks_drop(&gone, &peer);
	out->cause = ranks_any(&gone) ? DIAGNOSE_DIED : cause;
}

static void judge_hinted(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	const struct diagnose_needs *needs = &inquiry->needs;
	/* What is left to say when the snapshot no longer shows what the hinting rank saw. */
	struct ranks both = hint_peer(inquiry);
	if (ranks_any(&both))
		ranks_add(&both, needs->hint_rank);
	switch (inquiry->hint->status) {
	case LS_MISMATCH:
	case LS_TRUNCATED:
		if (judge_pair(inquiry, out) || judge_mismatch(inquiry, out) ||
		    judge_exchange(inquiry, out))
			break; /* a message that differs is always the first of these */
		out->cause = DIAGNOSE_MISMATCH;
		out->culprits = both;
		break;
	case LS_PEER_DIED:
		judge_hinted_gone(inquiry, DIAGNOSE_DIED, out);
		break;
	case LS_PEER_LEFT:
		judge_hinted_gone(inquiry, DIAGNOSE_LEFT, out);
		break;
	case LS_DEADLOCK:
		out->cause = DIAGNOSE_DEADLOCK;
		if (!judge_cycle(inquiry, out))
			out->culprits = both;
		break;
	case LS_TIMED_OUT:
		out->timed_out = true;
		if (!judge_all(inquiry, out))
			out->cause = DIAGNOSE_TIMED_OUT;
		break;
	default: /* aborted, interrupted, or the rank's own trouble: in any case its own doing */
		out->cause = DIAGNOSE_ABORTED;
		out->culprits = ranks_of(needs->hint_rank);
		break;
	}
}

/* ---- which ranks wait ---- */

/* Finds the ranks that wait for culprits, then those that wait for these, and so on. */
static void find_waiting(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	const struct diagnose_needs *needs = &inquiry->needs;
	struct ranks rest = ranks_below(inquiry->snapshot->size), fresh = out->culprits;
	if (needs->hint_record && !ranks_have(&out->culprits, needs->hint_rank))
		ranks_add(&out->waiting, needs->hint_rank);
	ranks_join(&fresh, &out->waiting);
	while (ranks_any(&fresh)) {
		struct ranks near =
			diagnose_waiters_on(inquiry->waiters_on, inquiry->snapshot->size, &fresh);
		struct ranks next = {{0}};
		ranks_drop(&rest, &fresh);
		ranks_join(&near, &needs->sharers);
		ranks_keep(&near, &rest);
		RANKS_EACH (r, &near) {
			struct ranks its = diagnose_needs_of(inquiry->snapshot, needs, r);
			if (ranks_meet(&its, &fresh))
				ranks_add(&next, r);
		}
		ranks_join(&out->waiting, &next);
		fresh = next;
	}
}

/* Among `ranks`, the thread that has waited longest in this group for one of the ranks `whom`. */
static const struct diagnose_thread *find_longest(const struct diagnose_snapshot *snapshot,
						  uint32_t group, const struct ranks *ranks,
						  const struct ranks *whom, int *rank)
{
	const struct diagnose_thread *longest = NULL;
	RANKS_EACH (r, ranks) {
		if (r >= snapshot->size || !snapshot->ranks[r].known ||
		    diagnose_is_gone(&snapshot->ranks[r]))
			continue;
		for (uint32_t i = 0; i < snapshot->ranks[r].thread_count; i++) {
			const struct diagnose_thread *thread = &snapshot->ranks[r].threads[i];
			if (!diagnose_is_in(thread, group) ||
			    (longest && thread->wait.since_ns >= longest->wait.since_ns))
				continue;
			struct ranks needs = diagnose_thread_needs(snapshot, thread);
			if (!ranks_meet(&needs, whom))
				continue;
			longest = thread;
			*rank = r;
		}
	}
	return longest;
}

/* A rank that closes the group, or sees that another rank has, finds that there was one more
 * collective. The ranks that called it may have continued, and wait for something else. */
static bool is_found_at_close(const struct diagnose_hint *hint)
{
	return hint && hint->status == LS_PEER_LEFT && hint->seq_is_collective && hint->seq &&
	       !hint->record;
}

static void find_witness(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	const struct diagnose_snapshot *snapshot = inquiry->snapshot;
	const struct diagnose_needs *needs = &inquiry->needs;
	const struct diagnose_record *record = needs->hint_record;
	/* If no other rank waits, the blamed ranks wait for each other, though not all that they do
	 * is seen. */
	bool mutual = out->cause == DIAGNOSE_DEADLOCK || out->cause == DIAGNOSE_MISMATCH ||
		      !ranks_any(&out->waiting);
	struct ranks all = out->waiting, both = out->culprits;
	ranks_join(&both, &out->waiting);
	if (mutual)
		all = both;
	uint32_t group = out->cause == DIAGNOSE_DEADLOCK ? 0 : inquiry->group;
	int rank = -1;
	const struct diagnose_thread *longest = find_longest(snapshot, group, &all, &both, &rank);
	if (!longest) { /* in this group only blamed ranks wait */
		all = out->culprits;
		longest = find_longest(snapshot, group, &all, &both, &rank);
	}
	out->since_ns = longest ? longest->wait.since_ns : 0;
	if (record) {
		out->witness = needs->hint_rank;
		out->record = record->record.index;
		if (record->begin_ns && (!longest || record->begin_ns < out->since_ns))
			out->since_ns = record->begin_ns;
	} else if (!is_found_at_close(inquiry->hint)) {
		longest = find_longest(snapshot, group, &all, &out->culprits, &rank);
		if (longest) {
			out->witness = rank;
			record = diagnose_record_for(&snapshot->ranks[rank], longest,
						     &out->culprits);
			out->record = record ? record->record.index : longest->wait.record;
		}
	}
	if (out->seq)
		return; /* a mismatch knows its own position */
	if (inquiry->hint && inquiry->hint->seq) {
		out->group = inquiry->hint->group;
		out->seq = inquiry->hint->seq;
	} else if (longest) {
		out->group = longest->wait.group;
		out->seq = record ? record->record.seq : 0;
	}
}

static void judge_inquiry(const struct inquiry *asked, struct diagnose_verdict *out)
{
	struct inquiry inquiry = *asked;
	const struct diagnose_hint *hint = inquiry.hint;
	*out = (struct diagnose_verdict){.culprit = -1, .witness = -1, .from = -1, .to = -1};
	diagnose_find_needs(inquiry.snapshot, hint, &inquiry.needs);
	if (!hint) {
		judge_all(&inquiry, out);
	} else {
		judge_hinted(&inquiry, out);
		out->closes = hint->closes;
		out->serial = hint->serial;
		if (hint->note)
			memcpy(out->note, hint->note, strnlen(hint->note, sizeof out->note - 1));
	}
	bool died = out->cause == DIAGNOSE_DIED && hint && hint->status == LS_PEER_LEFT;
	out->status = hint && !died ? hint->status : status_of_cause(out->cause);
	if (out->cause == DIAGNOSE_HEALTHY)
		return;
	find_waiting(&inquiry, out);
	find_witness(&inquiry, out);
	if (out->culprit < 0 && ranks_count(&out->culprits) == 1)
		out->culprit = ranks_first(&out->culprits);
}

/* The next group after `group` in which a thread waits, 0: none. */
static uint32_t next_group(const struct diagnose_snapshot *snapshot, uint32_t group)
{
	uint32_t next = 0;
	for (int r = 0; r < snapshot->size; r++)
		for (uint32_t i = 0; i < snapshot->ranks[r].thread_count; i++) {
			const struct diagnose_thread *thread = &snapshot->ranks[r].threads[i];
			uint32_t id = thread->wait.group;
			if (id > group && (next == 0 || id < next) &&
			    diagnose_waits(snapshot, thread))
				next = id;
		}
	return next;
}

/* What has come to an end in one group must not hide why threads wait in another. If several groups
 * have the same cause, the one counts in which a thread has waited longest. */
static void judge_each(const struct diagnose_snapshot *snapshot, struct diagnose_verdict *out)
{
	struct ranks *waiters_on = diagnose_find_waiters(snapshot);
	struct inquiry inquiry = {.snapshot = snapshot, .waiters_on = waiters_on};
	*out = (struct diagnose_verdict){.cause = DIAGNOSE_HEALTHY};
	for (uint32_t id = next_group(snapshot, 0); id != 0; id = next_group(snapshot, id)) {
		struct diagnose_verdict verdict;
		inquiry.group = id;
		judge_inquiry(&inquiry, &verdict);
		bool same = verdict.cause == out->cause;
		if (verdict.cause != DIAGNOSE_HEALTHY &&
		    (out->cause == DIAGNOSE_HEALTHY || verdict.cause < out->cause ||
		     (same && verdict.since_ns < out->since_ns)))
			*out = verdict;
	}
	inquiry.group = 0;
	if (out->cause == DIAGNOSE_HEALTHY)
		judge_inquiry(&inquiry, out);
	free(waiters_on);
}

void diagnose_judge(const struct diagnose_snapshot *snapshot, const struct diagnose_hint *hint,
		    struct diagnose_verdict *out)
{
	struct inquiry inquiry = {.snapshot = snapshot,
				  .hint = hint && hint->status != LS_OK ? hint : NULL,
				  .group = hint ? hint->group : 0};
	if (!hint) {
		judge_each(snapshot, out);
		return;
	}
	struct ranks *waiters_on = diagnose_find_waiters(snapshot);
	inquiry.waiters_on = waiters_on;
	judge_inquiry(&inquiry, out);
	free(waiters_on);
}
