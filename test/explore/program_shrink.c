/* SPDX-License-Identifier: BSD-3-Clause
 * Reduces a failing program: drops and simplifies one thing after the other, and keeps each smaller
 * program that still fails and is legal, until none does. An event is dropped with all its halves,
 * so that the rest stays in order. */
#include <string.h>

#include "program.h"

struct shrink {
	struct program *program;
	program_fails *fails;
	void *data;
	int tries, left;
};

/* Keeps `smaller` if it also fails. */
static bool keeps(struct shrink *shrink, const struct program *smaller)
{
	if (shrink->left == 0 || memcmp(smaller, shrink->program, sizeof *smaller) == 0 ||
	    program_is_legal(smaller) != NULL)
		return false;
	shrink->left--;
	shrink->tries++;
	if (!shrink->fails(shrink->data, smaller))
		return false;
	*shrink->program = *smaller;
	return true;
}

static void drop_event(struct program *program, int e)
{
	memmove(&program->events[e], &program->events[e + 1],
		(size_t)(program->event_count - e - 1) * sizeof *program->events);
	program->event_count--;
	memset(&program->events[program->event_count], 0, sizeof *program->events);
	if (e < program->plant_event)
		program->plant_event--;
}

/* The events of a plant belong together. A death needs no event behind it. */
static bool may_drop(const struct program *program, int e)
{
	return program->plant == PROGRAM_PLANT_NONE || e < program->plant_event ||
	       (program->plant == PROGRAM_PLANT_KILLED && e > program->plant_event);
}

static bool drop_events(struct shrink *shrink)
{
	bool any = false;
	for (int length = shrink->program->event_count / 2; length > 0; length /= 2)
		for (int e = shrink->program->event_count - length; e >= 0; e--) {
			struct program smaller = *shrink->program;
			if (e + length > smaller.event_count)
				continue;
			for (int i = e + length - 1; i >= e; i--)
				if (may_drop(&smaller, i))
					drop_event(&smaller, i);
			any |= keeps(shrink, &smaller);
		}
	return any;
}

/* A group with all its events. */
static bool drop_groups(struct shrink *shrink)
{
	bool any = false;
	for (int g = shrink->program->group_count - 1; g > 0; g--) {
		struct program smaller = *shrink->program;
		for (int e = smaller.event_count - 1; e >= 0; e--)
			if (smaller.events[e].group == g && may_drop(&smaller, e))
				drop_event(&smaller, e);
		any |= keeps(shrink, &smaller);
	}
	return any;
}

/* Makes a group of a group one of the world. */
static bool lift_groups(struct shrink *shrink)
{
	bool any = false;
	for (int g = shrink->program->group_count - 1; g > 0; g--) {
		struct program smaller = *shrink->program;
		smaller.groups[g].parent = 0;
		any |= shrink->program->groups[g].parent && keeps(shrink, &smaller);
	}
	return any;
}

/* The last thread of a rank, with all events that it takes part in. */
static bool drop_threads(struct shrink *shrink)
{
	bool any = false;
	for (int r = 0; r < shrink->program->world.ranks; r++) {
		struct program smaller = *shrink->program;
		if (smaller.threads[r] == 1)
			continue;
		int lane = program_lane(r, --smaller.threads[r]);
		for (int g = 0; g < smaller.group_count; g++)
			if (program_collector(&smaller.groups[g], r) == lane)
				smaller.groups[g].threads[r] = 0;
		for (int e = smaller.event_count - 1; e >= 0; e--) {
			struct program_event *event = &smaller.events[e];
			if (event->kind == PROGRAM_SERVER)
				event->senders &= (uint16_t) ~(1u << lane);
			if (program_takes_part(&smaller, e, lane) && may_drop(&smaller, e))
				drop_event(&smaller, e);
		}
		any |= keeps(shrink, &smaller);
	}
	return any;
}

/* Exchanges the numbers of two ranks. */
static int other_rank(int rank, int a, int b)
{
	return rank == a ? b : rank == b ? a : rank;
}

static int other_lane(int lane, int a, int b)
{
	return program_lane(other_rank(program_rank_of(lane), a, b), lane % PROGRAM_THREADS);
}

static void exchange_ranks(struct program *program, int a, int b)
{
	struct program before = *program;
	for (int r = 0; r < PROGRAM_RANKS; r++)
		program->threads[r] = before.threads[other_rank(r, a, b)];
	program->culprit = (uint8_t)other_rank(before.culprit, a, b);
	for (int g = 0; g < program->group_count; g++)
		for (int i = 0; i < PROGRAM_RANKS; i++) {
			struct program_group *group = &program->groups[g];
			group->threads[i] = before.groups[g].threads[other_rank(i, a, b)];
			if (i < group->size)
				group->members[i] = (uint8_t)other_rank(group->members[i], a, b);
		}
	for (int e = 0; e < program->event_count; e++) {
		struct program_event *event = &program->events[e];
		event->from = (uint8_t)other_lane(event->from, a, b);
		event->to = (uint8_t)other_lane(event->to, a, b);
		event->senders = 0;
		for (int lane = 0; lane < PROGRAM_LANES; lane++) {
			int other = other_lane(lane, a, b);
			event->halves[lane] = before.events[e].halves[other];
			if (before.events[e].senders >> other & 1)
				event->senders |= (uint16_t)(1u << lane);
		}
	}
}

static void leave_groups(struct program *program, int rank)
{
	for (int g = 0; g < program->group_count; g++) {
		struct program_group *group = &program->groups[g];
		int at = program_rank_in(group, rank);
		if (at < 0)
			continue;
		memmove(&group->members[at], &group->members[at + 1],
			(size_t)(group->size - at - 1));
		group->members[--group->size] = 0;
		group->threads[rank] = 0;
		for (int e = 0; e < program->event_count; e++)
			if (program->events[e].group == g && program->events[e].root >= group->size)
				program->events[e].root = 0;
	}
}

/* One rank, with all messages that it takes part in. */
static bool drop_rank(struct shrink *shrink, int dropped)
{
	struct program smaller = *shrink->program;
	int rank = --smaller.world.ranks;
	if (smaller.plant == PROGRAM_PLANT_NONE)
		smaller.culprit = (uint8_t)(dropped == 0);
	if (rank < 2 || smaller.culprit == dropped)
		return false;
	exchange_ranks(&smaller, dropped, rank);
	for (int e = smaller.event_count - 1; e >= 0; e--) {
		struct program_event *event = &smaller.events[e];
		bool all = event->kind == PROGRAM_COLLECTIVE || event->kind == PROGRAM_MAKE ||
			   event->kind == PROGRAM_CLOSE || event->kind == PROGRAM_REGISTER ||
			   event->kind == PROGRAM_DEREGISTER;
		bool has = event->kind == PROGRAM_SERVER ? false
							 : program_rank_of(event->from) == rank;
		has |= program_rank_of(event->to) == rank;
		event->senders &= (uint16_t)((1u << program_lane(rank, 0)) - 1);
		has |= event->kind == PROGRAM_SERVER && event->senders == 0;
		if (!all && has && may_drop(&smaller, e))
			drop_event(&smaller, e);
	}
	smaller.threads[rank] = 0;
	leave_groups(&smaller, rank);
	return keeps(shrink, &smaller);
}

static bool drop_ranks(struct shrink *shrink)
{
	bool any = false;
	for (int r = shrink->program->world.ranks - 1; r >= 0; r--)
		any |= drop_rank(shrink, r);
	return any;
}

static bool simplify_halves(struct shrink *shrink)
{
	bool any = false;
	for (int e = 0; e < shrink->program->event_count; e++)
		for (int lane = 0; lane < PROGRAM_LANES; lane++) {
			struct program smaller = *shrink->program;
			struct program_half *half = &smaller.events[e].halves[lane];
			if (!program_takes_part(&smaller, e, lane))
				continue;
			half->form = PROGRAM_BLOCKING;
			half->lag = half->memory = half->choice = 0;
			if (keeps(shrink, &smaller)) {
				any = true;
				continue;
			}
			smaller = *shrink->program;
			half->lag = half->memory = half->choice = 0;
			any |= keeps(shrink, &smaller);
		}
	return any;
}

static bool simplify_events(struct shrink *shrink)
{
	bool any = false;
	for (int e = 0; e < shrink->program->event_count; e++) {
		struct program smaller = *shrink->program;
		struct program_event *event = &smaller.events[e];
		event->repeat = (uint16_t)(event->repeat / 2);
		if (event->repeat > 0 || event->kind == PROGRAM_KILL)
			any |= keeps(shrink, &smaller);
		static const uint32_t shorter[] = {8, 200, PROGRAM_SHORT + 8};
		for (int i = 0; i < 3; i++) {
			smaller = *shrink->program;
			if (event->bytes <= shorter[i])
				continue;
			event->bytes = shorter[i];
			any |= keeps(shrink, &smaller);
		}
		if (event->kind != PROGRAM_SERVER)
			continue;
		for (int lane = 0; lane < PROGRAM_LANES; lane++) {
			smaller = *shrink->program;
			event->senders &= (uint16_t) ~(1u << lane);
			any |= event->senders != 0 && keeps(shrink, &smaller);
		}
	}
	return any;
}

static bool drop_looks(struct shrink *shrink)
{
	struct program smaller = *shrink->program;
	smaller.looks = 0;
	return keeps(shrink, &smaller);
}

int program_shrink(struct program *program, program_fails *fails, void *data, int tries)
{
	struct shrink shrink = {.program = program, .fails = fails, .data = data, .left = tries};
	bool (*const ways[])(struct shrink *) = {drop_looks,  drop_events,     drop_groups,
						 lift_groups, drop_threads,    drop_ranks,
						 drop_events, simplify_halves, simplify_events};
	for (bool any = true; any && shrink.left > 0;) {
		any = false;
		for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
			any |= ways[i](&shrink);
	}
	return shrink.tries;
}
