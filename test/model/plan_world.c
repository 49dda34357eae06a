/* SPDX-License-Identifier: BSD-3-Clause
 * The memory of a simulated group: which accesses are ordered, what values result. */
#include "plan_world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char *buffer_text(unsigned which)
{
	static const char *const names[] = {"input", "output", "scratch"};
	return which < WORLD_SLOT ? names[which] : "entry slot";
}

bool world_refuse(struct world *world, const struct rank *rank, const char *format, ...)
{
	if (world->failed)
		return false;
	world->failed = true;
	char what[160], step[PLAN_TEXT_BYTES] = "at its end";
	va_list arguments;
	va_start(arguments, format);
	(void)vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	if (rank->stage == STAGE_ENTER)
		(void)snprintf(step, sizeof step, "entering");
	else if (rank->stage == STAGE_STEPS && rank->step < rank->plan.step_count)
		plan_step_text(&rank->plan, &rank->steps[rank->step], step, sizeof step);
	const struct plan_sim_op *op = world_op(world, rank);
	(void)snprintf(
		world->report, PLAN_SIM_TEXT_BYTES,
		"size %d, capacity %d: operation %d (%s %s, root %d, place %d, count %u), rank %d, "
		"step %u (%s): %s",
		world->sim->size, world->sim->capacity, rank->op,
		plan_collective_name(op->collective), plan_algorithm_name(op->algorithm), op->root,
		(int)op->place, op->count, rank->number, rank->step, step, what);
	return false;
}

/* ---- clocks ---- */

void world_merge(struct rank *rank, const struct clock *clock)
{
	struct clock mine = rank->clock, other = *clock; /* copies, so that the loop is vectorised */
	for (int q = 0; q < PLAN_SIZE_MAX; q++)
		mine.at[q] = mine.at[q] < other.at[q] ? other.at[q] : mine.at[q];
	rank->clock = mine;
}

static bool knows_all(const struct clock *clock, const struct clock *events)
{
	int16_t missed = 0;
	for (int q = 0; q < PLAN_SIZE_MAX; q++)
		missed |= (int16_t)(clock->at[q] < events->at[q]);
	return !missed;
}

struct buffer *world_buffer(struct rank *rank, unsigned which)
{
	bool same = which == PLAN_OUTPUT && rank->in_place;
	return &rank->buffers[same ? PLAN_INPUT : which];
}

static bool touch_write(struct world *world, struct rank *actor, const struct rank *owner,
			unsigned which, struct cell *cell)
{
	if (cell->is_read && !knows_all(&actor->clock, &cell->reads)) {
		int q = 0;
		while (actor->clock.at[q] >= cell->reads.at[q])
			q++;
		return world_refuse(world, actor,
				    "writes the %s of rank %d, which rank %d may not have "
				    "read yet",
				    buffer_text(which), owner->number, q);
	}
	cell->is_read = false;
	cell->writer = (uint16_t)actor->number;
	cell->written = actor->clock.at[actor->number];
	return true;
}

static bool touch(struct world *world, struct rank *actor, const struct rank *owner, unsigned which,
		  struct cell *cell, bool write)
{
	if (actor->clock.at[cell->writer] < cell->written)
		return world_refuse(world, actor,
				    "%s the %s of rank %d, which rank %d writes at any time",
				    write ? "writes" : "reads", buffer_text(which), owner->number,
				    cell->writer);
	if (write)
		return touch_write(world, actor, owner, which, cell);
	if (!cell->is_read)
		cell->reads = (struct clock){0};
	cell->is_read = true;
	cell->reads.at[actor->number] = actor->clock.at[actor->number];
	return true;
}

bool world_access(struct world *world, struct rank *actor, struct rank *owner, unsigned which,
		  unsigned block, unsigned blocks, bool write)
{
	struct buffer *buffer = world_buffer(owner, which);
	if (actor != owner && owner->op == actor->op && owner->plan.blocks != actor->plan.blocks)
		return world_refuse(world, actor, "cuts %u blocks, rank %d cuts %u",
				    actor->plan.blocks, owner->number, owner->plan.blocks);
	if (actor->start[block] == actor->start[block + blocks])
		return true;
	if (buffer->op != actor->op)
		return world_refuse(world, actor,
				    "touches the %s of rank %d, which belongs to operation "
				    "%d",
				    buffer_text(which), owner->number, buffer->op);
	for (unsigned b = block; b < block + blocks; b++)
		if (actor->start[b] < actor->start[b + 1] &&
		    !touch(world, actor, owner, which, &buffer->cells[b], write))
			return false;
	return true;
}

/* ---- values ---- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	return (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}

static struct element input_of(int op, int rank, uint32_t index)
{
	return (struct element){.hash = mix(mix((uint64_t)op << 40 | (uint64_t)rank << 32 | index)),
				.ranks = UINT64_C(1) << rank,
				.index = index,
				.op = (uint16_t)op};
}

void world_combine(struct element *sum, const struct element *next)
{
	if (sum->index != next->index || sum->op != next->op || sum->ranks & next->ranks ||
	    sum->scaled || next->scaled)
		sum->index = WORLD_GARBAGE;
	sum->hash = mix(sum->hash * 3 + (next->hash ^ next->hash >> 17));
	sum->ranks |= next->ranks;
}

static void fill(struct world *world, struct rank *rank, struct buffer *buffer, bool with_input)
{
	uint32_t count = world_op(world, rank)->count;
	for (uint32_t i = 0; i < count; i++)
		buffer->elements[i] = with_input ? input_of(rank->op, rank->number, i)
						 : (struct element){.index = WORLD_GARBAGE};
	buffer->op = rank->op;
	for (unsigned b = 0; b < rank->plan.blocks; b++) {
		struct cell *cell = &buffer->cells[b];
		cell->writer = (uint16_t)rank->number;
		cell->written = rank->clock.at[rank->number];
		cell->is_read = false;
	}
}

bool world_enter(struct world *world, struct rank *rank)
{
	const struct plan_sim_op *op = world_op(world, rank);
	bool has_input = op->collective == PLAN_ALLREDUCE ||
			 (op->collective == PLAN_BROADCAST && op->root == rank->number);
	struct buffer *input = &rank->buffers[PLAN_INPUT];
	input->op = rank->buffers[PLAN_OUTPUT].op = rank->buffers[PLAN_SCRATCH].op = -1;
	if (has_input || rank->in_place)
		fill(world, rank, input, has_input);
	if (!rank->in_place)
		fill(world, rank, &rank->buffers[PLAN_OUTPUT], false);
	if (rank->plan.needs_scratch)
		fill(world, rank, &rank->buffers[PLAN_SCRATCH], false);
	if (op->algorithm != PLAN_SLOT || !has_input)
		return true;
	unsigned which = WORLD_SLOT + (unsigned)rank->op % PLAN_SIM_SLOTS;
	struct buffer *slot = &rank->buffers[which];
	if (op->count > 0 && !touch(world, rank, rank, which, &slot->cells[0], true))
		return false;
	fill(world, rank, slot, true);
	return true;
}

static bool result_is_right(struct world *world, const struct rank *rank,
			    const struct element *element, uint32_t i)
{
	const struct plan_sim_op *op = world_op(world, rank);
	if (element->index != i || element->op != rank->op)
		return false;
	if (op->collective == PLAN_BROADCAST)
		return element->hash == input_of(rank->op, op->root, i).hash && !element->scaled;
	int size = world->sim->size;
	uint64_t all = size == 64 ? UINT64_MAX : (UINT64_C(1) << size) - 1;
	uint64_t *expected = &world->results[(size_t)rank->op * world->count_max + i];
	if (!world->known[rank->op])
		*expected = element->hash;
	return element->ranks == all && element->scaled == (size > 1) && element->hash == *expected;
}

bool world_leave(struct world *world, struct rank *rank)
{
	const struct plan_sim_op *op = world_op(world, rank);
	unsigned blocks = rank->plan.blocks;
	for (int q = 0; op->collective == PLAN_BARRIER && q < world->sim->size; q++) {
		const struct entry *entry = &world->ranks[q].entries[rank->op % PLAN_SIM_SLOTS];
		if (entry->op != rank->op || rank->clock.at[q] < entry->entered)
			return world_refuse(world, rank,
					    "leaves and does not know that rank %d entered", q);
	}
	const struct element *output = world_buffer(rank, PLAN_OUTPUT)->elements;
	if (!world_access(world, rank, rank, PLAN_OUTPUT, 0, blocks, false))
		return false;
	for (uint32_t i = 0; i < op->count; i++)
		if (!result_is_right(world, rank, &output[i], i))
			return world_refuse(world, rank, "element %u is wrong", i);
	world->known[rank->op] = true;
	for (unsigned which = PLAN_INPUT; which <= PLAN_SCRATCH; which++) {
		struct buffer *buffer = world_buffer(rank, which);
		if (buffer->op != rank->op)
			continue;
		if (!world_access(world, rank, rank, which, 0, blocks, true))
			return false;
		for (uint32_t i = 0; i < op->count; i++)
			buffer->elements[i].index = WORLD_GARBAGE;
	}
	return true;
}

/* ---- life ---- */

static bool rank_init(const struct world *world, struct rank *rank)
{
	struct plan_request request = {.size = world->sim->size};
	rank->steps = calloc(plan_steps_max(&request), sizeof *rank->steps);
	bool whole = rank->steps != NULL;
	rank->clock.at[rank->number] = 1;
	for (int i = 0; i < PLAN_SIM_SLOTS; i++)
		rank->entries[i].op = -1;
	for (int i = 0; i < WORLD_BUFFERS; i++) {
		struct buffer *buffer = &rank->buffers[i];
		buffer->op = -1;
		buffer->elements = calloc(world->count_max + 1, sizeof *buffer->elements);
		buffer->cells = calloc(i < WORLD_SLOT ? PLAN_SIZE_MAX : 1, sizeof *buffer->cells);
		whole = whole && buffer->elements && buffer->cells;
	}
	return whole;
}

bool world_init(struct world *world, const struct plan_sim *sim, char *report)
{
	*world = (struct world){.sim = sim, .report = report};
	for (int i = 0; i < sim->op_count; i++)
		if (world->count_max < sim->ops[i].count)
			world->count_max = sim->ops[i].count;
	size_t size = (size_t)sim->size, ops = (size_t)sim->op_count;
	world->ranks = calloc(size, sizeof *world->ranks);
	world->links = calloc(size * size, sizeof *world->links);
	world->results = calloc(ops * world->count_max + 1, sizeof *world->results);
	world->known = calloc(ops + 1, sizeof *world->known);
	bool whole = world->ranks && world->links && world->results && world->known;
	for (int r = 0; whole && r < sim->size; r++) {
		world->ranks[r].number = r;
		whole = rank_init(world, &world->ranks[r]);
	}
	if (!whole)
		(void)snprintf(report, PLAN_SIM_TEXT_BYTES, "out of memory");
	return whole;
}

void world_fini(struct world *world)
{
	int size = world->sim->size;
	for (int r = 0; world->ranks && r < size; r++) {
		free(world->ranks[r].steps);
		for (int i = 0; i < WORLD_BUFFERS; i++) {
			free(world->ranks[r].buffers[i].elements);
			free(world->ranks[r].buffers[i].cells);
		}
	}
	for (int i = 0; world->links && i < size * size; i++)
		for (int m = 0; m < PLAN_SIM_CAPACITY; m++)
			free(world->links[i].queue[m]);
	free(world->ranks);
	free(world->links);
	free(world->results);
	free(world->known);
}
