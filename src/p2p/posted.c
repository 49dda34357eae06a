/* SPDX-License-Identifier: BSD-3-Clause
 * Receives of short messages that are posted before their message comes, as most programs post
 * them: from one rank of this host, without callback, stream, batch, or a time limit of their own.
 * They do what p2p_start does, with one lock for the list and one for the mailbox. And how a thread
 * that waits for such a one takes its message in. */
#include "base/clock.h"
#include "failure/failure.h"
#include "p2p/p2p_private.h"
#include "trace/trace_write.h"

static void fill_call(const struct p2p_short *message, struct op_call *call)
{
	const struct mailbox_short *wanted = &message->call;
	op_call_set(call, TRACE_RECV, wanted->count, wanted->dtype, LS_SUM, wanted->peer);
	call->tag = wanted->tag;
	buffer_set(&call->recv, wanted->recv, wanted->bytes);
}

static void begin_record(const struct p2p_short *message, uint64_t number, struct op *base)
{
	ls_group *group = message->group;
	struct trace_begin begin =
		progress_record(group, &base->call, number, message->label, message->site);
	base->seq = number;
	base->record = trace_begin_inline(&group->world->trace, &begin);
}

static struct ls_request *make_receive(const struct p2p_short *message, uint64_t number)
{
	ls_group *group = message->group;
	struct ls_request *op = progress_op_new_receive(group);
	if (!op)
		return NULL;
	fill_call(message, &op->base.call);
	begin_record(message, number, &op->base);
	op->timeout_ms = group->timeout_ms;
	op->deadline_ns = clock_deadline_ns(group->timeout_ms);
	op->wants_progress = op->claimed = true;
	op->wants_urgent = false;
	/* Under the lock of the list it is posted before any other thread sees it. */
	atomic_store_explicit(&op->begun, true, memory_order_relaxed);
	return op;
}

bool p2p_post_short(const struct p2p_short *message, uint64_t number, struct ls_request **out)
{
	ls_group *group = message->group;
	struct world *world = group->world;
	struct world_p2p *p2p = &world->p2p;
	struct ls_request *op = make_receive(message, number);
	if (!op)
		return false;
	p2p_add_group(group);
	*out = op;
	lock_rank_acquire(&p2p->lock);
	p2p_append(p2p, op);
	bool posted = mailbox_post_short(group->mailbox, &op->base);
	/* What has happened before does not wake an armed progress thread, so it counts as work. */
	bool has_work = !posted || failure_is_set(group);
	if (!has_work && p2p_stays_armed(p2p)) {
		lock_rank_release(&p2p->lock);
		p2p_collect(group);
		return true;
	}
	struct p2p_arming found = p2p_look_armed(world, has_work);
	lock_rank_release(&p2p->lock);
	p2p_collect(group);
	/* `late` must not be lost: it is noted as if the progress thread had been woken. */
	if (posted || found.late || p2p_pending(group) > 0)
		p2p_arm_after(world, &found);
	return true;
}

/* True: the receive is still posted. */
static bool take_in(const struct ls_request *op, struct wait_word *word)
{
	bool posted = mailbox_poll_receive(op->group->mailbox, &op->base, word);
	p2p_collect(op->group); /* it may have matched other receives, too */
	return posted;
}

bool p2p_posted_test(const struct ls_request *op)
{
	struct wait_word word;
	take_in(op, &word);
	return progress_op_is_complete(op);
}

bool p2p_posted_await(const struct ls_request *op)
{
	struct wait_word word;
	struct wait_call wait = {.words = &word, .count = 1};
	/* With more receives than the ring has slots the source waits for room, and wakes the
	 * progress thread for that as long as no other thread makes progress. */
	bool posted = mailbox_pending(op->group->mailbox) <= MAIL_SLOTS;
	int polls = P2P_POLLS;
	while (posted)
		posted = take_in(op, &word) && p2p_comes_soon(&op->group->waiter, &wait, &polls);
	return progress_op_is_complete(op);
}
