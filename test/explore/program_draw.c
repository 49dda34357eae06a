/* SPDX-License-Identifier: BSD-3-Clause
 * The parts of which programs are drawn. */
#include "program_draw.h"

#include <string.h>

#include "operation.h"
#include "values.h"

static int pair_of(int from, int to)
{
	return 1 + from * PROGRAM_LANES + to;
}

bool draw_places(struct draw *draw, int group, int from, int to, int count)
{
	int a = program_rank_of(from), b = program_rank_of(to), pair = pair_of(from, to);
	int *messages = &draw->messages[group][a][b], *known = &draw->pairs[group][a][b];
	bool alone = *known == 0 || *known == pair, *full = &draw->full[group][a][b];
	bool fits = *messages + count <= draw->program->world.messages;
	if (draw->any_only[group] || (!alone && (*full || !fits)))
		return false;
	*messages += count;
	*known = alone ? pair : DRAW_MIXED;
	*full = *full || !fits;
	return true;
}

bool draw_places_alone(struct draw *draw, int group, int from, int to, int count)
{
	int a = program_rank_of(from), b = program_rank_of(to);
	int known = draw->pairs[group][a][b];
	if ((known != 0 && known != pair_of(from, to)) || !draw_places(draw, group, from, to, count))
		return false;
	draw->full[group][a][b] = true;
	return true;
}

struct program_event *draw_event(struct draw *draw, enum program_kind kind, int group)
{
	struct program *program = draw->program;
	if (program->event_count == PROGRAM_EVENTS)
		return NULL;
	struct program_event *event = &program->events[program->event_count++];
	*event = (struct program_event){.kind = (uint8_t)kind, .group = (uint8_t)group, .repeat = 1};
	return event;
}

int draw_open_group(struct draw *draw)
{
	int group;
	do
		group = (int)draw_below(draw, draw->program->group_count);
	while (!draw->open[group]);
	return group;
}

int draw_member(struct draw *draw, int group)
{
	const struct program_group *of = &draw->program->groups[group];
	return of->members[draw_below(draw, of->size)];
}

int draw_lane_of(struct draw *draw, int rank)
{
	return program_lane(rank, (int)draw_below(draw, draw->program->threads[rank]));
}

int draw_lane(struct draw *draw, int group)
{
	return draw_lane_of(draw, draw_member(draw, group));
}

uint32_t draw_bytes(struct draw *draw)
{
	enum { EDGE = PROGRAM_SHORT };
	static const uint32_t bytes[] = {0,        8,    8,    64,       192,      193,  200,
					 EDGE / 2, EDGE, EDGE, EDGE + 1, EDGE + 8, 8192, 40000};
	return bytes[draw_below(draw, sizeof bytes / sizeof *bytes)];
}

void draw_half(struct draw *draw, struct program_half *half, const uint8_t *forms, uint32_t count)
{
	half->form = forms[draw_below(draw, count)];
	half->lag = draw_one_in(draw, 3) ? (uint8_t)draw_below(draw, 8) : 0;
	half->memory = (uint8_t)draw_below(draw, PROGRAM_MEMORIES);
	half->choice = (uint8_t)draw_below(draw, 256);
}

static ls_reduce_op draw_reduce_op(struct draw *draw, ls_dtype dtype)
{
	for (;;) {
		ls_reduce_op op = (ls_reduce_op)draw_below(draw, VALUES_OPS);
		if (values_allowed(dtype, op))
			return op;
	}
}

void draw_operation(struct draw *draw, struct program_event *event, bool barriers)
{
	static const uint32_t counts[] = {0, 1, 1, 2, 3, 8, 8, 50, 300};
	/* These need several messages of a channel, and several fragments. */
	static const uint32_t large[] = {3000, 3000, 3000, 70000};
	int size = draw->program->groups[event->group].size;
	do
		event->operation = (uint8_t)draw_below(draw, OPERATION_EXCHANGE);
	while (!barriers && event->operation == OPERATION_BARRIER);
	struct operation_facts facts = operation_facts((enum operation_kind)event->operation);
	event->dtype = (uint8_t)draw_below(draw, VALUES_DTYPES);
	if (facts.reduces)
		event->op = (uint8_t)draw_reduce_op(draw, (ls_dtype)event->dtype);
	if (facts.rooted)
		event->root = (uint8_t)draw_below(draw, (uint32_t)size);
	event->bytes = draw_one_in(draw, 16)
			       ? large[draw_below(draw, sizeof large / sizeof *large)]
			       : counts[draw_below(draw, sizeof counts / sizeof *counts)];
}

void draw_collective_halves(struct draw *draw, struct program_event *event)
{
	static const uint8_t forms[] = {PROGRAM_BLOCKING, PROGRAM_BLOCKING, PROGRAM_BLOCKING,
					PROGRAM_WAIT,     PROGRAM_TEST,     PROGRAM_BRIEF,
					PROGRAM_ANY,      PROGRAM_POLL,     PROGRAM_CALLBACK,
					PROGRAM_DROPPED};
	const struct program_group *group = &draw->program->groups[event->group];
	bool planted = draw->program->plant != PROGRAM_PLANT_NONE;
	for (int i = 0; i < group->size; i++)
		draw_half(draw, &event->halves[program_collector(group, group->members[i])], forms,
			  planted ? 7 : sizeof forms);
}

void draw_barrier(struct draw *draw, int group)
{
	struct program_event *event = draw_event(draw, PROGRAM_COLLECTIVE, group);
	if (event)
		event->operation = OPERATION_BARRIER;
}

/* ---- groups ---- */

static void shuffle(struct draw *draw, uint8_t *list, int count)
{
	for (int i = count - 1; i > 0; i--) {
		int j = (int)draw_below(draw, (uint32_t)i + 1);
		uint8_t swapped = list[i];
		list[i] = list[j];
		list[j] = swapped;
	}
}

/* Whether there are slots for the messages by which the members make the group. */
static bool has_cards(struct draw *draw, const struct program_group *group)
{
	const struct program_group *parent = &draw->program->groups[group->parent];
	struct draw before = *draw;
	for (int i = 0; i < group->size; i++)
		for (int j = 0; j < group->size; j++)
			if (i != j && !draw_places(draw, group->parent,
						   program_collector(parent, group->members[i]),
						   program_collector(parent, group->members[j]), 2)) {
				*draw = before;
				return false;
			}
	return true;
}

int draw_group(struct draw *draw, int parent, bool members)
{
	struct program *program = draw->program;
	const struct program_group *from = &program->groups[parent];
	int number = program->group_count;
	if (number == PROGRAM_GROUPS || program->event_count == PROGRAM_EVENTS)
		return 0;
	struct program_group *group = &program->groups[number];
	*group = (struct program_group){.how = PROGRAM_SPLIT, .parent = (uint8_t)parent};
	uint8_t list[PROGRAM_RANKS];
	memcpy(list, from->members, sizeof list);
	shuffle(draw, list, from->size);
	group->size = (uint8_t)(from->size > 2 ? 2 + draw_below(draw, from->size - 1u) : 2);
	if (group->size > from->size || draw_one_in(draw, 12))
		group->size = from->size;
	memcpy(group->members, list, group->size);
	for (int i = 0; i < group->size; i++)
		group->threads[list[i]] = (uint8_t)(draw_lane_of(draw, list[i]) % PROGRAM_THREADS);
	if (draw_one_in(draw, 2))
		group->how = PROGRAM_FROM_RANKS;
	if (members && draw_one_in(draw, 2) && has_cards(draw, group))
		group->how = PROGRAM_FROM_MEMBERS;
	program->group_count++;
	draw->open[number] = true;
	draw_event(draw, PROGRAM_MAKE, number);
	return number;
}
