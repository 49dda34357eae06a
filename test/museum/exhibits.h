/* SPDX-License-Identifier: BSD-3-Clause
 * Programs that deadlock on devices, each as it is known from other libraries, and the same
 * programs with Lockstep. They run on the simulated device. Ranks are threads of one process, each
 * with a simulated process of its own. */
#ifndef TEST_MUSEUM_EXHIBITS_H
#define TEST_MUSEUM_EXHIBITS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <lockstep/group.h>

#include "pool/gate.h"
#include "pool/pool.h"
#include "sim.h"
#include "sim_driver.h"

enum { EXHIBIT_RANKS = 3, EXHIBIT_THREADS = 2, EXHIBIT_STREAMS = 2, EXHIBIT_WORDS = 16 };

/* The state of one rank. */
struct exhibit_rank {
	struct sim *sim;
	struct sim_stream *streams[EXHIBIT_STREAMS]; /* the second is on the last device */
	/* As in PyTorch: the lock of the caching allocator; the lock of what must not free during a
	 * launch. */
	pthread_mutex_t allocator_lock, free_lock;
	void *cached; /* a block that the allocator could give back */
	/* On Lockstep, in place of the two locks and the allocator: */
	struct waiter waiter;
	struct pool_gate gate;
	struct sim_driver drivers[EXHIBIT_STREAMS];
	struct pool *pool;                               /* of the first device */
	struct pool_inflight *inflight[EXHIBIT_STREAMS]; /* of each stream */
	void *block; /* of the pool, half of the memory; in use */
	int owner;   /* the number of the stream that it belongs to */
};

struct scene {
	bool is_safe; /* with Lockstep */
	uint64_t seed;
	struct sim_board board;
	_Atomic uint64_t words[EXHIBIT_WORDS];
	struct wait_bell bells[EXHIBIT_RANKS]; /* for threads that wait for a word on the host */
	struct exhibit_rank ranks[EXHIBIT_RANKS];
};

struct exhibit {
	const char *name;  /* "allocator-lock" */
	const char *title; /* what deadlocks, in one sentence */
	int ranks, threads;
	struct sim_options options; /* without seed and board */
	void (*run)(struct scene *scene, int rank, int thread);
	/* The same work with pool and gate. NULL: see `on_groups`. */
	void (*on_lockstep)(struct scene *scene, int rank, int thread);
	/* The same work with public calls, with the device of the rank. */
	void (*on_groups)(struct scene *scene, ls_group *world, int rank);
	const char *device; /* for on_groups: the option `device`; NULL: none */
	const char *says;   /* the message that Lockstep may print then; NULL: none */
};

/* On Lockstep, if the moment matters in which memory is given back, the work is repeated. */
enum { EXHIBIT_ROUNDS = 6 };
/* How many collectives there are, of which one fails; and the word that says in which round. */
enum { EXHIBIT_LAUNCHES = 3, EXHIBIT_CAUSE = 9 };

enum { EXHIBIT_DEVICE_BYTES = 8 << 20, EXHIBIT_HALF = EXHIBIT_DEVICE_BYTES / 2 };

extern const struct exhibit exhibits[];
extern const int exhibit_count;

/* ---- for the exhibits ---- */

void exhibit_must(enum sim_error error);
/* One member's part of a collective: stores `round`, from 1, to words[first + member], and spins
 * until all of words[first] … words[first + members - 1] have reached it. */
void exhibit_launch_collective(struct scene *scene, struct sim_stream *stream, int first,
			       int member, int members, uint64_t round);
enum sim_error exhibit_try_collective(struct scene *scene, struct sim_stream *stream, int first,
				      int member, int members, uint64_t round);
/* A kernel that waits for nothing. */
void exhibit_launch_local(struct sim_stream *stream);
/* A message from rank to rank, on the host. */
void exhibit_tell(struct scene *scene, int word);
void exhibit_await(struct scene *scene, int rank, int word);
/* A function that the device calls, which locks and unlocks this mutex. */
void exhibit_take_lock(void *mutex);

/* ---- on_lockstep.c ---- */

bool lockstep_open(struct scene *scene, const struct exhibit *exhibit, int rank);
void lockstep_close(struct exhibit_rank *rank);
void lockstep_allocator_lock(struct scene *scene, int rank, int thread);
void lockstep_allocator_retry(struct scene *scene, int rank, int thread);
void lockstep_free_between_launches(struct scene *scene, int rank, int thread);
void lockstep_launch_excludes_free(struct scene *scene, int rank, int thread);
void lockstep_retry_synchronises(struct scene *scene, int rank, int thread);
void lockstep_failed_launch(struct scene *scene, int rank, int thread);

/* ---- on_groups.c ---- */

void groups_lazy_pairs(struct scene *scene, ls_group *world, int rank);
void groups_serial_lane(struct scene *scene, ls_group *world, int rank);
void groups_opposite_order(struct scene *scene, ls_group *world, int rank);
void groups_abort_in_error_path(struct scene *scene, ls_group *world, int rank);
void groups_lazy_loading(struct scene *scene, ls_group *world, int rank);
void groups_callback_lock(struct scene *scene, ls_group *world, int rank);
/* Call in the thread that has opened the group; groups_closed at the end, which closes the
 * group. */
void groups_opened(struct scene *scene, const struct exhibit *exhibit, int rank);
void groups_closed(struct scene *scene, const struct exhibit *exhibit, ls_group *world, int rank);

/* Opens what the ranks need. False: no memory or no thread. */
bool scene_open(struct scene *scene, const struct exhibit *exhibit, bool is_safe, uint64_t seed);
void scene_close(struct scene *scene, const struct exhibit *exhibit);

#endif
