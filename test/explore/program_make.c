/* SPDX-License-Identifier: BSD-3-Clause
 * Draws programs: worlds, groups, and events that end well. */
#include <string.h>

#include "program_draw.h"

/* Forms of sends and receives. Plants use none from POLL on: a thread that polls, or waits outside
 * the library, prevents a proof. */
static const uint8_t send_forms[] = {
	PROGRAM_BLOCKING, PROGRAM_BLOCKING, PROGRAM_BLOCKING, PROGRAM_WAIT,   PROGRAM_WAIT,
	PROGRAM_TEST,     PROGRAM_BRIEF,    PROGRAM_ANY,      PROGRAM_BATCH,  PROGRAM_BLOCK,
	PROGRAM_RETRACT,  PROGRAM_POLL,     PROGRAM_CALLBACK, PROGRAM_DROPPED};
static const uint8_t receive_forms[] = {
	PROGRAM_BLOCKING, PROGRAM_BLOCKING, PROGRAM_BLOCKING, PROGRAM_WAIT,
	PROGRAM_WAIT,     PROGRAM_TEST,     PROGRAM_BRIEF,    PROGRAM_ANY,
	PROGRAM_BATCH,    PROGRAM_PROBE,    PROGRAM_IPROBE,   PROGRAM_BLOCK,
	PROGRAM_RETRACT,  PROGRAM_POLL,     PROGRAM_CALLBACK, PROGRAM_DROPPED};
static const uint8_t server_forms[] = {PROGRAM_BLOCKING, PROGRAM_BLOCKING, PROGRAM_WAIT,
				       PROGRAM_ANY,      PROGRAM_BATCH,    PROGRAM_PROBE,
				       PROGRAM_CALLBACK};
enum { POLLS = 3 }; /* at the end of send_forms and receive_forms */

static bool may_poll(const struct draw *draw)
{
	return draw->program->plant == PROGRAM_PLANT_NONE;
}

static uint32_t count_of(const struct draw *draw, uint32_t all)
{
	return all - (may_poll(draw) ? 0 : POLLS);
}

/* A lane cancels only one operation at a time; and a send only if it cannot be complete at once. */
static void mend_form(const struct draw *draw, const struct program_event *event,
		      struct program_half *half, bool sends)
{
	bool serial = draw->program->world.serial;
	if (half->form == PROGRAM_RETRACT &&
	    (event->repeat > 1 || serial || (sends && event->bytes <= PROGRAM_SHORT)))
		half->form = PROGRAM_WAIT;
}

/* A lane that sends to itself begins the send, receives, and then waits for the send. */
static bool may_send_to_itself(uint8_t form)
{
	return form == PROGRAM_WAIT || form == PROGRAM_TEST || form == PROGRAM_ANY;
}

static void draw_message_halves(struct draw *draw, struct program_event *event)
{
	struct program_half *from = &event->halves[event->from], *to = &event->halves[event->to];
	draw_half(draw, from, send_forms, count_of(draw, sizeof send_forms));
	if (from == to) {
		if (!may_send_to_itself(from->form))
			from->form = PROGRAM_WAIT;
		return;
	}
	draw_half(draw, to, receive_forms, count_of(draw, sizeof receive_forms));
	mend_form(draw, event, from, true);
	mend_form(draw, event, to, false);
	if (to->form != PROGRAM_BLOCK)
		return;
	int *kept = &draw->blocks[program_rank_of(event->from)][program_rank_of(event->to)];
	if (*kept + event->repeat > DRAW_BLOCKS)
		to->lag = 0;
	else if (to->lag > 0)
		*kept += event->repeat;
	if (event->repeat > 1)
		to->lag = 0;
}

static void draw_message(struct draw *draw)
{
	int group = draw_open_group(draw), from = draw_lane(draw, group),
	    to = draw_lane(draw, group);
	int repeat = draw_one_in(draw, 4) ? 2 + (int)draw_below(draw, 7) : 1;
	if ((from == to || program_rank_of(from) == program_rank_of(to)) && !draw_one_in(draw, 4))
		return;
	bool first = draw->messages[group][program_rank_of(from)][program_rank_of(to)] == 0;
	for (int r = 0; r < PROGRAM_RANKS && first; r++)
		for (int q = 0; q < PROGRAM_RANKS; q++)
			first = first && draw->messages[group][r][q] == 0;
	if (from == to)
		repeat = 1;
	if ((from == to && draw->program->world.serial) ||
	    !draw_places(draw, group, from, to, repeat))
		return;
	struct program_event *event = draw_event(draw, PROGRAM_MESSAGE, group);
	if (!event)
		return;
	event->from = (uint8_t)from;
	event->to = (uint8_t)to;
	event->tag = (uint8_t)draw_below(draw, 4);
	event->repeat = (uint16_t)repeat;
	event->bytes = draw_bytes(draw);
	if (first && group != 0 && may_poll(draw) && draw_one_in(draw, 3))
		event->any_tag = draw->any_only[group] = true;
	draw_message_halves(draw, event);
}

/* More messages than there are slots, between two lanes that no other lane shares the slots
 * with. */
static void draw_burst(struct draw *draw)
{
	static const uint8_t forms[] = {PROGRAM_WAIT, PROGRAM_WAIT, PROGRAM_ANY, PROGRAM_TEST,
					PROGRAM_BLOCKING};
	int group = draw_open_group(draw), from = draw_lane(draw, group),
	    to = draw_lane(draw, group);
	int repeat = 30 + (int)draw_below(draw, PROGRAM_REPEAT - 29);
	if (from == to || !draw_places(draw, group, from, to, repeat))
		return;
	struct program_event *event = draw_event(draw, PROGRAM_MESSAGE, group);
	if (!event)
		return;
	event->from = (uint8_t)from;
	event->to = (uint8_t)to;
	event->tag = (uint8_t)draw_below(draw, 4);
	event->repeat = (uint16_t)repeat;
	event->bytes = draw_one_in(draw, 3) ? 8 : draw_one_in(draw, 3) ? 200 : PROGRAM_SHORT + 8;
	draw_half(draw, &event->halves[from], forms, 4);
	draw_half(draw, &event->halves[to], forms, sizeof forms);
	event->halves[from].lag = (uint8_t)draw_below(draw, 8);
}

/* Not together with a death: then the schedule would decide which rank a receive from any source
 * waits for. */
static void draw_server(struct draw *draw)
{
	int group = draw_open_group(draw), to = draw_lane(draw, group);
	if (draw->program->plant == PROGRAM_PLANT_KILLED)
		return;
	int repeat = 1 + (int)draw_below(draw, 3);
	unsigned senders = 0;
	for (int i = 1 + (int)draw_below(draw, 5); i > 0; i--) {
		int from = draw_lane(draw, group);
		if (from != to && !(senders >> from & 1) &&
		    draw_places(draw, group, from, to, repeat))
			senders |= 1u << from;
	}
	struct program_event *event = senders ? draw_event(draw, PROGRAM_SERVER, group) : NULL;
	if (!event)
		return;
	event->to = (uint8_t)to;
	event->senders = (uint16_t)senders;
	event->repeat = (uint16_t)repeat;
	event->bytes = draw_bytes(draw);
	for (int lane = 0; lane < PROGRAM_LANES; lane++) {
		if (!(senders >> lane & 1))
			continue;
		draw_half(draw, &event->halves[lane], send_forms, count_of(draw, sizeof send_forms));
		if (event->halves[lane].form == PROGRAM_RETRACT)
			event->halves[lane].form = PROGRAM_BLOCKING;
	}
	draw_half(draw, &event->halves[to], server_forms,
		  sizeof server_forms - (may_poll(draw) ? 0 : 1));
}

/* The receiver keeps as many blocks as it can, or fewer, and frees any of them. */
static void draw_blocks(struct draw *draw)
{
	static const uint8_t forms[] = {PROGRAM_BLOCK};
	int group = draw_open_group(draw), from = draw_lane(draw, group),
	    to = draw_lane(draw, group);
	int *kept = &draw->blocks[program_rank_of(from)][program_rank_of(to)];
	int repeat = draw_one_in(draw, 2) ? 66 : 2 + (int)draw_below(draw, 80);
	if (from == to || *kept > 0 || !draw_places_alone(draw, group, from, to, repeat))
		return;
	struct program_event *event = draw_event(draw, PROGRAM_BLOCKS, group);
	if (!event)
		return;
	*kept = DRAW_BLOCKS;
	event->from = (uint8_t)from;
	event->to = (uint8_t)to;
	event->repeat = (uint16_t)repeat;
	event->bytes = draw_one_in(draw, 4) ? 8 : 1000;
	draw_half(draw, &event->halves[from], forms, 1);
	draw_half(draw, &event->halves[to], forms, 1);
}

static void draw_cancel(struct draw *draw, bool sends)
{
	static const uint8_t forms[] = {PROGRAM_WAIT};
	int group = draw_open_group(draw), from = draw_lane(draw, group),
	    to = draw_lane(draw, group);
	int repeat = draw_one_in(draw, 4) ? 1 + (int)draw_below(draw, 70) : 1;
	if (draw->program->world.serial || program_rank_of(from) == program_rank_of(to) ||
	    !(sends ? draw_places(draw, group, from, to, repeat)
		    : draw_places(draw, group, to, from, 1)))
		return;
	struct program_event *event =
		draw_event(draw, sends ? PROGRAM_CANCEL_SEND : PROGRAM_CANCEL_RECV, group);
	if (!event)
		return;
	event->from = (uint8_t)from;
	event->to = (uint8_t)to;
	event->repeat = (uint16_t)repeat;
	event->bytes = sends ? PROGRAM_SHORT + 8 + draw_below(draw, 5) * 1000 : draw_bytes(draw);
	draw_half(draw, &event->halves[from], forms, 1);
}

static void draw_collective(struct draw *draw)
{
	struct program_event *event = draw_event(draw, PROGRAM_COLLECTIVE, draw_open_group(draw));
	if (!event)
		return;
	draw_operation(draw, event, true);
	draw_collective_halves(draw, event);
}

static void draw_registration(struct draw *draw)
{
	if (!draw->taste->registers || draw->registered || !may_poll(draw))
		return;
	draw->registered = draw_event(draw, PROGRAM_REGISTER, draw_open_group(draw)) != NULL;
}

static void draw_deregistration(struct draw *draw)
{
	struct program *program = draw->program;
	for (int e = program->event_count - 1; e >= 0 && draw->registered; e--) {
		int group = program->events[e].group;
		if (program->events[e].kind == PROGRAM_DEREGISTER)
			return;
		if (program->events[e].kind == PROGRAM_REGISTER && draw->open[group]) {
			draw_event(draw, PROGRAM_DEREGISTER, group);
			return;
		}
	}
}

static void draw_close(struct draw *draw)
{
	int group = draw_open_group(draw);
	if (group > 0 && may_poll(draw) && draw_event(draw, PROGRAM_CLOSE, group))
		draw->open[group] = false;
}

static void draw_new_group(struct draw *draw)
{
	int parent = draw_open_group(draw);
	if (may_poll(draw))
		draw_group(draw, parent, !draw->any_only[parent]);
}

void draw_healthy_event(struct draw *draw)
{
	uint32_t choice = draw_below(draw, 100);
	if (choice < 42)
		draw_message(draw);
	else if (choice < 60)
		draw_collective(draw);
	else if (choice < 72)
		draw_server(draw);
	else if (choice < 75)
		draw_burst(draw);
	else if (choice < 78)
		draw_blocks(draw);
	else if (choice < 81)
		draw_cancel(draw, true);
	else if (choice < 85)
		draw_cancel(draw, false);
	else if (choice < 91)
		draw_new_group(draw);
	else if (choice < 95)
		draw_close(draw);
	else if (choice < 97)
		draw_registration(draw);
	else
		draw_deregistration(draw);
}

/* ---- */

void program_draw_world(uint64_t seed, struct program_world *world)
{
	uint64_t generator = generator_mix(seed, 1);
	*world = (struct program_world){
		.ranks = (uint8_t)(2 + generator_below(&generator, PROGRAM_RANKS - 1)),
		.messages = 64,
		.serial = generator_below(&generator, 16) == 0,
		.blocking = generator_below(&generator, 16) == 0};
	if (generator_below(&generator, 3) == 0)
		world->messages = (uint8_t)(1 + generator_below(&generator, 4));
}

static void draw_shape(struct draw *draw, const struct program_world *world)
{
	struct program *program = draw->program;
	for (int r = 0; r < world->ranks; r++)
		program->threads[r] =
			(uint8_t)(draw_one_in(draw, 8)
					  ? 1
					  : 2 + draw_below(draw, 3) / 2 + draw_below(draw, 5) / 4);
	for (int r = 0; r < world->ranks && world->serial; r++)
		program->threads[r] = 1;
	struct program_group *group = &program->groups[0];
	group->size = world->ranks;
	for (int r = 0; r < world->ranks; r++) {
		group->members[r] = (uint8_t)r;
		group->threads[r] = (uint8_t)(draw_lane_of(draw, r) % PROGRAM_THREADS);
	}
	program->group_count = 1;
	draw->open[0] = true;
}

static enum program_plant draw_which_plant(struct draw *draw)
{
	const struct program_taste *taste = draw->taste;
	if (taste->only)
		return (enum program_plant)taste->only;
	if (!taste->plants || draw_one_in(draw, 2))
		return PROGRAM_PLANT_NONE;
	int count = taste->kills ? PROGRAM_PLANT_COUNT : PROGRAM_PLANT_KILLED;
	return (enum program_plant)(1 + draw_below(draw, (uint32_t)count - 1));
}

void program_make(uint64_t seed, const struct program_world *world,
		  const struct program_taste *taste, struct program *program)
{
	struct draw draw = {.generator = generator_mix(seed, 2), .program = program, .taste = taste};
	memset(program, 0, sizeof *program);
	program->seed = seed;
	program->world = *world;
	draw_shape(&draw, world);
	program->plant = (uint8_t)draw_which_plant(&draw);
	if (taste->looks && draw_one_in(&draw, 4))
		program->looks = (uint16_t)(1 + draw_below(&draw, 30));
	int events = taste->events ? taste->events : 4 + (int)draw_below(&draw, 20);
	/* All members have made the groups of a plant before it. So no failure makes a call fail
	 * that makes a group. */
	for (int i = (int)draw_below(&draw, 4); i > 0 && program->plant; i--)
		draw_group(&draw, 0, false);
	if (program->plant && program->group_count > 1)
		draw_barrier(&draw, 0);
	for (int tries = 0; tries < 4 * events && program->event_count < events; tries++)
		draw_healthy_event(&draw);
	program->plant_event = program->event_count;
	if (program->plant)
		draw_plant(&draw, (enum program_plant)program->plant);
}
