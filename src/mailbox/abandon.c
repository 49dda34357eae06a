/* SPDX-License-Identifier: BSD-3-Clause
 * Sends and receives after their group has failed: when one ends, no rank touches its buffer any
 * more. */
#include "mailbox/mailbox_private.h"
#include "op/stream.h"
#include "hosts/hosts.h"

/* Whether the peer has copied all pieces that it has begun, and begins no more. */
static bool has_peer_stopped(struct mailbox *mailbox, struct op *op)
{
	struct op_p2p *p2p = &op->p2p;
	bool source = op->call.kind == TRACE_SEND;
	const _Atomic uint64_t *word = source ? &p2p->rts->owner_copied : &p2p->rts->source_copied;
	uint64_t begun = transport_mail_close(p2p->rts, p2p->generation, p2p->pieces);
	uint64_t theirs = begun > p2p->pieces_copied ? begun - p2p->pieces_copied : 0;
	op->word_count = 0;
	op->any_suffices = false;
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
	return memory_revoke(mailbox->memory, buffer->address, buffer->bytes) == LS_OK;
}

enum op_progress mailbox_abandon_host(struct mailbox *mailbox, struct op *op,
				      const struct ranks *gone, bool force)
{
	struct op_p2p *p2p = &op->p2p;
	bool lost = false, safe = true;
	if (op->state == OP_STATE_COMPLETE)
		return OP_DONE;
	enum op_p2p_state state = mailbox_state_of(op);
	/* If the cancel fails, another thread has just matched or sent the message. */
	if ((state == OP_P2P_QUEUED || state == OP_P2P_POSTED) && !mailbox_take_back(mailbox, op))
		state = mailbox_state_of(op);
	bool shown =
		p2p->rts &&
		(state == OP_P2P_SENT ? !transport_mail_cancel(p2p->rts, p2p->generation)
				      : state == OP_P2P_MATCHED || state == OP_P2P_SENDER_COPIES);
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
	op->state = OP_STATE_COMPLETE;
	return safe ? OP_DONE : OP_FAILED;
}
