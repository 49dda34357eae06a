/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: a job whose ranks are threads, each with a device of its own that is late, and whose
 * memory the processor cannot touch. */
#ifndef GROUP_DEVICE_FIXTURE_H
#define GROUP_DEVICE_FIXTURE_H

#include <unistd.h>

#include <lockstep/lockstep.h>

#include "device/driver_fixture.h"
#include "world/ls_group.h"

enum { RANKS = 3, LIMIT_MS = 60000 };

struct job;
struct rank;
typedef void rank_function(struct rank *rank);

struct rank {
	struct job *job;
	int rank;
	ls_group *group;
	struct late *late;
	rank_function *program;
	pthread_t thread;
};

struct job {
	char rendezvous[64];
	uint64_t seed;
	_Atomic int ready; /* ranks that have a device, and are in no call */
	_Atomic int step;  /* of the test's ranks among themselves */
	int stderr_fd;
	struct rank ranks[RANKS];
};

static inline void *rank_main(void *argument)
{
	struct rank *rank = argument;
	struct ls_group_options options = {.size = sizeof options,
					   .timeout_ms = LIMIT_MS,
					   .rank = rank->rank,
					   .world_size = RANKS,
					   .rendezvous = rank->job->rendezvous};
	MUST(ls_group_open(&options, &rank->group) == LS_OK);
	struct world *world = rank->group->world;
	struct wait_bell *bell = &rank->group->team.members[rank->rank].peer->segment->bell;
	rank->late = late_new(bell, true, rank->job->seed * RANKS + (uint64_t)rank->rank);
	rank->late->driver.waiter = &world->waiter;
	MUST(memory_region_add_device(&world->memory, rank->late->device, LATE_BYTES,
				      &rank->late->driver));
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
	atomic_fetch_add(&rank->job->ready, 1);
	/* A rank that fails at once would end the barrier of the others. */
	while (atomic_load(&rank->job->ready) < RANKS)
		sched_yield();
	rank->program(rank);
	MUST(memory_region_remove(&world->memory, rank->late->device));
	driver_late.close(&rank->late->driver); /* the call has waited for all of it */
	ls_group_close(rank->group);
	free(rank->late);
	return NULL;
}

/* stderr_fd: a file that standard error goes to; -1: it does not. */
static inline void run_capturing(rank_function *program, uint64_t seed, int stderr_fd)
{
	static unsigned serial;
	struct job *job = calloc(1, sizeof *job);
	MUST(job);
	job->seed = seed;
	job->stderr_fd = stderr_fd;
	snprintf(job->rendezvous, sizeof job->rendezvous, "unix:device-memory-test-%d-%u",
		 (int)getpid(), serial++);
	for (int r = 0; r < RANKS; r++) {
		job->ranks[r] = (struct rank){.job = job, .rank = r, .program = program};
		MUST(pthread_create(&job->ranks[r].thread, NULL, rank_main, &job->ranks[r]) == 0);
	}
	for (int r = 0; r < RANKS; r++)
		pthread_join(job->ranks[r].thread, NULL);
	free(job);
}

static inline void run(rank_function *program, uint64_t seed)
{
	run_capturing(program, seed, -1);
}

static inline bool is_idle(struct late *late)
{
	pthread_mutex_lock(&late->lock);
	bool idle = late->done == late->put;
	pthread_mutex_unlock(&late->lock);
	return idle;
}

/* Whether the calling thread's last message has this in it. */
static inline bool has_said(const char *text)
{
	char said[1024];
	return ls_last_error(said, sizeof said) > 0 && strstr(said, text) != NULL;
}

#endif
