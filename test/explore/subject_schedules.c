/* SPDX-License-Identifier: BSD-3-Clause
 * The random schedules of test/ranks under drawn schedules of threads. Each rank has one thread,
 * which makes its calls in any order. A reference matcher says whether they end or deadlock
 * (schedule.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule_run.h"
#include "scheduler.h"
#include "subjects.h"

enum { TEXT_BYTES = 4096 };

static struct schedule schedule;
static struct schedule_verdict verdict;
static struct runner_rank selves[SCHEDULE_RANKS];
static struct schedule_run runs[SCHEDULE_RANKS];
static struct ls_failure failures[SCHEDULE_RANKS];
static int ended;

static void draw(uint64_t seed, struct subject_plan *plan)
{
	int limit = seed >> 20 & 1 ? 64 : 4;
	plan->ranks = 2 + (int)((seed >> 33) % 3);
	schedule_make(seed, plan->ranks, limit, &schedule, &verdict);
	plan->is_well = verdict.outcome != SCHEDULE_DEADLOCKS;
	snprintf(plan->settings, sizeof plan->settings, "LOCKSTEP_MESSAGES=%d", limit);
}

static void run(int rank, ls_group *world)
{
	bool deadlocks = verdict.outcome == SCHEDULE_DEADLOCKS;
	ls_status expected = deadlocks ? LS_DEADLOCK : LS_OK;
	selves[rank] = (struct runner_rank){
		.rank = rank, .size = schedule.ranks, .threads = true, .name = "schedules"};
	schedule_run_begin(&runs[rank], &selves[rank], world, &schedule, 1);
	scheduler_progress();
	if (runs[rank].status != expected)
		scheduler_fail("rank %d: action %d is %s", rank, runs[rank].at,
			       ls_status_name(runs[rank].status));
	if (!deadlocks)
		schedule_run_check(&runs[rank], verdict.unique ? &verdict.ends[0] : NULL);
	schedule_run_end(&runs[rank], expected);
	failures[rank].size = sizeof failures[rank];
	if (ls_group_failure(world, &failures[rank]) != LS_OK)
		scheduler_fail("rank %d does not know whether its group has failed", rank);
	ls_group_close(world);
	ended++;
}

/* Whether the schedule also ends well if no message is buffered. */
static bool ends_unbuffered(void)
{
	static struct schedule longer;
	static struct schedule_verdict of_longer;
	longer = schedule;
	for (int i = 0; i < SCHEDULE_RANKS; i++)
		if (longer.bytes[i] <= SCHEDULE_BUFFERED)
			longer.bytes[i] = SCHEDULE_BUFFERED + 1;
	schedule_judge(&longer, &of_longer);
	return of_longer.outcome == SCHEDULE_ENDS_WELL;
}

static void judge(void)
{
	bool deadlocks = verdict.outcome == SCHEDULE_DEADLOCKS;
	if (ended != schedule.ranks)
		scheduler_fail("only %d ranks have ended", ended);
	for (int r = 0; r < schedule.ranks; r++)
		if (failures[r].status != (deadlocks ? LS_DEADLOCK : LS_OK) ||
		    (deadlocks && !schedule_run_fits(&runs[r], &verdict, failures[r].text)))
			scheduler_fail("rank %d stopped at %d; the report: %s", r, runs[r].at,
				       failures[r].text);
	/* A message may say that something was sent and not received. */
	if (!deadlocks && !verdict.leftover &&
	    !scheduler_is_only(scheduler_said(), "LS-GROUP-BUFFERED"))
		scheduler_fail("the library printed a message about a schedule that ends well: %s",
			       scheduler_said());
	if (strstr(scheduler_said(), "LS-GROUP-BUFFERED") && ends_unbuffered())
		scheduler_fail(
			"the schedule ends well without buffering, too, but the library says: %s",
			scheduler_said());
}

static void show(FILE *file)
{
	char text[TEXT_BYTES];
	fprintf(file, "it %s\n", verdict.outcome == SCHEDULE_DEADLOCKS ? "deadlocks" : "ends");
	for (int r = 0; r < schedule.ranks; r++) {
		schedule_text(&schedule.programs[r], text, sizeof text);
		fprintf(file, "rank %d: %s\n", r, text);
	}
}

const struct subject subject_schedules = {
	.name = "schedules", .weight = 2, .draw = draw, .run = run, .judge = judge, .show = show};
