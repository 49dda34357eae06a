/* SPDX-License-Identifier: BSD-3-Clause
 * How a rank accesses the buffers that its peers show in their entries (window.c), and its own ones
 * as the plan names them. */
#include <string.h>

#include "kernel/kernel.h"
#include "memory/memory.h"
#include "engine/engine_private.h"

/* A peer may change its words at any time, so each is read only once. */
static uint64_t read_once(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

unsigned char *engine_window_own(const struct op *op, enum plan_buffer buffer)
{
	if (buffer == PLAN_SCRATCH)
		return op->scratch;
	if (buffer == PLAN_OUTPUT && engine_fragment_shows_own(op))
		return engine_fragment_output(op);
	return buffer == PLAN_OUTPUT ? op->output : (unsigned char *)(uintptr_t)op->input;
}

static unsigned window_of(const struct engine *engine, const struct op *op, int rank,
			  enum plan_buffer buffer)
{
	const struct transport_entry *entry = transport_entry(engine->team, rank, op->seq);
	return __atomic_load_n(buffer == PLAN_INPUT ? &entry->input_window : &entry->output_window,
			       __ATOMIC_RELAXED);
}

bool engine_window_is_fragmented(const struct engine *engine, const struct op *op, int rank,
				 enum plan_buffer buffer)
{
	if (rank == engine->team->rank && buffer == PLAN_SCRATCH)
		return op->plan->always_in_rounds;
	if (rank == engine->team->rank)
		return buffer == PLAN_OUTPUT && engine_fragment_shows_own(op);
	return window_of(engine, op, rank, buffer) == TRANSPORT_WINDOW_FRAGMENTED;
}

/* Bytes [offset, end) of a window in its owner's arena; NULL if these numbers are nonsense. */
static unsigned char *in_arena(const struct engine *engine, const struct op *op, int rank,
			       enum plan_buffer buffer, uint64_t offset, uint64_t end)
{
	const struct transport_entry *entry = transport_entry(engine->team, rank, op->seq);
	uint64_t base = read_once(buffer == PLAN_INPUT ? &entry->input : &entry->output);
	if (window_of(engine, op, rank, buffer) == TRANSPORT_WINDOW_FRAGMENTED &&
	    __builtin_add_overflow(base, engine_fragment_slot(op, buffer), &base))
		return NULL;
	unsigned char *window = memory_view_at(&engine->team->members[rank].peer->arena, base, end);
	return window ? window + offset : NULL;
}

bool engine_window_open(const struct engine *engine, const struct op *op, int rank,
			enum plan_buffer buffer, uint64_t offset, uint64_t bytes,
			struct engine_view *out)
{
	const struct transport_team *team = engine->team;
	uint64_t end;
	*out = (struct engine_view){.rank = rank};
	if (rank == team->rank) {
		const unsigned char *own = engine_window_own(op, buffer);
		out->at = own ? own + offset : NULL;
		return own;
	}
	if (!transport_is_here(team, rank))
		return false; /* no plan asks for it */
	const struct transport_entry *entry = transport_entry(team, rank, op->seq);
	bool input = buffer == PLAN_INPUT;
	uint64_t base = read_once(input ? &entry->input : &entry->output);
	if (__builtin_add_overflow(offset, bytes, &end))
		return false;
	switch (window_of(engine, op, rank, buffer)) {
	case TRANSPORT_WINDOW_ENTRY:
		if (end <= TRANSPORT_TINY_BYTES)
			out->at = entry->tiny + offset;
		return out->at;
	case TRANSPORT_WINDOW_INLINE:
		if (end <= TRANSPORT_INLINE_BYTES)
			out->at = transport_entry_payload(team, rank, op->seq, end) + offset;
		return out->at;
	case TRANSPORT_WINDOW_ARENA:
	case TRANSPORT_WINDOW_FRAGMENTED:
		out->at = in_arena(engine, op, rank, buffer, offset, end);
		return out->at;
	case TRANSPORT_WINDOW_ADDRESS:
		return !__builtin_add_overflow(base, offset, &out->address) &&
		       !__builtin_add_overflow(base, end, &end);
	default:
		return false;
	}
}

bool engine_copy(const struct engine *engine, void *to, const void *from, uint64_t bytes,
		 uint64_t chunk_bytes)
{
	unsigned char *out = to;
	const unsigned char *in = from;
	for (uint64_t done = 0; done < bytes; done += chunk_bytes) {
		uint64_t chunk = bytes - done < chunk_bytes ? bytes - done : chunk_bytes;
		if (engine_has_failed_hint(engine))
			return false;
		kernel_copy(out + done, in + done, chunk, false);
	}
	return true;
}

/* Bytes that were read before the cause was set are right: the peer may return, and its caller
 * change the buffer, only afterwards. */
static bool read_peer(const struct engine *engine, struct op *op, const struct engine_view *view,
		      uint64_t offset, uint64_t bytes, void *to)
{
	ls_status status =
		transport_read(engine->team, view->rank, view->address + offset, to, bytes);
	if (engine_has_failed(engine)) /* the system call was a fence */
		op_fail(op, LS_ABORTED, -1);
	else if (status != LS_OK)
		op_fail(op, status, view->rank);
	return op->status == LS_OK;
}

enum op_progress engine_view_copy(const struct engine *engine, struct op *op,
				  const struct engine_view *view, unsigned char *to, uint64_t bytes)
{
	if (view->at)
		return view->at == to || engine_copy(engine, to, view->at, bytes,
						     op->choice.chunk_bytes)
			       ? OP_DONE
			       : op_fail(op, LS_ABORTED, -1);
	uint64_t piece = engine_read_bytes(op);
	for (uint64_t done = 0; done < bytes; done += piece) {
		uint64_t chunk = bytes - done < piece ? bytes - done : piece;
		if (!read_peer(engine, op, view, done, chunk, to + done))
			return OP_FAILED;
	}
	return OP_DONE;
}

const void *engine_view_bytes(const struct engine *engine, struct op *op,
			      const struct engine_view *view, uint64_t offset, uint64_t bytes,
			      void *room)
{
	if (view->at)
		return view->at + offset;
	return read_peer(engine, op, view, offset, bytes, room) ? room : NULL;
}

bool engine_window_shows_fragments(const struct engine *engine, const struct op *op, int peer)
{
	int first = peer == PLAN_ALL ? 0 : peer,
	    end = peer == PLAN_ALL ? engine->team->size : peer + 1;
	for (int q = first; q < end; q++)
		if (transport_is_here(engine->team, q) &&
		    (window_of(engine, op, q, PLAN_INPUT) == TRANSPORT_WINDOW_FRAGMENTED ||
		     window_of(engine, op, q, PLAN_OUTPUT) == TRANSPORT_WINDOW_FRAGMENTED))
			return true;
	return false;
}

bool engine_window_shows_address(const struct engine *engine, const struct op *op)
{
	for (int q = 0; q < engine->team->size; q++)
		if (window_of(engine, op, q, PLAN_OUTPUT) == TRANSPORT_WINDOW_ADDRESS)
			return true;
	return false;
}

unsigned char *engine_window_target(const struct engine *engine, const struct op *op, int rank,
				    uint64_t offset, uint64_t bytes)
{
	uint64_t end;
	if (rank == engine->team->rank) {
		unsigned char *own = engine_window_own(op, PLAN_OUTPUT);
		return own ? own + offset : NULL;
	}
	unsigned window = window_of(engine, op, rank, PLAN_OUTPUT);
	if (!transport_is_here(engine->team, rank) ||
	    (window != TRANSPORT_WINDOW_ARENA && window != TRANSPORT_WINDOW_FRAGMENTED) ||
	    __builtin_add_overflow(offset, bytes, &end))
		return NULL;
	return in_arena(engine, op, rank, PLAN_OUTPUT, offset, end);
}
