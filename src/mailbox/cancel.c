/* SPDX-License-Identifier: BSD-3-Clause
 * Cancels sends and receives that have not been matched. Whether a long send to another host was
 * matched, this rank cannot know, so it asks the receiver (hosts/cancels.c). */
#include "mailbox/mailbox_private.h"
#include "hosts/hosts.h"

void mailbox_unqueue(struct mailbox_peer *peer, struct op *op)
{
	struct op **at = &peer->queue, *before = NULL;
	while (*at != op) {
		before = *at;
		at = &(*at)->p2p.next;
	}
	*at = op->p2p.next;
	if (peer->queue_last == op)
		peer->queue_last = before;
}

void mailbox_end_cancelled(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail)
{
	op->status = LS_CANCELLED;
	op->p2p.rts = NULL;
	mailbox_complete(mailbox, op);
}

/* Whether the send is now cancelled: by this rank, or by the receiver that this rank has asked. */
static bool cancel_rts(struct op_p2p *p2p) LOCK_REQUIRES(mail)
{
	return p2p->rts && !atomic_load(&p2p->cancelled) && !p2p->ends_failed &&
	       (transport_mail_cancel(p2p->rts, p2p->generation) ||
		(atomic_load(&p2p->asks_cancel) &&
		 transport_mail_was_cancelled(p2p->rts, p2p->generation)));
}

/* The RTS slot, and a block of the send, belong to the receiver until it has seen the cancel. */
static bool withdraw_send(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail)
{
	struct op_p2p *p2p = &op->p2p;
	struct mailbox_peer *peer = &mailbox->peers[op->call.peer];
	if (!cancel_rts(p2p))
		return false;
	p2p->cancelled = true;
	mailbox_disown_rts(peer, p2p->index, op->input_block);
	op->input_block = NULL;
	transport_mail_skip(peer->to, &peer->out);
	if (op->call.peer == mailbox->team->rank)
		mailbox_arrive(mailbox, op->call.peer);
	return true;
}

/* Completes the cancelled send, if no thread makes progress on it at the moment. */
static void end_active(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail)
{
	struct op **at = &mailbox->active;
	while (*at && *at != op)
		at = &(*at)->p2p.next;
	if (*at) {
		*at = op->p2p.next;
		mailbox_end_cancelled(mailbox, op);
	}
}

bool mailbox_finish_cancel(struct mailbox *mailbox, struct op *op)
{
	int peer = op->call.peer;
	if (!atomic_load_explicit(&op->p2p.asks_cancel, memory_order_relaxed))
		return atomic_load(&op->p2p.cancelled);
	lock_mail_acquire(&mailbox->lock);
	bool now = withdraw_send(mailbox, op);
	lock_mail_release(&mailbox->lock);
	if (now)
		transport_request_progress(mailbox->team, peer);
	return atomic_load(&op->p2p.cancelled);
}

bool mailbox_ask_cancel(struct mailbox *mailbox, struct op *op, struct wait_word words[2])
{
	const struct transport_team *team = mailbox->team;
	struct op_p2p *p2p = &op->p2p;
	lock_mail_acquire(&mailbox->lock);
	int peer = op->call.peer;
	bool asks =
		mailbox_state_of(op) == OP_P2P_SENT && p2p->rts && !transport_is_here(team, peer);
	unsigned index = p2p->index;
	uint32_t generation = p2p->generation;
	if (asks) {
		atomic_store(&p2p->asks_cancel, true);
		mailbox_wait_word(mailbox, peer, &p2p->rts->owner_copied,
				  transport_mail_word(generation, p2p->pieces), peer, &words[0]);
		mailbox_wait_word(mailbox, peer, &p2p->rts->done,
				  transport_mail_word(generation, 0), peer, &words[1]);
	}
	lock_mail_release(&mailbox->lock);
	/* If the operation has ended, its RTS slot may be in use again: then no rank is asked. */
	return asks && hosts_cancel(mailbox->team, peer, index, generation);
}

bool mailbox_take_back(struct mailbox *mailbox, struct op *op)
{
	bool back = true, was_sent = false;
	lock_mail_acquire(&mailbox->lock);
	/* The peer of a receive from any source changes when it matches a message. */
	int peer = op->call.peer;
	switch (mailbox_state_of(op)) {
	case OP_P2P_QUEUED:
		mailbox_unqueue(&mailbox->peers[peer], op);
		mailbox_free_block(mailbox, op->input_block); /* no receiver knows of it */
		op->input_block = NULL;
		op->status = LS_CANCELLED;
		mailbox_complete(mailbox, op);
		break;
	case OP_P2P_POSTED:
		mailbox_unpost(mailbox, op);
		op->status = LS_CANCELLED;
		mailbox_complete(mailbox, op);
		break;
	case OP_P2P_SENT:
		back = was_sent = withdraw_send(mailbox, op);
		if (back)
			end_active(mailbox, op);
		break;
	default:
		back = false;
		break;
	}
	lock_mail_release(&mailbox->lock);
	if (was_sent)
		transport_request_progress(mailbox->team, peer);
	return back;
}

bool mailbox_cancel(struct mailbox *mailbox, struct op *op)
{
	struct wait_word word;
	bool was_queued = mailbox_state_of(op) == OP_P2P_QUEUED;
	if (!mailbox_take_back(mailbox, op))
		return false;
	/* The sends behind it may need no RTS slot, and so have room where it had none. The word
	 * for which they wait does not show that. */
	if (was_queued)
		(void)mailbox_flush(mailbox, op, &word);
	return true;
}
