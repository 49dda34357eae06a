/* SPDX-License-Identifier: BSD-3-Clause
 * Where an operation's buffers are, and how peers access them. Memory of ls_alloc is shown to peers
 * directly. For plans that only access windows, and for PLAN_RAILS, a plain buffer is shown in
 * fragments (fragment.c), or by its address if peers only read it, can read it, and the choice says
 * so; a short one that peers only read is copied beside the entry. Otherwise the buffer is copied
 * into a block of the arena first, and its result is copied back. */
#include <string.h>

#include "kernel/kernel.h"
#include "memory/memory.h"
#include "engine/engine_private.h"

/* Whether all members have the caller's buffer mapped, and at which offset. */
static bool is_mapped(const struct engine *engine, const struct buffer *buffer, uint64_t *offset)
{
	return memory_offset_for(engine->memory, buffer->address, buffer->bytes, &engine->members,
				 offset);
}

/* The size of one of this rank's buffers as the plan lays it out, whether the caller has it or
 * not. */
static uint64_t laid_out(const struct op *op, enum plan_buffer buffer)
{
	const struct plan *plan = &op->plan->plan;
	switch ((enum plan_layout)plan->layout[buffer]) {
	case PLAN_LAYOUT_PARTS:
		return (op->recv_starts ? op->recv_starts[plan->size] : op->call.count * plan->size) *
		       op->element_bytes;
	case PLAN_LAYOUT_PART:
		return (op->call.counts ? op->call.counts[plan->rank] : op->call.count) *
		       op->element_bytes;
	case PLAN_LAYOUT_BLOCKS:
		break;
	}
	return op->call.count * op->element_bytes;
}

/* In rounds SCRATCH is as long as a fragment. */
static uint64_t scratch_bytes(const struct op *op)
{
	return op->plan->always_in_rounds ? op->fragment * op->element_bytes
					  : laid_out(op, PLAN_SCRATCH);
}

/* Whether peers shall read a plain buffer by address, if they can. */
static bool is_rather_read(const struct engine *engine, const struct op *op, uint64_t bytes)
{
	const struct plan_table_choice *choice = &op->choice;
	if (engine->cma != SETTING_CMA_AUTO)
		return engine->cma == SETTING_CMA_ALWAYS;
	if (op->plan->always_in_rounds) /* decision 047 */
		return choice->read_bytes > 0 && choice->is_given;
	if (op->call.counts && bytes >= ENGINE_CMA_BYTES)
		return true; /* it would be copied whole */
	return choice->read_bytes > 0 && (choice->is_given || transport_reads_fast(engine->team));
}

/* Whether peers can read a plain buffer by address. Each rank decides for itself, and its entry
 * says so. PLAN_PULL, which may replace the plan, does not write to windows that are shown by
 * address. */
static bool is_readable(const struct engine *engine, const struct op *op, enum plan_buffer buffer,
			const struct buffer *caller)
{
	uint64_t bytes = caller->bytes;
	const struct engine_plan *plan = op->plan;
	bool only_read =
		plan->plan.reach[buffer] == PLAN_REACH_READ ||
		(buffer == PLAN_OUTPUT && plan->may_switch_to_pull && engine->wanted != PLAN_DIRECT);
	return only_read && is_rather_read(engine, op, bytes) &&
	       transport_reads_buffer(engine->team, caller->address, bytes);
}

/* Copies the caller's input, times its factor, to a new block. */
static bool scale_input(struct engine *engine, struct op *op)
{
	if (!op_alloc_block(engine->memory, op, op->call.send.bytes, &op->input_block,
			    &op->input_offset))
		return false;
	kernel_scale(op->input_block, op->call.send.address, op->call.dtype,
		     op->call.send.bytes / op->element_bytes, op->call.factor);
	op->input = op->input_block;
	return true;
}

/* Whether peers can access a buffer of the caller where it is, mapped or by address; if so, shows
 * it. */
static bool show_in_place(struct engine *engine, struct op *op, enum plan_buffer buffer)
{
	bool input = buffer == PLAN_INPUT;
	const struct buffer *caller = input ? &op->call.send : &op->call.recv;
	enum transport_window *window = input ? &op->input_window : &op->output_window;
	uint64_t *offset = input ? &op->input_offset : &op->output_offset;
	*window = TRANSPORT_WINDOW_ARENA;
	if (!input && op->input_window == TRANSPORT_WINDOW_ARENA && caller->address == op->input &&
	    caller->bytes == op->call.send.bytes) { /* in place: already looked up */
		*offset = op->input_offset;
		return true;
	}
	if ((input && op->input_block) || is_mapped(engine, caller, offset))
		return true;
	if (!is_readable(engine, op, buffer, caller))
		return false;
	*window = TRANSPORT_WINDOW_ADDRESS;
	*offset = (uintptr_t)caller->address;
	return true;
}

static bool stage_input(struct engine *engine, struct op *op)
{
	if (op->call.send.bytes == 0 || show_in_place(engine, op, PLAN_INPUT))
		return true;
	if (!op_alloc_block(engine->memory, op, op->call.send.bytes, &op->input_block,
			    &op->input_offset))
		return false;
	kernel_copy(op->input_block, op->call.send.address, op->call.send.bytes, false);
	op->input = op->input_block;
	return true;
}

/* In place the output begins with the input's elements there. INPUT is a part of it, or the plan
 * does not read INPUT where it writes OUTPUT. */
static void begin_in_place(struct op *op)
{
	const unsigned char *send = op->call.send.address;
	if (op->call.recv.bytes < op->call.send.bytes) {
		kernel_copy(op->output, op->call.recv.address, op->call.recv.bytes, false);
		return;
	}
	unsigned char *input = op->output + (send - (unsigned char *)op->call.recv.address);
	kernel_copy(input, send, op->call.send.bytes, false);
	op->input = input;
}

static bool stage_output(struct engine *engine, struct op *op)
{
	uint64_t bytes = op->call.recv.address ? op->call.recv.bytes : laid_out(op, PLAN_OUTPUT);
	if (bytes == 0)
		return true;
	op->output_window = TRANSPORT_WINDOW_ARENA;
	if (op->call.recv.address && is_mapped(engine, &op->call.recv, &op->output_offset))
		return true;
	if (!op_alloc_block(engine->memory, op, bytes, &op->output_block, &op->output_offset))
		return false;
	op->output = op->output_block;
	if (op->plan->params.in_place)
		begin_in_place(op);
	return true;
}

static uint64_t offset_in(const struct buffer *outer, const struct buffer *inner)
{
	return (uint64_t)((uintptr_t)inner->address - (uintptr_t)outer->address);
}

/* In place, and peers access both: one block for the longer buffer, of which the other is a
 * part. */
static bool stage_both(struct engine *engine, struct op *op)
{
	bool input_longer = op->call.send.bytes > op->call.recv.bytes;
	const struct buffer *outer = input_longer ? &op->call.send : &op->call.recv;
	uint64_t input_at = offset_in(outer, &op->call.send), offset;
	uint64_t output_at = offset_in(outer, &op->call.recv);
	if (outer->bytes == 0)
		return true;
	op->input_window = op->output_window = TRANSPORT_WINDOW_ARENA;
	if (!is_mapped(engine, outer, &offset)) {
		if (!op_alloc_block(engine->memory, op, outer->bytes, &op->output_block, &offset))
			return false;
		unsigned char *block = op->output_block;
		kernel_copy(block + input_at, op->call.send.address, op->call.send.bytes, false);
		op->input = block + input_at;
		op->output = block + output_at;
	}
	op->input_offset = offset + input_at;
	op->output_offset = offset + output_at;
	return true;
}

static bool stage_windows(struct engine *engine, struct op *op)
{
	bool input = op->plan->plan.reach[PLAN_INPUT] != PLAN_REACH_PRIVATE;
	bool output = op->plan->plan.reach[PLAN_OUTPUT] != PLAN_REACH_PRIVATE;
	if (input && output && op->plan->params.in_place)
		return stage_both(engine, op);
	return (!input || stage_input(engine, op)) && (!output || stage_output(engine, op));
}

/* Whether a plain buffer travels in the pages beside the entry. Then nobody touches the buffers of
 * this rank, and this rank does not wait until the others have read the payload. False if the
 * output is shown, too, because then this rank has to wait anyway. */
static bool fits_beside_entry(const struct engine *engine, const struct op *op,
			      enum plan_buffer buffer, uint64_t bytes)
{
	return buffer == PLAN_INPUT && op->plan->plan.reach[PLAN_OUTPUT] == PLAN_REACH_PRIVATE &&
	       bytes <= TRANSPORT_INLINE_BYTES && bytes <= engine->fragment_bytes;
}

/* Shows the buffer where it is; otherwise a copy of it, in fragments if it is long. */
static bool show_buffer(struct engine *engine, struct op *op, enum plan_buffer buffer)
{
	uint64_t bytes = buffer == PLAN_INPUT ? op->call.send.bytes : op->call.recv.bytes;
	if (op->plan->plan.reach[buffer] == PLAN_REACH_PRIVATE || bytes == 0 ||
	    show_in_place(engine, op, buffer))
		return true;
	if (!fits_beside_entry(engine, op, buffer, bytes))
		return engine_fragment_show(engine, op, buffer);
	op->input_window = TRANSPORT_WINDOW_INLINE;
	return true;
}

void engine_window_stage(struct engine *engine, struct op *op)
{
	uint64_t scratch = op->plan->plan.needs_scratch ? scratch_bytes(op) : 0, unseen;
	op->input_offset = op->output_offset = 0;
	if (engine_is_scaled(op) && op->call.send.bytes > 0 && !scale_input(engine, op))
		return;
	bool in_rounds = op->plan->reads_windows && !op->call.counts;
	if (in_rounds ? !show_buffer(engine, op, PLAN_INPUT) || !show_buffer(engine, op, PLAN_OUTPUT)
		      : !stage_windows(engine, op))
		return;
	/* Only this rank touches SCRATCH. */
	if (scratch > 0) {
		if (!op_alloc_block(engine->memory, op, scratch, &op->scratch_block, &unseen))
			return;
		op->scratch = op->scratch_block;
	}
	if (in_rounds)
		engine_fragment_stage(engine, op);
}

uint64_t engine_window_payload(const struct op *op)
{
	if (op->call.recv_counts)
		return op->plan->plan.size * sizeof *op->call.counts;
	bool is_inline = op->plan->plan.algorithm == PLAN_INLINE &&
			 op->call.send.bytes > TRANSPORT_TINY_BYTES;
	return is_inline || op->input_window == TRANSPORT_WINDOW_INLINE ? op->call.send.bytes : 0;
}

/* The whole input, except for the part that no other rank reads. */
static void put_input(struct engine *engine, const struct op *op)
{
	const struct plan *plan = &op->plan->plan;
	uint64_t bytes = op->call.send.bytes;
	unsigned char *payload = engine_payload_take(engine, op->seq, bytes);
	if (plan->layout[PLAN_INPUT] != PLAN_LAYOUT_PARTS) {
		kernel_copy(payload, op->input, bytes, false);
		return;
	}
	uint64_t part = op->call.count * op->element_bytes, mine = plan->rank * part;
	memcpy(payload, op->input, mine);
	memcpy(payload + mine + part, op->input + mine + part, bytes - mine - part);
}

void engine_window_publish(struct engine *engine, const struct op *op)
{
	const struct transport_team *team = engine->team;
	struct transport_entry *entry = transport_entry(team, team->rank, op->seq);
	uint64_t payload = engine_window_payload(op);
	if (op->plan->plan.algorithm == PLAN_INLINE) {
		entry->output_window = TRANSPORT_WINDOW_NONE;
		entry->input_window = op->call.send.bytes == 0 ? TRANSPORT_WINDOW_NONE
				      : payload == 0           ? TRANSPORT_WINDOW_ENTRY
							       : TRANSPORT_WINDOW_INLINE;
		if (payload > 0)
			engine_payload_put(engine, op->seq, op->input, payload);
		else if (op->call.send.bytes > 0)
			memcpy(entry->tiny, op->input, op->call.send.bytes);
		return;
	}
	entry->input_window = (uint16_t)op->input_window;
	entry->output_window = (uint16_t)op->output_window;
	entry->input = op->input_offset;
	entry->output = op->output_offset;
	if (op->call.recv_counts)
		engine_payload_put(engine, op->seq, op->call.counts, payload);
	else if (payload > 0)
		put_input(engine, op);
}

void engine_window_deliver(struct op *op)
{
	if (op->call.recv.bytes > 0 &&
	    op->output != op->call.recv.address) /* fragments have delivered it already */
		kernel_copy(op->call.recv.address, op->output, op->call.recv.bytes, false);
}

/* A block that a peer may still touch is lost for good: it is not freed, so it is never reused. */
static void release_block(struct engine *engine, void **block, bool lost)
{
	if (!*block)
		return;
	ls_status status = lost ? LS_OK : memory_free(engine->memory, *block, trace_caller_text);
	(void)status; /* memory_free has printed a message */
	*block = NULL;
}

void engine_window_release(struct engine *engine, struct op *op, bool lost)
{
	release_block(engine, &op->input_block, lost);
	release_block(engine, &op->output_block, lost);
	release_block(engine, &op->scratch_block, false); /* no peer ever saw it */
}

/* A part of the buffer may have been revoked before, by another operation with a buffer on the
 * same page. */
static bool revoke_own(struct engine *engine, const struct buffer *buffer)
{
	return memory_revoke(engine->memory, buffer->address, buffer->bytes) == LS_OK;
}

bool engine_window_revoke(struct engine *engine, struct op *op)
{
	bool input =
		op->input_window == TRANSPORT_WINDOW_ARENA && op->input == op->call.send.address;
	bool output =
		op->output_window == TRANSPORT_WINDOW_ARENA && op->output == op->call.recv.address;
	bool done = !input || revoke_own(engine, &op->call.send);
	return (!output || revoke_own(engine, &op->call.recv)) && done;
}

bool engine_window_is_whole(struct engine *engine, const struct op *op)
{
	uint64_t offset;
	return op->output_window != TRANSPORT_WINDOW_ARENA || op->output != op->call.recv.address ||
	       is_mapped(engine, &op->call.recv, &offset);
}
