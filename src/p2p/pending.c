/* SPDX-License-Identifier: BSD-3-Clause
 * The life of a send or receive that outlives its call: in a list until it is complete. One thread
 * makes progress on the whole list. See p2p.h. */
#include "base/clock.h"
#include "base/messages.h"
#include "world/registry.h"
#include "failure/failure.h"
#include "progress/progress.h"
#include "p2p/p2p_private.h"

static struct ls_request *op_of(struct op *base)
{
	return (struct ls_request *)(void *)((char *)base - offsetof(struct ls_request, base));
}

/* ---- the list ---- */

/* What proofs must know about nonblocking operations: see struct trace_group. */
static void count_in(const struct ls_request *op)
{
	struct trace_group *entry = op->group->trace_entry;
	if (p2p_wakes(op))
		atomic_fetch_add(&entry->callbacks, 1);
	if (op->has_own_limit)
		atomic_fetch_add(&entry->limits, 1);
}

static void count_out(struct trace_group *entry, bool calls, bool limited)
{
	if (calls)
		atomic_fetch_sub(&entry->callbacks, 1);
	if (limited)
		atomic_fetch_sub(&entry->limits, 1);
}

/* Setting P2P=serial: whether an earlier send to the same peer has no slot yet. Then a send that
 * waits for no other must not take a slot either: it may be the only one, and the peer may receive
 * the earlier send first. */
static bool is_behind(const struct ls_request *op) LOCK_REQUIRES(rank)
{
	const struct ls_request *other = op->before;
	while (other && !(other->ordered && other->group == op->group &&
			  other->base.call.peer == op->base.call.peer &&
			  atomic_load(&other->base.p2p.state) == OP_P2P_NEW))
		other = other->before;
	return other != NULL;
}

void p2p_append(struct world_p2p *p2p, struct ls_request *op)
{
	op->next = NULL;
	op->before = p2p->last;
	if (p2p->last)
		p2p->last->next = op;
	else
		p2p->first = op;
	p2p->last = op;
	if (op->deadline_ns < p2p->next_deadline_ns)
		p2p->next_deadline_ns = op->deadline_ns;
	p2p->progress_count += op->wants_progress;
	p2p->urgent_count += op->wants_urgent;
	op->listed = true;
}

/* True: the caller begins the operation. With P2P=serial only the first send has begun, or is about
 * to; p2p_begin_next begins the others. */
static bool add_to_list(struct world_p2p *p2p, struct ls_request *op)
{
	count_in(op);
	lock_rank_acquire(&p2p->lock);
	p2p_append(p2p, op);
	bool sends = op->base.call.kind == TRACE_SEND;
	bool begins = op->ordered ? progress_first_ordered(p2p) == op
				  : !p2p->serial || !sends || !is_behind(op);
	op->claimed = begins;
	lock_rank_release(&p2p->lock);
	return begins;
}

static void unlink_op(struct world_p2p *p2p, struct ls_request *op) LOCK_REQUIRES(rank)
{
	if (op->before)
		op->before->next = op->next;
	else
		p2p->first = op->next;
	if (op->next)
		op->next->before = op->before;
	else
		p2p->last = op->before;
	p2p->progress_count -= op->wants_progress;
	p2p->urgent_count -= op->wants_urgent;
	op->listed = false;
	if (!p2p->first)
		p2p->next_deadline_ns = CLOCK_NEVER;
}

static void remove_from_list(struct world_p2p *p2p, struct ls_request *op)
{
	lock_rank_acquire(&p2p->lock);
	unlink_op(p2p, op);
	lock_rank_release(&p2p->lock);
}

/* Setting P2P=serial: the first ordered send, or one that is not ordered; NULL: all sends that may
 * begin have begun. */
static struct ls_request *next_to_begin(struct world_p2p *p2p) LOCK_REQUIRES(rank)
{
	struct ls_request *op = progress_first_ordered(p2p);
	if (op && !op->claimed)
		return op;
	op = p2p->first;
	while (op && (op->claimed || op->ordered || is_behind(op)))
		op = op->next;
	return op;
}

/* Returns the group's first operation that no thread has claimed; group NULL: the next one to
 * begin. It has a reference. The caller has claimed the operation, and begins or ends it. */
static struct ls_request *claim_next(struct world_p2p *p2p, const ls_group *group)
{
	lock_rank_acquire(&p2p->lock);
	struct ls_request *op = group ? p2p->first : next_to_begin(p2p);
	while (op && group && (op->group != group || op->claimed))
		op = op->next;
	if (op) {
		op->claimed = true;
		progress_op_ref(op);
	}
	lock_rank_release(&p2p->lock);
	return op;
}

bool p2p_can_begin(struct world_p2p *p2p)
{
	return p2p->serial && next_to_begin(p2p) != NULL;
}

/* A queued send can continue when a slot is freed. Any wait_wake may announce that, so each of them
 * has to wake the progress thread. */
static void want_urgent(struct world_p2p *p2p, struct ls_request *op)
{
	lock_rank_acquire(&p2p->lock);
	if (op->listed && !op->wants_urgent) {
		p2p->progress_count += !op->wants_progress;
		p2p->urgent_count++;
		op->wants_progress = op->wants_urgent = true;
	}
	lock_rank_release(&p2p->lock);
}

/* The thread that makes progress may be walking the list, so a group is added at its front. */
void p2p_add_group(ls_group *group)
{
	_Atomic(ls_group *) *head = &group->world->p2p.groups;
	if (atomic_load(&group->has_p2p) || atomic_exchange(&group->has_p2p, true))
		return;
	group->next_p2p = atomic_load(head);
	while (!atomic_compare_exchange_weak(head, &group->next_p2p, group))
		;
}

/* How many operations wait for earlier sends. */
static long count_unbegun(struct world_p2p *p2p, const ls_group *group)
{
	long count = 0;
	lock_rank_acquire(&p2p->lock);
	for (const struct ls_request *op = p2p->first; op; op = op->next)
		count += op->group == group && !op->claimed;
	lock_rank_release(&p2p->lock);
	return count;
}

long p2p_under_way(ls_group *group)
{
	bool may_be_on_device = group->world->device != NULL;
	return p2p_pending(group) - (may_be_on_device ? 0 : (long)mailbox_busy(group->mailbox));
}

long p2p_pending(ls_group *group)
{
	struct world_p2p *p2p = &group->world->p2p;
	long begun = (long)mailbox_pending(group->mailbox);
	return p2p->serial ? begun + count_unbegun(p2p, group) : begun;
}

struct ls_request *p2p_first(ls_group *group)
{
	struct world_p2p *p2p = &group->world->p2p;
	lock_rank_acquire(&p2p->lock);
	struct ls_request *op = p2p->first;
	while (op && op->group != group)
		op = op->next;
	if (op)
		progress_op_ref(op);
	lock_rank_release(&p2p->lock);
	return op;
}

struct ls_request *p2p_first_on_stream(ls_group *group)
{
	struct world_p2p *p2p = &group->world->p2p;
	lock_rank_acquire(&p2p->lock);
	struct ls_request *op = p2p->first;
	while (op && !(op->group == group && op->on_stream))
		op = op->next;
	if (op)
		progress_op_ref(op);
	lock_rank_release(&p2p->lock);
	return op;
}

/* Whether the message has been copied out: that of a receive to its stream; that of a send to its
 * peer, so that this rank only has to see it. */
static bool is_delivered(const struct ls_request *op)
{
	struct ranks all = ranks_below(op->group->size);
	int peer;
	if (op->base.call.kind == TRACE_RECV)
		return progress_stream_is_over(op);
	return mailbox_is_posted(&op->base) &&
	       progress_op_need(op, &all, &peer) == MAILBOX_NEEDS_NOBODY;
}

struct ls_request *p2p_first_delivered(ls_group *group)
{
	struct world_p2p *p2p = &group->world->p2p;
	lock_rank_acquire(&p2p->lock);
	struct ls_request *op = p2p->first;
	while (op && !(op->group == group && op->on_stream && is_delivered(op)))
		op = op->next;
	if (op)
		progress_op_ref(op);
	lock_rank_release(&p2p->lock);
	return op;
}

/* ---- the end of an operation ---- */

static void finish_op(struct ls_request *op, ls_status status)
{
	struct world *world = op->group->world;
	remove_from_list(&world->p2p, op);
	if (status == LS_OK)
		p2p_deliver(op);
	struct ls_request *batch = op->batch;
	bool was_ordered = op->ordered;
	bool calls = p2p_wakes(op), limited = op->has_own_limit;
	struct trace_group *entry = op->group->trace_entry;
	status = progress_op_complete(op, status);
	count_out(entry, calls, limited);
	if (batch)
		progress_batch_part_complete(batch, status);
	/* The next send may begin: the thread that makes progress begins it, or else the progress
	 * thread, for which the doorbell is armed as urgent if a send waits. */
	if (was_ordered)
		atomic_fetch_add(&world->p2p.rechecks, 1);
	else if (atomic_load(&world->p2p.followers) == 0)
		return;
	p2p_wake_all(world);
}

/* Ends operations that end quietly: with one lock and one wake-up for all of them. */
static void end_together(ls_group *group, struct op *first)
{
	struct world *world = group->world;
	struct world_p2p *p2p = &world->p2p;
	uint64_t ticks = clock_ticks();
	for (struct op *base = first; base; base = base->p2p.next) {
		progress_op_succeed(op_of(base), ticks);
		p2p_deliver(op_of(base));
	}
	lock_rank_acquire(&p2p->lock);
	for (struct op *base = first; base; base = base->p2p.next)
		unlink_op(p2p, op_of(base));
	lock_rank_release(&p2p->lock);
	for (struct op *base = first, *next; base; base = next) {
		next = base->p2p.next; /* after this the operation may be gone */
		count_out(group->trace_entry, false, op_of(base)->has_own_limit);
		progress_op_complete_quietly(op_of(base));
	}
	/* A thread that is about to wait raises this, and then looks whether its operation is
	 * complete. So either this exchange sees that thread, or it sees the stores above. */
	if (atomic_fetch_add(&p2p->followers, 0) > 0)
		p2p_wake_all(world);
}

/* Settles one operation. While a device works on it, or a peer uses its buffer, it stays in a list
 * of the mailbox. */
static void end_one(struct ls_request *op, ls_status reason, bool waits)
{
	ls_group *group = op->group;
	ls_status status = progress_op_settle(op, reason, -1, waits);
	if (status != LS_PENDING) {
		finish_op(op, status);
	} else if (op->on_stream) {
		mailbox_await_device(group->mailbox, &op->base);
	} else {
		atomic_fetch_add(&group->world->p2p.lingering, 1);
		/* It ends by itself, and its callback, or a send behind it, may serve a rank that
		 * waits: so nothing is proved of this rank meanwhile. */
		atomic_fetch_add(world_unpublished(group->world), 1);
		/* After this another thread may end the operation. */
		mailbox_linger(group->mailbox, &op->base);
		if (reason == LS_OK) { /* this may not be the thread that makes progress */
			p2p_note_lingering(group->world);
			p2p_recheck(group->world);
		}
	}
}

__attribute__((noinline)) static void collect_from(ls_group *group, struct op *base)
{
	for (; base; base = mailbox_take_complete(group->mailbox)) {
		if (base->p2p.ends_quietly && base->status == LS_OK)
			end_together(group, base);
		else
			end_one(op_of(base), LS_OK, false);
	}
}

/* Most calls find none, and need no registers of those that do. */
void p2p_collect(ls_group *group)
{
	struct op *first = mailbox_take_complete(group->mailbox);
	if (__builtin_expect(first != NULL, 0))
		collect_from(group, first);
}

void p2p_end_all(ls_group *group, bool waits)
{
	struct world_p2p *p2p = &group->world->p2p;
	struct op *base, *next;
	struct ls_request *op;
	p2p_collect(group);
	if (group->world->device)
		progress_stream_resume_failed(group->world);
	for (base = mailbox_take_lingering(group->mailbox); base; base = next) {
		next = base->p2p.next;
		atomic_fetch_sub(&p2p->lingering, 1);
		end_one(op_of(base), LS_ABORTED, waits);
		atomic_fetch_sub(world_unpublished(group->world), 1);
	}
	while ((base = mailbox_remove(group->mailbox, waits)))
		end_one(op_of(base), LS_ABORTED, waits);
	while (p2p->serial && (op = claim_next(p2p, group))) {
		finish_op(op, progress_op_settle(op, LS_ABORTED, -1, true));
		progress_op_unref(op);
	}
}

/* ---- the beginning ---- */

static ls_status begin_op(struct ls_request *op)
{
	struct mailbox *mailbox = op->group->mailbox;
	struct op_workspace workspace;
	mailbox_submit(mailbox, &op->base, &workspace);
	atomic_store_explicit(&op->begun, true, memory_order_release);
	return mailbox_advance(mailbox, &op->base) == OP_FAILED ? op->base.status : LS_OK;
}

/* Whether the operation needs progress even if no thread waits for it: because it may hold up a
 * peer, or may wake a thread when it completes. */
static void choose_progress(struct ls_request *op)
{
	const struct op_call *call = &op->base.call;
	/* The device wakes sleepers as a peer that stores a word does, and requests no progress. */
	op->wants_urgent = op->ordered || p2p_wakes(op);
	op->wants_progress = op->wants_urgent || call->kind == TRACE_RECV;
}

/* Begins an operation that no other one delays. */
static ls_status begin_first(struct ls_request *op)
{
	ls_group *group = op->group;
	struct world_p2p *p2p = &group->world->p2p;
	ls_status status = begin_op(op);
	if (status != LS_OK) {
		remove_from_list(p2p, op);
		count_out(group->trace_entry, p2p_wakes(op), op->has_own_limit);
		return status;
	}
	p2p_collect(group);
	if (op->base.call.kind == TRACE_SEND && mailbox_is_queued(&op->base) &&
	    progress_thread_start(group->world) == LS_OK)
		want_urgent(p2p, op);
	return LS_OK;
}

ls_status p2p_begin(struct ls_request *op)
{
	struct world_p2p *p2p = &op->group->world->p2p;
	op->deadline_ns = clock_deadline_ns(op->timeout_ms);
	choose_progress(op);
	if (op->wants_progress) {
		ls_status status = progress_thread_start(op->group->world);
		if (status != LS_OK)
			return status;
	}
	p2p_add_group(op->group);
	progress_op_ref(op);
	ls_status status = LS_OK;
	if (add_to_list(p2p, op))
		status = begin_first(op);
	else if (!op->ordered)
		want_urgent(p2p, op);
	progress_op_unref(op);
	return status;
}

bool p2p_begin_next(struct world *world)
{
	struct ls_request *op = claim_next(&world->p2p, NULL);
	if (!op)
		return false;
	ls_status status = begin_op(op);
	if (status != LS_OK)
		finish_op(op, progress_op_settle(op, status, -1, true));
	progress_op_unref(op);
	return true;
}

bool p2p_cancel(struct ls_request *op)
{
	struct world_p2p *p2p = &op->group->world->p2p;
	if (!p2p->serial)
		return false;
	lock_rank_acquire(&p2p->lock);
	bool mine = op->listed && !op->claimed;
	if (mine)
		op->claimed = true;
	lock_rank_release(&p2p->lock);
	if (!mine)
		return false;
	op->base.status = LS_CANCELLED;
	finish_op(op, progress_op_settle(op, LS_OK, -1, true));
	return true;
}
