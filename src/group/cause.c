/* SPDX-License-Identifier: BSD-3-Clause
 * The first cause: why a group is closed. It is worked out before it is published: whoever finds a
 * failure claims the right to explain it, takes a snapshot of all ranks, writes the verdict into its own
 * segment, and then sets the cause word, which ends every wait of the group. All survivors return what
 * that word points to. A claimant that dies or is stopped is replaced. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/messages.h"
#include "group_private.h"

/* The words that all ranks share lie in the first rank's segment; it stays mapped when that rank dies. */
static struct transport_member *head_of(const struct group_world *world)
{
	return transport_member(&world->transport, 0);
}

ls_status group_cause_status(const struct group_world *world)
{
	uint64_t cause = atomic_load_explicit(&head_of(world)->cause, memory_order_acquire);
	if (cause == 0)
		return LS_OK;
	if (cause > (uint64_t)world->size)
		return LS_INTERNAL;
	ls_status status = (ls_status)transport_member(&world->transport, (int)cause - 1)->status;
	return ls_status_scope(status) == LS_SCOPE_NONE ? LS_INTERNAL : status;
}

void group_cause_read(const struct group_world *world, struct ls_failure *out)
{
	uint64_t cause = atomic_load_explicit(&head_of(world)->cause, memory_order_acquire);
	out->status = group_cause_status(world);
	out->rank = -1;
	out->operation = 0;
	out->text[0] = '\0';
	if (cause == 0 || cause > (uint64_t)world->size)
		return;
	const struct transport_member *teller = transport_member(&world->transport, (int)cause - 1);
	_Static_assert(sizeof out->text == sizeof teller->text &&
			       sizeof out->text == TRACE_REPORT_BYTES,
		       "a report fits");
	out->rank = teller->blamed;
	out->operation = teller->operation;
	memcpy(out->text, teller->text, sizeof out->text);
	out->text[sizeof out->text - 1] = '\0';
}

/* Waits until all other living ranks have entered the operation too, so that the report can say what
 * each of them called; briefly, as some of them may never come. */
static void await_others(struct group_world *world, const struct diagnose_hint *hint)
{
	struct wait_word words[PLAN_SIZE_MAX];
	struct wait_call call = {.words = words, .deadline_ns = clock_deadline_ns(GROUP_GRACE_MS)};
	for (int q = 0; q < world->size; q++) {
		if (q == world->rank || q == hint->peer ||
		    atomic_load_explicit(&world->peers[q].dead, memory_order_acquire) ||
		    atomic_load_explicit(world->peers[q].left, memory_order_acquire))
			continue;
		transport_await(&world->transport, q,
				&transport_entry(&world->transport, q, hint->seq)->signal,
				transport_signal(hint->seq, 0), q, &words[call.count++]);
	}
	int peer;
	if (call.count > 0 && !wait_satisfied(&call)) {
		ls_status status = wait_words(&world->quiet, &call, &peer);
		(void)status; /* the report is made either way */
	}
}

/* A peer whose memory could not be read any more is about to end; how it ended is known only then. */
static void await_end(struct group_world *world, int peer)
{
	if (atomic_load_explicit(&world->peers[peer].dead, memory_order_acquire) ||
	    world->pids[peer] == world->pids[world->rank])
		return;
	struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, world->pids[peer], 0),
			     .events = POLLIN};
	if (end.fd < 0)
		return;
	ls_status status = wait_fds(&world->quiet, &end, 1, peer, clock_deadline_ns(GROUP_GRACE_MS));
	(void)status; /* the report is made either way */
	close(end.fd);
}

/* Numbers of messages say nothing about where others are. */
static bool wants_others(const struct diagnose_hint *hint, bool collective)
{
	return collective && hint->seq > 0 &&
	       (hint->status == LS_MISMATCH || hint->status == LS_PEER_DIED ||
		hint->status == LS_PEER_LEFT);
}

/* Fills my segment's report. */
static void explain(struct group_world *world, const struct diagnose_hint *hint)
{
	struct transport_member *mine = transport_member(&world->transport, world->rank);
	mine->status = (uint32_t)hint->status;
	mine->blamed = hint->peer;
	mine->operation = hint->seq;
	snprintf(mine->text, sizeof mine->text, "%s (rank %d, operation #%llu)",
		 ls_status_text(hint->status), hint->rank, (unsigned long long)hint->seq);
	struct diagnose_job *job = group_look_collect(world);
	struct diagnose_verdict verdict = {.status = LS_OK};
	if (job)
		diagnose_judge(job, hint, &verdict);
	if (verdict.status != LS_OK) {
		mine->status = (uint32_t)verdict.status;
		mine->blamed = verdict.blamed;
		mine->operation = verdict.seq ? verdict.seq : hint->seq;
		group_look_tell(world, job, &verdict, mine->text, sizeof mine->text);
	}
	free(job);
	/* What broke one rank's call, such as memory, breaks the group for all. */
	if (ls_status_scope((ls_status)mine->status) != LS_SCOPE_GROUP)
		mine->status = LS_ABORTED;
}

/* False if nobody has published a cause by then, or `claimant` is dead. */
static bool await_cause(struct group_world *world, int claimant, uint64_t deadline_ns)
{
	struct wait_word word;
	transport_await(&world->transport, 0, &head_of(world)->cause, 1, claimant, &word);
	struct wait_call call = {.words = &word, .count = 1, .deadline_ns = deadline_ns};
	int peer;
	ls_status status;
	do
		status = wait_words(&world->quiet, &call, &peer);
	while (status == LS_INTERRUPTED);
	return status == LS_OK;
}

/* My segment has room for one report, so one thread of mine works it out, once and for all. */
static bool is_first_thread(struct group_world *world)
{
	return !atomic_exchange(&world->explains, true);
}

/* True if the caller is to work out the cause now. Otherwise somebody else has published one. */
static bool claim(struct group_world *world)
{
	struct transport_member *head = head_of(world);
	uint64_t holder = 0;
	/* If the wait is in vain, `holder` still names whom it was for, so the exchange takes his place
	 * unless yet another rank was faster. */
	while (!atomic_compare_exchange_strong(&head->claim, &holder, (uint64_t)world->rank + 1)) {
		int claimant = holder <= (uint64_t)world->size ? (int)holder - 1 : -1;
		if (await_cause(world, claimant, clock_deadline_ns(GROUP_CLAIM_MS)))
			return false;
	}
	if (atomic_load(&head->cause) != 0)
		return false;
	return is_first_thread(world) || !await_cause(world, -1, CLOCK_NEVER);
}

static void publish(struct group_world *world, const struct diagnose_hint *hint)
{
	const struct transport_member *mine = transport_member(&world->transport, world->rank);
	uint64_t nobody = 0;

	explain(world, hint);
	/* First, as those that the cause wakes may end the job. */
	trace_report(&world->trace, (ls_status)mine->status, mine->blamed, mine->operation,
		     mine->text);
	bool first = atomic_compare_exchange_strong(&head_of(world)->cause, &nobody,
						    (uint64_t)world->rank + 1);
	/* Before anybody wakes and takes this core: a rank that is killed here takes the report along. */
	if (first)
		message_report("LS-VERDICT", mine->text);
	else
		trace_report(&world->trace, LS_OK, -1, 0, "");
	transport_wake_all(&world->transport);
	wait_ring(world->waiter.bell);
}

ls_status group_cause_raise(struct group_world *world, const struct diagnose_hint *hint,
			    bool collective)
{
	if (atomic_load(&head_of(world)->cause) != 0 || !claim(world))
		return group_cause_status(world);
	if (hint->status == LS_PEER_DIED && hint->peer >= 0)
		await_end(world, hint->peer);
	if (wants_others(hint, collective))
		await_others(world, hint);
	publish(world, hint);
	return group_cause_status(world);
}

void group_cause_abort(struct group_world *world, const struct diagnose_hint *hint)
{
	struct transport_member *head = head_of(world);
	uint64_t nobody = 0;
	if (atomic_load(&head->cause) != 0 || !is_first_thread(world))
		return; /* there is a cause, or a thread of mine is about to publish one */
	/* So that others wait for my report. If somebody else has the claim, he may be stopped, and nobody
	 * may be waiting to replace him: whoever publishes first wins. */
	atomic_compare_exchange_strong(&head->claim, &nobody, (uint64_t)world->rank + 1);
	publish(world, hint);
}
