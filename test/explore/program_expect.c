/* SPDX-License-Identifier: BSD-3-Clause
 * What the outcome of a program with a plant must be, and why. What is before the plant ends by
 * itself, except in a group that the plant makes fail: there each call ends well, or with the
 * plant's status.
 *
 * Playing the program finds the lanes that wait for a call that never comes. No later call can help
 * such a lane, because all later calls are made by lanes that it does not need.
 *
 * dropped-send, -recv   The other rank ends, with all its threads, and closes the group:
 *                       LS_PEER_LEFT names it.
 * odd-…, swapped        Entries with the same number differ: LS_MISMATCH. If a barrier follows, no
 *                       rank passes it, because each learns of the difference before it enters the
 *                       barrier, or in it. In a group's last collective, ranks that only contribute
 *                       data may learn of it when they close the group; or only the last rank to
 *                       close it learns of it, and prints it on standard error.
 * skipped, twice        With a barrier behind, the same. In a group's last collective, ranks may
 *                       also find that a rank has left.
 * odd-message           The receiver finds it: LS_TRUNCATED or LS_MISMATCH.
 * cycle                 Each rank waits for the next, in its first thread; other threads end.
 *                       LS_DEADLOCK.
 * starved-server        All peers of a receive from any source have left, or wait for it. If some
 *                       wait: LS_DEADLOCK. Once none waits any more: what the remaining ranks are
 *                       told first.
 * time-limit            The peer is alive and elsewhere: LS_TIMED_OUT.
 * given-up              LS_ABORTED. The rank that aborts does not close the group before.
 * killed                LS_PEER_DIED in the groups of that rank, once some rank needs it there; so
 *                       perhaps in none. */
#include <string.h>

#include "operation.h"
#include "program.h"

static uint32_t bit(ls_status status)
{
	return 1u << status;
}

static bool has_culprit(const struct program *program, int group)
{
	return program_rank_in(&program->groups[group], program->culprit) >= 0;
}

/* All halves of an event that are called. */
static void add_halves(const struct program *program, int e, struct program_stuck *set)
{
	for (int lane = 0; lane < PROGRAM_LANES; lane++)
		if (program_takes_part(program, e, lane) &&
		    !(program->events[e].halves[lane].otherwise & (PROGRAM_ABSENT | PROGRAM_AWAY)))
			set->any = set->at[lane][e] = true;
}

/* The culprit's own calls of the plant; if it makes none, all calls. */
static void add_culprit(const struct program *program, int group, struct program_stuck *set)
{
	int lane = program_collector(&program->groups[group], program->culprit);
	for (int e = program->plant_event; e < program->event_count; e++)
		if (!(program->events[e].halves[lane].otherwise & PROGRAM_ABSENT))
			set->any = set->at[lane][e] = true;
	if (!set->any)
		add_halves(program, program->plant_event, set);
}

/* With only two ranks nobody can tell which of them differs. */
static int minority(const struct program *program, int group)
{
	return program->groups[group].size > 2 ? program->culprit : -1;
}

static void expect_collective(const struct program *program, struct program_expectation *out)
{
	int first = program->plant_event, last = program->event_count - 1;
	int group = program->events[first].group;
	enum operation_kind kind = (enum operation_kind)program->events[first].operation;
	bool everybody = kind == OPERATION_ALLREDUCE || kind == OPERATION_ALLGATHER ||
			 kind == OPERATION_REDUCE_SCATTER || kind == OPERATION_ALLTOALL ||
			 kind == OPERATION_BARRIER;
	out->statuses = bit(LS_MISMATCH);
	out->culprit = minority(program, group);
	out->may_blame_nobody = true;
	add_culprit(program, group, &out->named);
	switch ((enum program_plant)program->plant) {
	case PROGRAM_PLANT_ODD_COLLECTIVE:
	case PROGRAM_PLANT_SKIPPED:
	case PROGRAM_PLANT_IN_OTHER_ORDER:
		add_halves(program, last, &out->stuck);
		break;
	case PROGRAM_PLANT_ODD_LAST:
		out->may_end_quietly = true;
		break;
	case PROGRAM_PLANT_SKIPPED_LAST:
		out->statuses |= bit(LS_PEER_LEFT);
		out->may_end_quietly = !everybody;
		if (everybody)
			add_halves(program, first, &out->stuck);
		break;
	default: /* called twice */
		out->statuses |= bit(LS_PEER_LEFT);
		out->may_end_quietly = !everybody;
		out->culprit = -1; /* those that have left, perhaps one by one */
		if (everybody)
			out->stuck.any = out->stuck.at[program_collector(
				&program->groups[group], program->culprit)][first] = true;
	}
}

static void expect_stuck(const struct program *program, struct program_expectation *out)
{
	program_play(program, &out->stuck);
	for (int lane = 0; lane < PROGRAM_LANES; lane++)
		memset(out->stuck.at[lane], 0, program->plant_event);
	out->named = out->stuck;
}

static void expect_message(const struct program *program, struct program_expectation *out)
{
	const struct program_event *event = &program->events[program->plant_event];
	expect_stuck(program, out);
	switch ((enum program_plant)program->plant) {
	case PROGRAM_PLANT_ODD_MESSAGE:
		out->statuses = bit(LS_TRUNCATED) | bit(LS_MISMATCH);
		out->stuck.any = out->stuck.at[event->to][program->plant_event] = true;
		add_halves(program, program->plant_event, &out->named);
		break;
	case PROGRAM_PLANT_CYCLE:
		out->statuses = bit(LS_DEADLOCK);
		break;
	case PROGRAM_PLANT_STARVED_SERVER:
		out->statuses = bit(LS_DEADLOCK) | bit(LS_PEER_LEFT);
		break;
	case PROGRAM_PLANT_TIME_LIMIT:
		out->statuses = bit(LS_TIMED_OUT);
		break;
	case PROGRAM_PLANT_GIVEN_UP:
		out->statuses = bit(LS_ABORTED);
		memset(&out->named, 0, sizeof out->named);
		break;
	default:
		out->statuses = bit(LS_PEER_LEFT);
		out->culprit = program->culprit;
	}
}

static void expect_death(const struct program *program, struct program_expectation *out)
{
	out->statuses = bit(LS_PEER_DIED);
	out->culprit = program->culprit;
	for (int g = 0; g < program->group_count; g++)
		if (has_culprit(program, g))
			out->groups |= (uint8_t)(1u << g);
}

void program_expect(const struct program *program, struct program_expectation *out)
{
	memset(out, 0, sizeof *out);
	out->culprit = -1;
	if (program->plant == PROGRAM_PLANT_NONE)
		return;
	if (program->plant == PROGRAM_PLANT_KILLED) {
		expect_death(program, out);
		return;
	}
	for (int e = program->plant_event; e < program->event_count; e++)
		out->groups |= (uint8_t)(1u << program->events[e].group);
	switch ((enum program_plant)program->plant) {
	case PROGRAM_PLANT_ODD_COLLECTIVE:
	case PROGRAM_PLANT_ODD_LAST:
	case PROGRAM_PLANT_SKIPPED:
	case PROGRAM_PLANT_SKIPPED_LAST:
	case PROGRAM_PLANT_TWICE_LAST:
	case PROGRAM_PLANT_IN_OTHER_ORDER:
		expect_collective(program, out);
		break;
	default:
		expect_message(program, out);
	}
}
