/* SPDX-License-Identifier: BSD-3-Clause
 * Compares the outcome of a program with what it must be. */
#include <stdarg.h>
#include <string.h>

#include "program.h"

struct judge {
	const struct program *program;
	const struct program_results *results;
	struct program_expectation expected;
	const char *said;
	bool dead; /* the culprit was killed, so its own results do not count */
	char *why;
	size_t bytes;
};

static bool wrong(struct judge *judge, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static bool wrong(struct judge *judge, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(judge->why, judge->bytes, format, arguments);
	va_end(arguments);
	return false;
}

static bool is_live(const struct judge *judge, int rank)
{
	return rank < judge->program->world.ranks &&
	       !(judge->dead && rank == judge->program->culprit);
}

/* Whether the parent failed before all members had made this group. Then members that have it find
 * that others have left. */
static bool is_half_made(const struct judge *judge, int group)
{
	const struct program *program = judge->program;
	for (int e = 0; e < program->event_count; e++)
		for (int lane = 0; lane < PROGRAM_LANES; lane++)
			if (program->events[e].kind == PROGRAM_MAKE &&
			    program->events[e].group == group &&
			    program_takes_part(program, e, lane) &&
			    judge->results->ends[lane][e].status != LS_OK)
				return true;
	return false;
}

/* Whether some rank has found this, and so has aborted all groups (program_run.c, lane_over). */
static bool has_given_up(const struct judge *judge)
{
	const struct program *program = judge->program;
	for (int e = 0; e < program->event_count; e++)
		for (int lane = 0; lane < PROGRAM_LANES; lane++)
			if (program->events[e].kind != PROGRAM_MAKE &&
			    judge->results->ends[lane][e].status == LS_PEER_LEFT &&
			    is_half_made(judge, program->events[e].group))
				return true;
	return false;
}

static bool may_be(const struct judge *judge, int group, ls_status status)
{
	if (status == LS_OK || (status == LS_PEER_LEFT && is_half_made(judge, group)) ||
	    (status == LS_ABORTED && has_given_up(judge)))
		return true;
	return (judge->expected.groups >> group & 1) && (judge->expected.statuses >> status & 1);
}

static bool judge_half(struct judge *judge, int lane, int e)
{
	const struct program_end *end = &judge->results->ends[lane][e];
	const struct program_event *event = &judge->program->events[e];
	int group = event->kind == PROGRAM_MAKE ? judge->program->groups[event->group].parent
						: event->group;
	int rank = program_rank_of(lane), thread = lane % PROGRAM_THREADS;
	if (!end->over)
		return wrong(judge, "r%dt%da%d is not over", rank, thread, e);
	if (!may_be(judge, group, end->status))
		return wrong(judge, "r%dt%da%d ended with %s%s", rank, thread, e,
			     ls_status_name(end->status),
			     judge->results->first_lane == lane && judge->results->first_event == e
				     ? ", the first failure"
				     : "");
	if (judge->expected.stuck.at[lane][e] && end->status == LS_OK && !end->skipped)
		return wrong(judge, "r%dt%da%d ended well, and never can", rank, thread, e);
	return true;
}

static bool judge_halves(struct judge *judge)
{
	const struct program *program = judge->program;
	int first = judge->results->first_lane;
	/* The first failure tells most. */
	if (first >= 0 && is_live(judge, program_rank_of(first)) &&
	    !judge_half(judge, first, judge->results->first_event))
		return false;
	for (int r = 0; r < program->world.ranks; r++)
		if (is_live(judge, r) && !judge->results->rank_over[r])
			return wrong(judge, "rank %d has not ended", r);
	for (int lane = 0; lane < PROGRAM_LANES; lane++)
		for (int e = 0; e < program->event_count; e++)
			if (is_live(judge, program_rank_of(lane)) &&
			    program_takes_part(program, e, lane) && !judge_half(judge, lane, e))
				return false;
	return true;
}

/* Whether the text has the label of one of the halves; true if there are none. */
static bool names_one(const struct judge *judge, const char *text)
{
	bool any = false;
	for (int lane = 0; lane < PROGRAM_LANES; lane++)
		for (int e = 0; e < judge->program->event_count; e++) {
			if (!judge->expected.named.at[lane][e])
				continue;
			char label[32];
			any = true;
			int length = snprintf(label, sizeof label, "r%dt%da%d",
					      program_rank_of(lane), lane % PROGRAM_THREADS, e);
			for (const char *at = text; (at = strstr(at, label)); at++)
				if (at[length] < '0' || at[length] > '9')
					return true;
		}
	return !any;
}

/* All reports of one group must be alike, with the right status and rank, and name what they
 * must. */
static bool judge_group(struct judge *judge, int g, bool *failed)
{
	const struct program_group *group = &judge->program->groups[g];
	const struct ls_failure *first = NULL;
	for (int i = 0; i < group->size; i++) {
		int rank = group->members[i];
		const struct ls_failure *failure = &judge->results->failures[rank][g];
		if (!is_live(judge, rank) || failure->size == 0 || failure->status == LS_OK)
			continue;
		if (!may_be(judge, g, failure->status))
			return wrong(judge, "group %d failed with %s on rank %d: %s", g,
				     ls_status_name(failure->status), rank, failure->text);
		bool planted = judge->expected.statuses >> failure->status & 1;
		if (!planted) /* only some members had made it */
			continue;
		if (!first)
			first = failure;
		if (first->status != failure->status || strcmp(first->text, failure->text) != 0)
			return wrong(judge, "group %d has two reports: %s\nand: %s", g, first->text,
				     failure->text);
	}
	if (!first)
		return true;
	*failed = true;
	int culprit = judge->expected.culprit;
	bool nobody = first->rank < 0 && judge->expected.may_blame_nobody;
	if (culprit >= 0 && !nobody && (first->rank < 0 || group->members[first->rank] != culprit))
		return wrong(judge, "rank %d is to blame, not %d of group %d: %s", culprit,
			     first->rank, g, first->text);
	if (!names_one(judge, first->text))
		return wrong(judge, "no call site of the cause is named: %s", first->text);
	return true;
}

static bool judge_plant(struct judge *judge)
{
	bool failed = false;
	for (int g = 0; g < judge->program->group_count; g++)
		if (!judge_group(judge, g, &failed))
			return false;
	if (failed || judge->program->plant == PROGRAM_PLANT_KILLED)
		return true;
	if (!judge->expected.may_end_quietly)
		return wrong(judge, "no call has failed");
	if (judge->said[0] == '\0')
		return wrong(judge, "no call has failed, and no report was printed");
	if (!names_one(judge, judge->said))
		return wrong(judge, "no call site of the cause is named: %s", judge->said);
	return true;
}

bool program_judge(const struct program *program, const struct program_results *results,
		   const char *said, char *why, size_t bytes)
{
	struct judge judge = {
		.program = program, .results = results, .said = said, .why = why, .bytes = bytes};
	why[0] = '\0';
	program_expect(program, &judge.expected);
	judge.dead = program->plant == PROGRAM_PLANT_KILLED && !results->rank_over[program->culprit];
	if (program->plant == PROGRAM_PLANT_KILLED && !judge.dead)
		judge.expected.groups = 0;
	if (!judge_halves(&judge))
		return false;
	if (program->plant != PROGRAM_PLANT_NONE)
		return judge_plant(&judge);
	if (results->seen[0])
		return wrong(&judge, "a look at the healthy program says: %s", results->seen);
	if (said[0])
		return wrong(&judge, "of a healthy program it says: %s", said);
	return true;
}
