/* SPDX-License-Identifier: BSD-3-Clause
 * The exhibits. What each shows stands above it; where it happened, in README.md. */
#include "exhibits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { DEVICE_BYTES = 1 << 20, HALF = DEVICE_BYTES / 2 };

static void must(enum sim_error error)
{
	if (error == SIM_OK)
		return;
	fprintf(stderr, "museum: a call to the device failed: %s\n", sim_error_name(error));
	abort();
}

/* ---- kernels ---- */

/* Of a collective: stores its own word, then spins until all members have. */
struct meeting {
	struct scene *scene;
	int first, member, members; /* words[first] … words[first + members - 1] */
};

static enum sim_step meet(struct sim *sim, void *argument)
{
	const struct meeting *meeting = argument;
	_Atomic uint64_t *words = &meeting->scene->words[meeting->first];
	if (atomic_load(&words[meeting->member]) == 0)
		sim_board_store(sim, &words[meeting->member], 1);
	for (int i = 0; i < meeting->members; i++)
		if (atomic_load(&words[i]) == 0)
			return SIM_STEP_SPINS;
	return SIM_STEP_DONE;
}
static const struct sim_kernel collective = {"collective", meet};

static enum sim_step do_nothing(struct sim *sim, void *argument)
{
	(void)sim;
	(void)argument;
	return SIM_STEP_DONE;
}
static const struct sim_kernel local = {"local", do_nothing};

static void launch_collective(struct scene *scene, struct sim_stream *stream, int first, int member,
			      int members)
{
	struct meeting meeting = {scene, first, member, members};
	must(sim_launch(stream, &collective, &meeting, sizeof meeting));
}

/* ---- messages between ranks, on the host ---- */

static void tell(struct scene *scene, int rank, int word)
{
	(void)rank;
	wait_store(&scene->words[word], 1);
	for (int i = 0; i < EXHIBIT_RANKS; i++)
		wait_ring(&scene->bells[i]);
}

static void await(struct scene *scene, int rank, int word)
{
	struct waiter waiter = {.bell = &scene->bells[rank], .look_fd = -1};
	struct wait_word awaited = {.word = &scene->words[word], .edge = {.value = 1, .peer = -1}};
	struct wait_call call = {.words = &awaited, .count = 1, .deadline_ns = CLOCK_NEVER};
	int peer;
	while (wait_words(&waiter, &call, &peer) != LS_OK)
		continue;
}

/* ---- allocator-lock ----
 * A collective keeps frees away from its launch by a lock, and then tells the allocator which
 * stream uses the block. Meanwhile another thread gives cached memory back: it holds the
 * allocator's lock, and wants the other one. */
static void collective_then_record(struct scene *scene, struct exhibit_rank *rank)
{
	pthread_mutex_lock(&rank->free_lock);
	must(sim_launch(rank->streams[0], &local, NULL, 0));
	if (scene->is_safe)
		pthread_mutex_unlock(&rank->free_lock);
	pthread_mutex_lock(&rank->allocator_lock); /* record_stream */
	pthread_mutex_unlock(&rank->allocator_lock);
	if (!scene->is_safe)
		pthread_mutex_unlock(&rank->free_lock);
}

static void give_back(struct exhibit_rank *rank)
{
	pthread_mutex_lock(&rank->free_lock);
	must(sim_free(rank->sim, rank->cached));
	rank->cached = NULL;
	pthread_mutex_unlock(&rank->free_lock);
}

static void allocator_lock(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	if (thread == 0) {
		collective_then_record(scene, here);
		return;
	}
	pthread_mutex_lock(&here->allocator_lock); /* empty_cache */
	give_back(here);
	pthread_mutex_unlock(&here->allocator_lock);
}

/* ---- allocator-retry ----
 * The same, but nobody asked for a free: an allocation that finds no memory gives cached blocks
 * back, with the allocator's lock held. */
static void allocator_retry(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	void *block;
	if (thread == 0) {
		collective_then_record(scene, here);
		return;
	}
	pthread_mutex_lock(&here->allocator_lock);
	enum sim_error error = sim_alloc(here->sim, 0, HALF + 1, &block);
	if (error == SIM_OUT_OF_MEMORY) {
		give_back(here);
		error = sim_alloc(here->sim, 0, HALF + 1, &block);
	}
	must(error);
	pthread_mutex_unlock(&here->allocator_lock);
}

/* ---- free-between-launches ----
 * One process launches the two halves of a collective on its two devices, one after the other.
 * Between them another thread frees memory: the free waits for the first half, with the driver's
 * lock held, which the launch of the second half needs. */
static void free_between_launches(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	if (thread == 0) {
		for (int device = 0; device < 2; device++)
			launch_collective(scene, here->streams[device], 0, device, 2);
		if (scene->is_safe)
			must(sim_free(here->sim, here->cached)); /* put off until both are there */
	} else if (!scene->is_safe) {
		must(sim_free(here->sim, here->cached));
	}
}

/* ---- launch-excludes-free ----
 * Frees and launches exclude each other by a lock, on both of two ranks that exchange messages.
 * Each rank's free waits for the message that it receives; the message that it sends is launched
 * after the free. */
static void launch_excludes_free(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	if (thread == 1 && scene->is_safe)
		return;
	pthread_mutex_lock(&here->free_lock);
	if (thread == 1) {
		must(sim_free(here->sim, here->cached));
		pthread_mutex_unlock(&here->free_lock);
		return;
	}
	must(sim_await(here->streams[0], &scene->words[!rank], 1)); /* receives */
	pthread_mutex_unlock(&here->free_lock);
	pthread_mutex_lock(&here->free_lock);
	must(sim_store(here->streams[1], &scene->words[rank], 1, NULL)); /* sends */
	pthread_mutex_unlock(&here->free_lock);
	if (scene->is_safe) /* put off until nothing is under way that another launch must end */
		must(sim_free(here->sim, here->cached));
}

/* ---- retry-synchronises ----
 * Rank 0 has launched its half of a collective. Its next allocation finds no memory, and waits for
 * the stream, to give back what that uses. Rank 1 launches its half after a message that rank 0
 * sends after the allocation. */
static void retry_synchronises(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	void *block;
	(void)thread;
	if (rank == 1) {
		await(scene, 1, 8);
		launch_collective(scene, here->streams[0], 0, 1, 2);
		return;
	}
	launch_collective(scene, here->streams[0], 0, 0, 2);
	enum sim_error error = sim_alloc(here->sim, 0, HALF + 1, &block);
	if (error == SIM_OUT_OF_MEMORY && !scene->is_safe)
		must(sim_stream_sync(here->streams[0]));
	/* Safe: the caller learns that there is no memory. */
	tell(scene, 0, 8);
}

/* ---- lazy-pairs ----
 * Three ranks send around a ring. Each pair makes its communicator when it first needs it, and
 * making one waits for both members: all wait for their right neighbour. */
static void make_pair(struct scene *scene, int rank, int other)
{
	int low = rank < other ? rank : other, high = rank < other ? other : rank;
	int pair = 2 * (low + high); /* two words for each of the three pairs */
	tell(scene, rank, pair + (rank == high));
	await(scene, rank, pair + (rank == low));
}

static void lazy_pairs(struct scene *scene, int rank, int thread)
{
	int right = (rank + 1) % 3, left = (rank + 2) % 3;
	(void)thread;
	if (scene->is_safe) { /* all pairs, in the same order everywhere, before any message */
		for (int low = 0; low < 2; low++)
			for (int high = low + 1; high < 3; high++)
				if (rank == low || rank == high)
					make_pair(scene, rank, rank == low ? high : low);
		return;
	}
	make_pair(scene, rank, right); /* to send */
	make_pair(scene, rank, left);  /* to receive */
}

/* ---- opposite-order ----
 * Two groups of the same two ranks, each with a stream of its own, on devices that run one kernel
 * at a time. The ranks launch the groups' collectives in opposite orders. */
static void opposite_order(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	(void)thread;
	for (int i = 0; i < 2; i++) {
		int group = rank == 1 && !scene->is_safe ? !i : i;
		launch_collective(scene, here->streams[scene->is_safe ? 0 : group], 2 * group, rank,
				  2);
	}
}

/* ---- lazy-loading ----
 * The first launch of a kernel loads it, which waits until the device is idle. On rank 0 a
 * collective runs, for which rank 1 has not launched its half: it waits for a message that rank 0
 * sends after that launch. */
static void lazy_loading(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	(void)thread;
	if (scene->is_safe) /* loaded before anything runs */
		must(sim_launch(here->streams[0], &local, NULL, 0));
	if (rank == 0) {
		launch_collective(scene, here->streams[0], 0, 0, 2);
		must(sim_launch(here->streams[1], &local, NULL, 0));
		tell(scene, 0, 8);
	} else {
		await(scene, 1, 8);
		launch_collective(scene, here->streams[0], 0, 1, 2);
	}
}

/* ---- callback-lock ----
 * A function that the device calls takes a lock (an interpreter's, say) whose owner waits for the
 * device. */
static void take_lock(void *data)
{
	pthread_mutex_t *lock = data;
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
}

static void callback_lock(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	(void)thread;
	pthread_mutex_lock(&here->allocator_lock);
	must(sim_host(here->streams[0], take_lock, &here->allocator_lock));
	if (scene->is_safe)
		pthread_mutex_unlock(&here->allocator_lock);
	must(sim_stream_sync(here->streams[0]));
	if (!scene->is_safe)
		pthread_mutex_unlock(&here->allocator_lock);
}

/* ---- the table ---- */

const struct exhibit exhibits[] = {
	{"allocator-lock",
	 "the allocator's lock against the lock that keeps frees from launches",
	 1,
	 2,
	 {.devices = 1},
	 allocator_lock},
	{"allocator-retry",
	 "the same, by an allocation that gives cached blocks back",
	 1,
	 2,
	 {.devices = 1},
	 allocator_retry},
	{"free-between-launches",
	 "a free between the launches of a collective on two devices",
	 1,
	 2,
	 {.devices = 2},
	 free_between_launches},
	{"launch-excludes-free",
	 "launches and frees exclude each other, on two ranks",
	 2,
	 2,
	 {.devices = 1},
	 launch_excludes_free},
	{"retry-synchronises",
	 "an allocation without memory waits for a stream with a collective",
	 2,
	 1,
	 {.devices = 1},
	 retry_synchronises},
	{"lazy-pairs",
	 "communicators of pairs are made at first use, around a ring",
	 3,
	 1,
	 {.devices = 1},
	 lazy_pairs},
	{"opposite-order",
	 "two groups in opposite order, one kernel at a time",
	 2,
	 1,
	 {.devices = 1, .resident = 1},
	 opposite_order},
	{"lazy-loading",
	 "a kernel is loaded while a collective runs",
	 2,
	 1,
	 {.devices = 1, .loads_lazily = true},
	 lazy_loading},
	{"callback-lock",
	 "the device's callback takes a lock whose owner waits for the device",
	 1,
	 1,
	 {.devices = 1},
	 callback_lock},
};
const int exhibit_count = sizeof exhibits / sizeof *exhibits;

static bool open_rank(struct scene *scene, const struct exhibit *exhibit, int rank, uint64_t seed)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	struct sim_options options = exhibit->options;
	options.seed = seed + (uint64_t)rank;
	options.board = &scene->board;
	options.bytes = DEVICE_BYTES;
	options.free = SIM_FREE_WAITS;
	pthread_mutex_init(&here->allocator_lock, NULL);
	pthread_mutex_init(&here->free_lock, NULL);
	here->sim = sim_open(&options);
	if (!here->sim)
		return false;
	for (int i = 0; i < EXHIBIT_STREAMS; i++)
		must(sim_stream_open(here->sim, i < options.devices ? i : options.devices - 1,
				     &here->streams[i]));
	must(sim_alloc(here->sim, 0, HALF, &here->cached));
	return true;
}

bool scene_open(struct scene *scene, const struct exhibit *exhibit, bool is_safe, uint64_t seed)
{
	memset(scene, 0, sizeof *scene);
	scene->is_safe = is_safe;
	for (int rank = 0; rank < exhibit->ranks; rank++)
		if (!open_rank(scene, exhibit, rank, seed))
			return false;
	return true;
}

void scene_close(struct scene *scene, const struct exhibit *exhibit)
{
	for (int rank = 0; rank < exhibit->ranks; rank++) {
		struct exhibit_rank *here = &scene->ranks[rank];
		for (int i = 0; i < EXHIBIT_STREAMS; i++)
			must(sim_stream_close(here->streams[i])); /* waits for its work */
		sim_close(here->sim);
	}
}
