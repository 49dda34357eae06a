/* SPDX-License-Identifier: BSD-3-Clause
 * Random programs with devices, their pools and gates (test/sim/device_program.h) under drawn
 * schedules. A deadlock is a hang; wrong memory is a failure. */
#include <stdio.h>
#include <string.h>

#include "device_program.h"
#include "scheduler.h"
#include "subjects.h"

static struct {
	uint64_t seed;
	int ranks, opened, ended;
	struct device_program *program;
} drawn;

static void draw(uint64_t seed, struct subject_plan *plan)
{
	drawn.seed = seed;
	drawn.ranks = plan->ranks = device_program_ranks(seed);
	plan->opens_itself = true;
	plan->is_well = true;
}

static void second_thread(void *rank)
{
	device_program_run(drawn.program, (int)(intptr_t)rank, 1);
}

static void run(int rank, ls_group *world)
{
	(void)world;
	if (rank == 0) {
		drawn.program = device_program_open(drawn.seed);
		if (!drawn.program)
			scheduler_fail("the simulated devices cannot be opened");
		scheduler_store(&drawn.opened, 1);
	}
	scheduler_await(&drawn.opened, 1, UINT64_MAX);
	int second = scheduler_spawn(rank, "second", second_thread, (void *)(intptr_t)rank);
	device_program_run(drawn.program, rank, 0);
	scheduler_join(second);
	scheduler_store(&drawn.ended, drawn.ended + 1);
	if (rank == 0) {
		scheduler_await(&drawn.ended, drawn.ranks, UINT64_MAX);
		if (!device_program_close(drawn.program))
			scheduler_fail(
				"memory was used by two, not given back, or more than the limit");
	}
}

static void judge(void)
{
}

static void show(FILE *file)
{
	fprintf(file, "a device program of %d ranks\n", drawn.ranks);
}

const struct subject subject_devices = {
	.name = "devices", .weight = 1, .draw = draw, .run = run, .judge = judge, .show = show};
