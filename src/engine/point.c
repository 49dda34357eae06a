/* SPDX-License-Identifier: BSD-3-Clause
 * Single sends and receives. A short message is buffered in the receiver's channel and the send is done;
 * a long one stays in the sender's arena until the receiver has copied it. */
#include <string.h>

#include "engine_private.h"

/* Where a long payload lies for the receiver: as it is, or copied into a block of the arena. */
static bool stage_payload(struct engine *engine, struct engine_op *op)
{
	if (op->input_bytes <= TRANSPORT_MESSAGE_INLINE || op->input_block)
		return true;
	if (memory_offset(engine->memory, op->call.send, op->input_bytes, &op->input_offset))
		return true;
	if (memory_alloc(engine->memory, op->input_bytes, &op->input_block) != LS_OK) {
		op->status = LS_OUT_OF_MEMORY;
		return false;
	}
	if (!memory_offset(engine->memory, op->input_block, op->input_bytes, &op->input_offset)) {
		op->status = LS_INTERNAL;
		return false;
	}
	memcpy(op->input_block, op->call.send, op->input_bytes);
	return true;
}

static void release_payload(struct engine *engine, struct engine_op *op, bool lost)
{
	/* As in window.c. */
	ls_status status = lost ? LS_OK : memory_free(engine->memory, op->input_block);
	(void)status;
	op->input_block = NULL;
}

static enum engine_progress post(struct engine *engine, struct engine_op *op)
{
	struct transport_envelope envelope = {.seq = op->seq,
					      .count = op->call.count,
					      .bytes = op->input_bytes,
					      .tag = op->call.tag,
					      .dtype = op->call.dtype,
					      .record = (uint32_t)op->record};
	if (!stage_payload(engine, op))
		return ENGINE_FAILED;
	if (!transport_post(engine->transport, TRANSPORT_POINT, op->call.peer, &envelope,
			    op->call.send, op->input_offset, &op->tickets[0], &op->words[0])) {
		op->word_count = 1;
		return ENGINE_BLOCKED;
	}
	op->stage = op->input_bytes > TRANSPORT_MESSAGE_INLINE ? ENGINE_TAKEN : ENGINE_OVER;
	return ENGINE_DONE;
}

static enum engine_progress taken(struct engine *engine, struct engine_op *op)
{
	ls_status refused;
	op->word_count = 0;
	if (!transport_taken(engine->transport, TRANSPORT_POINT, op->call.peer, op->tickets[0],
			     &refused, &op->words[0])) {
		op->word_count = 1;
		return ENGINE_BLOCKED;
	}
	release_payload(engine, op, false);
	op->stage = ENGINE_OVER;
	return refused == LS_OK ? ENGINE_DONE : engine_fail(op, refused, op->call.peer);
}

static enum engine_progress receive(struct engine *engine, struct engine_op *op)
{
	struct transport *transport = engine->transport;
	op->word_count = 0;
	struct transport_message *message = transport_match(
		transport, TRANSPORT_POINT, op->call.peer, op->call.tag, &op->words[0]);
	if (!message) {
		op->word_count = 1;
		return ENGINE_BLOCKED;
	}
	op->stage = ENGINE_OVER;
	if (message->count != op->call.count || message->dtype != (uint32_t)op->call.dtype) {
		transport_take(transport, TRANSPORT_POINT, op->call.peer, message, LS_MISMATCH);
		return engine_fail(op, LS_MISMATCH, op->call.peer);
	}
	bool whole = atomic_load_explicit(engine->cause, memory_order_seq_cst) == 0;
	const void *payload =
		op->output_bytes ? transport_payload(transport, op->call.peer, message) : "";
	if (whole && (!payload || message->bytes != op->output_bytes)) {
		transport_take(transport, TRANSPORT_POINT, op->call.peer, message, LS_INTERNAL);
		return engine_fail(op, LS_INTERNAL, op->call.peer);
	}
	if (whole && op->output_bytes)
		whole = engine_copy(engine, op->call.recv, payload, op->output_bytes,
				    ENGINE_CHUNK_BYTES);
	transport_take(transport, TRANSPORT_POINT, op->call.peer, message, LS_OK);
	return whole ? ENGINE_DONE : engine_fail(op, LS_ABORTED, -1);
}

enum engine_progress engine_point_advance(struct engine *engine, struct engine_op *op)
{
	enum engine_progress progress = ENGINE_DONE;
	if (op->stage == ENGINE_POST) {
		progress = post(engine, op);
		if (progress != ENGINE_DONE)
			return progress;
	}
	if (op->stage == ENGINE_TAKEN)
		return taken(engine, op);
	if (op->stage == ENGINE_MATCH)
		return receive(engine, op);
	return progress;
}

enum engine_progress engine_point_abandon(struct engine *engine, struct engine_op *op,
					  uint64_t gone, bool force)
{
	bool lost = false, safe = true;
	if (op->stage == ENGINE_TAKEN && !(gone >> op->call.peer & 1)) {
		op->word_count = 0;
		lost = !transport_quiet(engine->transport, TRANSPORT_POINT, op->call.peer,
					&op->words[0]);
		if (lost && !force) {
			op->word_count = 1;
			return ENGINE_BLOCKED;
		}
		if (lost && !op->input_block)
			safe = memory_detach(engine->memory, (void *)(uintptr_t)op->call.send,
					     op->input_bytes) == LS_OK;
	}
	release_payload(engine, op, lost);
	op->stage = ENGINE_OVER;
	return safe ? ENGINE_DONE : ENGINE_FAILED;
}
