/* SPDX-License-Identifier: BSD-3-Clause
 * Three ranks with real traces and with segments of plain memory, for the tests of collect.c. */
#ifndef DIAGNOSE_COLLECT_FIXTURE_H
#define DIAGNOSE_COLLECT_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/seqlock.h"
#include "diagnose/ranks_fixture.h"

#define FIXTURE_UNUSED __attribute__((unused))

enum { SIZE = 3, WORDS = 16, RECORDS = 64, GROUP = 1 };

struct world {
	struct trace traces[SIZE];
	struct trace_view views[SIZE];
	_Atomic uint64_t segments[SIZE][WORDS];
	struct diagnose_source sources[SIZE];
	struct diagnose_job *job;
};

FIXTURE_UNUSED static int open_world(void **state)
{
	struct world *world = calloc(1, sizeof(*world));
	assert_non_null(world);
	for (int r = 0; r < SIZE; r++) {
		const char *why;
		struct trace_options options = {
			.job = 4711, .rank = r, .world_size = SIZE, .records = RECORDS};
		assert_int_equal(trace_init(&world->traces[r], &options), LS_OK);
		assert_true(trace_map(world->traces[r].fd, &world->views[r], &why));
		world->sources[r] = (struct diagnose_source){
			.rank = r,
			.pid = getpid(),
			.trace = &world->views[r],
			.segment = world->segments[r],
			.segment_bytes = sizeof(world->segments[r]),
			.process = DIAGNOSE_SLEEPING,
			.signal = -1,
			.exit_code = -1,
		};
	}
	world->job = diagnose_job_new(SIZE);
	assert_non_null(world->job);
	*state = world;
	return 0;
}

FIXTURE_UNUSED static int close_world(void **state)
{
	struct world *world = *state;
	for (int r = 0; r < SIZE; r++) {
		trace_unmap(&world->views[r]);
		trace_fini(&world->traces[r]);
	}
	free(world->job);
	free(world);
	return 0;
}

FIXTURE_UNUSED static struct diagnose_rank *collect(struct world *world, int r)
{
	diagnose_collect(world->sources, SIZE, NULL, world->job);
	assert_true(diagnose_job_is_valid(world->job, diagnose_job_bytes(SIZE)));
	return &world->job->ranks[r];
}

/* ---- what wait.c does, by hand ---- */

FIXTURE_UNUSED static void publish(struct world *world, int r, int slot,
				   const struct wait_slot_body *body)
{
	struct wait_slot *to = &world->traces[r].wait_table->slots[slot];
	atomic_store(&to->taken, 1);
	seqlock_begin(&to->epoch);
	seqlock_store(&to->body, body, sizeof(*body));
	seqlock_end(&to->epoch);
}

/* Rank r waits in its first slot until word `r` of its own segment is 5, which `peer` has to
 * store. */
FIXTURE_UNUSED static struct wait_slot_body wait_for(int r, int peer)
{
	return (struct wait_slot_body){
		.state = WAIT_WORDS,
		.tid = 1,
		.group = GROUP,
		.edge_count = 1,
		.edges = {{.value = 5,
			   .offset = (uint64_t)r * 8,
			   .owner = r,
			   .peer = peer,
			   .segment = WAIT_SEGMENT_MAPPED}},
	};
}

FIXTURE_UNUSED static void publish_ring(struct world *world)
{
	for (int r = 0; r < SIZE; r++) {
		struct wait_slot_body body = wait_for(r, (r + 1) % SIZE);
		publish(world, r, 0, &body);
	}
}

#endif
