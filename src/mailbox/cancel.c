/* SPDX-License-Identifier: BSD-3-Clause
 * Cancels sends and receives that have not been matched, and ends those of a group that has failed.
 * Whether a long send to another host was matched, this rank cannot know, so it asks the receiver
 * (hosts/far_cancel.c). */
#include "mailbox/mailbox_private.h"
#include "op/stream.h"
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
	return p2p->rts && !atomic_load(&p2p->cancelled) &&
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

/* Completes the cancelled send, if no thread makes progress on it just now. */
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

bool mailbox_is_cancelled(struct mailbox *mailbox, struct op *op)
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
		transport_wait_word(team, peer, &p2p->rts->owner_copied,
				    transport_mail_word(generation, p2p->pieces), peer, &words[0]);
		transport_wait_word(team, peer, &p2p->rts->done, transport_mail_word(generation, 0),
				    peer, &words[1]);
	}
	lock_mail_release(&mailbox->lock);
	/* If the operation has ended, its RTS slot may be in use again: then no rank is asked. */
	return asks && hosts_cancel(mailbox->team, peer, index, generation);
}

bool mailbox_cancel(struct mailbox *mailbox, struct op *op)
{
	bool back = true, was_sent = false;
	lock_mail_acquire(&mailbox->lock);
	/* The peer of a receive from any source changes when it matches a message. */
	int peer = op->call.peer;
	switch (mailbox_state_of(op)) {
	case OP_P2P_QUEUED:
		mailbox_unqueue(&mailbox->peers[peer], op);
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

/* ---- after the group has failed: when an operation ends, no rank touches its buffer ---- */

void mailbox_release_payload(struct mailbox *mailbox, struct op *op, bool lost)
{
	if (lost)
		op->stream.lost = true;
	/* As in window.c. */
	ls_status status =
		lost ? LS_OK : memory_free(mailbox->memory, op->input_block, trace_caller_text);
	(void)status;
	op->input_block = NULL;
}

/* Whether the peer has copied all pieces that it has begun, and begins no more. */
static bool has_peer_stopped(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	bool source = op->call.kind == TRACE_SEND;
	const _Atomic uint64_t *word = source ? &p2p->rts->owner_copied : &p2p->rts->source_copied;
	uint64_t begun = transport_mail_close(p2p->rts, p2p->generation, p2p->pieces);
	uint64_t theirs = begun > p2p->pieces_copied ? begun - p2p->pieces_copied : 0;
	op->word_count = 0;
	op->any = false;
	if (theirs == 0 || mailbox_is_reached(word, transport_mail_word(p2p->generation, theirs)))
		return true;
	mailbox_add_word(mailbox, op, source ? op->call.peer : mailbox->team->rank, word,
			 transport_mail_word(p2p->generation, theirs));
	return false;
}

/* As has_peer_stopped, for a peer on another host: the link moves the pieces. */
static bool has_link_stopped(struct mailbox *mailbox, struct op *op, bool force)
{
	struct transport_team *team = mailbox->team;
	const struct op_p2p *p2p = &op->p2p;
	int peer = op->call.peer;
	if (has_peer_stopped(mailbox, op))
		return true;
	if (op->call.kind == TRACE_SEND)
		hosts_cancel(team, peer, p2p->index, p2p->generation);
	if (force && !op->input_block) /* a copy may be read forever */
		hosts_cut(team->transport, team->members[peer].world);
	return has_peer_stopped(mailbox, op);
}

/* Revokes the peer's access to the buffer that it may still touch. */
static bool revoke_access(struct mailbox *mailbox, const struct op *op)
{
	const struct buffer *buffer = op->call.kind == TRACE_SEND ? &op->call.send : &op->call.recv;
	if (op->p2p.by_address || op->input_block || !op->p2p.rts->target)
		return true; /* the peer only reads, or touches a copy that is never reused */
	return memory_detach(mailbox->memory, buffer->address, buffer->bytes) == LS_OK;
}

enum op_progress mailbox_abandon_host(struct mailbox *mailbox, struct op *op,
				      const struct ranks *gone, bool force)
{
	struct op_p2p *p2p = &op->p2p;
	bool lost = false, safe = true;
	if (op->state == OP_COMPLETE)
		return OP_DONE;
	enum op_p2p_state state = mailbox_state_of(op);
	/* If the cancel fails, another thread has just matched or sent the message. */
	if ((state == OP_P2P_QUEUED || state == OP_P2P_POSTED) && !mailbox_cancel(mailbox, op))
		state = mailbox_state_of(op);
	bool shown = p2p->rts &&
		     (state == OP_P2P_SENT ? !transport_mail_cancel(p2p->rts, p2p->generation)
					   : state == OP_P2P_MATCHED || state == OP_P2P_DRAINING);
	bool is_here = op->call.peer < 0 || transport_is_here(mailbox->team, op->call.peer);
	if (shown && !is_here) {
		lost = !has_link_stopped(mailbox, op, force);
		if (lost && (!force || !op->input_block))
			return OP_BLOCKED;
	} else if (shown && !ranks_among(gone, op->call.peer)) {
		lost = !has_peer_stopped(mailbox, op);
		if (lost && !force)
			return OP_BLOCKED;
		if (lost)
			safe = revoke_access(mailbox, op);
	}
	mailbox_release_payload(mailbox, op, lost);
	mailbox_set_state(op, OP_P2P_COMPLETE);
	op->state = OP_COMPLETE;
	return safe ? OP_DONE : OP_FAILED;
}
