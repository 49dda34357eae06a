/* SPDX-License-Identifier: BSD-3-Clause
 * Plain buffers in fragments. A collective that must copy its buffers into the arena does so
 * fragment by fragment, and runs its plan once for each: a round. To the plan a round is like a
 * collective of its own. The phases of all rounds follow each other in the same signal word.
 *
 *   round k:  copy fragment k in ── signal ── steps of the plan ── copy results out
 *
 * Parts of its buffers that only this rank accesses are never copied. Copies use two slots in turn.
 * So the last step of the plan, which only protects the buffers of this rank, may lag by one round:
 * a root copies the next fragment while the others still read this one. What PLAN_RAILS sends from
 * a slot has been taken before the slot is used again: the peer takes it before it sends anything
 * in the next round, and this rank receives that.
 *
 * The entries of the peers show whether these use fragments. Then a rank that uses none itself
 * continues with the first fragment. */
#include <string.h>

#include "kernel/kernel.h"
#include "engine/engine_private.h"

enum {
	PHASE_MAX = (1 << TRANSPORT_PHASE_BITS) - 1,
	ROUNDS_MAX = 16384, /* all phases of all rounds fit below PHASE_MAX */
};

static bool has_parts(const struct op *op, enum plan_buffer buffer)
{
	return op->plan->plan.layout[buffer] == PLAN_LAYOUT_PARTS;
}

/* The same on all ranks, because it follows from the call. */
static uint64_t fragment_elements(const struct engine *engine, const struct op *op)
{
	uint64_t parts =
		has_parts(op, PLAN_INPUT) || has_parts(op, PLAN_OUTPUT) ? op->plan->plan.size : 1;
	uint64_t unit = 64 / op->element_bytes; /* so that fragments begin at cache lines */
	uint64_t bytes = engine->fragment_bytes;
	if (op->plan->always_in_rounds)
		bytes *= ENGINE_FRAGMENTS_BETWEEN_HOSTS;
	uint64_t units = bytes / 64 / parts;
	uint64_t least = op->call.count / ROUNDS_MAX / unit + 1;
	return (units > least ? units : least) * unit;
}

static void set_round(struct op *op, uint32_t round)
{
	op->round = round;
	op->first = round * op->fragment;
	op->elements = op->call.count - op->first;
	if (op->elements > op->fragment)
		op->elements = op->fragment;
}

void engine_fragment_none(struct op *op)
{
	op->fragment = op->call.count;
	op->rounds = 1;
	op->loop = 0;
	set_round(op, 0);
}

void engine_fragment_begin(const struct engine *engine, struct op *op, uint32_t loop)
{
	uint64_t fragment = fragment_elements(engine, op);
	if (op->call.count <= fragment)
		return;
	op->fragment = fragment;
	op->rounds = (uint32_t)((op->call.count - 1) / fragment + 1);
	op->loop = loop;
	set_round(op, 0);
}

uint64_t engine_fragment_signal(const struct op *op, uint32_t round, unsigned phase)
{
	unsigned end = op->plan->plan.phase_end, word = round * (end + 1) + phase;
	/* A rank that sees no fragments waits for the phases of the last round. */
	if (round + 1 == op->rounds && (round > 0 || phase > 0))
		word = PHASE_MAX - end + phase;
	return transport_signal(op->seq, word);
}

/* ---- slots ---- */

static uint64_t slot_bytes(const struct op *op, enum plan_buffer buffer)
{
	uint64_t parts = has_parts(op, buffer) ? op->plan->plan.size : 1;
	return (op->fragment * parts * op->element_bytes + 63) / 64 * 64;
}

uint64_t engine_fragment_slot(const struct op *op, enum plan_buffer buffer)
{
	return op->round % ENGINE_FRAGMENT_SLOTS * slot_bytes(op, buffer);
}

unsigned char *engine_fragment_output(const struct op *op)
{
	void *block = op->output_block ? op->output_block : op->input_block;
	return (unsigned char *)block + engine_fragment_slot(op, PLAN_OUTPUT);
}

bool engine_fragment_show(struct engine *engine, struct op *op, enum plan_buffer buffer)
{
	bool input = buffer == PLAN_INPUT;
	engine_fragment_begin(engine, op, 0);
	if (!input && op->plan->always_in_rounds && op->input_window == TRANSPORT_WINDOW_FRAGMENTED) {
		/* Slots of INPUT have all but my own block, those of OUTPUT only that. */
		op->output_window = TRANSPORT_WINDOW_FRAGMENTED;
		op->output_offset = op->input_offset;
		return true;
	}
	uint64_t slots = op->rounds < ENGINE_FRAGMENT_SLOTS ? op->rounds : ENGINE_FRAGMENT_SLOTS;
	if (input)
		op->input_window = TRANSPORT_WINDOW_FRAGMENTED;
	else
		op->output_window = TRANSPORT_WINDOW_FRAGMENTED;
	return op_alloc_block(engine->memory, op, slots * slot_bytes(op, buffer),
			      input ? &op->input_block : &op->output_block,
			      input ? &op->input_offset : &op->output_offset);
}

/* The parts of a fragment outside my own block, which no other rank touches: [0, *before) and
 * [*after, elements). */
static void around_mine(const struct op *op, uint64_t *before, uint64_t *after)
{
	const struct plan *plan = &op->plan->plan;
	uint64_t own = 0;
	*before = op->elements;
	if (plan->own < plan->blocks)
		plan_block_range(op->elements, (unsigned)(64 / op->element_bytes), plan->blocks,
				 plan->own, 1, before, &own);
	*after = *before + own;
}

struct copies {
	unsigned char *to;
	const unsigned char *from;
	size_t element_bytes;
	bool nontemporal;
};

static void copy_elements(const struct copies *copies, uint64_t to_first, uint64_t from_first,
			  uint64_t elements)
{
	if (elements > 0)
		kernel_copy(copies->to + to_first * copies->element_bytes,
			    copies->from + from_first * copies->element_bytes,
			    elements * copies->element_bytes, copies->nontemporal);
}

/* Copies the parts of this round's fragment that peers read to its slot. */
static void copy_in(const struct op *op, bool nontemporal)
{
	struct copies copies = {(unsigned char *)op->input_block +
					engine_fragment_slot(op, PLAN_INPUT),
				op->input, op->element_bytes, nontemporal};
	uint64_t before, after;
	switch ((enum plan_layout)op->plan->plan.layout[PLAN_INPUT]) {
	case PLAN_LAYOUT_BLOCKS:
		around_mine(op, &before, &after);
		copy_elements(&copies, 0, op->first, before);
		copy_elements(&copies, after, op->first + after, op->elements - after);
		break;
	case PLAN_LAYOUT_PARTS:
		for (unsigned r = 0; r < op->plan->plan.size; r++)
			if (r != op->plan->plan.rank)
				copy_elements(&copies, r * op->elements,
					      r * op->call.count + op->first, op->elements);
		break;
	case PLAN_LAYOUT_PART:
		copy_elements(&copies, 0, op->first, op->elements);
		break;
	}
}

/* The plan expects that my own block of OUTPUT, which is in a slot, begins as that of INPUT. */
static void copy_own(const struct op *op)
{
	struct copies copies = {engine_fragment_output(op), op->input, op->element_bytes, false};
	uint64_t before, after;
	around_mine(op, &before, &after);
	copy_elements(&copies, before, op->first + before, after - before);
}

void engine_fragment_stage(struct engine *engine, struct op *op)
{
	struct op_tuner_use use;
	if (op->plan->begins_with_input && engine_fragment_shows_own(op))
		copy_own(op);
	if (op->input_window != TRANSPORT_WINDOW_FRAGMENTED)
		return;
	bool nontemporal =
		op_tuner_begin(&engine->tuner, OP_CHOICE_COPY_IN, op->choice.stores,
			       op->call.send.bytes, op->elements * op->element_bytes, &use);
	copy_in(op, nontemporal);
	op_tuner_end(&use);
}

static void deliver_round(const struct op *op)
{
	uint64_t before, after;
	if (op->output_window != TRANSPORT_WINDOW_FRAGMENTED)
		return;
	struct copies copies = {op->output, engine_fragment_output(op), op->element_bytes, false};
	around_mine(op, &before, &after);
	if (engine_fragment_shows_own(op)) {
		copy_elements(&copies, op->first + before, before, after - before);
		return;
	}
	copy_elements(&copies, op->first, 0, before);
	copy_elements(&copies, op->first + after, after, op->elements - after);
}

bool engine_fragment_next(struct engine *engine, struct op *op)
{
	struct transport_team *team = engine->team;
	deliver_round(op);
	if (op->round + 1 == op->rounds)
		return false;
	set_round(op, op->round + 1);
	op->step = op->loop;
	trace_step(engine->trace, op->record, op->step);
	engine_fragment_stage(engine, op);
	wait_store(&transport_entry(team, team->rank, op->seq)->signal,
		   engine_fragment_signal(op, op->round, 0));
	transport_notify_host(team);
	return true;
}
