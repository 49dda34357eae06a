/* SPDX-License-Identifier: BSD-3-Clause
 * Ends the operations of a group that is closed; waits for what another thread of this rank, which
 * waits for nobody, is doing with an operation. */
#include "base/clock.h"
#include "world/registry.h"
#include "progress/progress.h"
#include "p2p/p2p_private.h"

/* Waits until some operation of this rank completes; returns at once if `op` is complete, or, with
 * NULL, if no thread makes progress. Publishes no wait, because other threads of this rank are
 * completing the operation and wait for nobody. */
static void await_completion(struct world *world, struct waiter *quiet, const struct ls_request *op)
{
	struct wait_word word;
	atomic_fetch_add(&world->p2p.followers, 1);
	p2p_wakeups_word(world, p2p_wakeups(world), &word);
	if (op ? !progress_op_is_complete(op) : p2p_is_progressing(&world->p2p)) {
		struct wait_call call = {.words = &word,
					 .count = 1,
					 .deadline_ns = clock_deadline_ns(PROGRESS_SLICE_MS)};
		int peer;
		ls_status status = wait_words(quiet, &call, &peer);
		(void)status; /* the caller tries again in any case */
	}
	atomic_fetch_sub(&world->p2p.followers, 1);
}

void p2p_await_complete(const struct ls_request *op)
{
	while (!progress_op_is_complete(op))
		await_completion(op->group->world, &op->group->quiet, op);
}

/* Setting P2P=serial: whether another thread has claimed the operation, and has not handed it to a
 * peer yet. */
static bool is_being_handed_over(const struct ls_request *op)
{
	struct world_p2p *p2p = &op->group->world->p2p;
	if (!p2p->serial)
		return false;
	lock_rank_acquire(&p2p->lock);
	bool being = op->listed && op->claimed && atomic_load(&op->base.p2p.state) == OP_P2P_NEW;
	lock_rank_release(&p2p->lock);
	return being;
}

void p2p_await_begun(const struct ls_request *op)
{
	while (is_being_handed_over(op))
		await_completion(op->group->world, &op->group->quiet, op);
}

/* Takes the right to make progress from the thread that has it, which is inside a call on another
 * group, or is the progress thread. That thread may wait for something that only the caller does
 * later. */
static void take_over(struct world *world, struct waiter *quiet)
{
	struct world_p2p *p2p = &world->p2p;
	atomic_fetch_add(&p2p->wanted, 1);
	while (!p2p_take_over(p2p)) {
		p2p_recheck(world);
		await_completion(world, quiet, NULL);
	}
}

void p2p_progress(ls_group *group)
{
	if (p2p_pending(group) == 0)
		return;
	take_over(group->world, &group->quiet);
	p2p_release(group->world, p2p_pass(group->world));
}

/* Takes over, and ends operations, until no peer uses the buffer of one any more. In between other
 * threads make progress for other groups. */
static void await_lingering(ls_group *group)
{
	struct world *world = group->world;
	take_over(world, &group->quiet);
	for (;;) {
		p2p_end_all(group, false);
		if (!mailbox_is_lingering(group->mailbox))
			return;
		p2p_release(world, true);
		/* Not for a wake-up: two threads that take over from each other would not sleep. */
		ls_status status =
			wait_fds(&group->quiet, NULL, 0, -1, clock_deadline_ns(PROGRESS_SLICE_MS));
		(void)status; /* the loop checks again in any case */
		take_over(world, &group->quiet);
	}
}

void p2p_close(ls_group *group)
{
	_Atomic(ls_group *) *head = &group->world->p2p.groups;
	ls_group *at = group;
	if (!atomic_load(&group->has_p2p))
		return;
	await_lingering(group);
	p2p_end_all(group, true);
	if (!atomic_compare_exchange_strong(head, &at, group->next_p2p)) {
		while (at->next_p2p != group)
			at = at->next_p2p;
		at->next_p2p = group->next_p2p;
	}
	p2p_release(group->world, true);
}
