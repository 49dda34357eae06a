/* SPDX-License-Identifier: BSD-3-Clause
 * The eight kinds of steps, executed. A step either is done, or has changed nothing and says what it
 * waits for; so it can simply be run again. */
#include <string.h>

#include "device/device.h"
#include "engine_private.h"

struct range {
	uint64_t offset, bytes, elements; /* offset in bytes */
};

static struct range range_of(const struct engine_op *op, const struct plan_step *step)
{
	size_t element = ls_dtype_bytes(op->dtype);
	struct range range = {0};
	if (step->blocks == 0 || op->count == 0)
		return range;
	uint64_t first;
	/* Blocks begin on cache lines, so that two ranks never write to the same one. */
	plan_block_range(op->count, (unsigned)(64 / element), op->plan->plan.blocks, step->block,
			 step->blocks, &first, &range.elements);
	range.offset = first * element;
	range.bytes = range.elements * element;
	return range;
}

static unsigned char *own(struct engine_op *op, unsigned buffer)
{
	if (buffer == PLAN_SCRATCH)
		return op->scratch;
	/* Only plans that are in place write to INPUT, and then it is OUTPUT. */
	return buffer == PLAN_OUTPUT ? op->output : (unsigned char *)(uintptr_t)op->input;
}

enum engine_progress engine_step_check(struct engine *engine, struct engine_op *op, int peer)
{
	if (op->checked >> peer & 1)
		return ENGINE_DONE;
	const struct transport_entry *entry = transport_entry(engine->transport, peer, op->seq);
	uint64_t need = transport_signal(op->seq, 0);
	uint64_t signal = atomic_load_explicit(&entry->signal, memory_order_acquire);
	if (signal < need) {
		transport_await(engine->transport, peer, &entry->signal, need, peer,
				&op->words[op->word_count++]);
		return ENGINE_BLOCKED;
	}
	if (signal >= transport_signal(op->seq + 1, 0))
		return engine_fail(op, LS_INTERNAL, peer); /* it cannot be this far ahead of me */
	if (entry->signature != op->signature || entry->count != op->count ||
	    entry->history != op->history)
		return engine_fail(op, LS_MISMATCH, peer);
	op->checked |= UINT64_C(1) << peer;
	return ENGINE_DONE;
}

static enum engine_progress await_one(struct engine *engine, struct engine_op *op, int peer,
				      unsigned phase)
{
	enum engine_progress progress = engine_step_check(engine, op, peer);
	if (progress != ENGINE_DONE || phase == 0)
		return progress;
	const _Atomic uint64_t *signal = &transport_entry(engine->transport, peer, op->seq)->signal;
	uint64_t need = transport_signal(op->seq, phase);
	if (atomic_load_explicit(signal, memory_order_acquire) >= need)
		return ENGINE_DONE;
	transport_await(engine->transport, peer, signal, need, peer, &op->words[op->word_count++]);
	return ENGINE_BLOCKED;
}

enum engine_progress engine_step_taken(struct engine *engine, struct engine_op *op, int peer)
{
	struct wait_word blocked;
	ls_status refused;
	if (!(op->sent >> peer & 1))
		return ENGINE_DONE;
	if (transport_taken(engine->transport, TRANSPORT_COLLECTIVE, peer, op->tickets[peer],
			    &refused, &blocked)) {
		op->sent &= ~(UINT64_C(1) << peer);
		return refused == LS_OK ? ENGINE_DONE : engine_fail(op, refused, peer);
	}
	/* Its header before its channel: a peer in another operation will never take anything. */
	enum engine_progress progress = engine_step_check(engine, op, peer);
	if (progress == ENGINE_DONE)
		op->words[op->word_count++] = blocked;
	return progress == ENGINE_FAILED ? progress : ENGINE_BLOCKED;
}

static enum engine_progress step_await(struct engine *engine, struct engine_op *op,
				       const struct plan_step *step)
{
	op->word_count = 0;
	if (step->flags & PLAN_UNTIL_TAKEN)
		return engine_step_taken(engine, op, step->peer);
	if (step->peer != PLAN_ALL)
		return await_one(engine, op, step->peer, step->phase);
	for (int q = 0; q < engine->transport->size; q++) {
		if (q == engine->transport->rank)
			continue;
		if (await_one(engine, op, q, step->phase) == ENGINE_FAILED)
			return ENGINE_FAILED;
	}
	if (op->word_count > 0)
		return ENGINE_BLOCKED;
	if (engine->entered_by_all < op->seq)
		engine->entered_by_all = op->seq;
	return ENGINE_DONE;
}

static enum engine_progress step_signal(struct engine *engine, struct engine_op *op,
					const struct plan_step *step)
{
	struct transport *transport = engine->transport;
	struct transport_entry *entry = transport_entry(transport, transport->rank, op->seq);
	wait_store(&entry->signal, transport_signal(op->seq, step->phase));
	transport_wake_all(transport);
	return ENGINE_DONE;
}

static bool reduce_chunk(struct engine *engine, struct engine_op *op, struct device_reduce *reduce,
			 const unsigned char *const *from, unsigned char *const *to,
			 uint64_t offset, uint64_t elements)
{
	const void *sources[PLAN_SIZE_MAX];
	void *targets[PLAN_SIZE_MAX];
	for (int i = 0; i < reduce->source_count; i++)
		sources[i] = from[i] + offset;
	for (int i = 0; i < reduce->target_count; i++)
		targets[i] = to[i] + offset;
	reduce->sources = sources;
	reduce->targets = targets;
	reduce->count = elements;
	(void)op;
	if (engine_cause_is_set(engine))
		return false;
	device_reduce(reduce);
	reduce->sources = NULL;
	reduce->targets = NULL;
	return true;
}

/* The heart of the direct all-reduce: my slice of everybody's input, to everybody's output. */
static enum engine_progress step_reduce_all(struct engine *engine, struct engine_op *op,
					    const struct plan_step *step)
{
	const struct transport *transport = engine->transport;
	struct range range = range_of(op, step);
	const unsigned char *from[PLAN_SIZE_MAX];
	unsigned char *to[PLAN_SIZE_MAX];
	bool to_self = step->flags & PLAN_TO_SELF;
	if (range.bytes == 0)
		return ENGINE_DONE;
	for (int q = 0; q < transport->size; q++) {
		from[q] = engine_window_of(engine, op, q, PLAN_INPUT);
		to[q] = (unsigned char *)(uintptr_t)(to_self ? op->output
							     : engine_window_of(engine, op, q,
										PLAN_OUTPUT));
		if (!from[q] || !to[q])
			return engine_fail(op, LS_INTERNAL, q);
	}
	struct device_reduce reduce = {
		.dtype = op->dtype,
		.op = op->reduce,
		.source_count = transport->size,
		.target_count = to_self ? 1 : transport->size,
		.divisor = op->reduce == LS_AVERAGE ? (uint32_t)transport->size : 0,
		.stream = engine->stream && !to_self && op->bytes >= ENGINE_STREAM_BYTES,
	};
	size_t element = ls_dtype_bytes(op->dtype);
	for (uint64_t done = 0; done < range.bytes; done += ENGINE_CHUNK_BYTES) {
		uint64_t left = range.bytes - done;
		uint64_t chunk = left < ENGINE_CHUNK_BYTES ? left : ENGINE_CHUNK_BYTES;
		if (!reduce_chunk(engine, op, &reduce, from, to, range.offset + done,
				  chunk / element))
			return engine_fail(op, LS_ABORTED, -1);
	}
	return ENGINE_DONE;
}

static enum engine_progress step_copy(struct engine *engine, struct engine_op *op,
				      const struct plan_step *step)
{
	struct range range = range_of(op, step);
	if (range.bytes == 0)
		return ENGINE_DONE;
	const unsigned char *from =
		engine_window_of(engine, op, step->peer, (enum plan_buffer)step->from);
	unsigned char *to = own(op, step->to);
	if (!from || !to)
		return engine_fail(op, LS_INTERNAL, step->peer);
	if (from == to)
		return ENGINE_DONE;
	if (!engine_copy(engine, to + range.offset, from + range.offset, range.bytes, false))
		return engine_fail(op, LS_ABORTED, -1);
	return ENGINE_DONE;
}

static enum engine_progress step_send(struct engine *engine, struct engine_op *op,
				      const struct plan_step *step)
{
	struct range range = range_of(op, step);
	op->word_count = 0;
	struct transport_envelope envelope = {.seq = op->seq,
					      .count = range.elements,
					      .bytes = range.bytes,
					      .dtype = op->dtype,
					      .record = (uint32_t)op->record};
	const unsigned char *payload = range.bytes ? own(op, step->from) + range.offset : NULL;
	uint64_t window =
		range.offset + (step->from == PLAN_INPUT ? op->input_offset : op->output_offset);
	uint64_t ticket;
	if (!transport_post(engine->transport, TRANSPORT_COLLECTIVE, step->peer, &envelope, payload,
			    window, &ticket, &op->words[0])) {
		/* As in engine_step_taken. */
		enum engine_progress progress = engine_step_check(engine, op, step->peer);
		if (progress == ENGINE_DONE)
			op->word_count = 1;
		return progress == ENGINE_FAILED ? progress : ENGINE_BLOCKED;
	}
	if (range.bytes > TRANSPORT_MESSAGE_INLINE) {
		op->sent |= UINT64_C(1) << step->peer;
		op->tickets[step->peer] = ticket;
	}
	return ENGINE_DONE;
}

static enum engine_progress step_recv(struct engine *engine, struct engine_op *op,
				      const struct plan_step *step)
{
	struct range range = range_of(op, step);
	op->word_count = 0;
	/* Its header first: a peer that is in another operation will never send. */
	enum engine_progress progress = engine_step_check(engine, op, step->peer);
	if (progress != ENGINE_DONE)
		return progress;
	struct transport_message *message =
		transport_match(engine->transport, TRANSPORT_COLLECTIVE, step->peer,
				(int64_t)op->seq, &op->words[0]);
	if (!message) {
		op->word_count = 1;
		return ENGINE_BLOCKED;
	}
	/* The sender withdraws only after the cause is set; it then waits for whoever has matched. */
	bool whole = atomic_load_explicit(engine->cause, memory_order_seq_cst) == 0;
	const void *payload =
		range.bytes ? transport_payload(engine->transport, step->peer, message) : "";
	if (whole && (!payload || message->bytes != range.bytes)) {
		transport_take(engine->transport, TRANSPORT_COLLECTIVE, step->peer, message, LS_OK);
		return engine_fail(op, LS_INTERNAL, step->peer);
	}
	if (whole && range.bytes)
		whole = engine_copy(engine, own(op, step->to) + range.offset, payload, range.bytes,
				    false);
	transport_take(engine->transport, TRANSPORT_COLLECTIVE, step->peer, message, LS_OK);
	return whole ? ENGINE_DONE : engine_fail(op, LS_ABORTED, -1);
}

static void combine(struct engine *engine, struct engine_op *op, const struct plan_step *step)
{
	struct range range = range_of(op, step);
	if (range.bytes == 0)
		return;
	bool scale = step->kind == PLAN_SCALE;
	if (scale && op->reduce != LS_AVERAGE)
		return;
	const void *output = op->output + range.offset;
	const void *scratch = scale ? NULL : op->scratch + range.offset;
	bool swap = step->flags & PLAN_SCRATCH_FIRST;
	const void *sources[2] = {swap ? scratch : output, swap ? output : scratch};
	void *targets[1] = {op->output + range.offset};
	struct device_reduce reduce = {
		.dtype = op->dtype,
		.op = op->reduce,
		.source_count = scale ? 1 : 2,
		.target_count = 1,
		.sources = sources,
		.targets = targets,
		.count = range.elements,
		.divisor = scale ? (uint32_t)engine->transport->size : 0,
	};
	device_reduce(&reduce);
}

enum engine_progress engine_step_run(struct engine *engine, struct engine_op *op,
				     const struct plan_step *step)
{
	switch ((enum plan_kind)step->kind) {
	case PLAN_SIGNAL:
		return step_signal(engine, op, step);
	case PLAN_AWAIT:
		return step_await(engine, op, step);
	case PLAN_REDUCE_ALL:
		return step_reduce_all(engine, op, step);
	case PLAN_COPY:
		return step_copy(engine, op, step);
	case PLAN_SEND:
		return step_send(engine, op, step);
	case PLAN_RECV:
		return step_recv(engine, op, step);
	case PLAN_COMBINE:
	case PLAN_SCALE:
		combine(engine, op, step);
		return ENGINE_DONE;
	default:
		return engine_fail(op, LS_INTERNAL, -1);
	}
}
