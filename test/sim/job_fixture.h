/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: a job whose ranks are threads, each with a simulated device of its own and two
 * streams. */
#ifndef SIM_JOB_FIXTURE_H
#define SIM_JOB_FIXTURE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/must_fixture.h"
#include "sim.h"
#include "sim_driver.h"

enum { RANKS = 3, STREAMS = 2 };

struct rank;
typedef void rank_program(struct rank *rank);

struct rank {
	char rendezvous[64];
	const char *options; /* of the driver */
	int rank;
	ls_group *group;
	struct sim *sim;
	struct sim_stream *streams[STREAMS];
	rank_program *program;
	pthread_t thread;
	bool opened; /* false: the device could not be opened */
};

/* Of the groups of jobs that run from now on. */
static uint32_t job_timeout_ms = 60000;

static inline bool open_streams(struct rank *rank)
{
	for (int i = 0; i < STREAMS; i++)
		if (sim_stream_open(rank->sim, rank->rank, &rank->streams[i]) != SIM_OK)
			return false;
	return true;
}

static inline void *rank_main(void *argument)
{
	struct rank *rank = argument;
	char device[128];
	snprintf(device, sizeof device, "sim:%d,%s", rank->rank, rank->options);
	struct ls_group_options options = {.size = sizeof options,
					   .timeout_ms = job_timeout_ms,
					   .open_timeout_ms = 60000,
					   .rank = rank->rank,
					   .world_size = RANKS,
					   .rendezvous = rank->rendezvous,
					   .device = device};
	if (ls_group_open(&options, &rank->group) != LS_OK)
		return NULL;
	rank->sim = lockstep_sim();
	rank->opened = open_streams(rank);
	if (rank->opened)
		rank->program(rank);
	ls_group_close(rank->group);
	return NULL;
}

static inline void run_job(rank_program *program, const char *options)
{
	static unsigned serial;
	struct rank ranks[RANKS];
	char rendezvous[64];
	snprintf(rendezvous, sizeof rendezvous, "unix:sim-job-test-%d-%u", (int)getpid(), serial++);
	for (int r = 0; r < RANKS; r++) {
		ranks[r] = (struct rank){.rank = r, .program = program, .options = options};
		memcpy(ranks[r].rendezvous, rendezvous, sizeof rendezvous);
		MUST(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]) == 0);
	}
	for (int r = 0; r < RANKS; r++)
		pthread_join(ranks[r].thread, NULL);
}

/* ---- what ranks do ---- */

static inline struct ls_call_options on(struct rank *rank, int stream)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options),
					.stream = rank->streams[stream]};
}

static inline void *device_block(struct rank *rank, size_t bytes)
{
	void *block;
	MUST(ls_device_alloc(rank->group, bytes, rank->streams[0], &block) == LS_OK);
	return block;
}

static inline void to_device(struct rank *rank, int stream, void *to, const void *from, size_t bytes)
{
	if (bytes)
		MUST(sim_copy(rank->streams[stream], to, from, bytes) == SIM_OK);
}

/* Returns once it has arrived. */
static inline void to_host(struct rank *rank, int stream, void *to, const void *from, size_t bytes)
{
	if (bytes)
		MUST(sim_copy(rank->streams[stream], to, from, bytes) == SIM_OK);
	MUST(sim_stream_sync(rank->streams[stream]) == SIM_OK);
}

#endif
