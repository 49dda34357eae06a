/* SPDX-License-Identifier: BSD-3-Clause
 * The first cause: why a group has failed. It is worked out before it is published. The rank that
 * finds a failure claims it, takes a snapshot of all ranks, writes the verdict into its report, and
 * then sets the cause word, which ends every wait of the group. All survivors return the status of
 * that report. If the claimant dies or is stopped, another rank takes over. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "base/text.h"
#include "world/registry.h"
#include "failure/failure_private.h"

enum {
	TOLD_MS = 300,  /* how long a host waits for the cause that another host knows better */
	CLAIM_MS = 600, /* after this, the rank that works out the cause is held to be stuck */
};

/* ---- the words ---- */

/* The words `claim` and `cause`, which the members on a host share, lie in the area of the first of
 * these members, because its segment stays mapped when it dies:
 *   group id << 32 | 1 + world rank
 * The lower half is 0 while nobody holds the word. With the id a rank that was stopped while it
 * worked out a cause changes nothing of the group that has the area by then. */
static uint64_t held_by_nobody(uint32_t id)
{
	return (uint64_t)id << 32;
}

static int holder_of(uint64_t word, const struct world *world)
{
	uint32_t holder = (uint32_t)word;
	return holder >= 1 && holder <= (uint32_t)world->size ? (int)holder - 1 : -1;
}

struct failure_cause_ref failure_cause_ref_of(const struct ls_group *group)
{
	return (struct failure_cause_ref){.id = group->id,
					  .owner = group->team.members[group->team.first_here].world,
					  .head = transport_head_of(&group->team)};
}

/* Sets both words of a new area to held_by_nobody from 0. Only members may call it: others cannot
 * know whether the area has been reused. */
static void open_words(const struct failure_cause_ref *ref)
{
	_Atomic uint64_t *words[] = {&ref->head->claim, &ref->head->cause};
	for (int i = 0; i < 2; i++) {
		uint64_t fresh = 0;
		atomic_compare_exchange_strong(words[i], &fresh, held_by_nobody(ref->id));
	}
}

void failure_begin(const struct ls_group *group)
{
	struct failure_cause_ref ref = failure_cause_ref_of(group);
	if (group->rank == group->team.first_here)
		open_words(&ref);
}

static uint64_t cause_of(const struct failure_cause_ref *ref)
{
	return atomic_load_explicit(&ref->head->cause, memory_order_seq_cst);
}

bool failure_is_settled(const struct failure_cause_ref *ref)
{
	return cause_of(ref) != held_by_nobody(ref->id);
}

/* The report of world rank `teller`. */
static struct transport_report *report_of(const struct world *world,
					  const struct failure_cause_ref *ref, int teller)
{
	return transport_report(ref->head, world->size, teller);
}

/* The report that `cause` names; NULL: there is no cause, or it is nonsense. */
static const struct transport_report *published_report(const struct ls_group *group, uint64_t cause)
{
	struct failure_cause_ref ref = failure_cause_ref_of(group);
	int teller = holder_of(cause, group->world);
	return teller < 0 ? NULL : report_of(group->world, &ref, teller);
}

static ls_status status_of(const struct transport_report *report, uint64_t cause)
{
	if (!wait_has_failed(cause))
		return LS_OK;
	ls_status status = report ? (ls_status)report->status : LS_INTERNAL;
	return ls_status_scope(status) == LS_SCOPE_NONE ? LS_INTERNAL : status;
}

ls_status failure_status(const struct ls_group *group)
{
	uint64_t cause = atomic_load_explicit(group->waiter.cause, memory_order_acquire);
	return status_of(published_report(group, cause), cause);
}

static void name_process(const struct world *world, int rank, struct ls_failure *out)
{
	_Static_assert(sizeof out->host == sizeof world->remote_hosts[0], "a name fits");
	bool is_remote = world->transport.peers[rank].mirror != NULL;
	out->pid = is_remote ? world->remote_pids[rank] : world->pids[rank];
	if (is_remote)
		memcpy(out->host, world->remote_hosts[rank], sizeof out->host - 1);
	text_clean(out->host, false);
}

void failure_read(const struct ls_group *group, struct ls_failure *out)
{
	uint64_t cause = atomic_load_explicit(group->waiter.cause, memory_order_acquire);
	const struct transport_report *report = published_report(group, cause);
	/* The status follows from this one load: another rank may publish the cause meanwhile. */
	out->status = status_of(report, cause);
	out->rank = -1;
	out->pid = 0;
	out->operation = 0;
	out->text[0] = out->host[0] = '\0';
	if (!report)
		return;
	_Static_assert(sizeof out->text == sizeof report->text &&
			       sizeof out->text == TRACE_REPORT_BYTES,
		       "a report fits");
	out->rank = world_rank_in(group, report->culprit);
	if (report->culprit >= 0 && report->culprit < group->world->size)
		name_process(group->world, report->culprit, out);
	out->operation = report->operation;
	memcpy(out->text, report->text, sizeof out->text);
	out->text[sizeof out->text - 1] = '\0';
	text_clean(out->text, true);
}

bool failure_copy(const struct ls_group *group, struct hosts_failure *out)
{
	uint64_t cause = atomic_load_explicit(group->waiter.cause, memory_order_acquire);
	const struct transport_report *report = published_report(group, cause);
	if (!report)
		return false;
	*out = (struct hosts_failure){.group = group->id,
				      .status = report->status,
				      .culprit = report->culprit,
				      .operation = report->operation};
	memcpy(out->groups, report->groups, sizeof out->groups);
	memcpy(out->text, report->text, sizeof out->text);
	out->text[sizeof out->text - 1] = '\0';
	return true;
}

/* ---- working it out ---- */

/* The operation that failed, and the send that a receive differs from, may be older than all
 * records that the snapshot has of their ranks: adds these two. */
static void judge_failure(const struct world *world, const struct diagnose_hint *given,
			  struct diagnose_snapshot *snapshot, struct diagnose_verdict *out)
{
	struct diagnose_hint hint = *given;
	hint.serial = world->p2p.serial;
	if (hint.record)
		failure_add_record(world, hint.rank, (uint32_t)hint.record, snapshot);
	if (hint.matched.known)
		hint.matched.record = failure_add_record(world, hint.peer,
							 (uint32_t)hint.matched.record, snapshot);
	diagnose_judge(snapshot, &hint, out);
}

/* Writes the report of a failure. snapshot: NULL without memory. *verdict: its status is LS_OK if
 * there is none. */
static void write_report(struct world *world, struct diagnose_snapshot *snapshot,
			 const struct diagnose_hint *hint, const uint32_t *groups,
			 struct transport_report *out, struct diagnose_verdict *verdict)
{
	memset(out->groups, 0, sizeof out->groups);
	if (groups)
		memcpy(out->groups, groups, sizeof out->groups);
	out->status = (uint32_t)hint->status;
	out->culprit = hint->peer;
	out->operation = hint->seq;
	snprintf(out->text, sizeof out->text, "%s (rank %d, operation #%llu)",
		 ls_status_text(hint->status), hint->rank, (unsigned long long)hint->seq);
	*verdict = (struct diagnose_verdict){.status = LS_OK};
	if (snapshot)
		judge_failure(world, hint, snapshot, verdict);
	if (verdict->status != LS_OK) {
		out->status = (uint32_t)verdict->status;
		out->culprit = verdict->culprit;
		out->operation = verdict->seq ? verdict->seq : hint->seq;
		failure_report(world, snapshot, verdict, out->text, sizeof out->text);
	}
	/* What broke one rank's call, such as memory, breaks the group for all. */
	if (ls_status_scope((ls_status)out->status) != LS_SCOPE_GROUP)
		out->status = LS_ABORTED;
}

/* ---- claiming ---- */

/* Waits for a cause. False: nobody has published one by then, or `claimant` is dead. */
static bool await_cause(struct ls_group *group, const struct failure_cause_ref *ref, int claimant,
			uint64_t deadline_ns)
{
	const struct transport_segment *segment = group->world->transport.peers[ref->owner].segment;
	struct wait_word word = {
		.word = &ref->head->cause,
		.edge = {.value = held_by_nobody(ref->id) + 1,
			 .offset = (uintptr_t)&ref->head->cause - (uintptr_t)segment,
			 .owner = ref->owner,
			 .peer = claimant,
			 .segment = WAIT_SEGMENT_MAPPED},
	};
	struct wait_call call = {.words = &word, .count = 1, .deadline_ns = deadline_ns};
	int peer;
	ls_status status;
	do
		status = wait_words(&group->quiet, &call, &peer);
	while (status == LS_INTERRUPTED);
	return status == LS_OK;
}

/* The host that works out the cause: that of the rank at fault, if a rank there can, else that of
 * the first member. Each host could find a cause of its own at the same time, but it sees only its
 * own ranks in full. */
bool failure_is_speaker(const struct ls_group *group, const struct diagnose_hint *hint)
{
	const struct transport_team *team = &group->team;
	int speaker = team->hosts[0];
	int at_fault = world_rank_in(group, hint->peer);
	for (int q = 0; q < group->size && at_fault >= 0; q++) {
		const struct wait_peer *peer = &group->peers[team->members[q].world];
		if (team->hosts[q] == team->hosts[at_fault] && !wait_peer_is_dead(peer) &&
		    !wait_peer_has_left(peer))
			speaker = team->hosts[q];
	}
	return team->hosts[group->rank] == speaker;
}

/* This rank has room for one report. So one of its threads works out the cause, once for the
 * group. */
static bool claim_for_thread(struct ls_group *group)
{
	return !atomic_exchange(&group->cause_claimed, true);
}

/* True: the caller works out the cause now. False: another rank or thread has published one. The
 * wait is one of `group`. own: the group of the cause; NULL: this rank is not in it. */
static bool claim_cause(struct ls_group *group, const struct failure_cause_ref *ref,
			struct ls_group *own)
{
	struct world *world = group->world;
	uint64_t mine = held_by_nobody(ref->id) + (uint64_t)world->rank + 1,
		 holder = held_by_nobody(ref->id);
	/* If the wait ends without a cause, `holder` still names the rank that had the claim. So
	 * the exchange takes the claim from that rank, unless a third one was faster. */
	while (!atomic_compare_exchange_strong(&ref->head->claim, &holder, mine)) {
		if (holder >> 32 != ref->id ||
		    await_cause(group, ref, holder_of(holder, world), clock_deadline_ns(CLAIM_MS)))
			return false;
	}
	if (failure_is_settled(ref))
		return false;
	return !own || claim_for_thread(own) || !await_cause(group, ref, -1, CLOCK_NEVER);
}

/* ---- publishing ---- */

/* True: this rank's report is the cause. False: another rank was faster. */
static bool publish_cause(struct world *world, const struct failure_cause_ref *ref)
{
	const struct transport_report *mine = report_of(world, ref, world->rank);
	uint64_t open = held_by_nobody(ref->id);
	/* First, because ranks that the cause wakes may end the job. */
	trace_report(&world->trace, ref->id, (ls_status)mine->status, mine->culprit,
		     mine->operation, mine->text);
	if (atomic_compare_exchange_strong(&ref->head->cause, &open,
					   open + (uint64_t)world->rank + 1))
		return true;
	trace_report(&world->trace, ref->id, LS_OK, -1, 0, "");
	return false;
}

/* Wakes all ranks of this host, also those that are in no call of these groups, and tells other
 * hosts. */
static void wake_all(struct world *world, const struct failure_cause_ref *refs, int count)
{
	for (int q = 0; q < world->size; q++)
		transport_notify_world(&world->transport, q);
	for (int i = 0; world->link && i < count; i++) {
		struct ls_group *group = world_hold(world, refs[i].id);
		if (!group)
			continue;
		transport_notify_all(&group->team);
		world_release(group);
	}
}

/* The same report for each of these groups, but in each the operation is one of that group. */
static void write_each(struct world *world, const struct failure_cause_ref *refs, int count,
		       const struct diagnose_hint *hint, const struct diagnose_snapshot *snapshot,
		       const struct diagnose_verdict *verdict)
{
	const struct transport_report *first = report_of(world, &refs[0], world->rank);
	for (int i = count - 1; i >= 0; i--) {
		struct transport_report *report = report_of(world, &refs[i], world->rank);
		uint64_t operation = verdict->status == LS_OK
					     ? 0
					     : diagnose_operation_in(snapshot, verdict, refs[i].id);
		if (!operation && refs[i].id == hint->group)
			operation = hint->seq;
		*report = *first;
		report->operation = operation;
	}
}

/* Publishes one report as the cause of all these groups, of which `group` is one. groups: NULL if
 * it fails alone. */
static void report_and_publish(struct ls_group *group, const struct failure_cause_ref *refs,
			       int count, const uint32_t *groups, const struct diagnose_hint *hint,
			       struct diagnose_snapshot *snapshot)
{
	struct world *world = group->world;
	struct transport_report *first = report_of(world, &refs[0], world->rank);
	struct diagnose_verdict verdict;
	bool published = false;
	write_report(world, snapshot, hint, groups, first, &verdict);
	/* before any cause counts: see failure_await_together */
	write_each(world, refs, count, hint, snapshot, &verdict);
	for (int i = 0; i < count; i++)
		published |= publish_cause(world, &refs[i]);
	/* Before a thread wakes and takes this core: if the job is killed then, the report would be
	 * lost. */
	if (published)
		message_report("LS-VERDICT", first->text);
	wake_all(world, refs, count);
}

/* Publishes the cause of one group, from a snapshot taken now. */
static void look_and_publish(struct ls_group *group, const struct failure_cause_ref *ref,
			     const struct diagnose_hint *hint)
{
	struct diagnose_snapshot *snapshot = NULL;
	/* A verdict blames ranks on other hosts only if a snapshot of their hosts shows what they
	 * do. */
	if (group->team.host_count > 1 &&
	    (hint->status == LS_TIMED_OUT || hint->status == LS_MISMATCH))
		snapshot = failure_remote_request(group);
	if (!snapshot)
		snapshot = failure_collect(group->world, &(struct diagnose_closing){1, &ref->id});
	report_and_publish(group, ref, 1, NULL, hint, snapshot);
	free(snapshot);
}

ls_status failure_raise(struct ls_group *group, const struct diagnose_hint *hint, bool collective)
{
	struct failure_cause_ref ref = failure_cause_ref_of(group);
	/* Once this rank has left, the area of the cause may be another group's. */
	if (!wait_peer_has_left(&group->peers[group->world->rank]))
		open_words(&ref);
	if (!failure_is_settled(&ref) && group->team.host_count > 1 &&
	    !failure_is_speaker(group, hint))
		(void)await_cause(group, &ref, -1, clock_deadline_ns(TOLD_MS));
	if (failure_is_settled(&ref) || !claim_cause(group, &ref, group))
		return failure_status(group);
	failure_await_arrivals(group, hint, collective);
	look_and_publish(group, &ref, hint);
	return failure_status(group);
}

void failure_report_locally(struct ls_group *group, const struct diagnose_hint *hint)
{
	struct world *world = group->world;
	struct transport_report *report = calloc(1, sizeof *report);
	struct diagnose_snapshot *snapshot =
		failure_collect(world, &(struct diagnose_closing){1, &group->id});
	if (report) {
		struct diagnose_verdict verdict;
		write_report(world, snapshot, hint, NULL, report, &verdict);
		trace_report(&world->trace, group->id, (ls_status)report->status, report->culprit,
			     report->operation, report->text);
		message_report("LS-VERDICT", report->text);
	}
	free(snapshot);
	free(report);
}

/* Whether one of these groups has failed since the snapshot, or another rank is about to fail one.
 * Then threads of the cycle go on, and there is no cycle any more. If they do not, the next look
 * sees it. */
static bool is_outdated(struct ls_group *group, const struct failure_cause_ref *refs, int count)
{
	for (int i = 0; i < count; i++) {
		uint64_t claim = atomic_load(&refs[i].head->claim);
		int claimant = claim >> 32 == refs[i].id ? holder_of(claim, group->world) : -1;
		if (claimant >= 0)
			(void)await_cause(group, &refs[i], claimant, clock_deadline_ns(CLAIM_MS));
		uint64_t cause = cause_of(&refs[i]);
		if (cause >> 32 == refs[i].id && wait_has_failed(cause))
			return true;
	}
	return false;
}

/* All ranks claim the groups in the same order, so the rank that gets the first claim gets all
 * others, except those of groups whose own cause another rank is finding at the moment. */
void failure_raise_all(struct ls_group *group, const struct failure_cause_ref *refs, int count,
		       const uint32_t groups[TRANSPORT_REPORT_GROUPS],
		       const struct diagnose_hint *hint, struct diagnose_snapshot *snapshot)
{
	struct failure_cause_ref mine = failure_cause_ref_of(group),
				 claimed[TRANSPORT_REPORT_GROUPS] = {mine};
	int claimed_count = 0;
	open_words(&mine);
	if (is_outdated(group, refs, count))
		return;
	for (int i = 0; i < count; i++) {
		struct ls_group *own = world_hold(group->world, refs[i].id);
		if (!failure_is_settled(&refs[i]) && claim_cause(group, &refs[i], own))
			claimed[claimed_count++] = refs[i];
		if (own)
			world_release(own);
		if (claimed_count == 0)
			return;
	}
	report_and_publish(group, claimed, claimed_count, groups, hint, snapshot);
}

void failure_raise_aborted(struct ls_group *group, const struct diagnose_hint *hint)
{
	struct failure_cause_ref ref = failure_cause_ref_of(group);
	uint64_t open = held_by_nobody(ref.id);
	open_words(&ref);
	if (failure_is_settled(&ref) || !claim_for_thread(group))
		return; /* there is a cause, or a thread of mine is about to publish one */
	/* The claim makes others wait for this report. If another rank has the claim, it may be
	 * stopped, and nobody may be waiting to replace it. So the first rank that publishes
	 * wins. */
	atomic_compare_exchange_strong(&ref.head->claim, &open,
				       open + (uint64_t)group->world->rank + 1);
	look_and_publish(group, &ref, hint);
}

bool failure_write_told(struct world *world, const struct failure_cause_ref *ref,
			struct ls_group *own, const struct hosts_failure *told)
{
	uint64_t open = held_by_nobody(ref->id);
	if (own)
		open_words(ref);
	if (failure_is_settled(ref))
		return false;
	bool is_mine = atomic_compare_exchange_strong(&ref->head->claim, &open,
						      open + (uint64_t)world->rank + 1);
	/* There is room for one report of mine. */
	if (own ? !claim_for_thread(own) : !is_mine)
		return false;
	struct transport_report *mine = report_of(world, ref, world->rank);
	mine->status = told->status;
	mine->culprit = told->culprit;
	/* the number is one of the group that the other host tells of */
	mine->operation = ref->id == told->group ? told->operation : 0;
	memcpy(mine->groups, told->groups, sizeof mine->groups);
	memcpy(mine->text, told->text, sizeof mine->text);
	return true;
}

void failure_await_claimed(struct ls_group *group)
{
	struct failure_cause_ref ref = failure_cause_ref_of(group);
	while (failure_is_claimed_here(group) && !failure_is_settled(&ref))
		(void)await_cause(group, &ref, -1, CLOCK_NEVER);
}

void failure_await_cause(struct ls_group *group, const struct failure_cause_ref *ref)
{
	(void)await_cause(group, ref, -1, clock_deadline_ns(CLAIM_MS));
}

void failure_publish(struct world *world, const struct failure_cause_ref *refs, int count)
{
	for (int i = 0; i < count; i++)
		publish_cause(world, &refs[i]);
	if (count > 0)
		wake_all(world, refs, count);
}
