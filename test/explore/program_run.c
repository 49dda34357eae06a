/* SPDX-License-Identifier: BSD-3-Clause
 * Runs a program: each lane goes through the events and calls its halves. If a call fails as the
 * plant demands, the lane continues in other groups, which this failure must not affect. At any
 * other failure its rank aborts all groups, so that all ranks end. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program_private.h"
#include "scheduler.h"

/* for failures in code that the harness shares with other tests */
static _Thread_local const struct lane_run *current;

struct program_run *program_run_new(const struct program *program)
{
	struct program_run *run = calloc(1, sizeof *run);
	if (!run)
		return NULL;
	run->program = program;
	run->results.first_lane = run->results.first_event = -1;
	program_expect(program, &run->expectation);
	for (int n = 0; n < PROGRAM_LANES; n++) {
		struct lane_run *lane = &run->lanes[n];
		*lane = (struct lane_run){
			.run = run, .number = n, .rank = program_rank_of(n), .batch = -1};
		snprintf(lane->name, sizeof lane->name, "r%dt%d", lane->rank, n % PROGRAM_THREADS);
	}
	return run;
}

void program_run_free(struct program_run *run)
{
	free(run);
}

/* ---- for program_half.c, program_message.c, program_group.c ---- */

void lane_fail(const struct lane_run *lane, int event, const char *format, ...)
{
	char text[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	scheduler_fail("%sa%d: %s", lane->name, event, text);
}

/* Failures that operation.c and values.c find, in programs without the runner of test/ranks. */
__attribute__((weak)) void runner_fail(const char *file, int line, const char *format, ...)
{
	char text[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	scheduler_fail("%s: %s:%d: %s", current ? current->name : "?", file, line, text);
}

__attribute__((weak)) void runner_expect(const char *file, int line, const char *call,
					 ls_status status, ls_status expected)
{
	if (status != expected)
		runner_fail(file, line, "%s is %s, not %s", call, ls_status_name(status),
			    ls_status_name(expected));
}

__attribute__((weak)) void runner_note(const struct runner_rank *self, const char *format, ...)
{
	(void)self;
	(void)format;
}

ls_group *lane_group(const struct lane_run *lane, int group)
{
	return lane->run->groups[lane->rank][group];
}

struct ls_call_options lane_options(const struct lane_run *lane, int event, char label[LABEL_BYTES])
{
	snprintf(label, LABEL_BYTES, "%sa%d", lane->name, event);
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .label = label};
}

static bool is_planted(const struct program_run *run, int event, ls_status status)
{
	const struct program_event *of = &run->program->events[event];
	int group = of->kind == PROGRAM_MAKE ? run->program->groups[of->group].parent : of->group;
	return (run->expectation.groups >> group & 1) && (run->expectation.statuses >> status & 1);
}

static void tear_down(struct lane_run *lane)
{
	for (int g = 0; g < lane->run->program->group_count; g++) {
		ls_group *group = lane_group(lane, g);
		if (group && ls_group_abort(group, "torn down after a failure") != LS_OK)
			lane_fail(lane, 0, "a group cannot be given up");
	}
}

void lane_over(struct lane_run *lane, int event, ls_status status)
{
	struct program_run *run = lane->run;
	struct program_end *end = &run->results.ends[lane->number][event];
	end->status = status;
	end->end_ns = scheduler_now_ns();
	end->order = word_add(&run->order, 1);
	end->over = true;
	if (status != LS_OK && !is_planted(run, event, status))
		tear_down(lane);
	if (run->program->events[event].kind != PROGRAM_MAKE)
		word_add(&run->finished[lane->rank][run->program->events[event].group], 1);
	word_add(&run->over[lane->number][event], 1);
	scheduler_progress();
}

/* ---- a lane ---- */

/* The lane of the other half ends first, or dies, and meanwhile this lane is not in the library.
 * The other lane may belong to another rank, so a proof must not take this for a sleep that only
 * its own process can end. */
static void stay_away(struct lane_run *lane, int event)
{
	enum { SLICE_NS = 1000000 };
	const struct program_event *of = &lane->run->program->events[event];
	int other = of->from == lane->number ? of->to : of->from;
	const int *over = &lane->run->over[other][event];
	while (!scheduler_is_killed(program_rank_of(other)) &&
	       !scheduler_await(over, 1, scheduler_now_ns() + SLICE_NS))
		;
}

static void give_up(struct lane_run *lane, int event)
{
	char reason[2 * LABEL_BYTES];
	snprintf(reason, sizeof reason, "%sa%d gives up", lane->name, event);
	lane_over(lane, event,
		  ls_group_abort(lane_group(lane, lane->run->program->events[event].group), reason));
}

static void be_killed(struct lane_run *lane, int event)
{
	enum { KILL = 9 };
	scheduler_kill_at(lane->rank, lane->run->program->events[event].repeat, KILL);
	lane_over(lane, event, LS_OK);
}

static void call_half(struct lane_run *lane, int event)
{
	switch ((enum program_kind)lane->run->program->events[event].kind) {
	case PROGRAM_MESSAGE:
	case PROGRAM_SERVER:
		message_begin(lane, event);
		break;
	case PROGRAM_BLOCKS:
		blocks_run(lane, event);
		break;
	case PROGRAM_CANCEL_SEND:
	case PROGRAM_CANCEL_RECV:
		if (lane->number == lane->run->program->events[event].from) {
			cancel_run(lane, event);
			break;
		}
		stay_away(lane, event);
		lane_over(lane, event, LS_OK);
		break;
	case PROGRAM_COLLECTIVE:
		collective_begin(lane, event);
		break;
	case PROGRAM_MAKE:
		group_make(lane, event);
		break;
	case PROGRAM_CLOSE:
		group_close_one(lane, event);
		break;
	case PROGRAM_REGISTER:
		region_register(lane, event);
		break;
	case PROGRAM_DEREGISTER:
		region_deregister(lane, event);
		break;
	case PROGRAM_ABORT:
		give_up(lane, event);
		break;
	case PROGRAM_KILL:
		be_killed(lane, event);
		break;
	case PROGRAM_KIND_COUNT:
		break;
	}
}

static void skip(struct lane_run *lane, int event)
{
	lane->run->results.ends[lane->number][event].skipped = true;
	if (lane->run->program->events[event].kind == PROGRAM_MAKE)
		word_add(&lane->run->made[lane->rank][lane->run->program->events[event].group], 1);
	lane_over(lane, event, LS_OK);
}

static void run_event(struct lane_run *lane, int event)
{
	struct program_run *run = lane->run;
	const struct program *program = run->program;
	const struct program_event *of = &program->events[event];
	const struct program_half *half = &of->halves[lane->number];
	struct program_end *end = &run->results.ends[lane->number][event];
	int needed = of->kind == PROGRAM_MAKE ? program->groups[of->group].parent : of->group;
	if (of->kind == PROGRAM_CLOSE)
		half_flush(lane, of->group, true, -1);
	if (!program_takes_part(program, event, lane->number))
		return;
	half_flush(lane, -1, false, event);
	scheduler_await(&run->made[lane->rank][needed], 1, UINT64_MAX);
	end->begun = true;
	end->begin_ns = scheduler_now_ns();
	if (half->otherwise & PROGRAM_AWAY)
		stay_away(lane, event);
	if (half->otherwise & (PROGRAM_ABSENT | PROGRAM_AWAY) || !lane_group(lane, needed))
		skip(lane, event);
	else
		call_half(lane, event);
	lane->halves++;
}

/* The library knows a thread only once that has made a call, so no thread of a rank waits before
 * all have called. It always knows the main thread, so that one may come later than all others. */
static void come_in(struct lane_run *lane)
{
	enum { TAG_NOBODY = 9999, LATE_NS_MAX = 40000000 };
	static const int never;
	struct program_run *run = lane->run;
	struct ls_call_options options = {.size = sizeof options, .tag = TAG_NOBODY};
	struct ls_message message = {.size = sizeof message};
	uint64_t random = run->program->seed >> 7;
	bool is_main = lane->number % PROGRAM_THREADS == 0;
	int others = run->program->threads[lane->rank] - 1;
	if (is_main)
		scheduler_await(&run->came[lane->rank], others, UINT64_MAX);
	if (is_main && random % 4 == (uint64_t)lane->rank)
		scheduler_await(&never, 1, scheduler_now_ns() + (random >> 2) % LATE_NS_MAX);
	ls_status status = ls_iprobe(lane_group(lane, 0), lane->rank, &options, &message);
	/* Other lanes may have begun, and failed, before this thread comes. */
	bool may_fail = run->program->plant != PROGRAM_PLANT_NONE;
	if (status != LS_PENDING && (status == LS_OK || !may_fail))
		lane_fail(lane, 0, "a probe before anything else gives %s", ls_status_name(status));
	if (is_main)
		return;
	word_add(&run->came[lane->rank], 1);
	scheduler_await(&run->came[lane->rank], others, UINT64_MAX);
}

static void run_lane(void *data)
{
	struct lane_run *lane = data;
	current = lane;
	come_in(lane);
	for (int e = 0; e < lane->run->program->event_count; e++)
		run_event(lane, e);
	half_flush(lane, -1, true, -1);
	region_free(lane);
	lane->run->results.lane_end_ns[lane->number] = scheduler_now_ns();
	current = NULL;
}

/* ---- a rank ---- */

static void note_failures(struct program_run *run, int rank)
{
	for (int g = 0; g < run->program->group_count; g++) {
		struct ls_failure *failure = &run->results.failures[rank][g];
		ls_group *group = run->groups[rank][g];
		*failure = (struct ls_failure){.size = sizeof *failure};
		if (!group || ls_group_failure(group, failure) != LS_OK)
			failure->size = 0;
	}
}

void program_run_rank(struct program_run *run, int rank, ls_group **world)
{
	const struct program *program = run->program;
	run->groups[rank][0] = *world;
	word_add(&run->made[rank][0], 1);
	for (int t = 1; t < program->threads[rank]; t++) {
		struct lane_run *lane = &run->lanes[program_lane(rank, t)];
		lane->thread = scheduler_spawn(rank, lane->name, run_lane, lane);
	}
	run_lane(&run->lanes[program_lane(rank, 0)]);
	for (int t = 1; t < program->threads[rank]; t++)
		scheduler_join(run->lanes[program_lane(rank, t)].thread);
	note_failures(run, rank);
	for (int g = program->group_count - 1; g > 0; g--)
		ls_group_close(run->groups[rank][g]);
	if (program->plant != PROGRAM_PLANT_NONE) {
		ls_group_close(*world);
		*world = NULL;
	}
	run->results.rank_over[rank] = true;
	word_add(&run->ranks_over, 1);
	scheduler_progress();
}

static void find_first(struct program_run *run)
{
	struct program_results *results = &run->results;
	int first = INT32_MAX;
	for (int n = 0; n < PROGRAM_LANES; n++)
		for (int e = 0; e < run->program->event_count; e++) {
			const struct program_end *end = &results->ends[n][e];
			if (!end->over || end->status == LS_OK || end->order >= first)
				continue;
			first = end->order;
			results->first_lane = n;
			results->first_event = e;
		}
}

const struct program_results *program_run_results(struct program_run *run)
{
	find_first(run);
	return &run->results;
}

bool program_run_spoiled(struct program_run *run)
{
	find_first(run);
	return run->program->plant != PROGRAM_PLANT_NONE || run->results.first_lane >= 0;
}
