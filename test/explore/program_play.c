/* SPDX-License-Identifier: BSD-3-Clause
 * Plays a program as if no message were buffered and every collective waited for all ranks: one
 * lane after the other, each as far as it comes. What is stuck then is stuck in every schedule, or
 * continues only because messages are buffered. */
#include <string.h>

#include "program.h"

struct pending {
	uint8_t event;
	int due; /* the lane waits for it after this many of its halves */
	bool batched;
};

struct lane {
	int next; /* the event that the lane has reached */
	bool came;
	int halves, count;
	struct pending pending[PROGRAM_EVENTS];
};

struct play {
	const struct program *program;
	struct program_stuck *stuck;
	bool came[PROGRAM_LANES][PROGRAM_EVENTS]; /* the lane has begun this half */
	bool over[PROGRAM_LANES][PROGRAM_EVENTS];
	struct lane lanes[PROGRAM_LANES];
};

static const struct program_half *half_of(const struct play *play, int lane, int event)
{
	return &play->program->events[event].halves[lane];
}

static bool is_called(const struct play *play, int lane, int event)
{
	return !(half_of(play, lane, event)->otherwise & (PROGRAM_ABSENT | PROGRAM_AWAY));
}

/* Whether this rank has made the group, or no rank will make it. */
static bool is_made(const struct play *play, int rank, int group)
{
	const struct program *program = play->program;
	for (int e = 0; e < program->event_count; e++)
		if (program->events[e].kind == PROGRAM_MAKE && program->events[e].group == group)
			return play->over[program_collector(
				&program->groups[program->groups[group].parent], rank)][e];
	return true;
}

/* Whether all other lanes of this rank are done with the group that the lane is to close. */
static bool may_close(const struct play *play, int lane, int event)
{
	const struct program *program = play->program;
	for (int t = 0; t < PROGRAM_THREADS; t++) {
		int other = program_lane(program_rank_of(lane), t);
		for (int e = 0; e < event; e++)
			if (program->events[e].group == program->events[event].group &&
			    program_takes_part(program, e, other) && !play->over[other][e])
				return false;
	}
	return true;
}

/* Whether all that this half needs has begun. */
static bool is_met(const struct play *play, int lane, int e)
{
	const struct program *program = play->program;
	const struct program_event *event = &program->events[e];
	switch ((enum program_kind)event->kind) {
	case PROGRAM_MESSAGE:
	case PROGRAM_BLOCKS:
		return play->came[event->from][e] && play->came[event->to][e];
	case PROGRAM_SERVER:
		if (lane != event->to)
			return play->came[event->to][e];
		break;
	case PROGRAM_COLLECTIVE:
	case PROGRAM_MAKE:
	case PROGRAM_REGISTER:
		break;
	case PROGRAM_CANCEL_SEND:
	case PROGRAM_CANCEL_RECV:
		return lane == event->from || play->over[event->from][e];
	case PROGRAM_CLOSE:
		return may_close(play, lane, e);
	default:
		return true;
	}
	for (int other = 0; other < PROGRAM_LANES; other++)
		if (program_takes_part(program, e, other) && !play->came[other][e])
			return false;
	return true;
}

/* Waits for halves of `group` (-1: of any) that are due, or for all. False: one of them is not
 * over. */
static bool flush(struct play *play, int number, int group, bool all, int next)
{
	struct lane *lane = &play->lanes[number];
	bool over = true;
	for (int i = 0; i < lane->count && over; i++) {
		struct pending *pending = &lane->pending[i];
		int of = play->program->events[pending->event].group;
		const struct program_event *event = next < 0 ? NULL : &play->program->events[next];
		bool same_batch =
			event && event->group == of && event->halves[number].form == PROGRAM_BATCH;
		bool due = pending->batched ? !same_batch : pending->due <= lane->halves;
		if ((group >= 0 && of != group) || !(all || due))
			continue;
		over = is_met(play, number, pending->event);
		if (!over)
			break;
		play->over[number][pending->event] = true;
		lane->pending[i--] = lane->pending[--lane->count];
	}
	return over;
}

static bool runs_on(const struct program_event *event, const struct program_half *half)
{
	switch ((enum program_kind)event->kind) {
	case PROGRAM_MESSAGE:
		if (event->from == event->to)
			return false;
		break;
	case PROGRAM_SERVER:
	case PROGRAM_COLLECTIVE:
		break;
	default:
		return false;
	}
	switch ((enum program_form)half->form) {
	case PROGRAM_BLOCKING:
	case PROGRAM_PROBE:
	case PROGRAM_IPROBE:
	case PROGRAM_BLOCK:
	case PROGRAM_RETRACT:
		return false;
	default:
		return true;
	}
}

/* Plays one event of a lane; false: it cannot continue yet. */
static bool step(struct play *play, int number)
{
	struct lane *lane = &play->lanes[number];
	const struct program *program = play->program;
	int e = lane->next, rank = program_rank_of(number);
	const struct program_event *event = &program->events[e];
	bool mine = program_takes_part(program, e, number);
	if (event->kind == PROGRAM_CLOSE && !flush(play, number, event->group, true, -1))
		return false;
	if (!mine) {
		lane->next++;
		return true;
	}
	if (!lane->came && !flush(play, number, -1, false, e))
		return false;
	if (event->kind != PROGRAM_MAKE && !is_made(play, rank, event->group))
		return false;
	if (event->kind == PROGRAM_MAKE && !is_made(play, rank, program->groups[event->group].parent))
		return false;
	lane->came = true;
	if (!is_called(play, number, e)) {
		play->over[number][e] = true;
	} else if (runs_on(event, &event->halves[number])) {
		play->came[number][e] = true;
		lane->pending[lane->count++] =
			(struct pending){(uint8_t)e, lane->halves + 1 + event->halves[number].lag,
					 event->halves[number].form == PROGRAM_BATCH};
	} else {
		play->came[number][e] = true;
		if (!is_met(play, number, e))
			return false;
		play->over[number][e] = true;
	}
	lane->halves++;
	lane->came = false;
	lane->next++;
	return true;
}

static bool run_lane(struct play *play, int number)
{
	struct lane *lane = &play->lanes[number];
	int count = play->program->event_count, before = lane->next, under_way = lane->count;
	bool had_come = lane->came;
	while (lane->next < count && step(play, number))
		;
	if (lane->next == count)
		(void)flush(play, number, -1, true, -1);
	return lane->next != before || lane->count != under_way || lane->came != had_come;
}

void program_play(const struct program *program, struct program_stuck *stuck)
{
	struct play play = {.program = program};
	memset(stuck, 0, sizeof *stuck);
	for (bool goes_on = true; goes_on;) {
		goes_on = false;
		for (int lane = 0; lane < PROGRAM_LANES; lane++)
			if (program_lane(program_rank_of(lane), lane % PROGRAM_THREADS) == lane)
				goes_on |= run_lane(&play, lane);
	}
	for (int lane = 0; lane < PROGRAM_LANES; lane++)
		for (int e = 0; e < program->event_count; e++)
			if (program_takes_part(program, e, lane) && !play.over[lane][e])
				stuck->any = stuck->at[lane][e] = true;
}
