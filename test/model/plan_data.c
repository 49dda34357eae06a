/* SPDX-License-Identifier: BSD-3-Clause
 * The data of a simulated group: how long parts are and where they lie, what a rank has when it
 * enters a collective, and what it must have when it leaves. */
#include "plan_world.h"

/* ---- where things lie ---- */

/* Lengths of uneven parts repeat, so that a formula gives the sum of any number of them. */
enum { TURNS = 4 };

static uint32_t turn_length(const struct plan_sim_op *op, unsigned turn)
{
	const uint32_t uneven[TURNS] = {op->count, 0, 2 * op->count + 1, 1};
	return op->uneven ? uneven[turn % TURNS] : op->count;
}

/* The first element of the n-th part in a buffer of the rank. In an all-to-all the part that `from`
 * has for `to` has length number from + 3 * to; elsewhere the part of rank r has length number
 * r. */
static uint32_t part_start(const struct plan_sim_op *op, unsigned rank, unsigned which, unsigned n)
{
	bool pairs = op->collective == COLL_ALLTOALL;
	unsigned base = pairs ? (which == PLAN_INPUT ? rank : 3 * rank) : 0;
	unsigned stride = pairs && which == PLAN_INPUT ? 3 : 1;
	uint32_t sum = 0;
	for (unsigned turn = 0; turn < TURNS; turn++)
		sum += n / TURNS * turn_length(op, turn);
	for (unsigned i = 0; i < n % TURNS; i++)
		sum += turn_length(op, base + stride * i);
	return sum;
}

/* Where blocks are if INPUT, OUTPUT and SCRATCH are buffers of their own. */
static struct place place_apart(const struct plan_sim_op *op, const struct plan *plan,
				unsigned rank, unsigned which, unsigned block, unsigned blocks)
{
	struct place place = {.which = which, .cell = block};
	uint64_t first, elements;
	switch ((enum plan_layout)plan->layout[which]) {
	case PLAN_LAYOUT_BLOCKS:
		plan_block_range(op->count, 1, plan->blocks, block, blocks, &first, &elements);
		place.first = (uint32_t)first;
		place.count = (uint32_t)elements;
		break;
	case PLAN_LAYOUT_PARTS:
		place.first = part_start(op, rank, which, block);
		place.count = part_start(op, rank, which, block + blocks) - place.first;
		break;
	case PLAN_LAYOUT_PART:
		place.cell = 0;
		place.count = blocks > 0 ? turn_length(op, rank) : 0;
		break;
	}
	return place;
}

struct place data_place(const struct plan_sim_op *op, const struct plan *plan,
			const struct rank *owner, unsigned which, unsigned block, unsigned blocks)
{
	unsigned rank = (unsigned)owner->number;
	struct place place = place_apart(op, plan, rank, which, block, blocks);
	if (!owner->in_place || which == PLAN_SCRATCH)
		return place;
	unsigned whole = plan->layout[PLAN_INPUT] == PLAN_LAYOUT_PART ? PLAN_OUTPUT : PLAN_INPUT;
	if (which != whole && plan->layout[which] == PLAN_LAYOUT_PART) {
		place.cell = rank;
		place.first = part_start(op, rank, whole, rank);
	}
	place.which = whole;
	return place;
}

uint32_t data_elements_max(const struct plan_sim_op *op, int size)
{
	bool cut = op->collective == COLL_ALLREDUCE || op->collective == COLL_REDUCE ||
		   op->collective == COLL_BROADCAST || op->collective == COLL_BARRIER;
	uint32_t most = 2 * op->count + 1; /* any part */
	if (cut)
		return op->count;
	for (unsigned which = PLAN_INPUT; which <= PLAN_OUTPUT; which++)
		for (int r = 0; r < size; r++) {
			uint32_t elements = part_start(op, (unsigned)r, which, (unsigned)size);
			most = elements > most ? elements : most;
		}
	return most;
}

/* ---- values ---- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	return (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}

uint64_t data_number_of(int rank)
{
	return mix((uint64_t)rank + 1);
}

static struct element input_of(int op, int rank, uint32_t index)
{
	return (struct element){.hash = mix(mix((uint64_t)op << 44 | (uint64_t)rank << 32 | index)),
				.ranks = data_number_of(rank),
				.index = index,
				.op = (uint16_t)op};
}

void data_combine(struct element *sum, const struct element *next)
{
	if (sum->index != next->index || sum->op != next->op || sum->scaled || next->scaled)
		sum->index = WORLD_GARBAGE;
	sum->hash = mix(sum->hash * 3 + (next->hash ^ next->hash >> 17));
	sum->ranks += next->ranks;
}

/* ---- entering ---- */

static bool is_root(const struct plan_sim_op *op, int rank)
{
	return rank == op->root;
}

static bool has_input(const struct plan_sim_op *op, int rank)
{
	bool one = op->collective == COLL_BROADCAST || op->collective == COLL_SCATTER;
	return op->collective != COLL_BARRIER && (!one || is_root(op, rank));
}

static bool has_output(const struct plan_sim_op *op, int rank)
{
	bool one = op->collective == COLL_REDUCE || op->collective == COLL_GATHER;
	return op->collective != COLL_BARRIER && (!one || is_root(op, rank));
}

bool data_can_be_in_place(const struct plan_sim_op *op, int rank)
{
	return op->collective != COLL_ALLTOALL && has_input(op, rank) && has_output(op, rank);
}

static struct place whole_place(const struct plan_world *world, const struct rank *rank,
				unsigned which)
{
	return data_place(plan_world_op(world, rank), &rank->plan, rank, which, 0,
			  rank->plan.blocks);
}

static bool open_garbage(struct plan_world *world, struct rank *rank, unsigned which)
{
	struct element *elements = rank->buffers[which].elements;
	uint32_t count = whole_place(world, rank, which).count;
	for (uint32_t i = 0; i < count; i++)
		elements[i] = (struct element){.index = WORLD_GARBAGE};
	return plan_world_open(world, rank, which);
}

static void put_input(const struct rank *rank, struct element *elements, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		elements[i] = input_of(rank->op, rank->number, i);
}

bool data_enter(struct plan_world *world, struct rank *rank)
{
	const struct plan_sim_op *op = plan_world_op(world, rank);
	struct place input = whole_place(world, rank, PLAN_INPUT);
	bool gives = has_input(op, rank->number), gets = has_output(op, rank->number);
	/* Memory that the plan may use for partial results. */
	bool lent = op->collective == COLL_REDUCE && !gets &&
		    rank->plan.reach[PLAN_OUTPUT] == PLAN_REACH_MAPPED;
	bool inside = rank->in_place && input.which == PLAN_INPUT; /* OUTPUT is a part of INPUT */
	for (unsigned which = PLAN_INPUT; which <= PLAN_SCRATCH; which++)
		rank->buffers[which].op = -1;
	if ((gets || lent) && !inside && !open_garbage(world, rank, PLAN_OUTPUT))
		return false;
	if (rank->plan.needs_scratch && !open_garbage(world, rank, PLAN_SCRATCH))
		return false;
	if (!gives)
		return true;
	if (input.which == PLAN_INPUT && !plan_world_open(world, rank, PLAN_INPUT))
		return false;
	put_input(rank, rank->buffers[input.which].elements + input.first, input.count);
	if (op->algorithm != PLAN_INLINE || input.count == 0)
		return true;
	unsigned slot = WORLD_SLOT + (unsigned)rank->op % PLAN_SIM_SLOTS;
	put_input(rank, rank->buffers[slot].elements, input.count);
	return plan_world_open(world, rank, slot);
}

/* ---- leaving ---- */

static bool is_input(const struct element *element, int op, int rank, uint32_t index)
{
	struct element input = input_of(op, rank, index);
	return element->op == op && element->index == index && element->hash == input.hash &&
	       element->ranks == input.ranks && !element->scaled;
}

/* All ranks that get the element must have the same bits of it. */
static bool is_reduced(struct plan_world *world, const struct rank *rank,
		       const struct element *element, uint32_t index)
{
	const struct plan_sim_op *op = plan_world_op(world, rank);
	if (element->op != rank->op || element->index != index ||
	    element->ranks != world->all_ranks || element->scaled != (world->sim->size > 1))
		return false;
	if (op->collective != COLL_ALLREDUCE)
		return true;
	uint64_t *expected = &world->results[(size_t)rank->op * world->count_max + index];
	if (!world->known[rank->op])
		*expected = element->hash;
	return element->hash == *expected;
}

static bool element_is_right(struct plan_world *world, const struct rank *rank, unsigned block,
			     uint32_t i, const struct element *element)
{
	const struct plan_sim_op *op = plan_world_op(world, rank);
	unsigned self = (unsigned)rank->number;
	int number = rank->op;
	switch (op->collective) {
	case COLL_ALLREDUCE:
	case COLL_REDUCE:
		return is_reduced(world, rank, element, i);
	case COLL_REDUCE_SCATTER:
		return is_reduced(world, rank, element, part_start(op, self, PLAN_INPUT, self) + i);
	case COLL_BROADCAST:
		return is_input(element, number, op->root, i);
	case COLL_SCATTER:
		return is_input(element, number, op->root,
				part_start(op, (unsigned)op->root, PLAN_INPUT, self) + i);
	case COLL_ALLGATHER:
	case COLL_GATHER:
		return is_input(element, number, (int)block, i);
	case COLL_ALLTOALL:
		return is_input(element, number, (int)block,
				part_start(op, block, PLAN_INPUT, self) + i);
	default:
		return false;
	}
}

static bool output_is_right(struct plan_world *world, struct rank *rank)
{
	bool parts = rank->plan.layout[PLAN_OUTPUT] == PLAN_LAYOUT_PARTS;
	unsigned rounds = parts ? rank->plan.blocks : 1;
	for (unsigned block = 0; block < rounds; block++) {
		struct span span;
		if (!plan_world_access(world, rank, rank, PLAN_OUTPUT, block,
				       parts ? 1 : rank->plan.blocks, false, &span))
			return false;
		for (uint32_t i = 0; i < span.count; i++)
			if (!element_is_right(world, rank, block, i, &span.elements[i]))
				return plan_world_refuse(
					world, rank, "element %u of block %u is wrong", i, block);
	}
	world->known[rank->op] = true;
	return true;
}

/* A plan writes only to OUTPUT. INPUT must be as it was, where OUTPUT is no part of it. */
static bool input_is_whole(struct plan_world *world, struct rank *rank)
{
	struct place input = whole_place(world, rank, PLAN_INPUT);
	struct place output = whole_place(world, rank, PLAN_OUTPUT);
	const struct element *elements = rank->buffers[input.which].elements;
	for (uint32_t i = 0; i < input.count; i++) {
		uint32_t at = input.first + i;
		bool covered =
			rank->in_place && at >= output.first && at < output.first + output.count;
		if (!covered && !is_input(&elements[at], rank->op, rank->number, i))
			return plan_world_refuse(world, rank, "element %u of the input was changed",
						 i);
	}
	return true;
}

/* If every block has elements, peers must use all that the plan lets them reach. */
static bool reach_is_used(struct plan_world *world, const struct rank *rank)
{
	const struct plan_sim_op *op = plan_world_op(world, rank);
	const struct plan *plan = &rank->plan;
	bool parts = plan->layout[PLAN_INPUT] != PLAN_LAYOUT_BLOCKS;
	if (op->uneven || op->count < (parts ? 1 : plan->blocks) || world->sim->mutate)
		return true;
	if (rank->used[PLAN_INPUT] == plan->reach[PLAN_INPUT] &&
	    rank->used[PLAN_OUTPUT] == plan->reach[PLAN_OUTPUT] &&
	    rank->used[PLAN_SCRATCH] == plan->needs_scratch)
		return true;
	return plan_world_refuse(world, rank, "reach or scratch of the plan was not used: %d %d %d",
				 rank->used[PLAN_INPUT], rank->used[PLAN_OUTPUT],
				 rank->used[PLAN_SCRATCH]);
}

static bool all_have_entered(struct plan_world *world, const struct rank *rank)
{
	for (int q = 0; q < world->sim->size; q++) {
		const struct entry *entry = &world->ranks[q].entries[rank->op % PLAN_SIM_SLOTS];
		if (entry->op != rank->op || (world->width && rank->clock[q] < entry->entered))
			return plan_world_refuse(
				world, rank, "leaves and does not know that rank %d entered", q);
	}
	return true;
}

bool data_leave(struct plan_world *world, struct rank *rank)
{
	const struct plan_sim_op *op = plan_world_op(world, rank);
	if (op->collective == COLL_BARRIER)
		return all_have_entered(world, rank);
	if (has_output(op, rank->number) && !output_is_right(world, rank))
		return false;
	if (has_input(op, rank->number) && !input_is_whole(world, rank))
		return false;
	if (!reach_is_used(world, rank))
		return false;
	for (unsigned which = PLAN_INPUT; which <= PLAN_SCRATCH; which++) {
		struct span span;
		if (rank->buffers[which].op != rank->op)
			continue;
		if (!plan_world_access(world, rank, rank, which, 0, rank->plan.blocks, true, &span))
			return false;
		for (uint32_t i = 0; i < span.count; i++)
			span.elements[i].index = WORLD_GARBAGE;
	}
	return true;
}
