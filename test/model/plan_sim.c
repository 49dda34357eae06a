/* SPDX-License-Identifier: BSD-3-Clause
 * The time of a simulated group: ranks take turns, each goes as far as it can. Signals only grow and
 * links are FIFO, so this one schedule stands for all; the clocks see to what it does not show. */
#include "plan_sim.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_world.h"

enum progress { GO, WAIT, BAD };

static enum progress refused_unless(bool ok)
{
	return ok ? GO : BAD;
}

/* ---- entering and leaving ---- */

/* The engine's rule of K: all ranks have left the collective whose slot I am about to use. */
static enum progress await_slot(struct world *world, struct rank *rank)
{
	int before = rank->op - world->sim->ahead;
	for (int q = 0; before >= 0 && q < world->sim->size; q++)
		if (world->ranks[q].op <= before)
			return WAIT;
	for (int q = 0; before >= 0 && q < world->sim->size; q++)
		world_merge(rank, &world->ranks[q].finished[before % WORLD_FINISHED]);
	return GO;
}

/* What is true of every plan, apart from what its steps do. */
static bool plan_is_valid(struct world *world, struct rank *rank)
{
	const struct plan *plan = &rank->plan;
	if (plan->blocks < 1 || plan->blocks > PLAN_SIZE_MAX || plan->phase_end >= WORLD_PHASES)
		return world_refuse(world, rank, "%u blocks, %u phases", plan->blocks,
				    plan->phase_end);
	for (uint32_t i = 0; i < plan->step_count; i++) {
		const struct plan_step *step = &plan->steps[i];
		bool many = step->kind == PLAN_AWAIT || step->kind == PLAN_REDUCE_ALL;
		bool self = step->kind == PLAN_COPY;
		bool none = step->kind == PLAN_SIGNAL || step->kind == PLAN_COMBINE ||
			    step->kind == PLAN_SCALE;
		bool peer = step->peer >= 0 && step->peer < plan->size &&
			    (self || step->peer != plan->rank);
		if (!none && !peer && !(many && step->peer == PLAN_ALL))
			return world_refuse(world, rank, "step %u has peer %d", i, step->peer);
		if (step->block + step->blocks > plan->blocks || step->phase > plan->phase_end)
			return world_refuse(world, rank, "step %u is out of range", i);
	}
	return true;
}

static enum progress enter(struct world *world, struct rank *rank)
{
	const struct plan_sim_op *op = world_op(world, rank);
	if (await_slot(world, rank) == WAIT)
		return WAIT;
	rank->in_place = op->collective != PLAN_BARRIER &&
			 (op->place == PLAN_SIM_IN_PLACE ||
			  (op->place == PLAN_SIM_ODD_IN_PLACE && rank->number % 2 == 1));
	struct plan_request request = {.collective = op->collective,
				       .algorithm = op->algorithm,
				       .rank = rank->number,
				       .size = world->sim->size,
				       .root = op->root,
				       .in_place = rank->in_place};
	if (!plan_build(&request, rank->steps, &rank->plan))
		return refused_unless(world_refuse(world, rank, "there is no plan"));
	if (world->sim->mutate)
		world->sim->mutate(world->sim->context, rank->op, &rank->plan);
	if (!plan_is_valid(world, rank))
		return BAD;
	for (unsigned b = 0; b <= rank->plan.blocks; b++) {
		uint64_t first, elements;
		plan_block_range(op->count, 1, rank->plan.blocks, 0, b, &first, &elements);
		rank->start[b] = (uint32_t)elements;
	}
	if (!world_enter(world, rank))
		return BAD;
	struct entry *entry = &rank->entries[rank->op % PLAN_SIM_SLOTS];
	entry->op = rank->op;
	entry->phase = 0;
	entry->entered = rank->clock.at[rank->number];
	entry->clocks[0] = rank->clock;
	world_tick(rank);
	rank->sent_to = 0;
	rank->step = 0;
	rank->stage = STAGE_STEPS;
	return GO;
}

static enum progress leave(struct world *world, struct rank *rank)
{
	for (uint64_t left = rank->sent_to; left; left &= left - 1) {
		const struct link *link = world_link(world, rank->number, __builtin_ctzll(left));
		if (link->taken < link->sent)
			return WAIT;
		world_merge(rank, &link->clock);
	}
	if (!world_leave(world, rank))
		return BAD;
	rank->finished[rank->op % WORLD_FINISHED] = rank->clock;
	world_tick(rank);
	rank->op++;
	rank->stage = STAGE_ENTER;
	return GO;
}

/* ---- steps ---- */

static enum progress step_signal(struct world *world, struct rank *rank,
				 const struct plan_step *step)
{
	struct entry *entry = &rank->entries[rank->op % PLAN_SIM_SLOTS];
	if (step->phase <= entry->phase)
		return refused_unless(world_refuse(world, rank, "the phase does not grow"));
	while (entry->phase < step->phase)
		entry->clocks[++entry->phase] = rank->clock;
	world_tick(rank);
	return GO;
}

static enum progress step_await(struct world *world, struct rank *rank, const struct plan_step *step)
{
	bool all = step->peer == PLAN_ALL;
	int first = all ? 0 : step->peer, end = all ? world->sim->size : step->peer + 1;
	if (step->flags & PLAN_UNTIL_TAKEN) {
		const struct link *link = world_link(world, rank->number, step->peer);
		if (world->sim->copied)
			return GO;
		if (link->taken < link->sent)
			return WAIT;
		world_merge(rank, &link->clock);
		return GO;
	}
	for (int q = first; q < end; q++) {
		const struct entry *entry = &world->ranks[q].entries[rank->op % PLAN_SIM_SLOTS];
		if (entry->op > rank->op)
			return refused_unless(world_refuse(world, rank,
							   "rank %d has used the slot for "
							   "operation %d",
							   q, entry->op));
		if (q != rank->number && (entry->op < rank->op || entry->phase < step->phase))
			return WAIT;
	}
	for (int q = first; q < end; q++)
		if (q != rank->number)
			world_merge(rank, &world->ranks[q]
						   .entries[rank->op % PLAN_SIM_SLOTS]
						   .clocks[step->phase]);
	return GO;
}

/* Which buffer of `owner` a step of `rank` reads as its INPUT, after checking that it may. NULL: no. */
static const struct element *peer_window(struct world *world, struct rank *rank, struct rank *owner,
					 const struct plan_step *step, unsigned which, bool write)
{
	bool slot = rank->plan.algorithm == PLAN_SLOT && which == PLAN_INPUT && owner != rank;
	if (slot)
		which = WORLD_SLOT + (unsigned)rank->op % PLAN_SIM_SLOTS;
	else if (owner != rank && owner->op == rank->op && !owner->plan.uses_windows) {
		world_refuse(world, rank, "the plan of rank %d shows no windows", owner->number);
		return NULL;
	}
	if (!world_access(world, rank, owner, which, step->block, step->blocks, write))
		return NULL;
	return world_buffer(owner, which)->elements;
}

static enum progress step_reduce_all(struct world *world, struct rank *rank,
				     const struct plan_step *step)
{
	const struct element *from[PLAN_SIZE_MAX];
	int size = world->sim->size;
	bool to_self = step->flags & PLAN_TO_SELF;
	for (int q = 0; q < size; q++) {
		from[q] = peer_window(world, rank, &world->ranks[q], step, PLAN_INPUT, false);
		if (!from[q])
			return BAD;
	}
	for (int q = 0; q < size; q++)
		if ((!to_self || q == rank->number) &&
		    !peer_window(world, rank, &world->ranks[q], step, PLAN_OUTPUT, true))
			return BAD;
	uint32_t end = rank->start[step->block + step->blocks];
	for (uint32_t i = rank->start[step->block]; i < end; i++) {
		struct element sum = from[0][i];
		for (int q = 1; q < size; q++)
			world_combine(&sum, &from[q][i]);
		sum.scaled++;
		for (int q = 0; q < size; q++)
			if (!to_self || q == rank->number)
				world_buffer(&world->ranks[q], PLAN_OUTPUT)->elements[i] = sum;
	}
	return GO;
}

static enum progress step_copy(struct world *world, struct rank *rank, const struct plan_step *step)
{
	struct rank *owner = &world->ranks[step->peer];
	const struct element *from = peer_window(world, rank, owner, step, step->from, false);
	if (!from || !world_access(world, rank, rank, step->to, step->block, step->blocks, true))
		return BAD;
	uint32_t first = rank->start[step->block], end = rank->start[step->block + step->blocks];
	memcpy(world_buffer(rank, step->to)->elements + first, from + first,
	       (end - first) * sizeof *from);
	return GO;
}

static enum progress step_send(struct world *world, struct rank *rank, const struct plan_step *step)
{
	struct link *link = world_link(world, rank->number, step->peer);
	if (link->length == world->sim->capacity)
		return WAIT;
	if (step->from == PLAN_SCRATCH)
		return refused_unless(world_refuse(world, rank, "scratch is private"));
	if (!world_access(world, rank, rank, step->from, step->block, step->blocks, false))
		return BAD;
	uint32_t first = rank->start[step->block];
	uint32_t count = rank->start[step->block + step->blocks] - first;
	size_t copied = world->sim->copied ? count : 0;
	struct message *message = malloc(sizeof *message + copied * sizeof *message->copy);
	assert(message);
	message->op = rank->op;
	message->from = (enum plan_buffer)step->from;
	message->block = step->block;
	message->blocks = step->blocks;
	message->first = first;
	message->count = count;
	message->clock = rank->clock;
	memcpy(message->copy, world_buffer(rank, step->from)->elements + first,
	       copied * sizeof *message->copy);
	link->queue[(link->head + link->length++) % PLAN_SIM_CAPACITY] = message;
	link->sent++;
	if (count > 0 && !world->sim->copied)
		rank->sent_to |= UINT64_C(1) << step->peer;
	world_tick(rank);
	return GO;
}

/* Where the payload lies: in the message, or still with its sender. NULL: it may not be read. */
static const struct element *payload_of(struct world *world, struct rank *rank, int sender,
					const struct message *message)
{
	struct rank *owner = &world->ranks[sender];
	if (world->sim->copied)
		return message->copy;
	if (!world_access(world, rank, owner, message->from, message->block, message->blocks, false))
		return NULL;
	return world_buffer(owner, message->from)->elements + message->first;
}

static enum progress step_recv(struct world *world, struct rank *rank, const struct plan_step *step)
{
	struct link *link = world_link(world, step->peer, rank->number);
	if (link->length == 0)
		return WAIT;
	struct message *message = link->queue[link->head];
	uint32_t first = rank->start[step->block];
	uint32_t count = rank->start[step->block + step->blocks] - first;
	if (message->op != rank->op)
		return refused_unless(
			world_refuse(world, rank, "the message is of operation %d", message->op));
	if (message->blocks != step->blocks || message->first != first || message->count != count)
		return refused_unless(world_refuse(world, rank, "the message holds other blocks"));
	world_merge(rank, &message->clock);
	const struct element *payload = payload_of(world, rank, step->peer, message);
	if (!payload || !world_access(world, rank, rank, step->to, step->block, step->blocks, true))
		return BAD;
	memcpy(world_buffer(rank, step->to)->elements + first, payload, count * sizeof *payload);
	free(message);
	link->queue[link->head] = NULL;
	link->head = (link->head + 1) % PLAN_SIM_CAPACITY;
	link->length--;
	link->taken++;
	link->clock = rank->clock;
	world_tick(rank);
	return GO;
}

static enum progress step_own(struct world *world, struct rank *rank, const struct plan_step *step)
{
	bool combine = step->kind == PLAN_COMBINE;
	if (combine &&
	    !world_access(world, rank, rank, PLAN_SCRATCH, step->block, step->blocks, false))
		return BAD;
	if (!world_access(world, rank, rank, PLAN_OUTPUT, step->block, step->blocks, true))
		return BAD;
	struct element *output = world_buffer(rank, PLAN_OUTPUT)->elements;
	const struct element *scratch = rank->buffers[PLAN_SCRATCH].elements;
	bool swap = step->flags & PLAN_SCRATCH_FIRST;
	uint32_t end = rank->start[step->block + step->blocks];
	for (uint32_t i = rank->start[step->block]; i < end; i++) {
		struct element first = combine && swap ? scratch[i] : output[i];
		if (combine)
			world_combine(&first, swap ? &output[i] : &scratch[i]);
		else
			first.scaled++;
		output[i] = first;
	}
	return GO;
}

static enum progress run_step(struct world *world, struct rank *rank)
{
	const struct plan_step *step = &rank->steps[rank->step];
	switch (step->kind) {
	case PLAN_SIGNAL:
		return step_signal(world, rank, step);
	case PLAN_AWAIT:
		return step_await(world, rank, step);
	case PLAN_REDUCE_ALL:
		return step_reduce_all(world, rank, step);
	case PLAN_COPY:
		return step_copy(world, rank, step);
	case PLAN_SEND:
		return step_send(world, rank, step);
	case PLAN_RECV:
		return step_recv(world, rank, step);
	case PLAN_COMBINE:
	case PLAN_SCALE:
		return step_own(world, rank, step);
	default:
		return refused_unless(world_refuse(world, rank, "unknown kind %u", step->kind));
	}
}

/* ---- the run ---- */

static enum progress run_once(struct world *world, struct rank *rank)
{
	if (rank->stage == STAGE_ENTER)
		return enter(world, rank);
	if (rank->stage == STAGE_LEAVE)
		return leave(world, rank);
	if (rank->step == rank->plan.step_count) {
		rank->stage = STAGE_LEAVE;
		return GO;
	}
	enum progress progress = run_step(world, rank);
	if (progress == GO)
		rank->step++;
	return progress;
}

/* As far as it can; false if it could do nothing at all. */
static bool run_rank(struct world *world, struct rank *rank)
{
	bool moved = false;
	while (rank->op < world->sim->op_count && run_once(world, rank) == GO)
		moved = true;
	return moved;
}

static bool links_are_empty(struct world *world)
{
	int size = world->sim->size;
	for (int from = 0; from < size; from++)
		for (int to = 0; to < size; to++)
			if (world_link(world, from, to)->length > 0) {
				struct rank *rank = &world->ranks[from];
				rank->op--;
				return world_refuse(world, rank, "rank %d never took a message", to);
			}
	return true;
}

bool plan_sim_run(const struct plan_sim *sim, char *report)
{
	struct world world;
	bool moved = world_init(&world, sim, report);
	bool going = moved;
	world.failed = !moved;
	while (going && moved && !world.failed) {
		going = moved = false;
		const struct rank *stuck = NULL;
		for (int r = 0; r < sim->size && !world.failed; r++) {
			struct rank *rank = &world.ranks[r];
			moved |= run_rank(&world, rank);
			going |= rank->op < sim->op_count;
			if (!stuck && rank->op < sim->op_count)
				stuck = rank;
		}
		if (stuck && !moved)
			world_refuse(&world, stuck, "deadlock: no rank can go on");
	}
	if (!world.failed)
		links_are_empty(&world);
	world_fini(&world);
	return !world.failed;
}
