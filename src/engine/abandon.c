/* SPDX-License-Identifier: BSD-3-Clause
 * A send or receive after its group has failed: nobody touches its buffer when it ends. */
#include "engine/mailbox.h"

void engine_p2p_release_payload(struct engine *engine, struct engine_op *op, bool lost)
{
	if (lost)
		op->stream.lost = true;
	/* As in window.c. */
	ls_status status = lost ? LS_OK : memory_free(engine->memory, op->input_block, trace_called);
	(void)status;
	op->input_block = NULL;
}

/* Whether the peer has copied all pieces that it has begun, and begins no more. */
static bool is_out(struct engine *engine, struct engine_op *op)
{
	struct engine_p2p *p2p = &op->p2p;
	bool source = op->call.kind == TRACE_SEND;
	const _Atomic uint64_t *word = source ? &p2p->rts->got : &p2p->rts->gave;
	uint64_t begun = transport_mail_close(p2p->rts, p2p->generation, p2p->pieces);
	uint64_t theirs = begun > p2p->pieces_copied ? begun - p2p->pieces_copied : 0;
	op->word_count = 0;
	op->any = false;
	if (theirs == 0 || engine_p2p_is_reached(word, transport_mail_word(p2p->generation, theirs)))
		return true;
	engine_p2p_add_word(engine, op, source ? op->call.peer : engine->team->rank, word,
			    transport_mail_word(p2p->generation, theirs));
	return false;
}

/* Revokes the peer's access to the buffer that it may still touch. */
static bool take_away(struct engine *engine, const struct engine_op *op)
{
	const struct buffer *buffer = op->call.kind == TRACE_SEND ? &op->call.send : &op->call.recv;
	if (op->p2p.by_address || op->input_block || !op->p2p.rts->target)
		return true; /* it only reads; or it touches a copy of mine that is never reused */
	return memory_detach(engine->memory, buffer->address, buffer->bytes) == LS_OK;
}

enum engine_progress engine_p2p_abandon(struct engine *engine, struct engine_op *op, uint64_t gone,
					bool force)
{
	struct engine_p2p *p2p = &op->p2p;
	bool lost = false, safe = true;
	enum engine_p2p_stage stage = engine_p2p_stage_of(op);
	if (stage == ENGINE_P2P_QUEUED || stage == ENGINE_P2P_POSTED)
		engine_mailbox_cancel(engine, op);
	bool shown =
		p2p->rts && (stage == ENGINE_P2P_SENT
				     ? !transport_mail_cancel(p2p->rts, p2p->generation)
				     : stage == ENGINE_P2P_MATCHED || stage == ENGINE_P2P_DRAINING);
	if (shown && !(gone >> op->call.peer & 1)) {
		lost = !is_out(engine, op);
		if (lost && !force)
			return ENGINE_BLOCKED;
		if (lost)
			safe = take_away(engine, op);
	}
	engine_p2p_release_payload(engine, op, lost);
	engine_p2p_set_stage(op, ENGINE_P2P_COMPLETE);
	op->stage = ENGINE_COMPLETE;
	return safe ? ENGINE_DONE : ENGINE_FAILED;
}
