/* SPDX-License-Identifier: BSD-3-Clause
 * Every plan for every size of group, and plans with a deliberate mistake, which the simulator must
 * refuse. With a number as its argument: plans for up to that many ranks, more than a group has
 * (plan_sim_test 1024). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/ranks.h"
#include "plan_sim.h"

enum { OPS_MAX = 4096, PLACES = 3, COUNTS = 5, SMALL = 17, ALL_ROOTS = 9 };

/* Sanitizers are ten times as slow, so they try fewer of the sizes that are alike. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOW = 1 };
#else
enum { SLOW = 0 };
#endif

/* ---- all plans ---- */

static bool has_parts(enum coll_id collective)
{
	struct plan_params params = {.collective = collective, .algorithm = PLAN_DIRECT, .size = 1};
	struct plan_step steps[32];
	struct plan plan;
	assert_true(plan_steps_max(&params) <= 32 && plan_build(&params, steps, &plan));
	return plan.layout[PLAN_INPUT] != PLAN_LAYOUT_BLOCKS;
}

/* Elements that fill all blocks, or not; parts that are equal, or empty, or uneven. */
static void set_count(struct plan_sim_op *op, int which, int size)
{
	const uint32_t n = (uint32_t)size;
	const uint32_t counts[COUNTS] = {0, 1, n - 1, n, 2 * n + 1};
	const uint32_t part_counts[COUNTS] = {0, 1, 3, 0, 2};
	bool parts = has_parts(op->collective);
	op->count = parts ? part_counts[which] : counts[which];
	op->uneven = parts && which >= 3;
	if (op->collective == COLL_BARRIER)
		op->count = 0;
}

/* The operations of one algorithm. Small sizes have all places and counts, and all roots up to 9.
 * Larger sizes are alike (17 ranks have every shape of tree and fold), so each count gets one place
 * and root, which differ from `turn` to `turn` (one for each kind of link). */
static int add_ops(struct plan_sim_op *ops, int used, enum coll_id collective,
		   enum plan_algorithm algorithm, int size, int turn)
{
	bool barrier = collective == COLL_BARRIER, small = size <= SMALL;
	bool windows = algorithm == PLAN_INLINE || algorithm == PLAN_DIRECT ||
		       algorithm == PLAN_PULL; /* these algorithms do not depend on the capacity */
	int counts = barrier || (windows && !small && turn > 0) ? 1 : COUNTS;
	int places = small && !barrier ? PLACES : 1;
	int roots = size <= ALL_ROOTS && plan_has_root(collective) ? size : 1;
	for (int i = 0; i < places * counts * roots; i++) {
		int count = i % counts, place = i / counts % places, root = i / counts / places;
		if (plan_has_root(collective) && roots == 1)
			root = (turn + i * (size / 3 + 1)) % size;
		if (!small)
			place = (turn + i) % PLACES;
		assert_true(used < OPS_MAX);
		ops[used] = (struct plan_sim_op){.collective = collective,
						 .algorithm = algorithm,
						 .place = (enum plan_sim_place)place,
						 .root = root};
		set_count(&ops[used++], counts == 1 ? turn : count, size);
	}
	return used;
}

/* Calls `visit` for each algorithm of each collective. */
typedef void pair_visitor(enum coll_id collective, enum plan_algorithm algorithm, void *context);

static void visit_pairs(pair_visitor *visit, void *context)
{
	for (int c = 0; c < COLL_COUNT; c++)
		for (int a = 0; a < PLAN_ALGORITHM_COUNT; a++)
			if (plan_has((enum coll_id)c, (enum plan_algorithm)a))
				visit((enum coll_id)c, (enum plan_algorithm)a, context);
}

struct program {
	struct plan_sim_op *ops;
	int count, size, turn;
};

static void add_pair(enum coll_id collective, enum plan_algorithm algorithm, void *context)
{
	struct program *program = context;
	program->count = add_ops(program->ops, program->count, collective, algorithm, program->size,
				 program->turn);
}

/* One operation of each sort, in mixed order. */
static int make_program(struct plan_sim_op *ops, int size, int turn)
{
	struct program program = {.ops = ops, .size = size, .turn = turn};
	visit_pairs(add_pair, &program);
	uint32_t random = (uint32_t)size;
	for (int i = program.count - 1; i > 0; i--) {
		random = random * 1664525u + 1013904223u;
		int other = (int)((random >> 8) % (uint32_t)(i + 1));
		struct plan_sim_op swap = ops[i];
		ops[i] = ops[other];
		ops[other] = swap;
	}
	return program.count;
}

static void run(const struct plan_sim *sim)
{
	char report[PLAN_SIM_TEXT_BYTES];
	if (!plan_sim_run(sim, report))
		fail_msg("%s messages: %s", sim->copied ? "short" : "long", report);
}

/* Links of each capacity, with long messages, and once with short ones. */
static void run_size(int size)
{
	static struct plan_sim_op ops[OPS_MAX];
	struct plan_sim sim = {.size = size, .ahead = PLAN_SIM_SLOTS, .ops = ops};
	for (int turn = 0; turn < PLAN_SIM_CAPACITY + 1; turn++) {
		sim.capacity = 1 + turn % PLAN_SIM_CAPACITY;
		sim.copied = turn == PLAN_SIM_CAPACITY;
		sim.op_count = make_program(ops, size, turn);
		run(&sim);
	}
}

static void every_plan_works_for_every_size(void **state)
{
	(void)state;
	for (int size = 1; size <= RANKS_HOST_MAX; size++)
		if (!SLOW || size <= SMALL || size >= 63 || size == 32)
			run_size(size);
}

/* ---- more ranks than a group has ---- */

static int nightly_size;

/* Three operations of one sort in a row. With more, or with other sorts, clocks would become too
 * long. */
static void run_large_pair(enum coll_id collective, enum plan_algorithm algorithm, void *context)
{
	int size = *(const int *)context;
	struct plan_sim_op ops[3];
	for (int i = 0; i < 3; i++) {
		bool parts = has_parts(collective);
		ops[i] = (struct plan_sim_op){.collective = collective,
					      .algorithm = algorithm,
					      .place = (enum plan_sim_place)((size + i) % PLACES),
					      .root = plan_has_root(collective) ? i * size / 3 : 0,
					      .count = parts ? 1 : (uint32_t)size / 2 * (uint32_t)i,
					      .uneven = parts && i == 2};
		if (collective == COLL_BARRIER)
			ops[i].count = 0;
		else if (algorithm == PLAN_INLINE && !parts)
			ops[i].count = 3; /* each rank combines all parts of all ranks */
	}
	run(&(struct plan_sim){.size = size,
			       .capacity = 1 + size % PLAN_SIM_CAPACITY,
			       .copied = size % 4 == 3,
			       .ahead = PLAN_SIM_SLOTS,
			       .ops = ops,
			       .op_count = 3});
}

/* All sizes up to 128; then those next to sums of two powers of two, of three and of seven. */
static bool is_interesting(int size)
{
	if (size <= 128 || size == nightly_size)
		return true;
	for (int power = 128; power <= RANKS_JOB_MAX; power *= 2)
		if (abs(size - power) <= 1 || abs(size - power - power / 2) <= 1 ||
		    size == power + power / 4 + power / 8)
			return true;
	return false;
}

static void every_plan_works_for_many_more_ranks(void **state)
{
	(void)state;
	assert_true(nightly_size > RANKS_HOST_MAX && nightly_size <= RANKS_JOB_MAX);
	for (int size = RANKS_HOST_MAX + 1; size <= nightly_size; size++)
		if (is_interesting(size))
			visit_pairs(run_large_pair, &size);
}

/* ---- broken plans ---- */

enum change { DROP, DROP_SIGNAL, SWAP, ONE_PEER, LOWER_PHASE, LESS_REACH, EVERY_RECV_FIRST };

struct mutant {
	enum change change;
	int rank;
	uint32_t step;
	int peer;  /* of ONE_PEER */
	int phase; /* of DROP_SIGNAL */
	int which; /* of LESS_REACH: enum plan_buffer */
};

enum { MUTATED_OP = 1 }; /* the middle of the three operations */

static void swap_steps(struct plan_step *a, struct plan_step *b)
{
	struct plan_step step = *a;
	*a = *b;
	*b = step;
}

static void drop_step(struct plan *plan, uint32_t at)
{
	struct plan_step *step = plan->steps + at;
	memmove(step, step + 1, (plan->step_count - at - 1) * sizeof *step);
	plan->step_count--;
}

static void drop_signal(struct plan *plan, int phase)
{
	for (uint32_t i = plan->step_count; i-- > 0;)
		if (plan->steps[i].kind == PLAN_STEP_SIGNAL && plan->steps[i].phase == phase)
			drop_step(plan, i);
}

static void reduce_reach(struct plan *plan, int which)
{
	if (which == PLAN_SCRATCH)
		plan->needs_scratch = false;
	else
		plan->reach[which]--;
}

static void mutate(const void *context, int op, struct plan *plan)
{
	const struct mutant *mutant = context;
	bool every = mutant->change == EVERY_RECV_FIRST || mutant->change == DROP_SIGNAL;
	struct plan_step *step = plan->steps + mutant->step;
	if (op != MUTATED_OP || (plan->rank != mutant->rank && !every))
		return;
	switch (mutant->change) {
	case DROP:
		drop_step(plan, mutant->step);
		break;
	case DROP_SIGNAL:
		drop_signal(plan, mutant->phase);
		break;
	case LESS_REACH:
		reduce_reach(plan, mutant->which);
		break;
	case SWAP:
		swap_steps(step, step + 1);
		break;
	case ONE_PEER:
		step->peer = (int16_t)mutant->peer;
		break;
	case LOWER_PHASE:
		step->phase--;
		break;
	case EVERY_RECV_FIRST:
		for (uint32_t i = 0; i + 1 < plan->step_count; i++)
			if (plan->steps[i].kind == PLAN_STEP_SEND &&
			    plan->steps[i + 1].kind == PLAN_STEP_RECV)
				swap_steps(&plan->steps[i], &plan->steps[i + 1]);
		break;
	}
}

static bool survives(const struct plan_sim_op *op, int size, const struct mutant *mutant,
		     char *report)
{
	struct plan_sim_op ops[3] = {*op, *op, *op};
	struct plan_sim sim = {.size = size,
			       .capacity = 2,
			       .ahead = PLAN_SIM_SLOTS,
			       .ops = ops,
			       .op_count = 3,
			       .mutate = mutant ? mutate : NULL,
			       .context = mutant};
	return plan_sim_run(&sim, report);
}

/* Calls `visit` for each rank's plan of each operation that the small sizes have. */
typedef void visitor(const struct plan_sim_op *op, const struct plan *plan);

static int visited; /* how many mutants were refused, so that a test can see that there were some */

static void visit_ranks(const struct plan_sim_op *op, int size, visitor *visit)
{
	struct plan_step steps[RANKS_HOST_MAX * 8];
	char report[PLAN_SIM_TEXT_BYTES];
	if (!survives(op, size, NULL, report))
		fail_msg("not changed at all: %s", report);
	for (int rank = 0; rank < size; rank++) {
		struct plan plan;
		struct plan_params params = {.collective = op->collective,
					     .algorithm = op->algorithm,
					     .rank = rank,
					     .size = size,
					     .root = op->root,
					     .in_place = op->place == PLAN_SIM_IN_PLACE};
		assert_true(plan_build(&params, steps, &plan));
		visit(op, &plan);
	}
}

static void visit_pair(enum coll_id collective, enum plan_algorithm algorithm, void *context)
{
	visitor *const *visit = context;
	for (int size = 2; size <= 7; size++)
		for (int place = 0; place < 2; place++) {
			struct plan_sim_op op = {.collective = collective,
						 .algorithm = algorithm,
						 .place = (enum plan_sim_place)place};
			op.root = plan_has_root(collective) ? size / 2 : 0;
			op.count = collective == COLL_BARRIER ? 0 : has_parts(collective) ? 2 : 17;
			visit_ranks(&op, size, *visit);
		}
}

static void visit_all(visitor *visit)
{
	visited = 0;
	visit_pairs(visit_pair, &visit);
}

static void must_be_refused(const struct plan_sim_op *op, const struct plan *plan,
			    const struct mutant *mutant)
{
	char report[PLAN_SIM_TEXT_BYTES], text[PLAN_TEXT_BYTES];
	if (survives(op, plan->size, mutant, report)) {
		plan_step_text(plan, &plan->steps[mutant->step], text, sizeof text);
		fail_msg("%s %s, size %u, place %d, rank %u: change %d of step %u (%s) was not noticed",
			 plan_collective_name(plan->collective),
			 plan_algorithm_name(plan->algorithm), plan->size, (int)op->place,
			 plan->rank, (int)mutant->change, mutant->step, text);
	}
	visited++;
}

/* A rank may give an early signal together with a later one: its peers only wait longer. Not all
 * ranks may do so. */
static bool is_repeated(const struct plan *plan, uint32_t at)
{
	for (uint32_t i = at + 1; i < plan->step_count; i++)
		if (plan->steps[at].kind == PLAN_STEP_SIGNAL &&
		    plan->steps[i].kind == PLAN_STEP_SIGNAL)
			return true;
	return false;
}

static void drop_each(const struct plan_sim_op *op, const struct plan *plan)
{
	for (uint32_t i = 0; i < plan->step_count; i++)
		must_be_refused(op, plan,
				&(struct mutant){.change = is_repeated(plan, i) ? DROP_SIGNAL : DROP,
						 .rank = plan->rank,
						 .step = i,
						 .phase = plan->steps[i].phase});
}

static void no_plan_works_without_any_of_its_steps(void **state)
{
	(void)state;
	visit_all(drop_each);
	assert_true(visited > 1000);
}

/* A local copy may be made at any time, and so may copies from several peers. A late signal and an
 * early await only make ranks wait. */
static bool may_be_swapped(const struct plan *plan, const struct plan_step *a,
			   const struct plan_step *b)
{
	bool local = a->kind == PLAN_STEP_COPY && a->peer == plan->rank;
	bool signals = a->kind == PLAN_STEP_SIGNAL, awaits = b->kind == PLAN_STEP_AWAIT;
	bool copies = a->kind == PLAN_STEP_COPY && (b->kind == PLAN_STEP_COPY || awaits);
	return local || copies || (signals && awaits);
}

static void swap_each(const struct plan_sim_op *op, const struct plan *plan)
{
	if (op->algorithm != PLAN_INLINE && op->algorithm != PLAN_DIRECT &&
	    op->algorithm != PLAN_PULL)
		return; /* sends to two peers may be exchanged */
	for (uint32_t i = 0; i + 1 < plan->step_count; i++)
		if (!may_be_swapped(plan, &plan->steps[i], &plan->steps[i + 1]))
			must_be_refused(
				op, plan,
				&(struct mutant){.change = SWAP, .rank = plan->rank, .step = i});
}

static void window_plans_do_not_work_in_another_order(void **state)
{
	(void)state;
	visit_all(swap_each);
	assert_true(visited > 100);
}

static void weaken_each(const struct plan_sim_op *op, const struct plan *plan)
{
	for (uint32_t i = 0; i < plan->step_count; i++) {
		struct mutant mutant = {.rank = plan->rank, .step = i};
		if (plan->steps[i].kind != PLAN_STEP_AWAIT)
			continue;
		mutant.change = LOWER_PHASE;
		if (plan->steps[i].phase > 0)
			must_be_refused(op, plan, &mutant);
		mutant.change = ONE_PEER;
		for (int q = 0; q < plan->size; q++) {
			mutant.peer = q;
			if (plan->steps[i].peer == PLAN_ALL && q != plan->rank && plan->size > 2)
				must_be_refused(op, plan, &mutant);
		}
	}
}

static void no_await_may_be_weaker(void **state)
{
	(void)state;
	visit_all(weaken_each);
	assert_true(visited > 100);
}

static void reach_less(const struct plan_sim_op *op, const struct plan *plan)
{
	for (int which = PLAN_INPUT; which <= PLAN_SCRATCH; which++)
		if (which == PLAN_SCRATCH ? plan->needs_scratch
					  : plan->reach[which] > PLAN_REACH_PRIVATE)
			must_be_refused(op, plan,
					&(struct mutant){.change = LESS_REACH,
							 .rank = plan->rank,
							 .which = which});
}

static void no_plan_reaches_less_than_it_needs(void **state)
{
	(void)state;
	visit_all(reach_less);
	assert_true(visited > 500);
}

static void a_deadlock_is_reported_as_such(void **state)
{
	(void)state;
	char report[PLAN_SIM_TEXT_BYTES];
	struct plan_sim_op op = {.collective = COLL_ALLREDUCE, .algorithm = PLAN_RING, .count = 12};
	assert_false(survives(&op, 4, &(struct mutant){.change = EVERY_RECV_FIRST}, report));
	assert_non_null(strstr(report, "deadlock"));
	assert_non_null(strstr(report, "rank 0, step 1 (receive block 3 from rank 3"));
}

/* Only the rule for entry slots protects them (PLAN_SIM_SLOTS): the simulator sees one collective
 * too many. */
static void running_ahead_too_far_is_refused(void **state)
{
	(void)state;
	char report[PLAN_SIM_TEXT_BYTES];
	struct plan_sim_op ops[3 * PLAN_SIM_SLOTS];
	for (int i = 0; i < 3 * PLAN_SIM_SLOTS; i++)
		ops[i] = (struct plan_sim_op){
			.collective = COLL_BROADCAST, .algorithm = PLAN_INLINE, .count = 3};
	struct plan_sim sim = {.size = 3,
			       .capacity = 1,
			       .ahead = PLAN_SIM_SLOTS,
			       .ops = ops,
			       .op_count = 3 * PLAN_SIM_SLOTS};
	assert_true(plan_sim_run(&sim, report));
	sim.ahead++;
	assert_false(plan_sim_run(&sim, report));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_plan_works_for_every_size),
		cmocka_unit_test(no_plan_works_without_any_of_its_steps),
		cmocka_unit_test(window_plans_do_not_work_in_another_order),
		cmocka_unit_test(no_await_may_be_weaker),
		cmocka_unit_test(no_plan_reaches_less_than_it_needs),
		cmocka_unit_test(a_deadlock_is_reported_as_such),
		cmocka_unit_test(running_ahead_too_far_is_refused),
	};
	const struct CMUnitTest nightly[] = {
		cmocka_unit_test(every_plan_works_for_many_more_ranks),
	};
	if (argc < 2)
		return cmocka_run_group_tests(tests, NULL, NULL);
	nightly_size = (int)strtol(argv[1], NULL, 10);
	return cmocka_run_group_tests(nightly, NULL, NULL);
}
