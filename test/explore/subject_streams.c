/* SPDX-License-Identifier: BSD-3-Clause
 * Random programs on streams of simulated devices (test/sim/stream_program.h) under drawn
 * schedules. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "scheduler.h"
#include "stream_program.h"
#include "subjects.h"

static struct stream_program *program;
static uint64_t dies_after; /* points of the rank that is killed */

void stream_program_progress(void)
{
	scheduler_progress();
}

static void draw(uint64_t seed, struct subject_plan *plan)
{
	enum { POINTS = 20000 };
	int culprit;
	program = stream_program_draw(seed, true);
	if (!program)
		exit(2);
	dies_after = (seed >> 20) % POINTS;
	plan->ranks = stream_program_ranks(program);
	plan->is_well = stream_program_fault(program, &culprit) == STREAM_PROGRAM_WELL;
	snprintf(plan->settings, sizeof plan->settings, "%s", stream_program_settings(program));
}

static void device(int rank, char *out, size_t bytes)
{
	stream_program_device(program, rank, out, bytes);
}

static void opened(int rank, ls_group *world)
{
	stream_program_begin(program, rank, world);
}

static void second_thread(void *rank)
{
	stream_program_run(program, (int)(intptr_t)rank, 1);
}

static void run(int rank, ls_group *world)
{
	(void)world;
	int culprit;
	if (stream_program_fault(program, &culprit) == STREAM_PROGRAM_KILLED && rank == culprit)
		scheduler_kill_at(rank, dies_after, SIGKILL);
	int second = scheduler_spawn(rank, "second", second_thread, (void *)(intptr_t)rank);
	stream_program_run(program, rank, 0);
	scheduler_join(second);
	stream_program_end(program, rank);
}

static void judge(void)
{
	static char why[4096];
	if (!stream_program_judge(program, scheduler_said(), why, sizeof why))
		scheduler_fail("%s", why);
}

static void show(FILE *file)
{
	stream_program_show(program, file);
}

const struct subject subject_streams = {.name = "streams",
					.weight = 2,
					.draw = draw,
					.device = device,
					.opened = opened,
					.run = run,
					.judge = judge,
					.show = show};
