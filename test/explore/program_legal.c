/* SPDX-License-Identifier: BSD-3-Clause
 * Checks the rules of program.h for any program, whoever has made it. */
#include <string.h>

#include "operation.h"
#include "program.h"
#include "values.h"

enum { BLOCKS_KEPT = 64, MIXED = -1 };
/* Tags: of pairs of lanes; of events with a tag of their own; of groups that members make. */
enum { TAG_EVENT = 2048, TAG_GROUP = 4096 };

int program_rank_in(const struct program_group *group, int rank)
{
	for (int i = 0; i < group->size; i++)
		if (group->members[i] == rank)
			return i;
	return -1;
}

int program_collector(const struct program_group *group, int rank)
{
	return program_lane(rank, group->threads[rank]);
}

int program_tag(const struct program *program, int e)
{
	const struct program_event *event = &program->events[e];
	if (event->kind == PROGRAM_MESSAGE)
		return (event->from * PROGRAM_LANES + event->to) * 4 + event->tag;
	return event->kind == PROGRAM_MAKE ? TAG_GROUP + event->group : TAG_EVENT + e;
}

static bool is_collector(const struct program_group *group, int lane)
{
	int rank = program_rank_of(lane);
	return program_rank_in(group, rank) >= 0 && program_collector(group, rank) == lane;
}

bool program_takes_part(const struct program *program, int e, int lane)
{
	const struct program_event *event = &program->events[e];
	const struct program_group *group = &program->groups[event->group];
	switch ((enum program_kind)event->kind) {
	case PROGRAM_MESSAGE:
	case PROGRAM_BLOCKS:
	case PROGRAM_CANCEL_SEND:
	case PROGRAM_CANCEL_RECV:
		return lane == event->from || lane == event->to;
	case PROGRAM_SERVER:
		return lane == event->to || (event->senders >> lane & 1);
	case PROGRAM_ABORT:
	case PROGRAM_KILL:
		return lane == event->from;
	case PROGRAM_MAKE:
		if (!is_collector(&program->groups[group->parent], lane))
			return false;
		return group->how != PROGRAM_FROM_MEMBERS ||
		       program_rank_in(group, program_rank_of(lane)) >= 0;
	default:
		return is_collector(group, lane);
	}
}

/* ---- */

struct check {
	const struct program *program;
	bool made[PROGRAM_GROUPS], open[PROGRAM_GROUPS];
	int messages[PROGRAM_GROUPS][PROGRAM_RANKS][PROGRAM_RANKS];
	int pairs[PROGRAM_GROUPS][PROGRAM_RANKS][PROGRAM_RANKS];
	int events[PROGRAM_GROUPS];   /* with messages */
	bool any_tag[PROGRAM_GROUPS]; /* …one of them for any tag */
	int kept[PROGRAM_RANKS][PROGRAM_RANKS];
};

static bool is_lane(const struct program *program, int lane)
{
	return lane < PROGRAM_LANES && program_rank_of(lane) < program->world.ranks &&
	       lane % PROGRAM_THREADS < program->threads[program_rank_of(lane)];
}

static bool is_member(const struct check *check, int group, int lane)
{
	return is_lane(check->program, lane) &&
	       program_rank_in(&check->program->groups[group], program_rank_of(lane)) >= 0;
}

static void count_messages(struct check *check, int group, int from, int to, int count)
{
	int a = program_rank_of(from), b = program_rank_of(to);
	int pair = 1 + from * PROGRAM_LANES + to, *known = &check->pairs[group][a][b];
	check->messages[group][a][b] += count;
	*known = *known == 0 || *known == pair ? pair : MIXED;
}

static const char *check_group(const struct program *program, int number)
{
	const struct program_group *group = &program->groups[number];
	if (group->size < 1 || group->size > program->world.ranks)
		return "the size of a group";
	if ((number == 0) != (group->how == PROGRAM_WORLD) || group->how > PROGRAM_FROM_MEMBERS ||
	    (number > 0 && group->parent >= number))
		return "how a group is made";
	for (int i = 0; i < group->size; i++) {
		int rank = group->members[i];
		if (rank >= program->world.ranks || program_rank_in(group, rank) != i)
			return "the members of a group";
		if (group->threads[rank] >= program->threads[rank])
			return "the threads of a group";
		if (number > 0 && program_rank_in(&program->groups[group->parent], rank) < 0)
			return "a member is not in the parent";
	}
	return number == 0 && group->size != program->world.ranks ? "the world" : NULL;
}

static const char *check_shape(const struct program *program)
{
	if (program->world.ranks < 2 || program->world.ranks > PROGRAM_RANKS ||
	    program->world.messages < 1 || program->world.messages > 64)
		return "the world";
	for (int r = 0; r < program->world.ranks; r++)
		if (program->threads[r] < 1 || program->threads[r] > PROGRAM_THREADS ||
		    (program->world.serial && program->threads[r] > 1))
			return "the threads of a rank";
	if (program->group_count < 1 || program->group_count > PROGRAM_GROUPS ||
	    program->event_count > PROGRAM_EVENTS || program->plant >= PROGRAM_PLANT_COUNT ||
	    program->plant_event > program->event_count || program->culprit >= program->world.ranks)
		return "a number is out of range";
	for (int g = 0; g < program->group_count; g++) {
		const char *why = check_group(program, g);
		if (why)
			return why;
	}
	return NULL;
}

static bool is_sent(const struct program_event *event, int lane)
{
	return !(event->halves[lane].otherwise & (PROGRAM_ABSENT | PROGRAM_AWAY));
}

static const char *check_ends(struct check *check, const struct program_event *event)
{
	const struct program *program = check->program;
	int group = event->group;
	if (!is_member(check, group, event->from) || !is_member(check, group, event->to))
		return "a lane is not there, or not in the group";
	if (event->from == event->to &&
	    (event->kind != PROGRAM_MESSAGE || event->repeat > 1 || program->world.serial ||
	     event->halves[event->from].form == PROGRAM_BLOCKING))
		return "a lane that sends to itself";
	if (event->kind != PROGRAM_CANCEL_RECV && is_sent(event, event->from))
		count_messages(check, group, event->from, event->to, event->repeat);
	if (event->kind == PROGRAM_CANCEL_SEND && event->bytes <= PROGRAM_SHORT)
		return "a short send cannot be taken back";
	if (event->kind != PROGRAM_MESSAGE && program->world.serial && event->kind != PROGRAM_BLOCKS)
		return "nothing is taken back where messages wait for each other";
	return NULL;
}

static const char *check_kept(struct check *check, const struct program_event *event)
{
	int *kept = &check->kept[program_rank_of(event->from)][program_rank_of(event->to)];
	const struct program_half *to = &event->halves[event->to];
	if (event->kind == PROGRAM_BLOCKS) {
		if (*kept > 0)
			return "too many blocks are kept";
		*kept = BLOCKS_KEPT;
	} else if (to->form == PROGRAM_BLOCK && to->lag > 0) {
		*kept += event->repeat;
	}
	return *kept > BLOCKS_KEPT ? "too many blocks are kept" : NULL;
}

static const char *check_server(struct check *check, const struct program_event *event)
{
	if (!is_member(check, event->group, event->to) || event->senders == 0 ||
	    (event->senders >> event->to & 1))
		return "the lanes of a server";
	for (int lane = 0; lane < PROGRAM_LANES; lane++)
		if (event->senders >> lane & 1) {
			if (!is_member(check, event->group, lane))
				return "the senders to a server";
			if (is_sent(event, lane))
				count_messages(check, event->group, lane, event->to, event->repeat);
		}
	return NULL;
}

static const char *check_collective(const struct program *program, const struct program_event *event)
{
	if (event->operation >= OPERATION_EXCHANGE || event->dtype >= VALUES_DTYPES ||
	    event->op >= VALUES_OPS || event->root >= program->groups[event->group].size)
		return "a collective";
	struct operation_facts facts = operation_facts((enum operation_kind)event->operation);
	return facts.reduces && !values_allowed((ls_dtype)event->dtype, (ls_reduce_op)event->op)
		       ? "a dtype with this op"
		       : NULL;
}

static const char *check_make(struct check *check, const struct program_event *event)
{
	const struct program_group *group = &check->program->groups[event->group];
	const struct program_group *parent = &check->program->groups[group->parent];
	if (event->group == 0 || check->made[event->group] || !check->open[group->parent])
		return "a group is made twice, or from one that is not there";
	check->made[event->group] = check->open[event->group] = true;
	if (group->how != PROGRAM_FROM_MEMBERS)
		return NULL;
	check->events[group->parent]++;
	for (int i = 0; i < group->size; i++)
		for (int j = 0; j < group->size; j++)
			if (i != j)
				count_messages(check, group->parent,
					       program_collector(parent, group->members[i]),
					       program_collector(parent, group->members[j]), 2);
	return NULL;
}

static const char *check_kind(struct check *check, const struct program_event *event)
{
	const char *why = NULL;
	switch ((enum program_kind)event->kind) {
	case PROGRAM_MESSAGE:
	case PROGRAM_BLOCKS:
		why = check_kept(check, event);
		/* fallthrough */
	case PROGRAM_CANCEL_SEND:
	case PROGRAM_CANCEL_RECV:
		check->events[event->group]++;
		check->any_tag[event->group] |= event->any_tag;
		return why ? why : check_ends(check, event);
	case PROGRAM_SERVER:
		check->events[event->group]++;
		return check_server(check, event);
	case PROGRAM_COLLECTIVE:
		return check_collective(check->program, event);
	case PROGRAM_CLOSE:
		check->open[event->group] = false;
		return event->group == 0 ? "the world is closed" : NULL;
	case PROGRAM_ABORT:
	case PROGRAM_KILL:
		return is_member(check, event->group, event->from) ? NULL : "a lane is not there";
	default:
		return NULL;
	}
}

static const char *check_event(struct check *check, int e)
{
	const struct program_event *event = &check->program->events[e];
	if (event->kind >= PROGRAM_KIND_COUNT || event->group >= check->program->group_count ||
	    (event->repeat > PROGRAM_REPEAT && event->kind != PROGRAM_KILL))
		return "an event";
	for (int lane = 0; lane < PROGRAM_LANES; lane++) {
		const struct program_half *half = &event->halves[lane];
		if (half->form >= PROGRAM_FORM_COUNT || half->memory >= PROGRAM_MEMORIES)
			return "a half";
		if (half->otherwise && check->program->plant == PROGRAM_PLANT_NONE)
			return "something goes wrong, without a plant";
	}
	if (event->kind == PROGRAM_MAKE)
		return check_make(check, event);
	if (!check->open[event->group])
		return "a group is used that is not there";
	return check_kind(check, event);
}

static const char *check_places(const struct check *check)
{
	for (int g = 0; g < check->program->group_count; g++) {
		if (check->any_tag[g] && check->events[g] > 1)
			return "a receive of any tag is not alone";
		for (int a = 0; a < PROGRAM_RANKS; a++)
			for (int b = 0; b < PROGRAM_RANKS; b++)
				if (check->messages[g][a][b] > check->program->world.messages &&
				    check->pairs[g][a][b] == MIXED)
					return "more messages than places, of several lanes";
	}
	return NULL;
}

const char *program_is_legal(const struct program *program)
{
	struct check check = {.program = program};
	const char *why = check_shape(program);
	check.open[0] = true;
	for (int e = 0; e < program->event_count && !why; e++)
		why = check_event(&check, e);
	if (!why)
		why = check_places(&check);
	if (why || program->plant != PROGRAM_PLANT_NONE)
		return why;
	struct program_stuck stuck;
	program_play(program, &stuck);
	return stuck.any ? "the program does not end" : NULL;
}
