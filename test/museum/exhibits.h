/* SPDX-License-Identifier: BSD-3-Clause
 * Programs that deadlock on devices, each as it is known from other stacks, and the same in an
 * order that cannot. They run on the simulated device. Ranks are threads of one process, each with
 * a simulated process of its own. */
#ifndef TEST_MUSEUM_EXHIBITS_H
#define TEST_MUSEUM_EXHIBITS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "sim.h"

enum { EXHIBIT_RANKS = 3, EXHIBIT_THREADS = 2, EXHIBIT_STREAMS = 2, EXHIBIT_WORDS = 16 };

/* What one rank has. */
struct exhibit_rank {
	struct sim *sim;
	struct sim_stream *streams[EXHIBIT_STREAMS]; /* the second is on the last device */
	/* As in PyTorch: of the caching allocator; of what must not free during a launch. */
	pthread_mutex_t allocator_lock, free_lock;
	void *cached; /* a block that the allocator could give back */
};

struct scene {
	bool is_safe; /* the order that cannot deadlock */
	struct sim_board board;
	_Atomic uint64_t words[EXHIBIT_WORDS];
	struct wait_bell bells[EXHIBIT_RANKS]; /* of threads that wait for a word on the host */
	struct exhibit_rank ranks[EXHIBIT_RANKS];
};

struct exhibit {
	const char *name;  /* "allocator-lock" */
	const char *title; /* what deadlocks, in one sentence */
	int ranks, threads;
	struct sim_options options; /* without seed and board */
	void (*run)(struct scene *scene, int rank, int thread);
};

extern const struct exhibit exhibits[];
extern const int exhibit_count;

/* Opens what the ranks need. False: no memory or no thread. */
bool scene_open(struct scene *scene, const struct exhibit *exhibit, bool is_safe, uint64_t seed);
void scene_close(struct scene *scene, const struct exhibit *exhibit);

#endif
