/* SPDX-License-Identifier: BSD-3-Clause
 * The life of one send or receive. A long message is copied in pieces, by the receiver and, if both see each
 * other's buffer and the sender has nothing else to do, by both. */
#include "engine/mailbox.h"

#include <string.h>

#include "base/messages.h"
#include "device/device.h"

/* ---- a new send: where its payload lies for the receiver ---- */

static bool stage_copy(struct engine *engine, struct engine_op *op)
{
	ls_status status = memory_alloc(engine->memory, op->input_bytes, &op->input_block);
	if (status != LS_OK) {
		op->status = status;
		return false;
	}
	if (!memory_offset(engine->memory, op->input_block, op->input_bytes, &op->input_offset)) {
		op->status = LS_INTERNAL;
		return false;
	}
	memcpy(op->input_block, op->call.send, op->input_bytes);
	return true;
}

static bool stage_payload(struct engine *engine, struct engine_op *op)
{
	op->point.plain = false;
	if (op->input_bytes <= MAIL_INLINE_BYTES && !op->point.gives)
		return true;
	if (memory_offset_for(engine->memory, op->call.send, op->input_bytes, engine->peers,
			      &op->input_offset))
		return true;
	if (op->point.gives) { /* the group has checked that it is a block; peers no longer see it */
		op->status = LS_BAD_ARGUMENT;
		return false;
	}
	uint64_t read_from = engine->remote == SETTING_REMOTE_ALWAYS ? ENGINE_POINT_READ_LEAST
								     : ENGINE_POINT_READ_BYTES;
	if (op->input_bytes < read_from || engine->remote == SETTING_REMOTE_OFF ||
	    !transport_reads_me(engine->team))
		return stage_copy(engine, op);
	op->input_offset = (uint64_t)(uintptr_t)op->call.send;
	op->point.plain = true;
	return true;
}

static void release_payload(struct engine *engine, struct engine_op *op, bool lost)
{
	/* As in window.c. */
	ls_status status = lost ? LS_OK : memory_free(engine->memory, op->input_block, trace_called);
	(void)status;
	op->input_block = NULL;
}

/* ---- pieces ---- */

/* What one rank sees of both buffers. */
struct pieces {
	const unsigned char *from; /* NULL: it lies at `address` in the process of `source` */
	unsigned char *to;
	uint64_t address, bytes;
	int source;
};

static bool copy_piece(struct engine *engine, struct engine_op *op, const struct pieces *all,
		       uint64_t piece)
{
	uint64_t first = piece * op->point.piece_bytes;
	uint64_t bytes = all->bytes - first;
	if (bytes > op->point.piece_bytes)
		bytes = op->point.piece_bytes;
	if (all->from) {
		device_copy(all->to + first, all->from + first, bytes, false);
		return true;
	}
	ls_status status = transport_read(engine->team, all->source, all->address + first,
					  all->to + first, bytes);
	if (status != LS_OK) {
		op->status = status;
		op->culprit = status == LS_PEER_DIED ? all->source : -1;
	}
	return status == LS_OK;
}

/* Copies what nobody else does, up to a slice. True if nothing is left to claim; false with op->status LS_OK:
 * there may be. `word` counts my pieces, for whoever has to know when I am out. */
static bool copy_pieces(struct engine *engine, struct engine_op *op, const struct pieces *all,
			_Atomic uint64_t *word)
{
	struct engine_point *point = &op->point;
	uint64_t piece;
	for (int i = 0; i < ENGINE_POINT_SLICE; i++) {
		if (!transport_mail_claim(point->parcel, point->generation, point->pieces, &piece))
			return true;
		bool whole = copy_piece(engine, op, all, piece);
		point->mine++;
		wait_store(word, transport_mail_word(point->generation, point->mine));
		if (!whole)
			return false;
		if (engine_cause_is_set(engine)) {
			op->status = LS_ABORTED;
			return false;
		}
	}
	return false;
}

static void await(struct engine *engine, struct engine_op *op, int owner,
		  const _Atomic uint64_t *word, uint64_t value)
{
	transport_await(engine->team, owner, word, value, op->call.peer,
			&op->words[op->word_count++]);
}

static bool is_reached(const _Atomic uint64_t *word, uint64_t value)
{
	return (int64_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0;
}

/* ---- sends ---- */

static enum engine_progress help(struct engine *engine, struct engine_op *op)
{
	struct mail_parcel *parcel = op->point.parcel;
	uint64_t target = parcel->target;
	struct pieces all = {.from = op->input_block ? op->input_block : op->call.send,
			     .bytes = op->input_bytes};
	if (target)
		all.to = memory_view_at(transport_arena(engine->team, op->call.peer), target - 1,
					all.bytes);
	if (!all.to)
		return ENGINE_BLOCKED;
	bool all_claimed = copy_pieces(engine, op, &all, &parcel->gave);
	transport_summon(engine->team, op->call.peer);
	return op->status != LS_OK ? ENGINE_FAILED : all_claimed ? ENGINE_BLOCKED : ENGINE_DONE;
}

static enum engine_progress sent(struct engine *engine, struct engine_op *op)
{
	struct mail_parcel *parcel = op->point.parcel;
	uint64_t over = transport_mail_word(op->point.generation, 0);
	op->word_count = 0;
	op->any = true;
	for (;;) {
		if (op->point.back || is_reached(&parcel->over, over)) {
			engine_mailbox_sent(engine, op);
			release_payload(engine, op, false);
			return ENGINE_DONE;
		}
		if (!is_reached(&parcel->met, over)) {
			await(engine, op, op->call.peer, &parcel->met, over);
			break;
		}
		enum engine_progress progress = help(engine, op);
		if (progress == ENGINE_FAILED)
			return ENGINE_FAILED;
		if (progress == ENGINE_BLOCKED)
			break;
		if (op->point.detached)
			return ENGINE_BLOCKED; /* no words: more to do at once */
	}
	await(engine, op, op->call.peer, &parcel->over, over);
	return ENGINE_BLOCKED;
}

static enum engine_progress send(struct engine *engine, struct engine_op *op)
{
	bool detached = op->point.detached;
	if (point_stage(op) == POINT_NEW) {
		if (!stage_payload(engine, op))
			return ENGINE_FAILED;
		engine_mailbox_send(engine, op);
	}
	if (detached)
		return ENGINE_BLOCKED; /* it may be over, and gone */
	op->any = true;
	op->word_count = 1;
	if (point_stage(op) == POINT_QUEUED && !engine_mailbox_flush(engine, op, &op->words[0]))
		return ENGINE_BLOCKED;
	return point_stage(op) == POINT_SENT ? sent(engine, op) : ENGINE_DONE;
}

/* ---- receives ---- */

static enum engine_progress met(struct engine *engine, struct engine_op *op)
{
	struct engine_point *point = &op->point;
	struct mail_parcel *parcel = point->parcel;
	int source = point->message.source;
	struct pieces all = {.to = op->call.recv, .bytes = op->output_bytes, .source = source};
	if (parcel->plain)
		all.address = parcel->window;
	else
		all.from = memory_view_at(transport_arena(engine->team, source), parcel->window,
					  all.bytes);
	if ((!all.from && !parcel->plain) || parcel->bytes != all.bytes)
		return engine_fail(op, LS_INTERNAL, source);
	bool all_claimed;
	do
		all_claimed = copy_pieces(engine, op, &all, &parcel->got);
	while (!all_claimed && op->status == LS_OK && !point->detached);
	if (op->status != LS_OK)
		return ENGINE_FAILED;
	if (!all_claimed)
		return ENGINE_BLOCKED; /* no words: more to do at once */
	point_set(op, POINT_GIVEN);
	return ENGINE_DONE;
}

/* Until the source has copied what it has claimed. */
static enum engine_progress given(struct engine *engine, struct engine_op *op)
{
	struct engine_point *point = &op->point;
	struct mail_parcel *parcel = point->parcel;
	uint64_t theirs = transport_mail_word(point->generation, point->pieces - point->mine);
	if (point->mine < point->pieces && !is_reached(&parcel->gave, theirs)) {
		await(engine, op, engine->team->rank, &parcel->gave, theirs);
		return ENGINE_BLOCKED;
	}
	/* The source closes the parcel when it gives up, and then takes its buffer back. */
	if (transport_mail_is_closed(parcel))
		return engine_fail(op, LS_ABORTED, -1);
	int from = point->message.source;
	transport_mail_parcel_over(engine->mailbox->peers[from].from, point->index,
				   point->generation);
	transport_wake(engine->team, from);
	point->parcel = NULL;
	return ENGINE_DONE;
}

static enum engine_progress receive(struct engine *engine, struct engine_op *op)
{
	bool detached = op->point.detached, is_new = point_stage(op) == POINT_NEW;
	if (is_new)
		engine_mailbox_receive(engine, op);
	if (detached)
		return ENGINE_BLOCKED; /* it may be over, and gone */
	op->any = true;
	if (is_new ? point_stage(op) == POINT_ASKED : engine_mailbox_asks(engine, op))
		return ENGINE_BLOCKED;
	enum engine_progress progress = ENGINE_DONE;
	op->word_count = 0;
	if (point_stage(op) == POINT_MET)
		progress = met(engine, op);
	if (progress == ENGINE_DONE && point_stage(op) == POINT_GIVEN)
		progress = given(engine, op);
	return progress;
}

enum engine_progress engine_point_go_on(struct engine *engine, struct engine_op *op)
{
	enum engine_progress progress = ENGINE_DONE;
	op->word_count = 0;
	if (op->call.kind == TRACE_SEND)
		return sent(engine, op);
	if (point_stage(op) == POINT_MET)
		progress = met(engine, op);
	return progress == ENGINE_DONE ? given(engine, op) : progress;
}

void engine_point_word(struct engine *engine, const struct engine_op *op, struct wait_word *word)
{
	const struct engine_point *point = &op->point;
	int rank = engine->team->rank;
	if (op->call.kind == TRACE_SEND)
		transport_await(engine->team, op->call.peer, &point->parcel->over,
				transport_mail_word(point->generation, 0), op->call.peer, word);
	else
		transport_await(engine->team, rank, &point->parcel->gave,
				transport_mail_word(point->generation, point->pieces - point->mine),
				op->call.peer, word);
}

static enum engine_progress probe(struct engine *engine, struct engine_op *op)
{
	op->any = true;
	return engine_point_probe(engine, op->call.peer, op->call.tag, &op->point.message,
				  op->words, &op->word_count);
}

enum engine_progress engine_point_advance(struct engine *engine, struct engine_op *op)
{
	bool detached = op->point.detached;
	enum engine_progress progress = op->call.kind == TRACE_SEND   ? send(engine, op)
					: op->call.kind == TRACE_RECV ? receive(engine, op)
								      : probe(engine, op);
	if (detached || progress != ENGINE_DONE)
		return progress;
	point_set(op, POINT_OVER);
	return op->status == LS_OK ? ENGINE_DONE : ENGINE_FAILED;
}

/* ---- after a failure ---- */

/* Whether the peer has copied all the pieces it has begun, and begins no more. */
static bool is_out(struct engine *engine, struct engine_op *op)
{
	struct engine_point *point = &op->point;
	bool source = op->call.kind == TRACE_SEND;
	const _Atomic uint64_t *word = source ? &point->parcel->got : &point->parcel->gave;
	uint64_t begun = transport_mail_close(point->parcel, point->generation, point->pieces);
	uint64_t theirs = begun > point->mine ? begun - point->mine : 0;
	op->word_count = 0;
	op->any = false;
	if (theirs == 0 || is_reached(word, transport_mail_word(point->generation, theirs)))
		return true;
	await(engine, op, source ? op->call.peer : engine->team->rank, word,
	      transport_mail_word(point->generation, theirs));
	return false;
}

/* The buffer that the peer may still touch. */
static bool take_away(struct engine *engine, const struct engine_op *op)
{
	const void *buffer = op->call.kind == TRACE_SEND ? op->call.send : op->call.recv;
	uint64_t bytes = op->call.kind == TRACE_SEND ? op->input_bytes : op->output_bytes;
	if (op->point.plain || op->input_block || !op->point.parcel->target)
		return true; /* it only reads, or a copy of mine that is never used again */
	return memory_detach(engine->memory, (void *)(uintptr_t)buffer, bytes) == LS_OK;
}

enum engine_progress engine_point_abandon(struct engine *engine, struct engine_op *op,
					  uint64_t gone, bool force)
{
	struct engine_point *point = &op->point;
	bool lost = false, safe = true;
	enum engine_point_stage stage = point_stage(op);
	if (stage == POINT_QUEUED || stage == POINT_ASKED)
		engine_mailbox_take_back(engine, op);
	bool shown =
		point->parcel &&
		(stage == POINT_SENT ? !transport_mail_withdraw(point->parcel, point->generation)
				     : stage == POINT_MET || stage == POINT_GIVEN);
	if (shown && !(gone >> op->call.peer & 1)) {
		lost = !is_out(engine, op);
		if (lost && !force)
			return ENGINE_BLOCKED;
		if (lost)
			safe = take_away(engine, op);
	}
	release_payload(engine, op, lost);
	point_set(op, POINT_OVER);
	op->stage = ENGINE_OVER;
	return safe ? ENGINE_DONE : ENGINE_FAILED;
}
