/* SPDX-License-Identifier: BSD-3-Clause
 * The exhibits of test/museum under drawn schedules. EXHIBIT names one; else the seed draws one.
 * With SAFE=1 the same program runs on Lockstep. Explore itself draws none (weight 0), because they
 * hang. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exhibits.h"
#include "scheduler.h"
#include "subjects.h"

static struct {
	const struct exhibit *exhibit;
	bool is_safe;
	bool on_groups; /* explore opens the world */
	uint64_t seed;
	int opened, ended;
	struct scene scene;
} drawn;

static const struct exhibit *find(const char *name)
{
	for (int i = 0; i < exhibit_count; i++)
		if (strcmp(exhibits[i].name, name) == 0)
			return &exhibits[i];
	scheduler_fail("there is no exhibit '%s'", name);
}

static void draw(uint64_t seed, struct subject_plan *plan)
{
	const char *name = getenv("EXHIBIT"), *safe = getenv("SAFE");
	drawn.exhibit = name ? find(name) : &exhibits[seed % (uint64_t)exhibit_count];
	drawn.is_safe = safe && strcmp(safe, "1") == 0;
	drawn.on_groups = drawn.is_safe && drawn.exhibit->on_groups;
	drawn.seed = drawn.scene.seed = seed;
	plan->ranks = drawn.exhibit->ranks;
	plan->opens_itself = !drawn.on_groups;
	plan->is_well = true;
	snprintf(plan->name, sizeof plan->name, "%s", drawn.exhibit->name);
}

static void play(int rank, int thread)
{
	const struct exhibit *exhibit = drawn.exhibit;
	bool on_lockstep = drawn.is_safe && exhibit->on_lockstep;
	(on_lockstep ? exhibit->on_lockstep : exhibit->run)(&drawn.scene, rank, thread);
}

static void second_thread(void *rank)
{
	play((int)(intptr_t)rank, 1);
}

static void device(int rank, char *out, size_t bytes)
{
	if (drawn.on_groups && drawn.exhibit->device)
		snprintf(out, bytes, "%s,seed=%d", drawn.exhibit->device,
			 (int)(drawn.seed % 100000) + rank);
}

static void opened(int rank, ls_group *world)
{
	(void)world;
	groups_opened(&drawn.scene, drawn.exhibit, rank);
}

static void run_on_groups(int rank, ls_group *world)
{
	drawn.exhibit->on_groups(&drawn.scene, world, rank);
	groups_closed(&drawn.scene, drawn.exhibit, world, rank);
	drawn.ended++;
}

static void run(int rank, ls_group *world)
{
	if (drawn.on_groups) {
		run_on_groups(rank, world);
		return;
	}
	if (rank == 0) {
		if (!scene_open(&drawn.scene, drawn.exhibit, drawn.is_safe, drawn.seed))
			scheduler_fail("the simulated device cannot be opened");
		scheduler_store(&drawn.opened, 1);
	}
	scheduler_await(&drawn.opened, 1, UINT64_MAX);
	int second = drawn.exhibit->threads == 2
			     ? scheduler_spawn(rank, "second", second_thread, (void *)(intptr_t)rank)
			     : -1;
	play(rank, 0);
	if (second >= 0)
		scheduler_join(second);
	scheduler_store(&drawn.ended, drawn.ended + 1);
	if (rank == 0) {
		scheduler_await(&drawn.ended, drawn.exhibit->ranks, UINT64_MAX);
		scene_close(&drawn.scene, drawn.exhibit);
	}
}

/* Whether each message has this id. */
static bool is_only(const char *said, const char *id)
{
	size_t length = strlen(id);
	while ((said = strstr(said, "[LS-")) != NULL) {
		said++;
		if (strncmp(said, id, length) != 0 || said[length] != ']')
			return false;
	}
	return true;
}

static void judge(void)
{
	const char *said = scheduler_said(), *may_say = drawn.exhibit->says;
	if (drawn.ended != drawn.exhibit->ranks)
		scheduler_fail("only %d ranks have ended", drawn.ended);
	if (said[0] && (!may_say || !is_only(said, may_say)))
		scheduler_fail("the library printed: %s", said);
}

static void show(FILE *file)
{
	fprintf(file, "%s%s\n", drawn.exhibit->title, drawn.is_safe ? ", on Lockstep" : "");
}

const struct subject subject_museum = {.name = "museum",
				       .weight = 0,
				       .draw = draw,
				       .device = device,
				       .opened = opened,
				       .run = run,
				       .judge = judge,
				       .show = show};
