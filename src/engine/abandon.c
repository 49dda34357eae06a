/* SPDX-License-Identifier: BSD-3-Clause
 * Operations after their group has failed: when one ends, nobody touches its buffers any more. */
#include "engine/mailbox.h"
#include "engine/stream.h"
#include "transport/hosts.h"

/* ---- sends and receives ---- */

void engine_p2p_release_payload(struct engine *engine, struct engine_op *op, bool lost)
{
	if (lost)
		op->stream.lost = true;
	/* As in window.c. */
	ls_status status =
		lost ? LS_OK : memory_free(engine->memory, op->input_block, trace_caller_text);
	(void)status;
	op->input_block = NULL;
}

/* Whether the peer has copied all pieces that it has begun, and begins no more. */
static bool is_out(struct engine *engine, struct engine_op *op)
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
	engine_p2p_add_word(engine, op, source ? op->call.peer : engine->team->rank, word,
			    transport_mail_word(p2p->generation, theirs));
	return false;
}

/* As is_out, for a peer on another host: the link moves the pieces. */
static bool is_off_the_link(struct engine *engine, struct engine_op *op, bool force)
{
	struct transport_team *team = engine->team;
	const struct engine_p2p *p2p = &op->p2p;
	int peer = op->call.peer;
	if (is_out(engine, op))
		return true;
	if (op->call.kind == TRACE_SEND)
		transport_cancel(team, peer, p2p->index, p2p->generation);
	if (force && !op->input_block) /* a copy may be read forever */
		transport_cut(team->transport, team->members[peer].world);
	return is_out(engine, op);
}

/* Revokes the peer's access to the buffer that it may still touch. */
static bool take_away(struct engine *engine, const struct engine_op *op)
{
	const struct buffer *buffer = op->call.kind == TRACE_SEND ? &op->call.send : &op->call.recv;
	if (op->p2p.by_address || op->input_block || !op->p2p.rts->target)
		return true; /* it only reads; or it touches a copy of mine that is never reused */
	return memory_detach(engine->memory, buffer->address, buffer->bytes) == LS_OK;
}

enum engine_progress engine_p2p_abandon(struct engine *engine, struct engine_op *op,
					const struct ranks *gone, bool force)
{
	struct engine_p2p *p2p = &op->p2p;
	bool lost = false, safe = true;
	enum engine_p2p_stage stage = engine_p2p_stage_of(op);
	/* Otherwise another thread has just matched or sent it. */
	if ((stage == ENGINE_P2P_QUEUED || stage == ENGINE_P2P_POSTED) &&
	    !engine_p2p_cancel(engine, op))
		stage = engine_p2p_stage_of(op);
	bool shown =
		p2p->rts && (stage == ENGINE_P2P_SENT
				     ? !transport_mail_cancel(p2p->rts, p2p->generation)
				     : stage == ENGINE_P2P_MATCHED || stage == ENGINE_P2P_DRAINING);
	bool is_here = op->call.peer < 0 || transport_is_here(engine->team, op->call.peer);
	if (shown && !is_here) {
		lost = !is_off_the_link(engine, op, force);
		if (lost && (!force || !op->input_block))
			return ENGINE_BLOCKED;
	} else if (shown && !ranks_among(gone, op->call.peer)) {
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

/* ---- all ---- */

/* Counts peers that have entered this collective and not finished it. */
static int still_inside(struct engine *engine, struct engine_op *op, const struct ranks *gone)
{
	const struct transport_team *team = engine->team;
	op->word_count = 0;
	for (int q = 0; q < team->size; q++) {
		/* Only ranks of this host touch windows. */
		if (q == team->rank || ranks_among(gone, q) || !transport_is_here(team, q))
			continue;
		const _Atomic uint64_t *signal = &transport_entry(team, q, op->seq)->signal;
		const _Atomic uint64_t *finished = &transport_area_of(team, q)->finished;
		if (!transport_signal_reached(atomic_load_explicit(signal, memory_order_seq_cst),
					      transport_signal(op->seq, 0)))
			continue;
		if (atomic_load_explicit(finished, memory_order_acquire) < op->seq)
			transport_wait_word(team, q, finished, op->seq, q,
					    &op->words[op->word_count++]);
	}
	return op->word_count;
}

/* Whether the link to other hosts touches none of this operation's buffers any more; with `force`
 * this rank cuts the peers for which it does, and waits only for the thread that makes progress on
 * the link. */
static bool are_all_off_the_link(struct engine *engine, struct engine_op *op, bool force)
{
	struct transport_team *team = engine->team;
	op->word_count = 0;
	transport_withdraw(team);
	for (int q = 0; q < team->size; q++) {
		struct wait_word *word = &op->words[op->word_count];
		bool fetches = op->fetching && op->fetching_from == q;
		if (transport_is_here(team, q))
			continue;
		if (force && (fetches || !transport_quiet(team, q, word)))
			transport_cut(team->transport, team->members[q].world);
		if (!transport_quiet(team, q, word))
			op->word_count++;
	}
	ls_status status = op->status;
	int culprit = op->culprit;
	if (op->fetching && engine_step_fetch(engine, op) == ENGINE_FAILED) {
		op->status = status; /* it has failed before */
		op->culprit = culprit;
	}
	return op->word_count == 0;
}

enum engine_progress engine_abandon(struct engine *engine, struct engine_op *op,
				    const struct ranks *gone, bool force)
{
	if (op->device.stage != ENGINE_DEVICE_NONE || engine_is_on_stream(op))
		return engine_device_abandon(engine, op, gone, force);
	if (op->stage == ENGINE_COMPLETE || op->stage == ENGINE_TOGETHER)
		return ENGINE_DONE;
	if (!engine_is_collective(op->call.kind))
		return engine_p2p_abandon(engine, op, gone, force);
	op->any = false;
	if (engine->ops) {
		enum engine_progress progress = engine_ops_abandon(engine, op, force);
		if (progress != ENGINE_DONE)
			return progress;
	}
	struct transport_team *team = engine->team;
	if (team->host_count > 1 && !are_all_off_the_link(engine, op, force))
		return ENGINE_BLOCKED;
	bool shown = engine_window_is_shown(op);
	if (op->stage != ENGINE_ENTER) {
		wait_store(&transport_area_of(team, team->rank)->finished, op->seq);
		transport_notify_all(team);
		if (shown && still_inside(engine, op, gone) > 0 && !force)
			return ENGINE_BLOCKED;
	}
	bool lost = op->stage != ENGINE_ENTER && shown && op->word_count > 0;
	bool safe = !lost || engine_window_detach(engine, op);
	engine_window_release(engine, op, lost);
	op->stage = ENGINE_COMPLETE;
	return safe ? ENGINE_DONE : ENGINE_FAILED;
}
