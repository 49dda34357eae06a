/* SPDX-License-Identifier: BSD-3-Clause
 * Threads of each rank allocate, use and free memory of one device on their streams, while others
 * trim and limit it, launch, and run collectives. Kernels see memory that is handed out too early.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>

#include "job_fixture.h"

enum { USERS = 2, TURNS = 150, MIB = 1 << 20, WORDS_MOST = 40000 };

static _Atomic int damaged; /* blocks that had not the content that they were filled with */

struct piece {
	uint64_t *block;
	uint64_t words, tag;
};

static enum sim_step step_fill(struct sim *sim, void *argument)
{
	const struct piece *piece = argument;
	uint64_t *at = sim_where(sim, piece->block);
	for (uint64_t i = 0; i < piece->words; i++)
		at[i] = piece->tag + i;
	return SIM_STEP_DONE;
}
static const struct sim_kernel fills = {"fills", step_fill};

static enum sim_step step_check(struct sim *sim, void *argument)
{
	const struct piece *piece = argument;
	const uint64_t *at = sim_where(sim, piece->block);
	uint64_t i = 0;
	while (i < piece->words && at[i] == piece->tag + i)
		i++;
	atomic_fetch_add(&damaged, i < piece->words);
	return SIM_STEP_DONE;
}
static const struct sim_kernel checks = {"checks", step_check};

struct user {
	struct rank *rank;
	int number;
	pthread_t thread;
	_Atomic bool *stop;
};

static uint64_t draw(uint64_t *random, uint64_t below)
{
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*random >> 33) % below;
}

/* Uses a block on its own stream, and often on another one, and frees it while both have work. */
static void use_block(struct rank *rank, struct sim_stream *own, struct sim_event *event,
		      uint64_t *random)
{
	struct piece piece = {.words = 1 + draw(random, WORDS_MOST), .tag = draw(random, 1 << 30)};
	bool by_other = draw(random, 2);
	struct sim_stream *other = rank->streams[draw(random, STREAMS)];
	ls_status status = ls_device_alloc(rank->group, piece.words * sizeof(uint64_t), own,
					   (void **)&piece.block);
	if (status == LS_OUT_OF_MEMORY) /* the limit is very low now and then */
		return;
	MUST(status == LS_OK);
	MUST(sim_launch(own, &fills, &piece, sizeof piece) == SIM_OK);
	if (by_other) {
		MUST(ls_device_record(rank->group, piece.block, other) == LS_OK);
		MUST(sim_record(event, own) == SIM_OK && sim_follow(other, event) == SIM_OK);
		MUST(sim_launch(other, &checks, &piece, sizeof piece) == SIM_OK);
	}
	MUST(sim_launch(own, &checks, &piece, sizeof piece) == SIM_OK);
	MUST(ls_device_free(rank->group, piece.block) == LS_OK);
}

static void *use_blocks(void *argument)
{
	struct user *user = argument;
	struct rank *rank = user->rank;
	uint64_t random = (uint64_t)(rank->rank * USERS + user->number);
	struct sim_event *event;
	struct sim_stream *own;
	MUST(sim_event_open(rank->sim, &event) == SIM_OK);
	MUST(sim_stream_open(rank->sim, rank->rank, &own) == SIM_OK);
	for (int i = 0; i < TURNS; i++)
		use_block(rank, own, event, &random);
	MUST(sim_stream_sync(own) == SIM_OK);
	MUST(ls_device_forget(rank->group, own) == LS_OK);
	MUST(sim_stream_close(own) == SIM_OK && sim_event_close(event) == SIM_OK);
	return NULL;
}

/* Until the others are done. */
static void *trim_and_limit(void *argument)
{
	struct user *user = argument;
	ls_group *group = user->rank->group;
	uint64_t random = 1000;
	struct ls_device_stats stats = {.size = sizeof stats};
	struct ls_device_block blocks[64];
	size_t count;
	while (!atomic_load(user->stop)) {
		MUST(ls_device_limit(group, draw(&random, 2) ? 0 : draw(&random, 16) * MIB) == LS_OK);
		MUST(ls_device_trim(group, draw(&random, 8) * MIB) == LS_OK);
		MUST(ls_launch_begin(&group, 1) == LS_OK);
		MUST(ls_device_stats(group, &stats) == LS_OK);
		MUST(stats.live + stats.cached + stats.pending + stats.put_off == stats.reserved);
		MUST(ls_launch_end() == LS_OK);
		MUST(ls_device_snapshot(group, blocks, 64, &count) == LS_OK);
		sched_yield();
	}
	return NULL;
}

/* Collectives whose blocks are freed as soon as they are called. */
static void sum_blocks(struct rank *rank)
{
	for (uint64_t i = 1; i <= TURNS; i++) {
		struct ls_call_options options = on(rank, (int)(i % STREAMS));
		struct piece mine = {.words = 1 + i * 100, .tag = i};
		struct sim_stream *stream = options.stream;
		ls_status status;
		do
			status = ls_device_alloc(rank->group, mine.words * sizeof(uint64_t), stream,
						 (void **)&mine.block);
		while (status == LS_OUT_OF_MEMORY);
		MUST(status == LS_OK);
		MUST(sim_launch(stream, &fills, &mine, sizeof mine) == SIM_OK);
		MUST(ls_allreduce(rank->group, mine.block, mine.block, mine.words, LS_UINT64,
				  LS_MAX, &options) == LS_OK);
		MUST(sim_launch(stream, &checks, &mine, sizeof mine) == SIM_OK);
		MUST(ls_device_free(rank->group, mine.block) == LS_OK);
	}
}

static void run_threads(struct rank *rank)
{
	_Atomic bool stop = false;
	struct user users[USERS + 1];
	for (int i = 0; i <= USERS; i++) {
		users[i] = (struct user){.rank = rank, .number = i, .stop = &stop};
		MUST(pthread_create(&users[i].thread, NULL, i < USERS ? use_blocks : trim_and_limit,
				    &users[i]) == 0);
	}
	sum_blocks(rank);
	for (int i = 0; i < USERS; i++)
		pthread_join(users[i].thread, NULL);
	atomic_store(&stop, true);
	pthread_join(users[USERS].thread, NULL);
	for (int i = 0; i < STREAMS; i++)
		MUST(sim_stream_sync(rank->streams[i]) == SIM_OK);
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
}

static void no_block_is_used_twice(void **state)
{
	(void)state;
	run_job(run_threads, "free=at_once");
	run_job(run_threads, "free=waits");
	run_job(run_threads, "free=drawn,queues=2");
	assert_int_equal(atomic_load(&damaged), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(no_block_is_used_twice)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
