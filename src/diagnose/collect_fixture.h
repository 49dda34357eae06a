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

struct collect_fixture {
	struct trace traces[SIZE];
	struct trace_view views[SIZE];
	_Atomic uint64_t segments[SIZE][WORDS];
	struct diagnose_source sources[SIZE];
	struct diagnose_snapshot *snapshot;
};

FIXTURE_UNUSED static int set_up(void **state)
{
	struct collect_fixture *fixture = calloc(1, sizeof *fixture);
	assert_non_null(fixture);
	for (int r = 0; r < SIZE; r++) {
		const char *why;
		struct trace_options options = {
			.job = 4711, .rank = r, .world_size = SIZE, .records = RECORDS};
		assert_int_equal(trace_init(&fixture->traces[r], &options), LS_OK);
		assert_true(trace_map(fixture->traces[r].fd, &fixture->views[r], &why));
		fixture->sources[r] = (struct diagnose_source){
			.rank = r,
			.pid = getpid(),
			.trace = &fixture->views[r],
			.segment = fixture->segments[r],
			.segment_bytes = sizeof fixture->segments[r],
			.process = DIAGNOSE_PROCESS_SLEEPING,
			.signal = -1,
			.exit_code = -1,
		};
	}
	fixture->snapshot = diagnose_snapshot_new(SIZE);
	assert_non_null(fixture->snapshot);
	*state = fixture;
	return 0;
}

FIXTURE_UNUSED static int tear_down(void **state)
{
	struct collect_fixture *fixture = *state;
	for (int r = 0; r < SIZE; r++) {
		trace_unmap(&fixture->views[r]);
		trace_fini(&fixture->traces[r]);
	}
	free(fixture->snapshot);
	free(fixture);
	return 0;
}

FIXTURE_UNUSED static struct diagnose_rank *collect(struct collect_fixture *fixture, int r)
{
	diagnose_collect(fixture->sources, SIZE, NULL, fixture->snapshot);
	assert_true(diagnose_snapshot_is_valid(fixture->snapshot, diagnose_snapshot_bytes(SIZE)));
	return &fixture->snapshot->ranks[r];
}

/* ---- what wait.c does, by hand ---- */

FIXTURE_UNUSED static void publish(struct collect_fixture *fixture, int r, int slot,
				   const struct wait_slot_body *body)
{
	struct wait_slot *to = &fixture->traces[r].wait_table->slots[slot];
	atomic_store(&to->taken, 1);
	seqlock_begin(&to->epoch);
	seqlock_store(&to->body, body, sizeof *body);
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

FIXTURE_UNUSED static void publish_ring(struct collect_fixture *fixture)
{
	for (int r = 0; r < SIZE; r++) {
		struct wait_slot_body body = wait_for(r, (r + 1) % SIZE);
		publish(fixture, r, 0, &body);
	}
}

#endif
