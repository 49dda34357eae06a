/* SPDX-License-Identifier: BSD-3-Clause
 * Sends and receives after their group has failed: when one ends, no rank touches its buffer any
 * more. */
#include "engine/mailbox_private.h"
#include "engine/stream.h"
#include "transport/hosts.h"

void engine_p2p_release_payload(struct mailbox *mailbox, struct engine_op *op, bool lost)
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
static bool is_out(struct mailbox *mailbox, struct engine_op *op)
{
	struct engine_p2p *p2p = &op->p2p;
	bool source = op->call.kind == TRACE_SEND;
	const _Atomic uint64_t *word = source ? &p2p->rts->owner_copied : &p2p->rts->source_copied;
	uint64_t begun = transport_mail_close(p2p->rts, p2p->generation, p2p->pieces);
	uint64_t theirs = begun > p2p->pieces_copied ? begun - p2p->pieces_copied : 0;
	op->word_count = 0;
	op->any = false;
	if (theirs == 0 || engine_p2p_is_reached(word, transport_mail_word(p2p->generation, theirs)))
		return true;
	engine_p2p_add_word(mailbox, op, source ? op->call.peer : mailbox->team->rank, word,
			    transport_mail_word(p2p->generation, theirs));
	return false;
}

/* As is_out, for a peer on another host: the link moves the pieces. */
static bool is_off_the_link(struct mailbox *mailbox, struct engine_op *op, bool force)
{
	struct transport_team *team = mailbox->team;
	const struct engine_p2p *p2p = &op->p2p;
	int peer = op->call.peer;
	if (is_out(mailbox, op))
		return true;
	if (op->call.kind == TRACE_SEND)
		transport_cancel(team, peer, p2p->index, p2p->generation);
	if (force && !op->input_block) /* a copy may be read forever */
		transport_cut(team->transport, team->members[peer].world);
	return is_out(mailbox, op);
}

/* Revokes the peer's access to the buffer that it may still touch. */
static bool take_away(struct mailbox *mailbox, const struct engine_op *op)
{
	const struct buffer *buffer = op->call.kind == TRACE_SEND ? &op->call.send : &op->call.recv;
	if (op->p2p.by_address || op->input_block || !op->p2p.rts->target)
		return true; /* it only reads; or it touches a copy of mine that is never reused */
	return memory_detach(mailbox->memory, buffer->address, buffer->bytes) == LS_OK;
}

enum engine_progress mailbox_abandon_host(struct mailbox *mailbox, struct engine_op *op,
					  const struct ranks *gone, bool force)
{
	struct engine_p2p *p2p = &op->p2p;
	bool lost = false, safe = true;
	if (op->stage == ENGINE_COMPLETE)
		return ENGINE_DONE;
	enum engine_p2p_stage stage = engine_p2p_stage_of(op);
	/* Otherwise another thread has just matched or sent it. */
	if ((stage == ENGINE_P2P_QUEUED || stage == ENGINE_P2P_POSTED) &&
	    !engine_p2p_cancel(mailbox, op))
		stage = engine_p2p_stage_of(op);
	bool shown =
		p2p->rts && (stage == ENGINE_P2P_SENT
				     ? !transport_mail_cancel(p2p->rts, p2p->generation)
				     : stage == ENGINE_P2P_MATCHED || stage == ENGINE_P2P_DRAINING);
	bool is_here = op->call.peer < 0 || transport_is_here(mailbox->team, op->call.peer);
	if (shown && !is_here) {
		lost = !is_off_the_link(mailbox, op, force);
		if (lost && (!force || !op->input_block))
			return ENGINE_BLOCKED;
	} else if (shown && !ranks_among(gone, op->call.peer)) {
		lost = !is_out(mailbox, op);
		if (lost && !force)
			return ENGINE_BLOCKED;
		if (lost)
			safe = take_away(mailbox, op);
	}
	engine_p2p_release_payload(mailbox, op, lost);
	engine_p2p_set_stage(op, ENGINE_P2P_COMPLETE);
	op->stage = ENGINE_COMPLETE;
	return safe ? ENGINE_DONE : ENGINE_FAILED;
}
