/* SPDX-License-Identifier: BSD-3-Clause
 * A report waits a moment for its facts: for ranks that are about to enter the operation, for the
 * end of a process, for records that are being written. */
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "failure/failure_private.h"

enum {
	/* How long a report waits for others, so as to name them; a death is told in 100 ms. */
	GRACE_MS = 70,
	/* The same after a mismatch: while members are missing it may be that neither side has a
	 * majority, and then nobody can be blamed. */
	MISMATCH_GRACE_MS = 400,
};

/* Waits until all other living members have entered the operation, too, so that the report can say
 * what each of them called. Waits briefly, because some members may never come. Only a mismatch is
 * reported from a look at all hosts. Any other report would not show members on other hosts, whose
 * entries may be kept back for longer than GRACE_MS. */
static void await_others(struct ls_group *group, const struct diagnose_hint *hint)
{
	uint64_t grace_ms = hint->status == LS_MISMATCH ? MISMATCH_GRACE_MS : GRACE_MS;
	struct wait_word words[RANKS_WORLD_MAX];
	struct wait_call call = {.words = words, .deadline_ns = clock_deadline_ns(grace_ms)};
	for (int q = 0; q < group->size; q++) {
		int world_rank = group->team.members[q].world;
		const struct wait_peer *peer = &group->peers[world_rank];
		bool is_seen = hint->status == LS_MISMATCH || transport_is_here(&group->team, q);
		if (q == group->rank || world_rank == hint->peer || !is_seen ||
		    wait_peer_is_dead(peer) || wait_peer_has_left(peer))
			continue;
		transport_wait_word(&group->team, q,
				    &transport_entry(&group->team, q, hint->seq)->signal,
				    transport_signal(hint->seq, 0), q, &words[call.count++]);
	}
	int peer;
	if (call.count > 0 && !wait_satisfied(&call)) {
		ls_status status = wait_words(&group->quiet, &call, &peer);
		(void)status; /* the report is made either way */
	}
}

/* A peer whose memory this rank cannot read any more is about to end. Only then it is known how the
 * peer ended. */
static void await_end(struct ls_group *group, int peer)
{
	struct world *world = group->world;
	if (atomic_load_explicit(&world->dead[peer], memory_order_acquire) ||
	    world->pids[peer] == world->pids[world->rank])
		return;
	struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, world->pids[peer], 0),
			     .events = POLLIN};
	if (end.fd < 0)
		return;
	ls_status status = wait_fds(&group->quiet, &end, 1, peer, clock_deadline_ns(GRACE_MS));
	(void)status; /* the report is made either way */
	close(end.fd);
}

/* A sender records a short message a moment after it posts it, so its receiver may come first. */
static void await_record(struct ls_group *group, const struct diagnose_hint *hint)
{
	struct world *world = group->world;
	if (!hint->matched.known || hint->peer < 0 || hint->peer >= world->size)
		return;
	const struct trace_view *view = &world->views[hint->peer];
	uint64_t deadline_ns = clock_deadline_ns(GRACE_MS);
	while (view->header &&
	       trace_is_due(view, trace_index(view, (uint32_t)hint->matched.record)) &&
	       !atomic_load_explicit(&world->dead[hint->peer], memory_order_acquire) &&
	       clock_now_ns() < deadline_ns) {
		ls_status status =
			wait_fds(&group->quiet, NULL, 0, hint->peer, clock_deadline_ns(1));
		(void)status; /* the report is made either way */
	}
}

/* Whether the trace has a record of collective `seq` of the group, or never will. */
static bool is_recorded(const struct trace_view *view, uint32_t group, uint64_t seq)
{
	for (int i = 0; view->header && i < TRACE_GROUP_MAX; i++) {
		const struct trace_group *entry = &view->groups[i];
		if (atomic_load_explicit(&entry->id, memory_order_acquire) == group)
			return atomic_load_explicit(&entry->entered, memory_order_acquire) >= seq;
	}
	return true;
}

/* As await_record, for a short collective: its entry is there before its record. */
static void await_records(struct ls_group *group, const struct diagnose_hint *hint)
{
	struct world *world = group->world;
	uint64_t deadline_ns = clock_deadline_ns(GRACE_MS);
	for (int q = 0; q < group->size; q++) {
		int peer = group->team.members[q].world;
		const _Atomic uint64_t *signal =
			&transport_entry(&group->team, q, hint->seq)->signal;
		while (transport_signal_reached(atomic_load_explicit(signal, memory_order_acquire),
						transport_signal(hint->seq, 0)) &&
		       !is_recorded(&world->views[peer], group->id, hint->seq) &&
		       !atomic_load_explicit(&world->dead[peer], memory_order_acquire) &&
		       clock_now_ns() < deadline_ns) {
			ls_status status =
				wait_fds(&group->quiet, NULL, 0, peer, clock_deadline_ns(1));
			(void)status; /* the report is made either way */
		}
	}
}

/* Whether to wait for other members. Numbers of messages do not show where other ranks are. */
static bool wants_others(const struct diagnose_hint *hint, bool collective)
{
	return collective && hint->seq > 0 &&
	       (hint->status == LS_MISMATCH || hint->status == LS_PEER_DIED ||
		hint->status == LS_PEER_LEFT);
}

void failure_await_arrivals(struct ls_group *group, const struct diagnose_hint *hint,
			    bool collective)
{
	if (hint->status == LS_PEER_DIED && hint->peer >= 0)
		await_end(group, hint->peer);
	if (wants_others(hint, collective)) {
		await_others(group, hint);
		await_records(group, hint);
	}
	await_record(group, hint);
}
