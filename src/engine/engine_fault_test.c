/* SPDX-License-Identifier: BSD-3-Clause
 * Collectives that cannot work: counts that do not match, entries with nonsense, no memory; and
 * what a rank that has finished still has to do for the others. */
#include "engine/engine_fixture.h"

#include "base/capture.h"
#include "transport/payload.h"

static const struct settings plain_settings = {0};

/* ---- counts that do not fit together ---- */

/* A rank that finds something tells all, as the group would; then everybody abandons it. */
static void end_failed(struct unit *unit, struct op *op, ls_status status)
{
	if (status != LS_ABORTED)
		wait_store(&unit->fixture->cause, 1);
	for (int q = 0; q < unit->size; q++)
		wait_wake(&unit->fixture->units[q].link->transport.segment->bell);
	unit_abandon(unit, op);
}

/* Rank 2 has 10 elements for rank 0, which wants 12; all else fits. */
static void exchange_unevenly(struct unit *unit)
{
	uint64_t send[3], recv[3];
	int64_t from[64] = {0}, to[64];
	for (int q = 0; q < 3; q++)
		send[q] = recv[q] = q == unit->rank ? 4 : 11;
	if (unit->rank == 2)
		send[0] = 10;
	if (unit->rank == 0)
		recv[2] = 12;
	struct op op = {
		.call = {.kind = TRACE_ALLTOALLV,
			 .dtype = LS_INT64,
			 .peer = -1,
			 .send = buffer_host(from, (send[0] + send[1] + send[2]) * sizeof *from),
			 .recv = buffer_host(to, (recv[0] + recv[1] + recv[2]) * sizeof *to),
			 .counts = send,
			 .recv_counts = recv,
			 .count = send[0] + send[1] + send[2]}};
	ls_status status = unit_call(unit, &op);
	uint64_t sent, expected;
	op_count_difference(&op, &sent, &expected);
	if (unit->rank == 0) {
		MUST(status == LS_MISMATCH && op.culprit == 2);
		MUST(sent == 10 && expected == 12);
	} else {
		/* With messages a rank may have all it needs. */
		MUST((status == LS_ABORTED || status == LS_OK) && sent == expected);
	}
	if (status != LS_OK)
		end_failed(unit, &op, status);
}

static void pairs_are_compared(void **state)
{
	(void)state;
	static const enum plan_algorithm algorithms[] = {PLAN_NONE, PLAN_PAIRWISE};
	for (int i = 0; i < 2; i++) {
		struct fixture *fixture = fixture_open(3, &plain_settings);
		for (int r = 0; r < 3; r++)
			fixture->units[r].engine->wanted = algorithms[i];
		fixture_run(fixture, exchange_unevenly);
		fixture_close(fixture);
	}
}

/* What a rank keeps for itself is a pair too. */
static void own_pair_is_compared(void **state)
{
	(void)state;
	struct fixture *fixture = fixture_open(1, &plain_settings);
	uint64_t send = 3, recv = 4, sent, expected;
	int64_t from[4] = {0}, to[4];
	struct op op = {.call = {.kind = TRACE_ALLTOALLV,
				 .dtype = LS_INT64,
				 .peer = -1,
				 .send = buffer_host(from, 3 * sizeof *from),
				 .recv = buffer_host(to, 4 * sizeof *to),
				 .counts = &send,
				 .recv_counts = &recv,
				 .count = 3}};
	assert_int_equal(unit_call(&fixture->units[0], &op), LS_MISMATCH);
	op_count_difference(&op, &sent, &expected);
	assert_true(op.culprit == 0 && sent == 3 && expected == 4);
	unit_abandon(&fixture->units[0], &op);
	fixture_close(fixture);
}

/* The same sum in other parts. */
static void gather_other_parts(struct unit *unit)
{
	uint64_t parts[2] = {unit->rank ? 3 : 2, unit->rank ? 2 : 3};
	int32_t from[4] = {0}, to[8];
	struct op op = {.call = {.kind = TRACE_ALLGATHERV,
				 .dtype = LS_INT32,
				 .peer = -1,
				 .send = buffer_host(from, parts[unit->rank] * sizeof *from),
				 .recv = buffer_host(to, 5 * sizeof *to),
				 .counts = parts,
				 .count = 5}};
	ls_status status = unit_call(unit, &op);
	MUST(status == LS_MISMATCH || status == LS_ABORTED);
	uint64_t sent, expected;
	op_count_difference(&op, &sent, &expected);
	MUST(sent == expected);
	end_failed(unit, &op, status);
}

static void lists_are_compared(void **state)
{
	(void)state;
	struct fixture *fixture = fixture_open(2, &plain_settings);
	fixture_run(fixture, gather_other_parts);
	assert_int_equal(atomic_load(&fixture->cause), 1);
	fixture_close(fixture);
	const uint64_t a[] = {1, 2, 3}, b[] = {1, 3, 2}, c[] = {1, 2, 3, 0};
	assert_true(engine_shape(a, 3) != engine_shape(b, 3));
	assert_true(engine_shape(a, 3) != engine_shape(c, 4));
	assert_true(engine_shape(c + 3, 1) != 0);
}

/* ---- entries that are nonsense ---- */

/* Rank 1 is played by hand: its entry is rank 0's own but for what `spoil` does to it, in
 * slot 1. */
static void forged(struct op op, void (*spoil)(struct transport_area *area), int forger,
		   const struct settings *settings, ls_status status)
{
	struct fixture *fixture = fixture_open(2, settings);
	struct unit *unit = &fixture->units[!forger];
	struct transport_team *team = &unit->link->team;
	struct capture capture;
	op.seq = 1;
	engine_submit(unit->engine, &op, &unit->workspace);
	assert_int_equal(engine_advance(unit->engine, &op), OP_BLOCKED);
	struct transport_entry *mine = transport_entry(team, !forger, 1);
	struct transport_entry *theirs = transport_entry(team, forger, 1);
	uint64_t signal = atomic_load(&mine->signal);
	memcpy((unsigned char *)theirs + 8, (unsigned char *)mine + 8, sizeof *mine - 8);
	memcpy(transport_entry_payload(team, forger, 1, TRANSPORT_INLINE_BYTES),
	       transport_entry_payload(team, !forger, 1, TRANSPORT_INLINE_BYTES),
	       TRANSPORT_INLINE_BYTES);
	spoil(transport_area_of(team, forger));
	atomic_store(&theirs->signal, signal);
	capture_begin(&capture);
	assert_int_equal(engine_advance(unit->engine, &op), OP_FAILED);
	capture_end(&capture);
	assert_int_equal(op.status, status);
	assert_int_equal(op.culprit, forger);
	atomic_store(&fixture->cause, 1);
	atomic_store(&transport_area_of(team, forger)->finished, 1);
	unit_abandon(unit, &op);
	fixture_close(fixture);
}

static void input_far_away(struct transport_area *area)
{
	area->entries[transport_entry_index(1)].input = UINT64_MAX - 8;
}
static void input_behind_the_end(struct transport_area *area)
{
	area->entries[transport_entry_index(1)].input = TEST_ARENA_BYTES - 64;
}
static void output_behind_the_end(struct transport_area *area)
{
	area->entries[transport_entry_index(1)].output = TEST_ARENA_BYTES - 64;
}
static void no_input(struct transport_area *area)
{
	area->entries[transport_entry_index(1)].input_window = TRANSPORT_WINDOW_NONE;
}
static void input_of_no_kind(struct transport_area *area)
{
	area->entries[transport_entry_index(1)].input_window = 77;
}
static void input_inline(struct transport_area *area)
{
	area->entries[transport_entry_index(1)].input_window = TRANSPORT_WINDOW_INLINE;
}
static void output_inline(struct transport_area *area)
{
	area->entries[transport_entry_index(1)].output_window = TRANSPORT_WINDOW_INLINE;
}
static void input_nowhere(struct transport_area *area)
{
	area->entries[transport_entry_index(1)].input = 4096;
}
static void huge_counts(struct transport_area *area)
{
	const uint64_t huge[] = {UINT64_MAX / 4, 1000};
	memcpy(area->payloads[area->entries[transport_entry_index(1)].page], huge, sizeof huge);
}

/* Whether plain buffers are copied, or shown by address. */
static const struct settings copying = {.cma = SETTING_CMA_OFF};
static const struct settings reading = {.cma = SETTING_CMA_ALWAYS};

static void nonsense_is_refused(void **state)
{
	(void)state;
	static int64_t from[6000], to[6000];
	struct op reduce = {.call = {.kind = TRACE_ALLREDUCE,
				     .dtype = LS_INT64,
				     .peer = -1,
				     .send = buffer_host(from, sizeof from),
				     .recv = buffer_host(to, sizeof to),
				     .count = 6000}};
	void (*const spoils[])(struct transport_area *) = {
		input_far_away,   input_behind_the_end, output_behind_the_end, no_input,
		input_of_no_kind, input_inline,         output_inline};
	for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++)
		forged(reduce, spoils[i], 1, &copying, LS_INTERNAL);
	const uint64_t even[] = {1000, 1000};
	struct op exchange = {.call = {.kind = TRACE_ALLTOALLV,
				       .dtype = LS_INT64,
				       .peer = -1,
				       .send = buffer_host(from, 2000 * sizeof *from),
				       .recv = buffer_host(to, 2000 * sizeof *to),
				       .counts = even,
				       .recv_counts = even,
				       .count = 2000}};
	forged(exchange, huge_counts, 0, &copying, LS_INTERNAL);
	forged(exchange, input_behind_the_end, 0, &copying, LS_INTERNAL);
	/* An address is read, not followed. */
	forged(reduce, input_far_away, 1, &reading, LS_INTERNAL);
	forged(reduce, input_nowhere, 1, &reading, LS_SYSTEM);
	forged(exchange, input_nowhere, 0, &reading, LS_SYSTEM);
}

/* ---- no memory ---- */

static void too_much_to_stage(void **state)
{
	(void)state;
	enum { COUNT = TEST_ARENA_BYTES / 4 * 3 / 4 }; /* one of the two fits */
	/* Sends and receives want it as a whole. */
	const struct settings messages = {.cma = SETTING_CMA_OFF,
					  .algorithm = SETTING_ALGORITHM_RING};
	struct fixture *fixture = fixture_open(2, &messages);
	struct unit *unit = &fixture->units[0];
	int32_t *from = calloc(COUNT, 4), *to = calloc(COUNT, 4);
	assert_true(from && to);
	struct op op = {.call = {.kind = TRACE_ALLREDUCE,
				 .dtype = LS_INT32,
				 .peer = -1,
				 .send = buffer_host(from, COUNT * sizeof *from),
				 .recv = buffer_host(to, COUNT * sizeof *to),
				 .count = COUNT}};
	struct capture capture;
	capture_begin(&capture);
	assert_int_equal(unit_call(unit, &op), LS_OUT_OF_MEMORY);
	assert_non_null(strstr(capture_end(&capture), "LS-"));
	unit_abandon(unit, &op);
	struct memory_stats stats;
	memory_stats(&unit->link->memory, &stats);
	assert_int_equal(stats.live, 0);
	/* Nobody has seen anything of it. */
	assert_int_equal(atomic_load(&transport_entry(&unit->link->team, 0, 1)->signal), 0);
	free(from);
	free(to);
	fixture_close(fixture);
}

/* ---- the end ---- */

static _Atomic bool root_is_back, root_is_blocked;

static struct op short_broadcast(int64_t *value)
{
	return (struct op){.call = {.kind = TRACE_BROADCAST,
				    .dtype = LS_INT64,
				    .peer = 0,
				    .send = buffer_host(value, sizeof *value),
				    .recv = buffer_host(value, sizeof *value),
				    .count = 1}};
}

/* The root of a short broadcast needs nobody; rank 1 comes only when it has got as far as it
 * can. */
static void root_waits_for_all(struct unit *unit)
{
	int64_t value = unit->rank ? 0 : 42;
	struct op op = short_broadcast(&value);
	if (unit->rank == 0) {
		op.seq = ++unit->seq;
		engine_submit(unit->engine, &op, &unit->workspace);
		if (engine_advance(unit->engine, &op) == OP_BLOCKED) {
			MUST(op.word_count == 1);
			/* First for what rank 1 calls, so as to compare it, and then for its
			 * end. */
			MUST(op.words[0].edge.peer == 1);
			atomic_store(&root_is_blocked, true);
			MUST(unit_finish(unit, &op) == LS_OK);
		} else {
			atomic_store(&root_is_back, true);
		}
	} else {
		while (!atomic_load(&root_is_blocked) && !atomic_load(&root_is_back))
			sched_yield();
		MUST(unit_call(unit, &op) == LS_OK && value == 42);
	}
	MUST(atomic_load(&transport_area_of(&unit->link->team, unit->rank)->finished) == 1);
}

static void blocking_waits_for_all(void **state)
{
	(void)state;
	for (int blocking = 0; blocking < 2; blocking++) {
		const struct settings settings = {.blocking = (uint64_t)blocking};
		struct fixture *fixture = fixture_open(2, &settings);
		atomic_store(&root_is_back, false);
		atomic_store(&root_is_blocked, false);
		fixture_run(fixture, root_waits_for_all);
		assert_int_equal(atomic_load(&root_is_blocked), blocking);
		fixture_close(fixture);
	}
}

/* A rank that gives up says that it is out, which is not that it has completed. */
static void blocking_fails_with_a_peer(void **state)
{
	(void)state;
	const struct settings settings = {.blocking = 1};
	struct fixture *fixture = fixture_open(2, &settings);
	struct unit *root = &fixture->units[0];
	int64_t value = 42;
	struct op op = short_broadcast(&value);
	op.seq = 1;
	engine_submit(root->engine, &op, &root->workspace);
	assert_int_equal(engine_advance(root->engine, &op), OP_BLOCKED);
	atomic_store(&fixture->cause, 1);
	atomic_store(&transport_area_of(&root->link->team, 1)->finished, 1);
	assert_int_equal(engine_advance(root->engine, &op), OP_FAILED);
	assert_int_equal(op.status, LS_ABORTED);
	assert_int_equal(engine_abandon(root->engine, &op, NULL, false), OP_DONE);
	fixture_close(fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pairs_are_compared),
		cmocka_unit_test(own_pair_is_compared),
		cmocka_unit_test(lists_are_compared),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(too_much_to_stage),
		cmocka_unit_test(blocking_waits_for_all),
		cmocka_unit_test(blocking_fails_with_a_peer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
