/* SPDX-License-Identifier: BSD-3-Clause
 * Where an operation's buffers lie. Memory of ls_alloc is shown to peers as it is; a plain buffer that
 * the plan shows to peers is copied into a block of the arena first, and its result copied back. */
#include <string.h>

#include "device/device.h"
#include "engine_private.h"

static bool stage_block(struct engine *engine, struct engine_op *op, void **block, uint64_t *offset)
{
	if (memory_alloc(engine->memory, op->bytes, block) != LS_OK) {
		op->status = LS_OUT_OF_MEMORY;
		return false;
	}
	if (!memory_offset(engine->memory, *block, op->bytes, offset)) {
		op->status = LS_INTERNAL;
		return false;
	}
	return true;
}

/* Sets input/output to where the plan's steps find them; blocks only where peers must reach them. */
static bool stage_input(struct engine *engine, struct engine_op *op)
{
	op->input = op->send;
	if (!op->plan->input_window || !op->send)
		return true;
	if (memory_offset(engine->memory, op->send, op->bytes, &op->input_offset))
		return true;
	if (!stage_block(engine, op, &op->input_block, &op->input_offset))
		return false;
	memcpy(op->input_block, op->send, op->bytes);
	op->input = op->input_block;
	return true;
}

static bool stage_output(struct engine *engine, struct engine_op *op)
{
	op->output = op->recv;
	if (op->plan->request.in_place && op->input_block) {
		op->output = op->input_block;
		op->output_offset = op->input_offset;
		return true;
	}
	if (!op->plan->output_window)
		return true;
	if (memory_offset(engine->memory, op->recv, op->bytes, &op->output_offset))
		return true;
	if (!stage_block(engine, op, &op->output_block, &op->output_offset))
		return false;
	op->output = op->output_block;
	if (op->send == op->recv) { /* in place the output begins as the input */
		memcpy(op->output_block, op->send, op->bytes);
		op->input = op->output;
	}
	return true;
}

bool engine_window_stage(struct engine *engine, struct engine_op *op)
{
	op->input = op->send;
	op->output = op->recv;
	op->scratch = NULL;
	op->input_offset = op->output_offset = 0;
	if (op->bytes == 0)
		return true;
	/* A rank that only receives a broadcast has no input of its own: its input is its output. */
	bool receives_only = op->kind == TRACE_BROADCAST && op->peer != engine->transport->rank;
	if (receives_only)
		op->send = NULL;
	if (!stage_input(engine, op) || !stage_output(engine, op))
		return false;
	if (receives_only) {
		op->input = op->output;
		op->input_offset = op->output_offset;
	}
	if (op->plan->plan.needs_scratch) {
		uint64_t unseen; /* only this rank touches it */
		if (!stage_block(engine, op, &op->scratch_block, &unseen))
			return false;
		op->scratch = op->scratch_block;
	}
	return true;
}

void engine_window_deliver(struct engine_op *op)
{
	if (op->bytes > 0 && op->output != op->recv)
		memcpy(op->recv, op->output, op->bytes);
}

/* A block that a peer may still touch is lost for good: never freed, it is never handed out again. */
static void release_block(struct engine *engine, void **block, bool lost)
{
	ls_status status = lost ? LS_OK : memory_free(engine->memory, *block);
	(void)status; /* nothing better can be done; the memory's own message has been printed */
	*block = NULL;
}

void engine_window_release(struct engine *engine, struct engine_op *op, bool lost)
{
	release_block(engine, &op->input_block, lost);
	release_block(engine, &op->output_block, lost);
	release_block(engine, &op->scratch_block, false); /* no peer ever saw it */
}

/* Part of it may have been detached already, by another operation with a buffer on the same page. */
static bool detach_own(struct engine *engine, const void *buffer, uint64_t bytes)
{
	return !buffer || memory_detach(engine->memory, (void *)(uintptr_t)buffer, bytes) == LS_OK;
}

bool engine_window_detach(struct engine *engine, struct engine_op *op)
{
	bool input = op->plan->input_window && !op->input_block;
	bool output = op->plan->output_window && !op->output_block && op->output == op->recv;
	bool done = op->bytes == 0 || !input || detach_own(engine, op->send, op->bytes);
	return (op->bytes == 0 || !output || detach_own(engine, op->recv, op->bytes)) && done;
}

bool engine_window_is_whole(struct engine *engine, const struct engine_op *op)
{
	uint64_t offset;
	return op->bytes == 0 || !op->plan->output_window || op->output != op->recv ||
	       memory_offset(engine->memory, op->recv, op->bytes, &offset);
}

const unsigned char *engine_window_of(struct engine *engine, const struct engine_op *op, int rank,
				      enum plan_buffer buffer)
{
	const struct transport *transport = engine->transport;
	if (rank == transport->rank)
		return buffer == PLAN_INPUT    ? op->input
		       : buffer == PLAN_OUTPUT ? op->output
					       : op->scratch;
	const struct transport_entry *entry = transport_entry(transport, rank, op->seq);
	if (entry->window == TRANSPORT_WINDOW_INLINE && op->bytes <= TRANSPORT_INLINE_BYTES)
		return entry->payload;
	if (entry->window != TRANSPORT_WINDOW_ARENA)
		return NULL;
	uint64_t offset = buffer == PLAN_INPUT ? entry->input : entry->output;
	return memory_view_at(&transport->links[rank].arena, offset, op->bytes);
}

bool engine_copy(const struct engine *engine, void *to, const void *from, uint64_t bytes,
		 bool stream)
{
	unsigned char *out = to;
	const unsigned char *in = from;
	for (uint64_t done = 0; done < bytes; done += ENGINE_CHUNK_BYTES) {
		uint64_t chunk =
			bytes - done < ENGINE_CHUNK_BYTES ? bytes - done : ENGINE_CHUNK_BYTES;
		if (engine_cause_is_set(engine))
			return false;
		device_copy(out + done, in + done, chunk, stream);
	}
	return true;
}
