/* SPDX-License-Identifier: BSD-3-Clause
 * The exhibits. A comment before each says what it shows; README.md says where it happened. */
#include "exhibits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* museum.py shows these functions by name, so they must not be inlined. */
#define SHOWN __attribute__((noinline)) static

void exhibit_must(enum sim_error error)
{
	if (error == SIM_OK)
		return;
	fprintf(stderr, "museum: a call to the device failed: %s\n", sim_error_name(error));
	abort();
}

/* ---- kernels ---- */

/* A kernel of a collective: stores its own word, then spins until all members have, or one has
 * failed. */
struct meeting {
	struct scene *scene;
	int first, member, members; /* words[first] … words[first + members - 1] */
	uint64_t round;
};

static enum sim_step meet(struct sim *sim, void *argument)
{
	const struct meeting *meeting = argument;
	_Atomic uint64_t *words = &meeting->scene->words[meeting->first];
	if (atomic_load(&words[meeting->member]) < meeting->round)
		sim_board_store(sim, &words[meeting->member], meeting->round);
	bool has_failed = atomic_load(&meeting->scene->words[EXHIBIT_CAUSE]) != 0;
	for (int i = 0; i < meeting->members && !has_failed; i++)
		if (atomic_load(&words[i]) < meeting->round)
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

enum sim_error exhibit_try_collective(struct scene *scene, struct sim_stream *stream, int first,
				      int member, int members, uint64_t round)
{
	struct meeting meeting = {scene, first, member, members, round};
	return sim_launch(stream, &collective, &meeting, sizeof meeting);
}

void exhibit_launch_collective(struct scene *scene, struct sim_stream *stream, int first,
			       int member, int members, uint64_t round)
{
	exhibit_must(exhibit_try_collective(scene, stream, first, member, members, round));
}

void exhibit_launch_local(struct sim_stream *stream)
{
	exhibit_must(sim_launch(stream, &local, NULL, 0));
}

/* ---- messages between ranks, on the host ---- */

void exhibit_tell(struct scene *scene, int word)
{
	wait_store(&scene->words[word], 1);
	for (int i = 0; i < EXHIBIT_RANKS; i++)
		wait_wake(&scene->bells[i]);
}

void exhibit_await(struct scene *scene, int rank, int word)
{
	struct waiter waiter = {.bell = &scene->bells[rank], .look_fd = -1};
	struct wait_word awaited = {.word = &scene->words[word], .edge = {.value = 1, .peer = -1}};
	struct wait_call call = {.words = &awaited, .count = 1, .deadline_ns = CLOCK_NEVER};
	int peer;
	while (wait_words(&waiter, &call, &peer) != LS_OK)
		continue;
}

/* ---- allocator-lock ----
 *
 * A thread launches a collective under a lock that excludes frees. Then it tells the allocator
 * which stream uses the block. Meanwhile another thread gives cached memory back: it holds the
 * allocator's lock, and waits for the other one. */
SHOWN void collective_then_record(struct exhibit_rank *rank)
{
	pthread_mutex_lock(&rank->free_lock);
	exhibit_launch_local(rank->streams[0]);
	pthread_mutex_lock(&rank->allocator_lock); /* record_stream */
	pthread_mutex_unlock(&rank->allocator_lock);
	pthread_mutex_unlock(&rank->free_lock);
}

SHOWN void give_back(struct exhibit_rank *rank)
{
	pthread_mutex_lock(&rank->free_lock);
	exhibit_must(sim_free(rank->sim, rank->cached));
	rank->cached = NULL;
	pthread_mutex_unlock(&rank->free_lock);
}

SHOWN void allocator_lock(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	if (thread == 0) {
		collective_then_record(here);
		return;
	}
	pthread_mutex_lock(&here->allocator_lock); /* empty_cache */
	give_back(here);
	pthread_mutex_unlock(&here->allocator_lock);
}

/* ---- allocator-retry ----
 *
 * The same without a call to free memory: an allocation finds no memory, and gives cached blocks
 * back with the allocator's lock held. */
SHOWN void allocator_retry(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	void *block;
	if (thread == 0) {
		collective_then_record(here);
		return;
	}
	pthread_mutex_lock(&here->allocator_lock);
	enum sim_error error = sim_alloc(here->sim, 0, EXHIBIT_HALF + 1, &block);
	if (error == SIM_OUT_OF_MEMORY) {
		give_back(here);
		error = sim_alloc(here->sim, 0, EXHIBIT_HALF + 1, &block);
	}
	exhibit_must(error);
	pthread_mutex_unlock(&here->allocator_lock);
}

/* ---- free-between-launches ----
 *
 * A process launches the two halves of a collective on its two devices, one after the other. In
 * between another thread frees memory. The free holds the driver's lock and waits for the first
 * half. The launch of the second half waits for that lock. */
SHOWN void free_between_launches(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	if (thread == 0) {
		for (int device = 0; device < 2; device++)
			exhibit_launch_collective(scene, here->streams[device], 0, device, 2, 1);
	} else {
		exhibit_must(sim_free(here->sim, here->cached));
	}
}

/* ---- launch-excludes-free ----
 *
 * A lock keeps frees and launches apart, on both of two ranks that exchange messages. Each rank's
 * free waits for the message that the rank receives. The other rank launches that message only
 * after its own free. */
SHOWN void launch_excludes_free(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	pthread_mutex_lock(&here->free_lock);
	if (thread == 1) {
		exhibit_must(sim_free(here->sim, here->cached));
		pthread_mutex_unlock(&here->free_lock);
		return;
	}
	exhibit_must(sim_await(here->streams[0], &scene->words[!rank], 1)); /* receives */
	pthread_mutex_unlock(&here->free_lock);
	pthread_mutex_lock(&here->free_lock);
	exhibit_must(sim_store(here->streams[1], &scene->words[rank], 1, NULL)); /* sends */
	pthread_mutex_unlock(&here->free_lock);
}

/* ---- retry-synchronises ----
 *
 * Rank 0 has launched its half of a collective. Its next allocation finds no memory, and waits for
 * the stream, in order to give back the memory that the stream uses. Rank 1 launches its half after
 * a message that rank 0 sends after the allocation. */
static void retry_synchronises(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	void *block;
	(void)thread;
	if (rank == 1) {
		exhibit_await(scene, 1, 8);
		exhibit_launch_collective(scene, here->streams[0], 0, 1, 2, 1);
		return;
	}
	exhibit_launch_collective(scene, here->streams[0], 0, 0, 2, 1);
	enum sim_error error = sim_alloc(here->sim, 0, EXHIBIT_HALF + 1, &block);
	if (error == SIM_OUT_OF_MEMORY)
		exhibit_must(sim_stream_sync(here->streams[0]));
	exhibit_tell(scene, 8);
}

/* ---- lazy-pairs ----
 *
 * Three ranks send around a ring. Each pair makes its communicator when it first needs it, and that
 * waits for both members. So all ranks wait for their right neighbour. */
SHOWN void make_pair(struct scene *scene, int rank, int other)
{
	int low = rank < other ? rank : other, high = rank < other ? other : rank;
	int pair = 2 * (low + high); /* two words for each of the three pairs */
	exhibit_tell(scene, pair + (rank == high));
	exhibit_await(scene, rank, pair + (rank == low));
}

static void lazy_pairs(struct scene *scene, int rank, int thread)
{
	int right = (rank + 1) % 3, left = (rank + 2) % 3;
	(void)thread;
	make_pair(scene, rank, right); /* to send */
	make_pair(scene, rank, left);  /* to receive */
}

/* ---- serial-lane ----
 *
 * All messages of a rank use one stream, as they do where pairs have no communicators of their own.
 * Rank 0 sends to rank 1, and then to rank 2. Rank 1 first receives from rank 2, which waits for
 * the second message of rank 0. */
static void serial_lane(struct scene *scene, int rank, int thread)
{
	static const int peers[3][2] = {{1, 2}, {2, 0}, {0, 1}};
	struct exhibit_rank *here = &scene->ranks[rank];
	(void)thread;
	for (int i = 0; i < 2; i++) {
		int peer = peers[rank][i];
		exhibit_launch_collective(scene, here->streams[0], 2 * (rank + peer), rank > peer,
					  2, 1);
	}
}

/* ---- opposite-order ----
 *
 * Two groups of the same two ranks, each with a stream of its own, on devices that run one kernel
 * at a time. The ranks launch the collectives of the groups in opposite orders. */
static void opposite_order(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	(void)thread;
	for (int i = 0; i < 2; i++) {
		int group = rank == 1 ? !i : i;
		exhibit_launch_collective(scene, here->streams[group], 2 * group, rank, 2, 1);
	}
}

/* ---- failed-launch ----
 *
 * The n-th launch of rank 1 fails, and the rank gives up, as after an exception. Rank 0 has
 * launched its half. */
SHOWN void failed_launch(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	(void)thread;
	if (rank == 1) /* each round has two calls */
		sim_fail_next(here->sim, 1 + 2 * (scene->seed % EXHIBIT_LAUNCHES));
	for (uint64_t round = 1; round <= EXHIBIT_LAUNCHES; round++) {
		if (exhibit_try_collective(scene, here->streams[0], 0, rank, 2, round) != SIM_OK)
			return;
		exhibit_must(sim_stream_sync(here->streams[0]));
	}
}

/* ---- abort-in-error-path ----
 *
 * Rank 0 has launched its half of a collective, and finds an error of its own. To clean up, it
 * closes the stream, which waits for the half of rank 1. Rank 1 waits for a message of rank 0,
 * which does not come. */
static void abort_in_error_path(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	(void)thread;
	if (rank == 1) {
		exhibit_await(scene, 1, 8);
		exhibit_launch_collective(scene, here->streams[0], 0, 1, 2, 1);
		return;
	}
	exhibit_launch_collective(scene, here->streams[0], 0, 0, 2, 1);
	exhibit_must(sim_stream_sync(here->streams[0]));
}

/* ---- lazy-loading ----
 *
 * The first launch of a kernel loads it, which waits until the device is idle. On rank 0 a
 * collective runs whose other half rank 1 has not launched: rank 1 waits for a message that rank 0
 * sends after its launch. */
static void lazy_loading(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	(void)thread;
	if (rank == 0) {
		exhibit_launch_collective(scene, here->streams[0], 0, 0, 2, 1);
		exhibit_launch_local(here->streams[1]);
		exhibit_tell(scene, 8);
	} else {
		exhibit_await(scene, 1, 8);
		exhibit_launch_collective(scene, here->streams[0], 0, 1, 2, 1);
	}
}

/* ---- callback-lock ----
 *
 * A function that the device calls takes a lock (an interpreter's, say). The owner of the lock
 * waits for the device. */
void exhibit_take_lock(void *mutex)
{
	pthread_mutex_t *lock = mutex;
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
}

static void callback_lock(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	(void)thread;
	if (rank == 1)
		return;
	pthread_mutex_lock(&here->allocator_lock);
	exhibit_must(sim_host(here->streams[0], exhibit_take_lock, &here->allocator_lock));
	exhibit_must(sim_stream_sync(here->streams[0]));
	pthread_mutex_unlock(&here->allocator_lock);
}

/* ---- the table ---- */

const struct exhibit exhibits[] = {
	{"allocator-lock",
	 "the allocator's lock against the lock that keeps frees from launches",
	 1,
	 2,
	 {.devices = 1},
	 allocator_lock,
	 .on_lockstep = lockstep_allocator_lock},
	{"allocator-retry",
	 "the same, by an allocation that gives cached blocks back",
	 1,
	 2,
	 {.devices = 1},
	 allocator_retry,
	 .on_lockstep = lockstep_allocator_retry},
	{"free-between-launches",
	 "a free between the launches of a collective on two devices",
	 1,
	 2,
	 {.devices = 2},
	 free_between_launches,
	 .on_lockstep = lockstep_free_between_launches},
	{"launch-excludes-free",
	 "launches and frees exclude each other, on two ranks",
	 2,
	 2,
	 {.devices = 1},
	 launch_excludes_free,
	 .on_lockstep = lockstep_launch_excludes_free},
	{"retry-synchronises",
	 "an allocation without memory waits for a stream with a collective",
	 2,
	 1,
	 {.devices = 1},
	 retry_synchronises,
	 .on_lockstep = lockstep_retry_synchronises,
	 .says = "LS-DEVICE-EXHAUSTED"},
	{"lazy-pairs",
	 "communicators of pairs are made at first use, around a ring",
	 3,
	 1,
	 {.devices = 1},
	 lazy_pairs,
	 .on_groups = groups_lazy_pairs},
	{"serial-lane",
	 "messages to two ranks through one stream",
	 3,
	 1,
	 {.devices = 1},
	 serial_lane,
	 .on_groups = groups_serial_lane},
	{"opposite-order",
	 "two groups in opposite order, one kernel at a time",
	 2,
	 1,
	 {.devices = 1, .resident = 1},
	 opposite_order,
	 .on_groups = groups_opposite_order,
	 .device = "sim:0,devices=1,resident=1"},
	{"failed-launch",
	 "a launch fails on one of two ranks",
	 2,
	 1,
	 {.devices = 1},
	 failed_launch,
	 .on_lockstep = lockstep_failed_launch},
	{"abort-in-error-path",
	 "an error path waits for the device before it tells the other ranks",
	 2,
	 1,
	 {.devices = 1},
	 abort_in_error_path,
	 .on_groups = groups_abort_in_error_path,
	 .device = "sim:0,devices=1",
	 .says = "LS-VERDICT"},
	{"lazy-loading",
	 "a kernel is loaded while a collective runs",
	 2,
	 1,
	 {.devices = 1, .loads_lazily = true},
	 lazy_loading,
	 .on_groups = groups_lazy_loading,
	 .device = "sim:0,devices=1,loads_lazily",
	 .says = "LS-VERDICT"},
	{"callback-lock",
	 "the device's callback takes a lock whose owner waits for the device",
	 2,
	 1,
	 {.devices = 1},
	 callback_lock,
	 .on_groups = groups_callback_lock,
	 .device = "sim:0,devices=1"},
};
const int exhibit_count = sizeof exhibits / sizeof *exhibits;

static bool open_rank(struct scene *scene, const struct exhibit *exhibit, int rank, uint64_t seed)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	struct sim_options options = exhibit->options;
	options.seed = seed + (uint64_t)rank;
	options.board = &scene->board;
	options.bytes = EXHIBIT_DEVICE_BYTES;
	options.free = SIM_FREE_WAITS;
	pthread_mutex_init(&here->allocator_lock, NULL);
	pthread_mutex_init(&here->free_lock, NULL);
	here->sim = sim_open(&options);
	if (!here->sim)
		return false;
	for (int i = 0; i < EXHIBIT_STREAMS; i++)
		exhibit_must(sim_stream_open(here->sim, i < options.devices ? i : options.devices - 1,
					     &here->streams[i]));
	if (scene->is_safe && exhibit->on_lockstep)
		return lockstep_open(scene, exhibit, rank);
	exhibit_must(sim_alloc(here->sim, 0, EXHIBIT_HALF, &here->cached));
	return true;
}

bool scene_open(struct scene *scene, const struct exhibit *exhibit, bool is_safe, uint64_t seed)
{
	memset(scene, 0, sizeof *scene);
	scene->is_safe = is_safe;
	scene->seed = seed;
	for (int rank = 0; rank < exhibit->ranks; rank++)
		if (!open_rank(scene, exhibit, rank, seed))
			return false;
	return true;
}

void scene_close(struct scene *scene, const struct exhibit *exhibit)
{
	for (int rank = 0; rank < exhibit->ranks; rank++) {
		struct exhibit_rank *here = &scene->ranks[rank];
		if (scene->is_safe && exhibit->on_lockstep)
			lockstep_close(here);
		for (int i = 0; i < EXHIBIT_STREAMS; i++)
			exhibit_must(sim_stream_close(here->streams[i])); /* waits for its work */
		sim_close(here->sim);
	}
}
