/* SPDX-License-Identifier: BSD-3-Clause
 * The verdict: asks the finders in the order of what can be proved. Then it works out which ranks
 * wait for the culprits, in which operation, and since when. A hint fixes the status, and also the
 * cause, except after a time-out, whose cause is still to be found. */
#include "diagnose/facts.h"

#include <string.h>

struct inquiry {
	const struct diagnose_job *job;
	const struct diagnose_hint *hint; /* NULL, or with a status that is not LS_OK */
	uint32_t group;                   /* whose waits are asked about, 0: all */
	struct diagnose_needs needs;
};

const char *diagnose_cause_name(unsigned cause)
{
	static const char *const names[] = {
		[DIAGNOSE_HEALTHY] = "healthy",     [DIAGNOSE_MISMATCH] = "mismatch",
		[DIAGNOSE_DIED] = "died",           [DIAGNOSE_LEFT] = "left",
		[DIAGNOSE_DEADLOCK] = "deadlock",   [DIAGNOSE_IS_STOPPED] = "stopped",
		[DIAGNOSE_ELSEWHERE] = "elsewhere", [DIAGNOSE_TIMED_OUT] = "timed out",
		[DIAGNOSE_WAS_ABORTED] = "aborted",
	};
	return cause < sizeof(names) / sizeof(names[0]) ? names[cause] : "?";
}

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
	case DIAGNOSE_WAS_ABORTED:
		return LS_ABORTED;
	case DIAGNOSE_IS_STOPPED:
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
	uint64_t all = 0;
	if (!diagnose_find_mismatch(inquiry->job, inquiry->group, &mismatch))
		return false;
	for (int i = 0; i < mismatch.class_count; i++)
		all |= mismatch.classes[i].ranks;
	out->cause = DIAGNOSE_MISMATCH;
	out->fields = mismatch.fields;
	out->group = mismatch.group;
	out->seq = mismatch.seq;
	out->culprits = all;
	if (mismatch.majority >= 0) {
		out->culprits &= ~mismatch.classes[mismatch.majority].ranks;
		out->waiting = mismatch.classes[mismatch.majority].ranks;
	}
	return true;
}

static bool hints_at_two(const struct inquiry *inquiry)
{
	const struct diagnose_hint *hint = inquiry->hint;
	int size = inquiry->job->size;
	return hint->peer >= 0 && hint->peer < size && hint->rank >= 0 && hint->rank < size;
}

static void tell_two(const struct diagnose_hint *hint, struct diagnose_verdict *out)
{
	out->cause = DIAGNOSE_MISMATCH;
	out->culprits = diagnose_bit(hint->rank) | diagnose_bit(hint->peer);
	out->from = hint->peer;
	out->to = hint->rank;
	out->sent = hint->sent;
	out->expected = hint->expected;
}

/* A send and its receive. Only the one who received knows that they matched, and what the message
 * said; the send's record may be gone, and others be there that look like it. */
static bool judge_pair(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	const struct diagnose_hint *hint = inquiry->hint;
	if (!hint->matched.known || !hints_at_two(inquiry))
		return false;
	tell_two(hint, out);
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

/* Only the one who expected has seen it: in the records each rank's counts are its own. */
static bool judge_exchange(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	const struct diagnose_hint *hint = inquiry->hint;
	if (hint->sent == hint->expected || !hints_at_two(inquiry))
		return false;
	tell_two(hint, out);
	out->fields = DIAGNOSE_COUNT | DIAGNOSE_EXCHANGE;
	return true;
}

static uint64_t left_ranks(const struct inquiry *inquiry)
{
	const struct diagnose_job *job = inquiry->job;
	uint64_t left = 0;
	for (int r = 0; r < job->size; r++)
		if (diagnose_has_left(&job->ranks[r], inquiry->group))
			left |= diagnose_bit(r);
	return left;
}

/* Whether the last operation of one of these failed for another reason than a death. No record says
 * why ls_group_open failed; a rank that ended in another way is the likelier reason. */
static bool has_own_reason(const struct diagnose_job *job, uint64_t ranks)
{
	for (; ranks; ranks &= ranks - 1) {
		const struct diagnose_rank *rank = &job->ranks[diagnose_lowest_rank(ranks)];
		const struct diagnose_record *last = diagnose_newest(rank);
		if (!diagnose_has_failed(rank) || (last && last->record.status != LS_PEER_DIED))
			return true;
	}
	return false;
}

/* Of ranks that are gone those that went first: whose own last operation had not failed already. If
 * a death has made them all go, as when some members of a new group have it and others do not, then
 * it is the dead members of the group. */
static uint64_t first_gone(const struct inquiry *inquiry, uint64_t gone)
{
	const struct diagnose_job *job = inquiry->job;
	uint64_t failed = 0, members = diagnose_members(job, inquiry->group);
	for (int r = 0; r < job->size; r++)
		if (diagnose_has_failed(&job->ranks[r]))
			failed |= diagnose_bit(r);
	uint64_t dead = diagnose_gone_from(job, inquiry->group) & ~left_ranks(inquiry) & ~failed;
	if (members)
		dead &= members;
	if (gone & ~failed)
		return gone & ~failed;
	return gone && dead && !has_own_reason(job, gone) ? dead : gone;
}

static bool judge_gone(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	uint64_t gone = first_gone(
		inquiry, diagnose_find_gone(inquiry->job, &inquiry->needs, inquiry->group));
	uint64_t dead = gone & ~left_ranks(inquiry);
	if (!gone)
		return false;
	out->cause = dead ? DIAGNOSE_DIED : DIAGNOSE_LEFT;
	out->culprits = dead ? dead : gone;
	return true;
}

/* Whether a wait in this group is for ranks that can never go on, by a rank that cannot either. */
static bool holds_up(const struct diagnose_job *job, uint32_t group)
{
	uint64_t stuck = diagnose_find_stuck(job);
	for (int r = 0; r < job->size; r++)
		for (uint32_t i = 0; i < job->ranks[r].thread_count; i++) {
			const struct diagnose_thread *thread = &job->ranks[r].threads[i];
			if ((stuck & diagnose_bit(r)) && diagnose_is_in(thread, group) &&
			    (diagnose_thread_needs(job, thread) & stuck))
				return true;
		}
	return false;
}

static bool judge_cycle(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	struct diagnose_hop hops[DIAGNOSE_RANK_MAX];
	if (!holds_up(inquiry->job, inquiry->group))
		return false;
	int length = diagnose_find_cycle(inquiry->job, hops);
	for (int i = 0; i < length; i++)
		out->culprits |= diagnose_bit(hops[i].rank);
	if (length)
		out->cause = DIAGNOSE_DEADLOCK;
	return length != 0;
}

/* Whom the hint's operation waits for, and whom they wait for in turn, unless they are away
 * themselves; without one, or where it is not known, all. */
static uint64_t hint_reaches(const struct inquiry *inquiry, uint64_t away)
{
	const struct diagnose_needs *needs = &inquiry->needs;
	uint64_t reached = needs->hint_needs, before;
	if (!reached)
		return UINT64_MAX;
	do {
		before = reached;
		for (int r = 0; r < inquiry->job->size; r++)
			if (before & ~away & diagnose_bit(r))
				reached |= needs->of[r];
	} while (reached != before);
	return reached;
}

static bool judge_away(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	uint64_t stopped, elsewhere;
	diagnose_find_away(inquiry->job, &inquiry->needs, inquiry->group, &stopped, &elsewhere);
	uint64_t reached = hint_reaches(inquiry, stopped | elsewhere);
	stopped &= reached;
	elsewhere &= reached;
	out->cause = stopped     ? DIAGNOSE_IS_STOPPED
		     : elsewhere ? DIAGNOSE_ELSEWHERE
				 : DIAGNOSE_HEALTHY;
	out->culprits = stopped ? stopped : elsewhere;
	return out->culprits != 0;
}

static bool judge_all(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	return judge_mismatch(inquiry, out) || judge_gone(inquiry, out) ||
	       judge_cycle(inquiry, out) || judge_away(inquiry, out);
}

/* ---- with a hint ---- */

static uint64_t hint_peer(const struct inquiry *inquiry)
{
	int peer = inquiry->hint->peer;
	return peer < inquiry->job->size ? diagnose_bit(peer) : 0;
}

static void judge_hinted_gone(const struct inquiry *inquiry, enum diagnose_cause cause,
			      struct diagnose_verdict *out)
{
	uint64_t left = left_ranks(inquiry);
	uint64_t gone = diagnose_find_gone(inquiry->job, &inquiry->needs, inquiry->group);
	gone &= cause == DIAGNOSE_DIED ? ~left : left;
	gone = first_gone(inquiry, gone | hint_peer(inquiry));
	out->cause = gone & ~left & ~hint_peer(inquiry) ? DIAGNOSE_DIED : cause;
	out->culprits = gone;
	if (gone & hint_peer(inquiry))
		out->blamed = inquiry->hint->peer;
}

static void judge_hinted(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	const struct diagnose_needs *needs = &inquiry->needs;
	/* What is left to say when the snapshot no longer shows what the hinting rank saw. */
	uint64_t both = hint_peer(inquiry) ? diagnose_bit(needs->hint_rank) | hint_peer(inquiry) : 0;
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
		out->cause = DIAGNOSE_WAS_ABORTED;
		out->culprits = diagnose_bit(needs->hint_rank);
		break;
	}
}

/* ---- who waits ---- */

static void find_waiting(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	uint64_t before;
	if (inquiry->needs.hint_record)
		out->waiting |= diagnose_bit(inquiry->needs.hint_rank) & ~out->culprits;
	do {
		before = out->waiting;
		for (int r = 0; r < inquiry->job->size; r++)
			if (inquiry->needs.of[r] & (out->culprits | out->waiting))
				out->waiting |= diagnose_bit(r) & ~out->culprits;
	} while (out->waiting != before);
}

/* The thread that has waited longest for one of `whom`, among `ranks`, in this group. */
static const struct diagnose_thread *find_longest(const struct diagnose_job *job, uint32_t group,
						  uint64_t ranks, uint64_t whom, int *rank)
{
	const struct diagnose_thread *longest = NULL;
	for (; ranks; ranks &= ranks - 1) {
		int r = diagnose_lowest_rank(ranks);
		if (!diagnose_rank_needs(job, r))
			continue;
		for (uint32_t i = 0; i < job->ranks[r].thread_count; i++) {
			const struct diagnose_thread *thread = &job->ranks[r].threads[i];
			if (!(diagnose_thread_needs(job, thread) & whom) ||
			    !diagnose_is_in(thread, group) ||
			    (longest && thread->wait.since_ns >= longest->wait.since_ns))
				continue;
			longest = thread;
			*rank = r;
		}
	}
	return longest;
}

/* Who closes the group, or sees that another one has, finds that there was one more collective.
 * Those who called it may have gone on, and wait for something else. */
static bool is_found_by_who_closes(const struct diagnose_hint *hint)
{
	return hint && hint->status == LS_PEER_LEFT && hint->collective && hint->seq &&
	       !hint->record;
}

static void find_witness(const struct inquiry *inquiry, struct diagnose_verdict *out)
{
	const struct diagnose_job *job = inquiry->job;
	const struct diagnose_needs *needs = &inquiry->needs;
	const struct diagnose_record *record = needs->hint_record;
	/* With nobody else those that are blamed wait for each other, though not all that they do
	 * is seen. */
	bool mutual =
		out->cause == DIAGNOSE_DEADLOCK || out->cause == DIAGNOSE_MISMATCH || !out->waiting;
	uint64_t all = out->waiting | (mutual ? out->culprits : 0);
	uint32_t group = out->cause == DIAGNOSE_DEADLOCK ? 0 : inquiry->group;
	int rank = -1;
	const struct diagnose_thread *longest =
		find_longest(job, group, all, out->culprits | out->waiting, &rank);
	if (!longest) { /* in this group only those wait that are blamed themselves */
		all = out->culprits;
		longest = find_longest(job, group, all, all | out->waiting, &rank);
	}
	out->since_ns = longest ? longest->wait.since_ns : 0;
	if (record) {
		out->witness = needs->hint_rank;
		out->record = record->record.index;
		if (record->begin_ns && (!longest || record->begin_ns < out->since_ns))
			out->since_ns = record->begin_ns;
	} else if (!is_found_by_who_closes(inquiry->hint)) {
		longest = find_longest(job, group, all, out->culprits, &rank);
		if (longest) {
			out->witness = rank;
			record = diagnose_record_for(&job->ranks[rank], longest, out->culprits);
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

static void judge(const struct inquiry *asked, struct diagnose_verdict *out)
{
	struct inquiry inquiry = *asked;
	const struct diagnose_hint *hint = inquiry.hint;
	*out = (struct diagnose_verdict){.blamed = -1, .witness = -1, .from = -1, .to = -1};
	diagnose_find_needs(inquiry.job, hint, &inquiry.needs);
	if (!hint) {
		judge_all(&inquiry, out);
	} else {
		judge_hinted(&inquiry, out);
		out->closes = hint->closes;
		out->serial = hint->serial;
		if (hint->note)
			memcpy(out->note, hint->note, strnlen(hint->note, sizeof(out->note) - 1));
	}
	bool died = out->cause == DIAGNOSE_DIED && hint && hint->status == LS_PEER_LEFT;
	out->status = hint && !died ? hint->status : status_of_cause(out->cause);
	if (out->cause == DIAGNOSE_HEALTHY)
		return;
	find_waiting(&inquiry, out);
	find_witness(&inquiry, out);
	if (out->blamed < 0 && diagnose_count_ranks(out->culprits) == 1)
		out->blamed = diagnose_lowest_rank(out->culprits);
}

/* The next group after `group` in which a thread waits, 0: none. */
static uint32_t next_group(const struct diagnose_job *job, uint32_t group)
{
	uint32_t next = 0;
	for (int r = 0; r < job->size; r++)
		for (uint32_t i = 0; i < job->ranks[r].thread_count; i++) {
			const struct diagnose_thread *thread = &job->ranks[r].threads[i];
			uint32_t id = thread->wait.group;
			if (id > group && (next == 0 || id < next) &&
			    diagnose_thread_needs(job, thread))
				next = id;
		}
	return next;
}

/* What has come to an end in one group must not hide why threads wait in another. Of the same cause
 * in several that is chosen for which somebody has waited longest. */
static void judge_each(const struct diagnose_job *job, struct diagnose_verdict *out)
{
	struct inquiry inquiry = {.job = job};
	*out = (struct diagnose_verdict){.cause = DIAGNOSE_HEALTHY};
	for (uint32_t id = next_group(job, 0); id != 0; id = next_group(job, id)) {
		struct diagnose_verdict verdict;
		inquiry.group = id;
		judge(&inquiry, &verdict);
		bool same = verdict.cause == out->cause;
		if (verdict.cause != DIAGNOSE_HEALTHY &&
		    (out->cause == DIAGNOSE_HEALTHY || verdict.cause < out->cause ||
		     (same && verdict.since_ns < out->since_ns)))
			*out = verdict;
	}
	inquiry.group = 0;
	if (out->cause == DIAGNOSE_HEALTHY)
		judge(&inquiry, out);
}

void diagnose_judge(const struct diagnose_job *job, const struct diagnose_hint *hint,
		    struct diagnose_verdict *out)
{
	struct inquiry inquiry = {.job = job,
				  .hint = hint && hint->status != LS_OK ? hint : NULL,
				  .group = hint ? hint->group : 0};
	if (hint)
		judge(&inquiry, out);
	else
		judge_each(job, out);
}
