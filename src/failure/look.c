/* SPDX-License-Identifier: BSD-3-Clause
 * Looking for the cause of a long wait. A rank with such a wait wakes its own watch. The first
 * watch that stores its time (`looked_ns`, which all members on a host share) looks for the whole
 * group. A proved cause fails the group. A rank that is stopped or elsewhere is only reported, once
 * for each operation. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/ranks.h"
#include "world/registry.h"
#include "failure/failure_private.h"

enum {
	STOPPED_MS = 500, /* how long a wait for a stopped rank lasts before it is reported */
	ASK_MS = 500,     /* and before a program finds out what keeps a rank elsewhere */
};

/* True for one watch of the group at a time, and not again before a look interval has passed. */
static bool take_look(struct ls_group *group)
{
	_Atomic uint64_t *looked = &transport_head_of(&group->team)->looked_ns;
	uint64_t now = clock_now_ns();
	uint64_t last = atomic_load(looked);
	if (last <= now && now - last < group->waiter.look_ns / 2)
		return false;
	return atomic_compare_exchange_strong(looked, &last, now);
}

static uint64_t mix_key(uint64_t key, uint64_t value)
{
	return (key ^ value) * UINT64_C(0x9e3779b97f4a7c15);
}

static bool waits_in(const struct diagnose_rank *rank, uint32_t group)
{
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		const struct wait_slot_body *wait = &rank->threads[i].wait;
		if (wait->group == group &&
		    (wait->state == WAIT_WORDS || wait->state == WAIT_ANY_WORD))
			return true;
	}
	return false;
}

/* Whether this host reports the verdict: in a group over several hosts, that of the first rank that
 * waits. Ranks that are elsewhere, on other hosts, of which nothing is known are no reason for a
 * report, unless their host does not answer any more. */
static bool is_to_be_reported(const struct ls_group *group, const struct diagnose_snapshot *snapshot,
			      const struct diagnose_verdict *verdict)
{
	const struct world *world = group->world;
	RANKS_EACH (r, &verdict->culprits)
		if (r < snapshot->size && world->transport.peers[r].mirror &&
		    !snapshot->ranks[r].known)
			return failure_remote_is_unanswering(world->watch.remote);
	for (int q = 0; q < group->size; q++)
		if (waits_in(&snapshot->ranks[group->team.members[q].world], group->id))
			return transport_is_here(&group->team, q);
	return true;
}

/* What is reported once: an operation that waits; or a stopped rank, because a look at this host
 * alone sees other ranks wait for the stopped one than a look at all hosts. */
static uint64_t report_key(const struct diagnose_snapshot *snapshot,
			   const struct diagnose_verdict *verdict)
{
	uint64_t key = 0;
	if (verdict->cause != DIAGNOSE_STOPPED)
		return verdict->seq;
	RANKS_EACH (r, &verdict->culprits)
		if (r < snapshot->size && snapshot->ranks[r].record_count)
			key = mix_key(key, snapshot->ranks[r].records[0].record.index);
	return key;
}

/* One report for each cause, culprits and operation, whichever rank prints it. */
static void report_once(struct ls_group *group, struct diagnose_snapshot *snapshot,
			const struct diagnose_verdict *verdict)
{
	_Atomic uint64_t *reported = &transport_head_of(&group->team)->reported;
	uint64_t key = report_key(snapshot, verdict) << 8 ^ (uint64_t)verdict->cause ^
		       (uint64_t)verdict->group << 48;
	RANKS_EACH (r, &verdict->culprits)
		key = mix_key(key, (uint64_t)r);
	uint64_t last = atomic_load(reported);
	if (group->team.host_count > 1 && !is_to_be_reported(group, snapshot, verdict))
		return;
	if (last == key || !atomic_compare_exchange_strong(reported, &last, key))
		return;
	char text[DIAGNOSE_TEXT_BYTES];
	failure_report(group->world, snapshot, verdict, text, sizeof text);
	message_report("LS-WAITING", text);
}

/* Whether one of the ranks that are elsewhere can never continue. A rank that computes can. The
 * program that finds out costs some 10 ms, so it is started again only when the wait lasts twice as
 * long as before. */
static bool any_awaits_mutex(struct world *world, struct diagnose_snapshot *snapshot,
			     const struct diagnose_verdict *verdict, uint64_t waited_ms)
{
	struct world_watch *watch = &world->watch;
	bool sleeps = false, awaits_mutex = false;
	RANKS_EACH (r, &verdict->culprits)
		sleeps |= r < snapshot->size &&
			  snapshot->ranks[r].process == DIAGNOSE_PROCESS_SLEEPING;
	if (verdict->since_ns > watch->asked_ns) /* another wait */
		watch->asked_ms = 0;
	if (!sleeps || waited_ms < ASK_MS || waited_ms < 2 * watch->asked_ms)
		return false;
	watch->asked_ns = clock_now_ns();
	watch->asked_ms = waited_ms;
	failure_add_python(world, snapshot, verdict);
	RANKS_EACH (r, &verdict->culprits)
		awaits_mutex |= r < snapshot->size && snapshot->ranks[r].awaits_mutex;
	return awaits_mutex;
}

/* ---- what follows from the verdict ---- */

/* Whether the look before this one saw the same ranks stopped: debuggers and programs that read
 * stacks stop a rank for a moment. Looks are at least half a look interval apart. */
static bool note_stopped(struct ls_group *group, const struct diagnose_verdict *verdict)
{
	bool reported = verdict->cause == DIAGNOSE_STOPPED;
	struct transport_area *head = transport_head_of(&group->team);
	uint64_t fresh = 0;
	for (int w = 0; w < RANKS_WORLD_WORDS; w++) {
		uint64_t stopped = reported ? verdict->culprits.words[w] : 0;
		fresh |= stopped & ~atomic_exchange(&head->stopped[w], stopped);
	}
	return fresh == 0;
}

/* Fails the group for what is proved; reports what is likely, once it has lasted long enough. */
static void act_on_verdict(struct ls_group *group, struct diagnose_snapshot *snapshot,
			   const struct diagnose_verdict *verdict)
{
	struct world *world = group->world;
	struct diagnose_hint hint = {.status = verdict->status,
				     .rank = world->rank,
				     .peer = verdict->culprit,
				     .group = group->id,
				     /* a cycle is told by the operation of one of its groups */
				     .seq = verdict->group == group->id ? verdict->seq : 0};
	uint64_t now = clock_now_ns();
	bool known = verdict->since_ns > 0 && verdict->since_ns < now;
	uint64_t waited_ms = known ? (now - verdict->since_ns) / 1000000 : 0;
	bool still_stopped = note_stopped(group, verdict);
	ls_status status;
	switch (verdict->cause) {
	case DIAGNOSE_DEADLOCK:
		failure_raise_deadlock(group, snapshot, verdict, &hint);
		return;
	case DIAGNOSE_MISMATCH: /* only collectives differ; a member that is missing may decide */
		status = failure_raise(group, &hint, true);
		(void)status; /* the waiting calls return it */
		return;
	case DIAGNOSE_DIED:
	case DIAGNOSE_LEFT:
		status = failure_raise(group, &hint, false);
		(void)status; /* the waiting calls return it */
		return;
	case DIAGNOSE_ELSEWHERE:
		if (waited_ms >= world->settings.patience_ms ||
		    any_awaits_mutex(world, snapshot, verdict, waited_ms))
			report_once(group, snapshot, verdict);
		return;
	case DIAGNOSE_STOPPED: /* a rank that goes on within half a second is not worth a line */
		if (still_stopped && waited_ms >= STOPPED_MS)
			report_once(group, snapshot, verdict);
		return;
	default:
		return;
	}
}

/* The groups, held, in which a thread of this rank waits, as far as the wait table shows it. */
static int hold_waiting(struct world *world, struct ls_group **out)
{
	int count = 0;
	for (int i = 0; i < WAIT_SLOT_MAX; i++) {
		struct wait_slot_body wait;
		uint32_t epoch;
		if (!trace_read_slot(&world->views[world->rank], i, &wait, &epoch) ||
		    (wait.state != WAIT_WORDS && wait.state != WAIT_ANY_WORD))
			continue;
		out[count] = world_hold(world, wait.group);
		count += out[count] != NULL;
	}
	return count;
}

/* Keeps the groups that no other watch has just looked at; releases the others. */
static int keep_unlooked(struct ls_group **groups, int count)
{
	int kept = 0;
	for (int i = 0; i < count; i++) {
		if (failure_status(groups[i]) == LS_OK && take_look(groups[i]))
			groups[kept++] = groups[i];
		else
			world_release(groups[i]);
	}
	return kept;
}

static bool spans_hosts(struct ls_group *const *groups, int count)
{
	for (int i = 0; i < count; i++)
		if (groups[i]->team.host_count > 1)
			return true;
	return false;
}

void failure_look(struct world *world)
{
	struct ls_group *groups[TRANSPORT_AREAS];
	/* With more threads than slots a thread may wait in any group. */
	bool any = atomic_load(&world->trace.wait_table->unpublished) != 0;
	int count = any ? world_hold_all(world, groups) : hold_waiting(world, groups);
	count = keep_unlooked(groups, count);
	struct diagnose_snapshot *snapshot = NULL;
	if (spans_hosts(groups, count))
		snapshot = failure_remote_collect(world, NULL);
	if (count > 0 && !snapshot)
		snapshot = failure_collect(world, NULL);
	for (int i = 0; i < count; i++) {
		struct diagnose_hint focus = {.status = LS_OK, .group = groups[i]->id};
		struct diagnose_verdict verdict;
		if (snapshot) {
			diagnose_judge(snapshot, &focus, &verdict);
			act_on_verdict(groups[i], snapshot, &verdict);
		}
		world_release(groups[i]);
	}
	free(snapshot);
}
