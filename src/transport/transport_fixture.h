/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: a world of ranks as threads of one process, each with a transport, an arena and a
 * waiter of its own, connected through real sockets. */
#ifndef TRANSPORT_TRANSPORT_FIXTURE_H
#define TRANSPORT_TRANSPORT_FIXTURE_H

#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ranks.h"
#include "transport/transport.h"

enum { WORLD_ARENA_BYTES = 1 << 20, WORLD_LIMIT_MS = 30000 };
#define WORLD_JOB UINT64_C(0x1122334455667788)

struct world_rank {
	struct world *world;
	struct transport transport;
	struct transport_team team; /* of all ranks, once they are connected */
	struct memory memory;
	struct wait_table *wait_table;
	struct waiter waiter;
	int trace_fd;
	ls_status status; /* of transport_connect */
	uint64_t ended_ns;
	pthread_t thread;
};

struct world {
	int size;
	int listen_fd;
	char address[64];
	uint64_t deadline_ns;
	const int *pids; /* as in struct transport_exchange */
	bool no_remote;  /* the same */
	struct world_rank ranks[RANKS_HOST_MAX];
};

static inline void world_init_rank(struct world *world, int r)
{
	struct world_rank *rank = &world->ranks[r];
	rank->world = world;
	rank->wait_table = aligned_alloc(64, sizeof(*rank->wait_table));
	assert_non_null(rank->wait_table);
	memset(rank->wait_table, 0, sizeof(*rank->wait_table));
	rank->trace_fd = memfd_create("lockstep-trace", MFD_CLOEXEC);
	assert_true(rank->trace_fd >= 0);
	assert_int_equal(memory_init(&rank->memory, WORLD_ARENA_BYTES, WORLD_JOB, r), LS_OK);
	assert_int_equal(transport_init(&rank->transport, WORLD_JOB, r, world->size), LS_OK);
	assert_int_equal(transport_team_init(&rank->team, &rank->transport), LS_OK);
	rank->waiter = (struct waiter){
		.wait_table = rank->wait_table,
		.bell = &rank->transport.segment->bell,
		.look_fd = -1,
		.yield = true,
	};
	assert_int_equal(wait_open(&rank->waiter), LS_OK);
}

static inline void world_fini_rank(struct world *world, int r)
{
	struct world_rank *rank = &world->ranks[r];
	wait_close(&rank->waiter);
	transport_team_fini(&rank->team);
	transport_fini(&rank->transport);
	memory_fini(&rank->memory);
	close(rank->trace_fd);
	free(rank->wait_table);
}

/* Without ranks: processes make their own, as they must after fork. */
static inline struct world *world_empty(int size, unsigned limit_ms)
{
	struct world *world = calloc(1, sizeof(*world));
	assert_non_null(world);
	world->size = size;
	world->deadline_ns = clock_deadline_ns(limit_ms);
	assert_int_equal(
		transport_listen(world->address, sizeof(world->address), &world->listen_fd), LS_OK);
	return world;
}

/* Everything but the connections. */
static inline struct world *world_new(int size, unsigned limit_ms)
{
	struct world *world = world_empty(size, limit_ms);
	for (int r = 0; r < size; r++)
		world_init_rank(world, r);
	return world;
}

static inline ls_status world_connect_rank(struct world_rank *rank)
{
	struct world *world = rank->world;
	struct transport_exchange exchange = {
		.address = world->address,
		.listen_fd = rank->transport.rank == 0 ? world->listen_fd : -1,
		.arena_fd = rank->memory.fd,
		.trace_fd = rank->trace_fd,
		.waiter = &rank->waiter,
		.deadline_ns = world->deadline_ns,
		.pids = world->pids,
		.no_remote = world->no_remote,
	};
	ls_status status = transport_connect(&rank->transport, &exchange);
	if (status == LS_OK)
		transport_team_set_world(&rank->team);
	return status;
}

static inline void *world_connect_thread(void *argument)
{
	struct world_rank *rank = argument;
	rank->status = world_connect_rank(rank);
	if (rank->transport.rank == 0) {
		close(rank->world->listen_fd);
		rank->world->listen_fd = -1;
	}
	rank->ended_ns = clock_now_ns();
	wait_thread_leave(&rank->waiter);
	return NULL;
}

static inline void world_start(struct world *world, int r)
{
	struct world_rank *rank = &world->ranks[r];
	assert_int_equal(pthread_create(&rank->thread, NULL, world_connect_thread, rank), 0);
}

static inline void world_close(struct world *world)
{
	for (int r = 0; r < world->size; r++)
		world_fini_rank(world, r);
	if (world->listen_fd >= 0)
		close(world->listen_fd);
	free(world);
}

/* A world that is connected. */
static inline struct world *world_open(int size)
{
	struct world *world = world_new(size, WORLD_LIMIT_MS);
	for (int r = 0; r < size; r++)
		world_start(world, r);
	for (int r = 0; r < size; r++) {
		wait_join(world->ranks[r].thread);
		assert_int_equal(world->ranks[r].status, LS_OK);
	}
	return world;
}

/* How many descriptors this process has open. */
static inline int world_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	assert_non_null(directory);
	int count = 0;
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

/* Blocks on one word, as a thread of `rank`. */
static inline ls_status world_await(struct world_rank *rank, const struct wait_word *word)
{
	struct wait_call call = {
		.words = word,
		.count = 1,
		.deadline_ns = rank->world->deadline_ns,
	};
	int peer;
	return wait_words(&rank->waiter, &call, &peer);
}

#endif
