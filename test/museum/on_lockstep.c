/* SPDX-License-Identifier: BSD-3-Clause
 * The exhibits with Lockstep's pool and gate, in place of an allocator's lock and a lock that keeps
 * frees and launches apart. No program has to keep to an order: a free never waits, and the driver
 * gets memory back when nothing is in flight. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "exhibits.h"

static void must(ls_status status)
{
	if (status == LS_OK)
		return;
	fprintf(stderr, "museum: %s\n", ls_status_name(status));
	abort();
}

/* ---- launches ---- */

static void begin(struct exhibit_rank *rank)
{
	must(pool_gate_begin(&rank->gate, &rank->waiter, CLOCK_NEVER));
}

/* Call before something is launched on the stream; then `launched`. */
static uint64_t issue(struct exhibit_rank *rank, int stream)
{
	return pool_gate_issue(rank->inflight[stream]);
}

static void launched(struct exhibit_rank *rank, int stream, uint64_t number)
{
	struct driver *driver = &rank->drivers[stream].driver;
	must(driver->ops->store(driver, rank->streams[stream], &rank->inflight[stream]->done,
				number));
}

static void launch_local(struct exhibit_rank *rank)
{
	begin(rank);
	uint64_t number = issue(rank, 0);
	exhibit_launch_local(rank->streams[0]);
	launched(rank, 0, number);
	pool_gate_end(&rank->gate);
}

static void launch_collective(struct scene *scene, struct exhibit_rank *rank, int stream,
			      int member, uint64_t round)
{
	uint64_t number = issue(rank, stream);
	exhibit_launch_collective(scene, rank->streams[stream], 0, member, 2, round);
	launched(rank, stream, number);
}

static void *alloc(struct exhibit_rank *rank, size_t bytes, uint64_t deadline_ns)
{
	void *block;
	ls_status status =
		pool_alloc(rank->pool, bytes, rank->streams[rank->owner], deadline_ns, &block);
	if (status != LS_OUT_OF_MEMORY)
		must(status);
	return block;
}

static void free_block(struct exhibit_rank *rank)
{
	must(pool_free(rank->pool, rank->block, NULL));
	rank->block = NULL;
}

/* The second block is larger, so the driver must get the first one back, and the pool must wait
 * until it may give it: then all memory is free. */
static void free_and_alloc_more(struct exhibit_rank *rank)
{
	for (size_t i = 0; i < EXHIBIT_ROUNDS; i++) {
		free_block(rank);
		rank->block = alloc(rank, EXHIBIT_HALF + i % 2 * (EXHIBIT_HALF / 2), CLOCK_NEVER);
		if (!rank->block)
			must(LS_OUT_OF_MEMORY);
	}
}

/* ---- the exhibits ---- */

/* empty_cache, while another thread launches, and then records which stream uses a block. */
void lockstep_allocator_lock(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	if (thread == 0) {
		launch_local(here);
		must(pool_record(here->pool, here->block, here->streams[1], NULL));
		return;
	}
	void *other = alloc(here, EXHIBIT_HALF, CLOCK_NEVER);
	must(pool_free(here->pool, other, NULL));
	pool_trim(here->pool, 0);
}

/* An allocation finds no memory: the pool gives cached memory back, and asks the driver again. */
void lockstep_allocator_retry(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	if (thread == 0) {
		launch_local(here);
		return;
	}
	free_and_alloc_more(here);
}

/* Both halves of a collective are one launch. The free in between is put off. */
void lockstep_free_between_launches(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	if (thread == 0) {
		for (uint64_t round = 1; round <= EXHIBIT_ROUNDS; round++) {
			begin(here);
			for (int device = 0; device < 2; device++)
				launch_collective(scene, here, device, device, round);
			pool_gate_end(&here->gate);
		}
		return;
	}
	free_and_alloc_more(here);
}

/* Each rank receives in one launch and sends in the next one. */
void lockstep_launch_excludes_free(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	if (thread == 1) {
		free_and_alloc_more(here);
		return;
	}
	for (uint64_t round = 1; round <= EXHIBIT_ROUNDS; round++) {
		begin(here);
		uint64_t number = issue(here, 0);
		exhibit_must(sim_await(here->streams[0], &scene->words[!rank], round));
		launched(here, 0, number);
		pool_gate_end(&here->gate);
		begin(here);
		number = issue(here, 1);
		exhibit_must(sim_store(here->streams[1], &scene->words[rank], round, NULL));
		launched(here, 1, number);
		pool_gate_end(&here->gate);
	}
}

/* The memory that rank 0 lacks comes back after the collective, which waits for rank 1, and rank 1
 * waits for rank 0. The allocation waits for a word, so its time limit ends it. */
void lockstep_retry_synchronises(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	(void)thread;
	if (rank == 0) {
		begin(here);
		launch_collective(scene, here, 0, 0, 1);
		pool_gate_end(&here->gate);
		must(pool_record(here->pool, here->block, here->streams[0], NULL));
		free_block(here);
		if (alloc(here, EXHIBIT_HALF + 1, clock_now_ns() + 100000000))
			must(LS_SYSTEM); /* this memory cannot have come back */
		exhibit_tell(scene, 8);
		return;
	}
	exhibit_await(scene, 1, 8);
	begin(here);
	launch_collective(scene, here, 0, 1, 1);
	pool_gate_end(&here->gate);
}

/* One call to the driver by this rank fails: the n-th of those that the rounds make. Launches that
 * were issued still count, running kernels are released, and both ranks learn the round. */
static bool run_round(struct scene *scene, struct exhibit_rank *here, int member, uint64_t round)
{
	_Atomic uint64_t *done = &here->inflight[0]->done;
	begin(here);
	uint64_t number = issue(here, 0);
	bool failed = exhibit_try_collective(scene, here->streams[0], 0, member, 2, round) != SIM_OK;
	while (sim_store(here->streams[0], done, number, here->waiter.bell) != SIM_OK)
		failed = true; /* tries again, because the gate relies on this store */
	pool_gate_end(&here->gate);
	if (failed || sim_stream_sync(here->streams[0]) != SIM_OK)
		return false;
	return atomic_load(&scene->words[EXHIBIT_CAUSE]) == 0;
}

void lockstep_failed_launch(struct scene *scene, int rank, int thread)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	uint64_t n = 1 + scene->seed % (3 * EXHIBIT_LAUNCHES), fails_in = 1 + (n - 1) / 3, round;
	(void)thread;
	if (rank == 1)
		sim_fail_next(here->sim, n);
	for (round = 1; run_round(scene, here, rank, round); round++)
		if (round > EXHIBIT_LAUNCHES)
			must(LS_SYSTEM); /* one call must have failed */
	if (rank == 1)
		sim_board_store(here->sim, &scene->words[EXHIBIT_CAUSE], round);
	if (atomic_load(&scene->words[EXHIBIT_CAUSE]) != fails_in)
		must(LS_SYSTEM);
}

/* ---- before and after ---- */

bool lockstep_open(struct scene *scene, const struct exhibit *exhibit, int rank)
{
	struct exhibit_rank *here = &scene->ranks[rank];
	struct wait_bell *bell = &scene->bells[rank];
	here->waiter = (struct waiter){.bell = bell, .look_fd = -1};
	pool_gate_init(&here->gate);
	for (int i = 0; i < EXHIBIT_STREAMS; i++) {
		int device = i < exhibit->options.devices ? i : exhibit->options.devices - 1;
		if (!sim_driver_open(&here->drivers[i], here->sim, device, bell))
			return false;
		here->inflight[i] = pool_inflight_open(&here->gate, &here->drivers[i].driver);
	}
	struct pool_options options = {.driver = &here->drivers[0].driver,
				       .gate = &here->gate,
				       .waiter = &here->waiter,
				       .name = "sim:0"};
	if (pool_open(&here->pool, &options) != LS_OK)
		return false;
	/* The second stream, if both are on the device of the pool. */
	here->owner = exhibit->options.devices == 1;
	here->block = alloc(here, EXHIBIT_HALF, CLOCK_NEVER);
	return here->block != NULL;
}

void lockstep_close(struct exhibit_rank *rank)
{
	must(pool_close(rank->pool, CLOCK_NEVER));
	for (int i = 0; i < EXHIBIT_STREAMS; i++)
		pool_inflight_close(rank->inflight[i]);
	pool_gate_fini(&rank->gate);
	for (int i = 0; i < EXHIBIT_STREAMS; i++)
		sim_driver_close(&rank->drivers[i]);
	if (sim_bytes_used(rank->sim, 0) > 0) /* the driver has all memory back */
		must(LS_OUT_OF_MEMORY);
}
