/* SPDX-License-Identifier: BSD-3-Clause
 * Whether an operation needs members that are dead or have left; and whether another thread of this
 * rank may still serve a receive when all other members have gone. */
#include <unistd.h>

#include "base/clock.h"
#include "diagnose/diagnose.h"
#include "progress/progress.h"

/* Setting P2P=serial: whether this is a long send that waits for earlier sends. A short send is
 * complete as soon as it has begun, whichever rank is gone. */
static bool is_long_and_waits(const struct ls_request *op)
{
	const struct op_call *call = &op->base.call;
	if (call->kind != TRACE_SEND || !op->pooled || !progress_waits_for_sends(op))
		return false;
	return op->base.p2p.hands_over_block ||
	       call->count * ls_dtype_bytes(call->dtype) > MAIL_EAGER_BYTES;
}

enum mailbox_need progress_op_need(const struct ls_request *op, const struct ranks *gone, int *peer)
{
	if (is_long_and_waits(op)) {
		*peer = op->base.call.peer;
		return ranks_among(gone, *peer) ? MAILBOX_NEEDS_GONE : MAILBOX_NEEDS_NOBODY;
	}
	enum mailbox_need need = mailbox_needs(op->group->mailbox, &op->base, gone, peer);
	if (need == MAILBOX_NEEDS_SELF)
		*peer = -1;
	return need;
}

/* ---- this rank's other threads ---- */

/* What the threads do that have ever called Lockstep, or are running. */
enum others {
	NOBODY,
	BLOCKED,       /* each waits in this group, whose other members are gone */
	BLOCKED_ON_US, /* …and some wait for this rank, whose calling thread may now serve them */
	FREE,          /* some thread may still call */
};

static bool is_there(const struct world *world, const struct wait_edge *edge)
{
	const char *segment = (const char *)world->transport.peers[edge->owner].segment;
	const _Atomic uint64_t *word = (const void *)(segment + edge->offset);
	uint64_t now = atomic_load_explicit(word, memory_order_acquire);
	return (int64_t)(now - edge->value) >= 0;
}

enum standing {
	/* Certainly blocked. A thread that waits for the thread that makes progress, and shows no
	 * words, does not count: it is about to continue. */
	WAITS,
	WAITS_FOR_US,
	ACTS,
	IS_PROGRESS_THREAD, /* not a waiting thread: see p2p_show */
};

static enum standing standing_of(const struct world *world, const struct wait_slot_body *wait)
{
	struct wait_edge edges[WAIT_EDGE_MAX];
	bool any = wait->state == WAIT_ANY_WORD, own = false, goes_on = !any, unclear = false;
	bool for_us = false;
	int count;
	for (int page = 0;
	     (count = trace_read_words(&world->views[world->rank], wait, page, edges)) > 0; page++)
		for (int i = 0; i < count; i++) {
			const struct wait_edge *edge = &edges[i];
			own |= edge->record != WAIT_RECORD_OTHERS;
			for_us |= edge->peer == world->rank;
			if (edge->segment != WAIT_SEGMENT_MAPPED ||
			    (edge->peer < 0 && !edge->record))
				unclear = true;
			else if (is_there(world, edge) == any)
				goes_on = any;
		}
	if (any && !own && trace_shows_all(wait))
		return IS_PROGRESS_THREAD;
	if (unclear || goes_on || !trace_shows_all(wait))
		return ACTS;
	return for_us ? WAITS_FOR_US : WAITS;
}

/* The main thread may call Lockstep at any time, whether it has called before or not, unless it
 * sleeps where only a thread of its process can wake it. */
static bool main_thread_may_call(const struct world *world)
{
	int pid = getpid();
	if (trace_thread_id() == (uint32_t)pid)
		return false;
	for (int q = 0; q < world->size; q++)
		if (q != world->rank && world->pids[q] == pid)
			return false; /* the main thread is that of another rank */
	return !diagnose_has_slot(&world->views[world->rank], (uint32_t)pid) &&
	       diagnose_outside_sleep(&world->views[world->rank]) == 0;
}

/* What the threads of this rank do, except thread `tid` (0: all threads). asleep: the caller knows
 * that threads outside Lockstep are asleep. */
static enum others look_for_others(const struct ls_group *group, uint32_t tid, bool asleep)
{
	const struct world *world = group->world;
	const struct wait_table *wait_table = world->trace.wait_table;
	const struct trace_view *view = &world->views[world->rank];
	enum others others = NOBODY;
	for (int i = 0; i < WAIT_SLOT_MAX; i++) {
		struct wait_slot_body wait;
		uint32_t epoch;
		if (!atomic_load_explicit(&wait_table->slots[i].taken, memory_order_acquire))
			continue;
		if (!trace_read_slot(view, i, &wait, &epoch))
			return FREE; /* its thread is writing it now */
		if (wait.tid == tid || wait.state == WAIT_UNUSED)
			continue;
		if (wait.state == WAIT_OUTSIDE && asleep)
			continue;
		bool waits = wait.state == WAIT_WORDS || wait.state == WAIT_ANY_WORD;
		enum standing standing = waits ? standing_of(world, &wait) : ACTS;
		if (standing == ACTS || !trace_slot_is(view, i, epoch))
			return FREE;
		if (standing == IS_PROGRESS_THREAD)
			continue;
		if (wait.group != group->id)
			return FREE;
		if (others != BLOCKED_ON_US)
			others = standing == WAITS_FOR_US ? BLOCKED_ON_US : BLOCKED;
	}
	/* A thread without a slot may call, also if slots have become free. A thread that takes a
	 * slot meanwhile changes the sum of the epochs. */
	if (atomic_load(&wait_table->slotless))
		return FREE;
	return main_thread_may_call(world) ? FREE : others;
}

/* Grows whenever a thread of this rank begins or ends a wait, enters Lockstep for the first time,
 * or ends. */
static uint64_t sum_epochs(const struct wait_table *wait_table)
{
	uint64_t sum = 0;
	for (int i = 0; i < WAIT_SLOT_MAX; i++)
		sum += atomic_load(&wait_table->slots[i].epoch);
	return sum;
}

/* While this thread looks, a thread may wake a waiting one and then end, and a running thread may
 * make its first call. So the result counts only if nothing has changed. */
static enum others look_around(const struct ls_group *group, uint32_t tid, bool asleep)
{
	const struct world *world = group->world;
	uint64_t before = sum_epochs(world->trace.wait_table);
	enum others others = look_for_others(group, tid, asleep);
	if (others == FREE || diagnose_newcomer_runs(&world->views[world->rank]))
		return FREE;
	return sum_epochs(world->trace.wait_table) == before ? others : FREE;
}

/* Whether a callback may come and wake a thread that sleeps outside: from a thread that makes
 * progress, or from one that is in no wait table. */
static bool has_callbacks(struct world *world)
{
	struct world_p2p *p2p = &world->p2p;
	lock_rank_acquire(&p2p->lock);
	bool has = p2p->urgent_count > 0;
	lock_rank_release(&p2p->lock);
	return has || atomic_load(&world->trace.wait_table->unpublished) != 0;
}

/* For an operation that thread `tid` waits for; 0: for one with a callback. A thread outside
 * Lockstep may call, unless all threads outside sleep where only they and waiting threads can wake
 * them, and have slept so while this thread examined the waiting ones. */
static enum others others_of(const struct ls_group *group, uint32_t tid)
{
	struct world *world = group->world;
	const struct trace_view *view = &world->views[world->rank];
	enum others others = look_around(group, tid, false);
	if (others != FREE || tid == 0 || has_callbacks(world))
		return others;
	uint64_t sleep = diagnose_outside_sleep(view);
	if (sleep)
		others = look_around(group, tid, true);
	return sleep && diagnose_outside_sleep(view) == sleep ? others : FREE;
}

/* ---- a receive that is left alone ---- */

/* How often the receive checks. If it waits for another thread, and that thread blocks, too, the
 * watch has to prove that neither continues; a wait asks for that when it has lasted for
 * look_ns. */
static uint64_t choose_slice(const struct ls_group *group,
			     const struct progress_self_only *self_only)
{
	enum others others = others_of(group, trace_thread_id());
	uint64_t look_ns = group->waiter.look_ns;
	if (others == NOBODY || (others == BLOCKED && !self_only->slice_ns))
		return 0;
	return others == FREE ? look_ns : 2 * look_ns;
}

/* A thread that has ended, or blocks, may have sent the message just before. So the receive's own
 * words are checked last. */
bool progress_self_only_goes_on(const struct ls_request *op, const struct ranks *gone,
				struct progress_self_only *self_only)
{
	int peer;
	self_only->slice_ns = choose_slice(op->group, self_only);
	return self_only->slice_ns != 0 || progress_op_need(op, gone, &peer) != MAILBOX_NEEDS_SELF;
}

uint64_t progress_self_only_until(const struct progress_self_only *self_only, uint64_t until_ns)
{
	uint64_t slice = self_only->slice_ns ? clock_now_ns() + self_only->slice_ns : CLOCK_NEVER;
	return slice < until_ns ? slice : until_ns;
}

bool progress_op_is_lost(const struct ls_request *op, const struct ranks *gone, int *peer,
			 bool *self_only)
{
	enum mailbox_need need = progress_op_need(op, gone, peer);
	int again;
	*self_only = need == MAILBOX_NEEDS_SELF &&
		     (others_of(op->group, 0) != NOBODY ||
		      progress_op_need(op, gone, &again) != MAILBOX_NEEDS_SELF);
	return need != MAILBOX_NEEDS_NOBODY && !*self_only;
}
