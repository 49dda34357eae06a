/* SPDX-License-Identifier: BSD-3-Clause
 * Drawn programs under drawn schedules: some must end well, some have a plant, and in some a rank
 * dies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program_private.h"
#include "scheduler.h"
#include "subjects.h"

static struct program program;
static struct program_run *run;

int word_add(int *word, int more)
{
	scheduler_store(word, *word + more);
	return *word;
}

static void draw_program(uint64_t seed, const struct program_taste *taste, struct subject_plan *plan)
{
	struct program_world world;
	const char *file = getenv("EXPLORE_PROGRAM"), *why = NULL;
	program_draw_world(seed, &world);
	program_make(seed, &world, taste, &program);
	FILE *given = file ? fopen(file, "re") : NULL;
	if (file)
		why = given ? program_read(given, &program) : "it cannot be opened";
	else
		why = program_is_legal(&program);
	if (given)
		fclose(given);
	if (why) {
		printf("%s: %s\n", file ? file : "a program that is not legal", why);
		program_print(&program, stdout);
		exit(2);
	}
	plan->ranks = program.world.ranks;
	snprintf(plan->settings, sizeof plan->settings,
		 "LOCKSTEP_MESSAGES=%d LOCKSTEP_P2P=%s LOCKSTEP_BLOCKING=%d", program.world.messages,
		 program.world.serial ? "serial" : "auto", program.world.blocking);
	run = program_run_new(&program);
	if (!run)
		exit(2);
}

static void draw_healthy(uint64_t seed, struct subject_plan *plan)
{
	struct program_taste taste = {
		.events = 6 + (int)(seed >> 40) % 10, .looks = true, .registers = true};
	draw_program(seed, &taste, plan);
	plan->is_well = true;
}

static void draw_planted(uint64_t seed, struct subject_plan *plan)
{
	struct program_taste taste = {.plants = true,
				      .only = 1 + (int)(seed >> 33) % (PROGRAM_PLANT_KILLED - 1),
				      .events = 3 + (int)(seed >> 40) % 8};
	draw_program(seed, &taste, plan);
}

static void draw_killed(uint64_t seed, struct subject_plan *plan)
{
	struct program_taste taste = {.plants = true,
				      .kills = true,
				      .only = PROGRAM_PLANT_KILLED,
				      .events = 3 + (int)(seed >> 40) % 8};
	draw_program(seed, &taste, plan);
}

static void run_rank(int rank, ls_group *world)
{
	bool looks = rank == 0 && program.looks;
	int looker = looks ? scheduler_spawn(SCHEDULER_NOBODY, "diagnose", program_run_looks, run)
			   : SCHEDULER_NOBODY;
	program_run_rank(run, rank, &world);
	if (looks)
		scheduler_join(looker);
	ls_group_close(world);
}

static void judge(void)
{
	static char why[4096];
	if (!program_judge(&program, program_run_results(run), scheduler_said(), why, sizeof why))
		scheduler_fail("%s", why);
}

static void show(FILE *file)
{
	program_print(&program, file);
}

struct attempt {
	const char *path;
	bool (*fails)(void *data);
	void *data;
};

static bool write_program(const char *path, const struct program *small)
{
	FILE *file = fopen(path, "we");
	if (!file)
		return false;
	program_print(small, file);
	return fclose(file) == 0;
}

static bool still_fails(void *data, const struct program *small)
{
	const struct attempt *attempt = data;
	return write_program(attempt->path, small) && attempt->fails(attempt->data);
}

static void shrink(const char *path, bool (*fails)(void *data), void *data)
{
	enum { TRIES = 200 };
	struct attempt attempt = {path, fails, data};
	FILE *file = fopen(path, "re");
	const char *why = file ? program_read(file, &program) : "it cannot be opened";
	if (file)
		fclose(file);
	if (why)
		return;
	program_shrink(&program, still_fails, &attempt, TRIES);
	write_program(path, &program);
}

const struct subject subject_programs = {.name = "programs",
					 .weight = 6,
					 .draw = draw_healthy,
					 .run = run_rank,
					 .judge = judge,
					 .show = show,
					 .shrink = shrink};
const struct subject subject_planted = {.name = "planted",
					.weight = 4,
					.draw = draw_planted,
					.run = run_rank,
					.judge = judge,
					.show = show,
					.shrink = shrink};
const struct subject subject_killed = {.name = "killed",
				       .weight = 1,
				       .draw = draw_killed,
				       .run = run_rank,
				       .judge = judge,
				       .show = show,
				       .shrink = shrink};
