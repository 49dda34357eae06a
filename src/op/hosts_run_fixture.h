/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: three ranks, the last one on a host of its own, each with a thread that makes
 * progress. */
#ifndef OP_HOSTS_RUN_FIXTURE_H
#define OP_HOSTS_RUN_FIXTURE_H

#include <sched.h>

#include "op/hosts_unit_fixture.h"

enum { RANKS = 3, REMOTE = 2 };
static const int host_of[RANKS] = {0, 0, 1};

struct progress {
	struct test_hosts *hosts;
	_Atomic bool *stop;
	int rank;
};

/* Stands for whoever makes progress while the rank's own threads sleep. */
static inline void *make_progress(void *argument)
{
	struct progress *progress = argument;
	struct transport *transport =
		&progress->hosts->fixture->job->ranks[progress->rank].transport;
	while (!atomic_load(progress->stop))
		if (!hosts_advance(transport))
			sched_yield();
	return NULL;
}

/* A thread of each rank runs it, while another one makes progress. */
static inline void run(unit_function *function)
{
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct test_hosts *hosts = open_hosts(RANKS, host_of, seed);
		_Atomic bool stop = false;
		struct progress progress[RANKS];
		pthread_t threads[RANKS];
		for (int r = 0; r < RANKS; r++) {
			progress[r] = (struct progress){hosts, &stop, r};
			MUST(pthread_create(&threads[r], NULL, make_progress, &progress[r]) == 0);
		}
		fixture_run(hosts->fixture, function);
		atomic_store(&stop, true);
		for (int r = 0; r < RANKS; r++)
			wait_join(threads[r]);
		close_hosts(hosts);
	}
}

#endif
