/* SPDX-License-Identifier: BSD-3-Clause
 * Draws how a program goes wrong. The plant is behind all else, so the rest ends, except what the
 * failure itself ends. Ranks deadlock in their first threads, because a first thread would
 * otherwise wait for the other threads beside the library, which would prevent a proof. */
#include "program_draw.h"

#include "operation.h"
#include "values.h"

/* Forms of halves that never end. Their threads wait in the library. */
static const uint8_t stuck_forms[] = {PROGRAM_BLOCKING, PROGRAM_BLOCKING, PROGRAM_WAIT,
				      PROGRAM_TEST,     PROGRAM_BRIEF,    PROGRAM_ANY};
static const uint8_t beside_forms[] = {PROGRAM_WAIT, PROGRAM_ANY};

/* Collectives that differ from each other in more than the arguments of the call. */
static const uint8_t simple[] = {OPERATION_ALLREDUCE,      OPERATION_REDUCE,  OPERATION_BROADCAST,
				 OPERATION_ALLGATHER,      OPERATION_GATHER,  OPERATION_SCATTER,
				 OPERATION_REDUCE_SCATTER, OPERATION_ALLTOALL};
enum { SIMPLE = sizeof simple };

/* Another rank of the group. */
static int draw_other(struct draw *draw, int group, int rank)
{
	int other;
	do
		other = draw_member(draw, group);
	while (other == rank);
	return other;
}

/* A message of which only one half is called. */
static struct program_event *draw_half_message(struct draw *draw, int group, int from, int to,
					       bool sends)
{
	struct program_event *event = draw_event(draw, PROGRAM_MESSAGE, group);
	if (!event)
		return NULL;
	event->from = (uint8_t)from;
	event->to = (uint8_t)to;
	/* These tags keep a send without a receive from matching a receive without a send. */
	event->tag = (uint8_t)(draw_below(draw, 2) + (sends ? 2 : 0));
	event->bytes = sends ? PROGRAM_SHORT + 8 + draw_below(draw, 3) * 4000 : draw_bytes(draw);
	draw_half(draw, &event->halves[sends ? from : to], stuck_forms, sizeof stuck_forms);
	event->halves[sends ? to : from].otherwise = PROGRAM_ABSENT;
	return event;
}

/* A send that is never received keeps its slot. If others need the slot, a receive has no send
 * instead. */
static void draw_dropped(struct draw *draw, bool sends)
{
	int group = draw_open_group(draw), waits = draw_member(draw, group);
	int ends = draw_other(draw, group, waits);
	int lane = draw_lane_of(draw, waits), other = draw_lane_of(draw, ends);
	sends = sends && draw_places(draw, group, lane, other, 1);
	draw->program->plant = sends ? PROGRAM_PLANT_DROPPED_RECV : PROGRAM_PLANT_DROPPED_SEND;
	draw->program->culprit = (uint8_t)ends;
	draw_half_message(draw, group, sends ? lane : other, sends ? other : lane, sends);
}

/* ---- collectives ---- */

static struct program_event *draw_simple(struct draw *draw, int group)
{
	struct program_event *event = draw_event(draw, PROGRAM_COLLECTIVE, group);
	if (!event)
		return NULL;
	draw_operation(draw, event, true);
	event->operation = simple[draw_below(draw, SIMPLE)];
	struct operation_facts facts = operation_facts((enum operation_kind)event->operation);
	if (!facts.reduces)
		event->op = 0;
	else if (!values_allowed((ls_dtype)event->dtype, (ls_reduce_op)event->op))
		event->op = LS_SUM;
	event->root =
		facts.rooted ? (uint8_t)draw_below(draw, draw->program->groups[group].size) : 0;
	if (event->bytes == 0)
		event->bytes = 1;
	draw_collective_halves(draw, event);
	return event;
}

static uint16_t draw_difference(struct draw *draw, const struct program_event *event)
{
	struct operation_facts facts = operation_facts((enum operation_kind)event->operation);
	switch (draw_below(draw, 5)) {
	case 0:
		return PROGRAM_ODD_COUNT;
	case 1:
		return PROGRAM_ODD_DTYPE;
	case 2:
		return facts.reduces ? PROGRAM_ODD_REDUCE : PROGRAM_ODD_KIND;
	case 3:
		return facts.rooted ? PROGRAM_ODD_ROOT : PROGRAM_ODD_KIND;
	default:
		return PROGRAM_ODD_KIND;
	}
}

/* In this barrier each member learns what went wrong before. */
static void draw_last_barrier(struct draw *draw, int group)
{
	draw_barrier(draw, group);
	struct program *program = draw->program;
	draw_collective_halves(draw, &program->events[program->event_count - 1]);
}

static void draw_odd_collective(struct draw *draw, enum program_plant plant)
{
	int group = draw_open_group(draw), culprit = draw_member(draw, group);
	struct program_event *event = draw_simple(draw, group);
	struct program_half *half =
		&event->halves[program_collector(&draw->program->groups[group], culprit)];
	draw->program->culprit = (uint8_t)culprit;
	switch (plant) {
	case PROGRAM_PLANT_SKIPPED:
	case PROGRAM_PLANT_SKIPPED_LAST:
		half->otherwise = PROGRAM_ABSENT;
		break;
	case PROGRAM_PLANT_TWICE_LAST:
		half->otherwise = PROGRAM_TWICE;
		half->form = PROGRAM_BLOCKING;
		break;
	default:
		half->otherwise = draw_difference(draw, event);
	}
	if (plant == PROGRAM_PLANT_SKIPPED || plant == PROGRAM_PLANT_ODD_COLLECTIVE)
		draw_last_barrier(draw, group);
}

static void draw_other_order(struct draw *draw)
{
	int group = draw_open_group(draw), culprit = draw_member(draw, group);
	int lane = program_collector(&draw->program->groups[group], culprit);
	struct program_event *first = draw_simple(draw, group), *second = draw_simple(draw, group);
	while (second->operation == first->operation)
		second->operation = simple[draw_below(draw, SIMPLE)];
	second->root = 0;
	second->op = 0;
	first->halves[lane].otherwise = second->halves[lane].otherwise = PROGRAM_SWAPPED;
	draw->program->culprit = (uint8_t)culprit;
	draw_last_barrier(draw, group);
}

/* ---- messages ---- */

static void draw_odd_message(struct draw *draw)
{
	int group = draw_open_group(draw), from = draw_lane(draw, group);
	int to = draw_lane_of(draw, draw_other(draw, group, program_rank_of(from)));
	/* The message keeps its slot until it is received, and others may need the slot. */
	if (!draw_places(draw, group, from, to, 1)) {
		draw_dropped(draw, false);
		return;
	}
	struct program_event *event = draw_half_message(draw, group, from, to, draw_one_in(draw, 2));
	draw_half(draw, &event->halves[from], stuck_forms, sizeof stuck_forms);
	draw_half(draw, &event->halves[to], stuck_forms, sizeof stuck_forms);
	event->halves[from].otherwise = 0;
	event->halves[to].otherwise = draw_one_in(draw, 2) ? PROGRAM_ODD_COUNT : PROGRAM_ODD_DTYPE;
	if (event->bytes == 0)
		event->bytes = 8;
	draw->program->culprit = (uint8_t)program_rank_of(to);
}

static int draw_group_with(struct draw *draw, int rank, int other)
{
	int group;
	do
		group = draw_open_group(draw);
	while (program_rank_in(&draw->program->groups[group], rank) < 0 ||
	       program_rank_in(&draw->program->groups[group], other) < 0);
	return group;
}

/* Two such collectives would match, but each is to be called by one rank alone. */
static bool has_collective(const struct draw *draw, int group)
{
	const struct program *program = draw->program;
	for (int e = program->plant_event; e < program->event_count; e++)
		if (program->events[e].group == group &&
		    program->events[e].kind == PROGRAM_COLLECTIVE)
			return true;
	return false;
}

/* `rank` waits for `other`, in its first thread. */
static void draw_edge(struct draw *draw, int rank, int other)
{
	int group = draw_group_with(draw, rank, other);
	int lane = program_lane(rank, 0), peer = draw_lane_of(draw, other);
	const struct program_group *of = &draw->program->groups[group];
	if (of->size == 2 && program_collector(of, rank) == lane && !has_collective(draw, group) &&
	    draw_one_in(draw, 2)) {
		struct program_event *event = draw_simple(draw, group);
		event->operation = OPERATION_ALLREDUCE;
		event->root = 0;
		event->halves[program_collector(of, other)].otherwise = PROGRAM_ABSENT;
		return;
	}
	int repeat = draw_one_in(draw, 2) ? 1 : 2 + (int)draw_below(draw, 70);
	bool sends = draw_one_in(draw, 2) && draw_places(draw, group, lane, peer, repeat);
	struct program_event *event =
		draw_half_message(draw, group, sends ? lane : peer, sends ? peer : lane, sends);
	if (!sends || repeat == 1)
		return;
	event->repeat = (uint16_t)repeat;
	draw_half(draw, &event->halves[lane], beside_forms, sizeof beside_forms);
}

static void draw_cycle(struct draw *draw)
{
	uint8_t ranks[PROGRAM_RANKS] = {0};
	int count = draw->program->world.ranks,
	    length = 2 + (int)draw_below(draw, (uint32_t)count - 1);
	for (int i = 0; i < count; i++) {
		int j = (int)draw_below(draw, (uint32_t)i + 1);
		ranks[i] = ranks[j];
		ranks[j] = (uint8_t)i;
	}
	draw->program->culprit = ranks[0];
	for (int i = 0; i < length; i++)
		draw_edge(draw, ranks[i], ranks[(i + 1) % length]);
}

/* Some of the other ranks wait for the server; the others end. */
static void draw_starved_server(struct draw *draw)
{
	int group = draw_open_group(draw), server = draw_member(draw, group);
	const struct program_group *of = &draw->program->groups[group];
	int stuck = draw_other(draw, group, server), lane = program_lane(server, 0);
	struct program_event *event = draw_event(draw, PROGRAM_SERVER, group);
	event->to = (uint8_t)lane;
	event->bytes = draw_bytes(draw);
	draw_half(draw, &event->halves[lane], stuck_forms, sizeof stuck_forms);
	draw->program->culprit = (uint8_t)server;
	for (int i = 0; i < of->size; i++) {
		int rank = of->members[i];
		if (rank == server)
			continue;
		int sender = draw_lane_of(draw, rank);
		event->senders |= (uint16_t)(1u << sender);
		event->halves[sender].otherwise = PROGRAM_ABSENT;
		if (rank == stuck || draw_one_in(draw, 3))
			draw_half_message(draw, group, draw_lane_of(draw, server),
					  program_lane(rank, 0), false);
	}
}

static void draw_time_limit(struct draw *draw)
{
	int group = draw_open_group(draw), from = draw_lane(draw, group);
	int to = draw_lane_of(draw, draw_other(draw, group, program_rank_of(from)));
	bool sends = draw_one_in(draw, 2) && draw_places(draw, group, from, to, 1);
	struct program_event *event = draw_half_message(draw, group, from, to, sends);
	event->halves[sends ? from : to].timeout_ms = (uint16_t)(20 + draw_below(draw, 100));
	event->halves[sends ? to : from].otherwise = PROGRAM_AWAY;
	draw->program->culprit = (uint8_t)program_rank_of(sends ? to : from);
}

static void draw_given_up(struct draw *draw)
{
	int group = draw_open_group(draw), from = draw_lane(draw, group);
	int rank = program_rank_of(from);
	draw_half_message(draw, group, from, draw_lane_of(draw, draw_other(draw, group, rank)),
			  false);
	struct program_event *event = draw_event(draw, PROGRAM_ABORT, group);
	event->from = (uint8_t)from;
	draw->program->culprit = (uint8_t)rank;
}

static void draw_killed(struct draw *draw)
{
	struct program_event *event = draw_event(draw, PROGRAM_KILL, 0);
	int from = draw_lane(draw, 0);
	event->from = (uint8_t)from;
	event->repeat = (uint16_t)draw_below(draw, 1u << draw_below(draw, 12));
	draw->program->culprit = (uint8_t)program_rank_of(from);
	for (int i = (int)draw_below(draw, 8); i > 0; i--)
		draw_healthy_event(draw);
	draw_last_barrier(draw, 0);
}

void draw_plant(struct draw *draw, enum program_plant plant)
{
	enum { NEEDED = 20 };
	if (draw->program->event_count > PROGRAM_EVENTS - NEEDED)
		draw->program->plant_event = draw->program->event_count = PROGRAM_EVENTS - NEEDED;
	switch (plant) {
	case PROGRAM_PLANT_DROPPED_SEND:
	case PROGRAM_PLANT_DROPPED_RECV:
		draw_dropped(draw, plant == PROGRAM_PLANT_DROPPED_RECV);
		break;
	case PROGRAM_PLANT_IN_OTHER_ORDER:
		draw_other_order(draw);
		break;
	case PROGRAM_PLANT_ODD_MESSAGE:
		draw_odd_message(draw);
		break;
	case PROGRAM_PLANT_CYCLE:
		draw_cycle(draw);
		break;
	case PROGRAM_PLANT_STARVED_SERVER:
		draw_starved_server(draw);
		break;
	case PROGRAM_PLANT_TIME_LIMIT:
		draw_time_limit(draw);
		break;
	case PROGRAM_PLANT_GIVEN_UP:
		draw_given_up(draw);
		break;
	case PROGRAM_PLANT_KILLED:
		draw_killed(draw);
		break;
	default:
		draw_odd_collective(draw, plant);
	}
}
