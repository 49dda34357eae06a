/* SPDX-License-Identifier: BSD-3-Clause
 * The time of a simulated group: ranks take turns, and each goes as far as it can. Signals only
 * grow and links are FIFO, so this one schedule stands for all; the vector clocks find what it does
 * not show. */
#include "plan_sim.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ranks.h"
#include "plan_world.h"

enum progress { GO, WAIT, BAD };

static enum progress refused_unless(bool ok)
{
	return ok ? GO : BAD;
}

/* ---- entering and leaving ---- */

/* The engine reuses an entry slot only when all ranks have left the collective that used it. */
static enum progress await_slot(struct plan_world *world, struct rank *rank)
{
	int before = rank->op - world->sim->ahead;
	for (int q = 0; before >= 0 && q < world->sim->size; q++)
		if (world->ranks[q].op <= before)
			return WAIT;
	for (int q = 0; before >= 0 && q < world->sim->size; q++)
		plan_world_merge(world, rank, world->ranks[q].finished[before % WORLD_FINISHED]);
	return GO;
}

/* Whether the peer of a step is allowed for this kind of step: on the same host, except for
 * messages. */
static bool peer_is_valid(const struct plan_world *world, const struct plan *plan,
			  const struct plan_step *step)
{
	bool another = step->peer >= 0 && step->peer < plan->size && step->peer != plan->rank;
	bool here = another && plan_world_share(world, plan->rank, step->peer);
	switch ((enum plan_step_kind)step->kind) {
	case PLAN_STEP_AWAIT:
		return step->flags & PLAN_UNTIL_TAKEN ? another : here || step->peer == PLAN_ALL;
	case PLAN_STEP_REDUCE:
		return step->flags & PLAN_TO_PEER ? here : step->peer == PLAN_ALL;
	case PLAN_STEP_COPY:
		return here || (step->peer == plan->rank && !(step->flags & PLAN_TRANSPOSE));
	case PLAN_STEP_SEND:
	case PLAN_STEP_RECV:
		return another;
	default:
		return step->peer == 0;
	}
}

static bool step_is_valid(const struct plan_world *world, const struct plan *plan,
			  const struct plan_step *step)
{
	static const uint8_t flags[PLAN_STEP_KIND_COUNT] = {
		[PLAN_STEP_AWAIT] = PLAN_UNTIL_TAKEN,
		[PLAN_STEP_REDUCE] = PLAN_TO_SELF | PLAN_TO_PEER | PLAN_PARTIAL,
		[PLAN_STEP_COPY] = PLAN_TRANSPOSE,
		[PLAN_STEP_COMBINE] = PLAN_SCRATCH_FIRST,
	};
	bool writes =
		step->kind == PLAN_STEP_COPY || (step->kind == PLAN_STEP_RECV && step->blocks > 0);
	if (step->kind < PLAN_STEP_SIGNAL || step->kind >= PLAN_STEP_KIND_COUNT ||
	    step->flags & ~flags[step->kind] || !peer_is_valid(world, plan, step))
		return false;
	if (step->flags & PLAN_TRANSPOSE && (step->block != step->peer || step->blocks != 1 ||
					     plan->layout[step->from] != PLAN_LAYOUT_PARTS ||
					     plan->layout[step->to] != PLAN_LAYOUT_PARTS))
		return false;
	return step->block + step->blocks <= plan->blocks && step->phase <= plan->phase_end &&
	       !(writes && step->to == PLAN_INPUT) &&
	       !(step->kind == PLAN_STEP_SEND && step->from == PLAN_SCRATCH);
}

/* What must be true of every plan, apart from what its steps do. */
static bool plan_is_valid(struct plan_world *world, struct rank *rank)
{
	const struct plan *plan = &rank->plan;
	bool parts = plan->layout[PLAN_INPUT] != PLAN_LAYOUT_BLOCKS;
	if (plan->blocks < 1 || plan->blocks > world->cells || plan->phase_end >= WORLD_PHASES ||
	    (parts && plan->blocks != plan->size) ||
	    plan->layout[PLAN_SCRATCH] != plan->layout[PLAN_OUTPUT])
		return plan_world_refuse(world, rank, "%u blocks, %u phases", plan->blocks,
					 plan->phase_end);
	for (uint32_t i = 0; i < plan->step_count; i++)
		if (!step_is_valid(world, plan, &plan->steps[i]))
			return plan_world_refuse(world, rank, "step %u is not one", i);
	return true;
}

static enum progress enter(struct plan_world *world, struct rank *rank)
{
	const struct plan_sim_op *op = plan_world_op(world, rank);
	if (await_slot(world, rank) == WAIT)
		return WAIT;
	struct plan_params params = {
		.collective = op->collective,
		.algorithm = op->algorithm,
		.rank = rank->number,
		.size = world->sim->size,
		.root = op->root,
		.in_place = op->place == PLAN_SIM_IN_PLACE ||
			    (op->place == PLAN_SIM_ODD_IN_PLACE && rank->number % 2 == 1),
		.topology = world->sim->topology};
	rank->in_place = params.in_place && data_can_be_in_place(op, rank->number);
	if (!plan_build(&params, rank->steps, &rank->plan))
		return refused_unless(plan_world_refuse(world, rank, "there is no plan"));
	if (world->sim->mutate)
		world->sim->mutate(world->sim->context, rank->op, &rank->plan);
	if (!plan_is_valid(world, rank))
		return BAD;
	memset(rank->used, 0, sizeof rank->used);
	if (!data_enter(world, rank))
		return BAD;
	struct entry *entry = &rank->entries[rank->op % PLAN_SIM_SLOTS];
	entry->op = rank->op;
	entry->phase = 0;
	entry->entered = rank->clock[rank->number];
	plan_world_copy(world, entry->clocks[0], rank->clock);
	plan_world_tick(rank);
	rank->step = 0;
	rank->stage = STAGE_STEPS;
	return GO;
}

/* Of its receiver a sender learns only that it has taken the message. */
static void learn_taken(struct rank *rank, const struct link *link, int receiver)
{
	if (rank->clock[receiver] < link->taken_at)
		rank->clock[receiver] = link->taken_at;
}

static enum progress leave(struct plan_world *world, struct rank *rank)
{
	for (; rank->sent_count > 0; rank->sent_count--) {
		int receiver = rank->sent_to[rank->sent_count - 1];
		struct link *link = plan_world_link(world, rank->number, receiver);
		if (link->taken < link->sent)
			return WAIT;
		learn_taken(rank, link, receiver);
		link->stays = false;
	}
	if (!data_leave(world, rank))
		return BAD;
	plan_world_copy(world, rank->finished[rank->op % WORLD_FINISHED], rank->clock);
	plan_world_tick(rank);
	rank->op++;
	rank->stage = STAGE_ENTER;
	return GO;
}

/* ---- steps ---- */

static enum progress step_signal(struct plan_world *world, struct rank *rank,
				 const struct plan_step *step)
{
	struct entry *entry = &rank->entries[rank->op % PLAN_SIM_SLOTS];
	if (step->phase <= entry->phase)
		return refused_unless(plan_world_refuse(world, rank, "the phase does not grow"));
	while (entry->phase < step->phase)
		plan_world_copy(world, entry->clocks[++entry->phase], rank->clock);
	plan_world_tick(rank);
	return GO;
}

static enum progress step_taken(struct plan_world *world, struct rank *rank, int receiver)
{
	const struct link *link = plan_world_link(world, rank->number, receiver);
	if (world->sim->copied)
		return GO;
	if (link->taken < link->sent)
		return WAIT;
	learn_taken(rank, link, receiver);
	return GO;
}

static enum progress step_await(struct plan_world *world, struct rank *rank,
				const struct plan_step *step)
{
	bool all = step->peer == PLAN_ALL;
	int first = all ? 0 : step->peer, end = all ? world->sim->size : step->peer + 1;
	int slot = rank->op % PLAN_SIM_SLOTS;
	if (step->flags & PLAN_UNTIL_TAKEN)
		return step_taken(world, rank, step->peer);
	for (int q = first; q < end; q++) {
		const struct entry *entry = &world->ranks[q].entries[slot];
		if (!plan_world_share(world, rank->number, q))
			continue;
		if (entry->op > rank->op)
			return refused_unless(plan_world_refuse(
				world, rank, "rank %d has used the slot for operation %d", q,
				entry->op));
		if (q != rank->number && (entry->op < rank->op || entry->phase < step->phase))
			return WAIT;
	}
	for (int q = first; q < end; q++)
		if (q != rank->number && plan_world_share(world, rank->number, q))
			plan_world_merge(world, rank,
					 world->ranks[q].entries[slot].clocks[step->phase]);
	return GO;
}

/* A step may read an entry slot of another rank as its INPUT. */
static unsigned window_of(const struct rank *rank, const struct rank *owner, unsigned which)
{
	bool is_inline = rank->plan.algorithm == PLAN_INLINE && which == PLAN_INPUT && owner != rank;
	return is_inline ? WORLD_SLOT + (unsigned)rank->op % PLAN_SIM_SLOTS : which;
}

/* The windows of a reduction: elements of the ranks of the host, in their order. */
struct windows {
	int count;
	struct span sources[RANKS_JOB_MAX], targets[RANKS_JOB_MAX]; /* NULL: nothing is written */
};

/* Records all accesses of the step. */
static bool find_windows(struct plan_world *world, struct rank *rank, const struct plan_step *step,
			 struct windows *out)
{
	int only = step->flags & PLAN_TO_SELF ? rank->number : step->peer; /* PLAN_ALL: all */
	out->count = 0;
	for (int q = 0; q < world->sim->size; q++) {
		struct rank *owner = &world->ranks[q];
		if (!plan_world_share(world, rank->number, q))
			continue;
		struct span *source = &out->sources[out->count], *target = &out->targets[out->count];
		*target = (struct span){0};
		if (!plan_world_access(world, rank, owner, window_of(rank, owner, PLAN_INPUT),
				       step->block, step->blocks, false, source))
			return false;
		if (source->count != out->sources[0].count)
			return plan_world_refuse(world, rank, "lengths differ");
		out->count++;
	}
	for (int q = 0, i = 0; q < world->sim->size; q++) {
		if (!plan_world_share(world, rank->number, q))
			continue;
		struct span *target = &out->targets[i++];
		if (only != PLAN_ALL && q != only)
			continue;
		if (!plan_world_access(world, rank, &world->ranks[q], PLAN_OUTPUT, step->block,
				       step->blocks, true, target))
			return false;
		if (target->count != out->sources[0].count)
			return plan_world_refuse(world, rank, "lengths differ");
	}
	return true;
}

static enum progress step_reduce_all(struct plan_world *world, struct rank *rank,
				     const struct plan_step *step)
{
	struct windows windows;
	if (!find_windows(world, rank, step, &windows))
		return BAD;
	for (uint32_t i = 0; i < windows.sources[0].count; i++) {
		struct element sum = windows.sources[0].elements[i];
		for (int q = 1; q < windows.count; q++)
			data_combine(&sum, &windows.sources[q].elements[i]);
		sum.scaled = (step->flags & PLAN_PARTIAL) ? 0 : 1;
		for (int q = 0; q < windows.count; q++)
			if (windows.targets[q].elements)
				windows.targets[q].elements[i] = sum;
	}
	return GO;
}

static enum progress step_copy(struct plan_world *world, struct rank *rank,
			       const struct plan_step *step)
{
	struct rank *owner = &world->ranks[step->peer];
	unsigned block = step->flags & PLAN_TRANSPOSE ? rank->plan.rank : step->block;
	struct span from, to;
	if (!plan_world_access(world, rank, owner, window_of(rank, owner, step->from), block,
			       step->blocks, false, &from) ||
	    !plan_world_access(world, rank, rank, step->to, step->block, step->blocks, true, &to))
		return BAD;
	if (from.count != to.count)
		return refused_unless(plan_world_refuse(world, rank, "lengths differ"));
	memcpy(to.elements, from.elements, to.count * sizeof *to.elements);
	return GO;
}

/* Unless messages are short, the payload stays with its sender. */
static struct message *new_message(const struct plan_world *world, const struct rank *rank,
				   const struct plan_step *step, const struct span *payload)
{
	size_t width = (size_t)world->width; /* keeps what is behind the clock aligned */
	size_t copied = world->sim->copied ? payload->count : 0;
	struct message *message = malloc(sizeof *message + width * sizeof *message->clock +
					 copied * sizeof *message->copy);
	assert(message);
	*message = (struct message){.op = rank->op,
				    .from = (enum plan_buffer)step->from,
				    .block = step->block,
				    .blocks = step->blocks,
				    .count = payload->count,
				    .copy = (struct element *)(void *)(message->clock + width)};
	plan_world_copy(world, message->clock, rank->clock);
	memcpy(message->copy, payload->elements, copied * sizeof *message->copy);
	return message;
}

static enum progress step_send(struct plan_world *world, struct rank *rank,
			       const struct plan_step *step)
{
	struct link *link = plan_world_link(world, rank->number, step->peer);
	struct span payload;
	if (link->length == world->sim->capacity)
		return WAIT;
	if (!plan_world_access(world, rank, rank, step->from, step->block, step->blocks, false,
			       &payload))
		return BAD;
	if (payload.count > 0 && rank->plan.reach[step->from] != PLAN_REACH_MAPPED)
		return refused_unless(
			plan_world_refuse(world, rank, "the plan lets peers not take it"));
	if (payload.count > 0)
		rank->used[step->from] = PLAN_REACH_MAPPED;
	int tail = (link->head + link->length++) % PLAN_SIM_CAPACITY;
	link->queue[tail] = new_message(world, rank, step, &payload);
	link->sent++;
	if (payload.count > 0 && !world->sim->copied && !link->stays) {
		link->stays = true;
		rank->sent_to[rank->sent_count++] = (uint16_t)step->peer;
	}
	plan_world_tick(rank);
	return GO;
}

/* Where the payload is: in the message, or still with its sender. */
static bool find_payload(struct plan_world *world, struct rank *rank, int sender,
			 const struct message *message, struct span *out)
{
	*out = (struct span){.elements = message->copy, .count = message->count};
	return world->sim->copied ||
	       plan_world_access(world, rank, &world->ranks[sender], message->from, message->block,
				 message->blocks, false, out);
}

static enum progress step_recv(struct plan_world *world, struct rank *rank,
			       const struct plan_step *step)
{
	struct link *link = plan_world_link(world, step->peer, rank->number);
	struct span payload, to;
	if (link->length == 0)
		return WAIT;
	struct message *message = link->queue[link->head];
	if (message->op != rank->op)
		return refused_unless(plan_world_refuse(
			world, rank, "the message is of operation %d", message->op));
	plan_world_merge(world, rank, message->clock);
	if (!find_payload(world, rank, step->peer, message, &payload) ||
	    !plan_world_access(world, rank, rank, step->to, step->block, step->blocks, true, &to))
		return BAD;
	if (message->blocks != step->blocks || payload.count != to.count)
		return refused_unless(
			plan_world_refuse(world, rank, "the message holds other blocks"));
	memcpy(to.elements, payload.elements, to.count * sizeof *to.elements);
	free(message);
	link->queue[link->head] = NULL;
	link->head = (uint8_t)((link->head + 1) % PLAN_SIM_CAPACITY);
	link->length--;
	link->taken++;
	link->taken_at = rank->clock[rank->number];
	plan_world_tick(rank);
	return GO;
}

static enum progress step_own(struct plan_world *world, struct rank *rank,
			      const struct plan_step *step)
{
	bool combine = step->kind == PLAN_STEP_COMBINE, swap = step->flags & PLAN_SCRATCH_FIRST;
	struct span scratch, output;
	if (combine && !plan_world_access(world, rank, rank, PLAN_SCRATCH, step->block,
					  step->blocks, false, &scratch))
		return BAD;
	if (!plan_world_access(world, rank, rank, PLAN_OUTPUT, step->block, step->blocks, true,
			       &output))
		return BAD;
	for (uint32_t i = 0; i < output.count; i++) {
		struct element *target = &output.elements[i];
		struct element first = combine && swap ? scratch.elements[i] : *target;
		if (combine)
			data_combine(&first, swap ? target : &scratch.elements[i]);
		else
			first.scaled++;
		*target = first;
	}
	return GO;
}

static enum progress run_step(struct plan_world *world, struct rank *rank)
{
	const struct plan_step *step = &rank->steps[rank->step];
	switch (step->kind) {
	case PLAN_STEP_SIGNAL:
		return step_signal(world, rank, step);
	case PLAN_STEP_AWAIT:
		return step_await(world, rank, step);
	case PLAN_STEP_REDUCE:
		return step_reduce_all(world, rank, step);
	case PLAN_STEP_COPY:
		return step_copy(world, rank, step);
	case PLAN_STEP_SEND:
		return step_send(world, rank, step);
	case PLAN_STEP_RECV:
		return step_recv(world, rank, step);
	case PLAN_STEP_COMBINE:
	case PLAN_STEP_SCALE:
		return step_own(world, rank, step);
	default:
		return refused_unless(plan_world_refuse(world, rank, "unknown kind %u", step->kind));
	}
}

/* ---- the run ---- */

static enum progress run_once(struct plan_world *world, struct rank *rank)
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

/* Runs the rank as far as it can; false: it could do nothing at all. */
static bool run_rank(struct plan_world *world, struct rank *rank)
{
	bool moved = false;
	while (rank->op < world->sim->op_count && run_once(world, rank) == GO)
		moved = true;
	return moved;
}

static bool links_are_empty(struct plan_world *world)
{
	int size = world->sim->size;
	for (int from = 0; from < size; from++)
		for (int to = 0; to < size; to++)
			if (plan_world_link(world, from, to)->length > 0) {
				struct rank *rank = &world->ranks[from];
				rank->op--;
				return plan_world_refuse(world, rank,
							 "rank %d never took a message", to);
			}
	return true;
}

bool plan_sim_run(const struct plan_sim *sim, char *report)
{
	struct plan_world world;
	bool moved = plan_world_init(&world, sim, report);
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
			plan_world_refuse(&world, stuck, "deadlock: no rank can go on");
	}
	if (!world.failed)
		links_are_empty(&world);
	plan_world_fini(&world);
	return !world.failed;
}
