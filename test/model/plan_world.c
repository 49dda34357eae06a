/* SPDX-License-Identifier: BSD-3-Clause
 * The memory of a simulated group: clocks, and which accesses they order. */
#include "plan_world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *buffer_text(unsigned which)
{
	static const char *const names[] = {"input", "output", "scratch"};
	return which < WORLD_SLOT ? names[which] : "entry slot";
}

bool plan_world_refuse(struct plan_world *world, const struct rank *rank, const char *format, ...)
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
	const struct plan_sim_op *op = plan_world_op(world, rank);
	(void)snprintf(world->report, PLAN_SIM_TEXT_BYTES,
		       "size %d, capacity %d: operation %d (%s %s, root %d, place %d, count %u%s), "
		       "rank %d, step %u (%s): %s",
		       world->sim->size, world->sim->capacity, rank->op,
		       plan_collective_name(op->collective), plan_algorithm_name(op->algorithm),
		       op->root, (int)op->place, op->count, op->uneven ? ", uneven parts" : "",
		       rank->number, rank->step, step, what);
	return false;
}

/* ---- clocks ---- */

/* This many values at a time, in local arrays, so that compilers use vectors for them. */
enum { LANES = 16 };

struct lanes {
	clock_value at[LANES];
};

void plan_world_copy(const struct plan_world *world, clock_value *to, const clock_value *from)
{
	memcpy(to, from, (size_t)world->width * sizeof *to);
}

static void merge(const struct plan_world *world, clock_value *into, const clock_value *from)
{
	for (int i = 0; i < world->width; i += LANES) {
		struct lanes mine, other;
		memcpy(&mine, into + i, sizeof mine);
		memcpy(&other, from + i, sizeof other);
		for (int l = 0; l < LANES; l++)
			mine.at[l] = mine.at[l] < other.at[l] ? other.at[l] : mine.at[l];
		memcpy(into + i, &mine, sizeof mine);
	}
}

void plan_world_merge(const struct plan_world *world, struct rank *rank, const clock_value *clock)
{
	merge(world, rank->clock, clock);
}

/* A rank that has read the block, and whose read `clock` does not cover. -1: there is none. */
static int reader_missed(const struct plan_world *world, const struct cell *cell,
			 const clock_value *clock)
{
	if (cell->read != CELL_SHARED)
		return clock[cell->reader] < cell->read ? cell->reader : -1;
	for (int q = 0; q < world->width; q++)
		if (clock[q] < cell->reads[q])
			return q;
	return -1;
}

static bool note_read(const struct plan_world *world, struct cell *cell, int reader, clock_value at)
{
	if (cell->read == 0 || (cell->read != CELL_SHARED && cell->reader == reader)) {
		cell->read = at;
		cell->reader = (uint16_t)reader;
		return true;
	}
	size_t bytes = (size_t)world->width * sizeof *cell->reads;
	if (!cell->reads && !(cell->reads = malloc(bytes)))
		return false;
	if (cell->read != CELL_SHARED) {
		memset(cell->reads, 0, bytes);
		cell->reads[cell->reader] = cell->read;
		cell->read = CELL_SHARED;
	}
	cell->reads[reader] = at;
	return true;
}

static bool touch(struct plan_world *world, struct rank *actor, const struct rank *owner,
		  unsigned which, struct cell *cell, bool write)
{
	int self = actor->number;
	if (world->width == 0)
		return true;
	if (actor->clock[cell->writer] < cell->written)
		return plan_world_refuse(world, actor,
					 "%s the %s of rank %d, which rank %d writes at any time",
					 write ? "writes" : "reads", buffer_text(which),
					 owner->number, cell->writer);
	if (!write)
		return note_read(world, cell, self, actor->clock[self]) ||
		       plan_world_refuse(world, actor, "out of memory");
	int missed = reader_missed(world, cell, actor->clock);
	if (missed >= 0)
		return plan_world_refuse(
			world, actor,
			"writes the %s of rank %d, which rank %d may not have read yet",
			buffer_text(which), owner->number, missed);
	cell->read = 0;
	cell->writer = (uint16_t)self;
	cell->written = actor->clock[self];
	return true;
}

/* ---- access ---- */

/* Whether the plan of `owner` is of the same kind as mine, and lets me access this buffer. */
static bool may_reach(struct plan_world *world, struct rank *actor, struct rank *owner,
		      unsigned which, bool write)
{
	if (which == PLAN_SCRATCH)
		owner->used[which] = true;
	if (actor == owner || owner->op != actor->op)
		return actor == owner || which != PLAN_SCRATCH ||
		       plan_world_refuse(world, actor, "scratch is private");
	const struct plan *mine = &actor->plan, *its = &owner->plan;
	if (its->blocks != mine->blocks ||
	    memcmp(its->layout, mine->layout, sizeof mine->layout) != 0)
		return plan_world_refuse(world, actor, "cuts other blocks than rank %d",
					 owner->number);
	if (which >= WORLD_SLOT)
		return true;
	uint8_t need = write ? PLAN_REACH_MAPPED : PLAN_REACH_READ;
	if (which == PLAN_SCRATCH || its->reach[which] < need)
		return plan_world_refuse(
			world, actor, "the plan of rank %d does not let peers %s its %s",
			owner->number, write ? "write" : "read", buffer_text(which));
	if (owner->used[which] < need)
		owner->used[which] = need;
	return true;
}

/* One cell guards the whole payload of an entry slot. */
static struct place place_of(const struct plan_world *world, const struct rank *actor,
			     const struct rank *owner, unsigned which, unsigned block,
			     unsigned blocks)
{
	const struct plan_sim_op *op = plan_world_op(world, actor);
	if (which < WORLD_SLOT)
		return data_place(op, &actor->plan, owner, which, block, blocks);
	struct rank apart = {.number = owner->number};
	struct place place = data_place(op, &actor->plan, &apart, PLAN_INPUT, block, blocks);
	place.which = which;
	place.cell = 0;
	return place;
}

bool plan_world_access(struct plan_world *world, struct rank *actor, struct rank *owner,
		       unsigned which, unsigned block, unsigned blocks, bool write, struct span *out)
{
	struct place all = place_of(world, actor, owner, which, block, blocks);
	struct buffer *buffer = &owner->buffers[all.which];
	*out = (struct span){.elements = buffer->elements + all.first, .count = all.count};
	if (all.count == 0)
		return true;
	if (!may_reach(world, actor, owner, which, write))
		return false;
	if (buffer->op != actor->op)
		return plan_world_refuse(world, actor,
					 "touches the %s of rank %d, which belongs to operation %d",
					 buffer_text(which), owner->number, buffer->op);
	for (unsigned b = block; b < block + blocks; b++) {
		struct place one = place_of(world, actor, owner, which, b, 1);
		if (one.count > 0 &&
		    !touch(world, actor, owner, which, &buffer->cells[one.cell], write))
			return false;
	}
	return true;
}

bool plan_world_open(struct plan_world *world, struct rank *rank, unsigned which)
{
	struct buffer *buffer = &rank->buffers[which];
	bool slot = which >= WORLD_SLOT;
	if (slot && !touch(world, rank, rank, which, buffer->cells, true))
		return false;
	buffer->op = rank->op;
	for (unsigned i = 0; i < (slot ? 1 : world->cells); i++) {
		struct cell *cell = &buffer->cells[i];
		cell->writer = (uint16_t)rank->number;
		cell->written = rank->clock[rank->number];
		cell->read = 0;
	}
	return true;
}

/* ---- life ---- */

static bool clocks_init(const struct plan_world *world, struct rank *rank)
{
	size_t width = (size_t)world->width, size = (size_t)world->sim->size;
	size_t clocks = WORLD_FINISHED + PLAN_SIM_SLOTS * WORLD_PHASES;
	clock_value *next = rank->clocks = calloc(size + LANES + clocks * width, sizeof *next);
	if (!next)
		return false;
	rank->clock = next;
	rank->clock[rank->number] = 1;
	next += (size + LANES - 1) / LANES * LANES;
	for (int i = 0; i < WORLD_FINISHED; i++, next += width)
		rank->finished[i] = next;
	for (int i = 0; i < PLAN_SIM_SLOTS; i++) {
		rank->entries[i].op = -1;
		for (int phase = 0; phase < WORLD_PHASES; phase++, next += width)
			rank->entries[i].clocks[phase] = next;
	}
	return true;
}

static bool rank_init(const struct plan_world *world, struct rank *rank)
{
	struct plan_params params = {.size = world->sim->size};
	rank->steps = calloc(plan_steps_max(&params) + 1, sizeof *rank->steps);
	rank->sent_to = calloc((size_t)params.size, sizeof *rank->sent_to);
	bool whole = clocks_init(world, rank) && rank->steps && rank->sent_to;
	for (int i = 0; i < (world->has_entries ? WORLD_BUFFERS : WORLD_SLOT); i++) {
		struct buffer *buffer = &rank->buffers[i];
		buffer->op = -1;
		buffer->elements = calloc(world->elements_max + 1, sizeof *buffer->elements);
		buffer->cells = calloc(i < WORLD_SLOT ? world->cells : 1, sizeof *buffer->cells);
		whole = whole && buffer->elements && buffer->cells;
	}
	return whole;
}

/* As many as any plan has blocks. */
static unsigned cells_of(const struct plan_sim *sim)
{
	enum { CELLS_LEAST = 8 }; /* a chain has this many blocks, however few ranks there are */
	unsigned most = CELLS_LEAST;
	for (int i = 0; i < sim->op_count; i++) {
		enum plan_algorithm algorithm = sim->ops[i].algorithm;
		bool cut = sim->ops[i].collective == COLL_ALLREDUCE ||
			   sim->ops[i].collective == COLL_BROADCAST ||
			   sim->ops[i].collective == COLL_BARRIER;
		bool whole = cut && (algorithm == PLAN_TREE || algorithm == PLAN_DOUBLING ||
				     algorithm == PLAN_LEADERS);
		unsigned blocks = algorithm == PLAN_RAILS && sim->topology ? RANKS_HOST_MAX
									   : (unsigned)sim->size;
		if (!whole && blocks > most)
			most = blocks;
	}
	return most;
}

bool plan_world_init(struct plan_world *world, const struct plan_sim *sim, char *report)
{
	*world = (struct plan_world){.sim = sim, .report = report};
	world->width = sim->unordered ? 0 : (sim->size + LANES - 1) / LANES * LANES;
	world->cells = cells_of(sim);
	for (int i = 0; i < sim->op_count; i++) {
		uint32_t count = sim->ops[i].count;
		uint32_t elements = data_elements_max(&sim->ops[i], sim->size);
		world->has_entries |= sim->ops[i].algorithm == PLAN_INLINE;
		if (world->count_max < count)
			world->count_max = count;
		if (world->elements_max < elements)
			world->elements_max = elements;
	}
	size_t size = (size_t)sim->size, ops = (size_t)sim->op_count;
	world->ranks = calloc(size, sizeof *world->ranks);
	world->links = calloc(size * size, sizeof *world->links);
	world->results = calloc(ops * world->count_max + 1, sizeof *world->results);
	world->known = calloc(ops + 1, sizeof *world->known);
	bool whole = world->ranks && world->links && world->results && world->known;
	for (int r = 0; whole && r < sim->size; r++) {
		world->ranks[r].number = r;
		world->all_ranks += data_number_of(r);
		whole = rank_init(world, &world->ranks[r]);
	}
	if (!whole)
		(void)snprintf(report, PLAN_SIM_TEXT_BYTES, "out of memory");
	return whole;
}

static void rank_fini(const struct plan_world *world, struct rank *rank)
{
	free(rank->steps);
	free(rank->sent_to);
	free(rank->clocks);
	for (int i = 0; i < WORLD_BUFFERS; i++) {
		struct buffer *buffer = &rank->buffers[i];
		for (unsigned c = 0; buffer->cells && c < (i < WORLD_SLOT ? world->cells : 1); c++)
			free(buffer->cells[c].reads);
		free(buffer->elements);
		free(buffer->cells);
	}
}

void plan_world_fini(struct plan_world *world)
{
	int size = world->sim->size;
	for (int r = 0; world->ranks && r < size; r++)
		rank_fini(world, &world->ranks[r]);
	for (int i = 0; world->links && i < size * size; i++)
		for (int m = 0; m < PLAN_SIM_CAPACITY; m++)
			free(world->links[i].queue[m]);
	free(world->ranks);
	free(world->links);
	free(world->results);
	free(world->known);
}
