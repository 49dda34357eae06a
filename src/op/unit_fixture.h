/* SPDX-License-Identifier: BSD-3-Clause
 * For tests of operations: ranks as threads of one process, and nothing above what runs operations,
 * the engine or a mailbox. An operation is submitted, advanced and waited for here. What is wrong
 * in a rank's thread ends the test. */
#ifndef OP_UNIT_FIXTURE_H
#define OP_UNIT_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/must_fixture.h"
#include "base/ranks.h"
#include "op/op.h"
#include "transport/transport_fixture.h"

enum { TEST_RANKS = 8, TEST_ARENA_BYTES = 64 << 20 };

struct fixture;

struct unit {
	struct fixture *fixture;
	struct test_rank *link;
	int rank, size;
	struct trace trace;
	struct engine *engine; /* one of the two; NULL: the test needs the other one */
	struct mailbox *mailbox;
	struct op_workspace workspace;
	uint64_t seq; /* of the last collective */
	pthread_t thread;
};

typedef void unit_function(struct unit *unit);

struct fixture {
	struct test_job *job;
	_Atomic uint64_t cause;
	bool has_hosts; /* the ranks are on several hosts */
	unit_function *run;
	struct unit units[TEST_RANKS];
};

/* A test's room defines these five: engine_fixture.h, mailbox_fixture.h. */
static inline void unit_open(struct unit *unit, const struct settings *settings);
static inline void unit_close(struct unit *unit);
static inline void unit_submit(struct unit *unit, struct op *op, struct op_workspace *workspace);
static inline enum op_progress unit_advance(struct unit *unit, struct op *op);
static inline enum op_progress unit_abandon_once(struct unit *unit, struct op *op);

static inline void fixture_enlarge_arena(struct fixture *fixture, int rank)
{
	struct memory *memory = &fixture->job->ranks[rank].memory;
	memory_fini(memory);
	MUST(memory_init(memory, TEST_ARENA_BYTES, TEST_JOB_ID, rank) == LS_OK);
}

/* Call when the ranks are connected. */
static inline void fixture_open_units(struct fixture *fixture, const struct settings *settings)
{
	int size = fixture->job->size;
	for (int r = 0; r < size; r++) {
		struct unit *unit = &fixture->units[r];
		struct trace_options options = {
			.job = TEST_JOB_ID, .rank = r, .world_size = size, .records = 16};
		*unit = (struct unit){
			.fixture = fixture, .link = &fixture->job->ranks[r], .rank = r, .size = size};
		unit->link->waiter.cause = &fixture->cause;
		MUST(trace_init(&unit->trace, &options) == LS_OK);
	}
	for (int r = 0; r < size; r++)
		unit_open(&fixture->units[r], settings);
}

static inline struct fixture *fixture_open(int size, const struct settings *settings)
{
	struct fixture *fixture = calloc(1, sizeof *fixture);
	MUST(fixture);
	struct test_job *job = fixture->job = test_job_new(size, TEST_JOB_LIMIT_MS);
	for (int r = 0; r < size; r++) {
		fixture_enlarge_arena(fixture, r);
		test_job_start(job, r);
	}
	for (int r = 0; r < size; r++) {
		wait_join(job->ranks[r].thread);
		MUST(job->ranks[r].status == LS_OK);
	}
	fixture_open_units(fixture, settings);
	return fixture;
}

static inline void fixture_close(struct fixture *fixture)
{
	for (int r = 0; r < fixture->job->size; r++) {
		unit_close(&fixture->units[r]);
		trace_fini(&fixture->units[r].trace);
	}
	test_job_close(fixture->job);
	free(fixture);
}

static inline void *fixture_thread(void *argument)
{
	struct unit *unit = argument;
	unit->fixture->run(unit);
	wait_thread_leave(&unit->link->waiter);
	return NULL;
}

/* Runs a function in a thread for each rank. */
static inline void fixture_run(struct fixture *fixture, unit_function *run)
{
	fixture->run = run;
	for (int r = 0; r < fixture->job->size; r++)
		MUST(pthread_create(&fixture->units[r].thread, NULL, fixture_thread,
				    &fixture->units[r]) == 0);
	for (int r = 0; r < fixture->job->size; r++)
		wait_join(fixture->units[r].thread);
}

/* Advances until it is done or has failed. */
static inline ls_status unit_finish(struct unit *unit, struct op *op)
{
	struct wait_call call = {.deadline_ns = clock_deadline_ns(TEST_JOB_LIMIT_MS)};
	for (;;) {
		int peer;
		enum op_progress progress = unit_advance(unit, op);
		if (progress == OP_DONE)
			return LS_OK;
		if (progress == OP_FAILED)
			return op->status;
		MUST(op->word_count > 0 && op->word_count <= RANKS_WORLD_MAX);
		call.words = op->words;
		call.count = op->word_count;
		call.any = op->any_suffices;
		ls_status status = wait_words(&unit->link->waiter, &call, &peer);
		if (status != LS_OK)
			return status;
	}
}

/* One collective from its number to its end. */
static inline ls_status unit_call(struct unit *unit, struct op *op)
{
	op->seq = ++unit->seq;
	unit_submit(unit, op, &unit->workspace);
	return unit_finish(unit, op);
}

/* After a failure: until no peer touches this rank's buffers any more. */
static inline void unit_abandon(struct unit *unit, struct op *op)
{
	struct wait_call call = {.deadline_ns = clock_deadline_ns(TEST_JOB_LIMIT_MS)};
	struct waiter quiet = unit->link->waiter;
	quiet.cause = NULL;
	while (unit_abandon_once(unit, op) == OP_BLOCKED) {
		int peer;
		call.words = op->words;
		call.count = op->word_count;
		MUST(wait_words(&quiet, &call, &peer) == LS_OK);
	}
}

#endif
