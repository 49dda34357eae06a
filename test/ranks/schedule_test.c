/* SPDX-License-Identifier: BSD-3-Clause
 * Random schedules on real ranks, compared with the reference matcher: an operation that it says
 * completes does so, with the message that it names, and without any report; a deadlock that it
 * finds is reported, with a true cycle. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator.h"
#include "schedule_run.h"
#include "tests.h"
#include "values.h"

struct schedule_fixture {
	const struct runner_rank *self;
	int limit;
	ls_group *group; /* NULL: to be opened */
	off_t said;      /* bytes on standard error when it was open */
	struct schedule schedule;
	struct schedule_verdict verdict;
	struct schedule_run run;
};

/* Of all ranks together: the runner gives them one file. */
static off_t bytes_said(void)
{
	struct stat file;
	CHECK(fstat(STDERR_FILENO, &file) == 0);
	return file.st_size;
}

static void open_group(struct schedule_fixture *fixture)
{
	if (fixture->group)
		return;
	fixture->group = runner_open(fixture->self);
	runner_meet(fixture->self);
	fixture->said = bytes_said();
	runner_meet(fixture->self);
}

/* All ranks have left the group when this returns, so that they can open it again. */
static void close_group(struct schedule_fixture *fixture)
{
	ls_group_close(fixture->group);
	fixture->group = NULL;
	runner_meet(fixture->self);
}

/* ---- the report ---- */

static void check_report(const struct schedule_fixture *fixture)
{
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(fixture->group, &failure));
	CHECK_THAT(failure.status == LS_DEADLOCK, "the group says %s",
		   ls_status_name(failure.status));
	bool fitting = schedule_run_fits(&fixture->run, &fixture->verdict, failure.text);
	const struct schedule_end *end = &fixture->verdict.ends[0];
	CHECK_THAT(fitting, "stopped at %d, to be stuck at %d waiting for %x; the report: %s",
		   fixture->run.at, end->at[fixture->self->rank], end->waits[fixture->self->rank],
		   failure.text);
}

/* ---- */

static void run_case(struct schedule_fixture *fixture, uint32_t number)
{
	const struct runner_rank *self = fixture->self;
	uint64_t seed = generator_mix(self->seed, values_hash(self->name, strlen(self->name)));
	struct schedule_verdict *verdict = &fixture->verdict;
	schedule_make(generator_mix(seed, number), self->size, fixture->limit, &fixture->schedule,
		      verdict);
	bool deadlocks = verdict->outcome == SCHEDULE_DEADLOCKS;
	open_group(fixture);
	if (deadlocks)
		runner_meet(self); /* nobody still looks whether something was said */
	schedule_run_begin(&fixture->run, self, fixture->group, &fixture->schedule, number);
	ls_status expected = deadlocks ? LS_DEADLOCK : LS_OK;
	CHECK_THAT(fixture->run.status == expected,
		   "action %d is %s; again: --filter %s --seed %llu "
		   "--case %u",
		   fixture->run.at, ls_status_name(fixture->run.status), self->name,
		   (unsigned long long)self->seed, number);
	if (!deadlocks)
		schedule_run_check(&fixture->run, verdict->unique ? &verdict->ends[0] : NULL);
	schedule_run_end(&fixture->run, expected);
	if (deadlocks) {
		check_report(fixture);
		runner_meet(self);
		/* By the thread that has published it, which may still be about to. */
		while (bytes_said() == fixture->said)
			sched_yield();
	} else {
		CHECK_THAT(bytes_said() == fixture->said,
			   "something was said of a healthy schedule");
	}
	if (deadlocks || verdict->leftover)
		close_group(fixture);
}

static void run_cases(const struct runner_rank *self, int limit)
{
	struct schedule_fixture fixture = {.self = self, .limit = limit};
	for (uint32_t number = self->first_case; number < self->last_case; number++)
		run_case(&fixture, number);
	if (fixture.group)
		close_group(&fixture);
}

void random_schedules(struct runner_rank *self)
{
	run_cases(self, 64);
}

/* With few places for messages that are not received. */
void random_schedules_few_places(struct runner_rank *self)
{
	run_cases(self, 4);
}
