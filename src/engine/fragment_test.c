/* SPDX-License-Identifier: BSD-3-Clause
 * Fragments, as far as engine_test does not test them: their limits, payloads that are longer than
 * the arena, and entries with false values. */
#include "engine/engine_fixture.h"

#include "engine/engine_private.h"

static const struct settings copying = {.cma = SETTING_CMA_OFF};

/* The signals of all phases of all rounds, in the order in which a rank gives them. */
static void check_signals(const struct op *op, uint32_t first, uint32_t end)
{
	uint64_t before = first ? engine_fragment_signal(op, first - 1, op->plan->plan.phase_end)
				: transport_signal(op->seq, 0) - 1;
	for (uint32_t round = first; round < end; round++)
		for (unsigned phase = 0; phase <= op->plan->plan.phase_end; phase++) {
			uint64_t signal = engine_fragment_signal(op, round, phase);
			assert_true(signal > before);
			before = signal;
		}
	assert_true(before < transport_signal(op->seq + 1, 0));
}

static void signals_grow_whatever_the_length(void **state)
{
	(void)state;
	struct plan_step steps[128];
	const uint64_t counts[] = {
		0, 1, 65536, 65537, UINT64_C(1) << 33, UINT64_C(1) << 50, INT64_MAX / 8};
	const struct engine engine = {.fragment_bytes = ENGINE_FRAGMENT_BYTES};
	for (int algorithm = PLAN_DIRECT; algorithm <= PLAN_PULL; algorithm++)
		for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
			struct engine_plan plan = {0};
			struct plan_params params = {.algorithm = (enum plan_algorithm)algorithm,
						     .size = 2};
			assert_true(plan_build(&params, steps, &plan.plan));
			struct op op = {.call = {.count = counts[i]},
					.seq = 7,
					.plan = &plan,
					.element_bytes = 8};
			engine_fragment_none(&op);
			assert_int_equal(op.rounds, 1);
			assert_true(op.elements == counts[i]);
			assert_true(engine_fragment_signal(&op, 0, 0) == transport_signal(7, 0));
			uint64_t last = engine_fragment_signal(&op, 0, plan.plan.phase_end);
			engine_fragment_begin(&engine, &op, 0);
			assert_int_equal(op.rounds > 1, counts[i] > ENGINE_FRAGMENT_BYTES / 8);
			check_signals(&op, 0, op.rounds < 100 ? op.rounds : 100);
			check_signals(&op, op.rounds < 100 ? 0 : op.rounds - 100, op.rounds);
			/* A rank that knows of no rounds waits for the end of the last one. */
			assert_true(engine_fragment_signal(&op, op.rounds - 1,
							   plan.plan.phase_end) == last);
			/* All of it, and no round without elements. */
			assert_true((uint64_t)op.rounds * op.fragment >= counts[i]);
			assert_true(op.rounds == 1 ||
				    (uint64_t)(op.rounds - 1) * op.fragment < counts[i]);
		}
}

enum { LONG = TEST_ARENA_BYTES / 4 * 2 };

/* Twice the arena. */
static void sum_much(struct unit *unit)
{
	int32_t *buffer = malloc(LONG * sizeof *buffer);
	MUST(buffer);
	for (int i = 0; i < LONG; i++)
		buffer[i] = i + unit->rank;
	struct op op = {.call = {.kind = TRACE_ALLREDUCE,
				 .dtype = LS_INT32,
				 .reduce = LS_MAX,
				 .peer = -1,
				 .send = buffer_host(buffer, LONG * sizeof *buffer),
				 .recv = buffer_host(buffer, LONG * sizeof *buffer),
				 .count = LONG}};
	MUST(unit_call(unit, &op) == LS_OK);
	for (int i = 0; i < LONG; i++)
		MUST(buffer[i] == i + unit->size - 1);
	struct memory_stats stats;
	memory_stats(&unit->link->memory, &stats);
	MUST(stats.live == 0);
	free(buffer);
}

static void longer_than_the_arena(void **state)
{
	(void)state;
	struct fixture *fixture = fixture_open(2, &copying);
	fixture_run(fixture, sum_much);
	fixture_close(fixture);
}

/* How rank 0 shows what it scatters. */
static void scatter_plain(struct unit *unit)
{
	enum { PART = 40000, RANKS = 2 };
	static const struct {
		enum transport_reads fast;
		enum transport_window window;
	} cases[] = {{TRANSPORT_READS_YES, TRANSPORT_WINDOW_ADDRESS},
		     {TRANSPORT_READS_NO, TRANSPORT_WINDOW_FRAGMENTED}};
	bool root = unit->rank == 0;
	int32_t *from = malloc(RANKS * PART * sizeof *from);
	int32_t *to = malloc(PART * sizeof *to);
	MUST(from && to);
	for (int i = 0; i < RANKS * PART; i++)
		from[i] = i;
	for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		memset(to, 0, PART * sizeof *to);
		struct op op = {.call = {.kind = TRACE_SCATTER,
					 .dtype = LS_INT32,
					 .peer = 0,
					 .recv = buffer_host(to, PART * sizeof *to),
					 .count = PART}};
		if (root)
			op.call.send = buffer_host(from, RANKS * PART * sizeof *from);
		/* The other one needs to know nothing of it. */
		unit->link->team.transport->reads_fast =
			root ? cases[c].fast : TRANSPORT_READS_UNKNOWN;
		MUST(unit_call(unit, &op) == LS_OK);
		MUST(!root || op.input_window == cases[c].window);
		for (int i = 0; i < PART; i++)
			MUST(to[i] == unit->rank * PART + i);
	}
	free(from);
	free(to);
}

static void read_where_a_read_is_fast(void **state)
{
	(void)state;
	const struct settings settings = {.cma = SETTING_CMA_AUTO};
	struct fixture *fixture = fixture_open(2, &settings);
	fixture_run(fixture, scatter_plain);
	fixture_close(fixture);
}

/* Rank 1 is played by hand: its entry is rank 0's own, but for windows that are in fragments,
 * which there are none of in a call with lists. What rank 0 makes of it stays within its
 * buffers. */
static void fragments_where_there_are_none(void **state)
{
	(void)state;
	enum { PART = 40000, GUARD = 100000 };
	static const uint64_t counts[] = {PART, PART};
	struct fixture *fixture = fixture_open(2, &copying);
	struct unit *unit = &fixture->units[0];
	struct transport_team *team = &unit->link->team;
	uint64_t *from = calloc(PART, 8), *to = calloc(2 * PART + GUARD, 8);
	assert_true(from && to);
	for (int i = 0; i < GUARD; i++)
		to[2 * PART + i] = 77;
	struct op op = {.call = {.kind = TRACE_ALLGATHERV,
				 .dtype = LS_INT64,
				 .peer = -1,
				 .send = buffer_host(from, PART * sizeof *from),
				 .recv = buffer_host(to, 2 * PART * sizeof *to),
				 .counts = counts,
				 .count = 2 * PART},
			.seq = 1};
	engine_submit(unit->engine, &op, &unit->workspace);
	assert_int_equal(engine_advance(unit->engine, &op), OP_BLOCKED);
	struct transport_entry *mine = transport_entry(team, 0, 1);
	struct transport_entry *theirs = transport_entry(team, 1, 1);
	memcpy((unsigned char *)theirs + 8, (unsigned char *)mine + 8, sizeof *mine - 8);
	theirs->input_window = theirs->output_window = TRANSPORT_WINDOW_FRAGMENTED;
	atomic_store(&theirs->signal,
		     transport_signal(2, 0) - 1); /* it has been through all rounds */
	enum op_progress progress = engine_advance(unit->engine, &op);
	assert_int_not_equal(progress, OP_BLOCKED);
	assert_int_equal(op.rounds, 1);
	for (int i = 0; i < GUARD; i++)
		assert_true(to[2 * PART + i] == 77);
	if (progress == OP_FAILED) {
		atomic_store(&fixture->cause, 1);
		atomic_store(&transport_area_of(team, 1)->finished, 1);
		unit_abandon(unit, &op);
	}
	fixture_close(fixture);
	free(from);
	free(to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(signals_grow_whatever_the_length),
		cmocka_unit_test(longer_than_the_arena),
		cmocka_unit_test(read_where_a_read_is_fast),
		cmocka_unit_test(fragments_where_there_are_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
