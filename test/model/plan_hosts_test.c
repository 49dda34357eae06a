/* SPDX-License-Identifier: BSD-3-Clause
 * Plans on several hosts, up to as many ranks as a job may have: which work there, that no others
 * do, and that a plan of two levels needs each of its steps. With an argument: all plans without
 * windows, of that many ranks (plan_hosts_test 4096). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan_sim.h"

/* Sanitizers are ten times as slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DRAWN = 10, LARGEST = 512 };
#else
enum { DRAWN = 100, LARGEST = RANKS_JOB_MAX };
#endif

static uint32_t draw(uint32_t *state, uint32_t end)
{
	*state = *state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)*state * end >> 32);
}

/* ---- topologies ---- */

struct hosts {
	struct plan_topology topology;
	int size;
	uint16_t of[RANKS_JOB_MAX];
};

/* From a text with a digit for each rank, its host. */
static void hosts_of(const char *text, struct hosts *out)
{
	out->size = (int)strlen(text);
	out->topology = (struct plan_topology){.hosts = out->of};
	for (int q = 0; q < out->size; q++) {
		out->of[q] = (uint16_t)(text[q] - '0');
		if (out->topology.host_count <= out->of[q])
			out->topology.host_count = out->of[q] + 1;
	}
}

/* The ranks of a host are neighbours, or are dealt out in turn; the last host may have fewer. */
static void hosts_of_size(int size, int each, bool dealt, struct hosts *out)
{
	int count = (size + each - 1) / each;
	out->size = size;
	out->topology = (struct plan_topology){.host_count = count, .hosts = out->of};
	for (int q = 0; q < size; q++)
		out->of[q] = (uint16_t)(dealt ? q % count : q / each);
}

/* Each host has a rank; the hosts of the others are drawn. */
static void draw_hosts(uint32_t *random, struct hosts *out)
{
	out->size = 2 + (int)draw(random, 30);
	int count = 1 + (int)draw(random, (uint32_t)out->size);
	out->topology = (struct plan_topology){.host_count = count, .hosts = out->of};
	for (int q = 0; q < out->size; q++)
		out->of[q] = (uint16_t)(q < count ? (uint32_t)q : draw(random, (uint32_t)count));
	for (int q = out->size - 1; q > 0; q--) {
		int other = (int)draw(random, (uint32_t)q + 1);
		uint16_t host = out->of[q];
		out->of[q] = out->of[other];
		out->of[other] = host;
	}
}

static struct plan_sim sim_of(const struct hosts *hosts, const struct plan_sim_op *ops, int count)
{
	return (struct plan_sim){.size = hosts->size,
				 .topology = &hosts->topology,
				 .capacity = 1 + hosts->size % PLAN_SIM_CAPACITY,
				 .copied = hosts->size % 4 == 3,
				 .ahead = PLAN_SIM_SLOTS,
				 .ops = ops,
				 .op_count = count};
}

static void run(const struct plan_sim *sim)
{
	char report[PLAN_SIM_TEXT_BYTES];
	if (!plan_sim_run(sim, report))
		fail_msg("%d hosts: %s", sim->topology ? sim->topology->host_count : 1, report);
}

/* ---- what works ---- */

static struct plan_sim_op op_of(enum coll_id collective, enum plan_algorithm algorithm, int size,
				int turn)
{
	bool parts = collective != COLL_ALLREDUCE && collective != COLL_BROADCAST &&
		     collective != COLL_REDUCE;
	return (struct plan_sim_op){.collective = collective,
				    .algorithm = algorithm,
				    .place = (enum plan_sim_place)(turn % 3),
				    .root = plan_has_root(collective) ? turn % size : 0,
				    .count = collective == COLL_BARRIER ? 0
					     : parts                    ? 1
									: (uint32_t)(2 * turn)};
}

/* Some operations of each sort in a row. */
static void run_all(const struct hosts *hosts, uint32_t *random)
{
	enum { ROW = 4 };
	for (int c = 0; c < COLL_COUNT; c++)
		for (int a = 0; a < PLAN_ALGORITHM_COUNT; a++) {
			struct plan_sim_op ops[ROW];
			if (!plan_has((enum coll_id)c, (enum plan_algorithm)a) ||
			    !plan_crosses_hosts((enum plan_algorithm)a))
				continue;
			for (int i = 0; i < ROW; i++)
				ops[i] = op_of((enum coll_id)c, (enum plan_algorithm)a, hosts->size,
					       i + (int)draw(random, 30));
			struct plan_sim sim = sim_of(hosts, ops, ROW);
			run(&sim);
		}
}

static void plans_work_on_any_hosts(void **state)
{
	(void)state;
	static const char *const texts[] = {"01",      "001",       "0101",     "0110",
					    "0011",    "00011",     "01222",    "012012",
					    "0001112", "000111222", "01010101", "0000000000000001"};
	uint32_t random = 1;
	struct hosts hosts;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		hosts_of(texts[i], &hosts);
		run_all(&hosts, &random);
	}
	for (int i = 0; i < DRAWN; i++) {
		draw_hosts(&random, &hosts);
		run_all(&hosts, &random);
	}
}

/* Whatever algorithm the table chooses, there is a plan. */
static void every_choice_has_a_plan(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {0, 8, 8192, 8193, UINT64_MAX};
	static struct plan_step steps[8 * RANKS_HOST_MAX];
	uint32_t random = 3;
	struct hosts hosts;
	for (int i = 0; i < DRAWN; i++) {
		draw_hosts(&random, &hosts);
		for (int c = 0; c < COLL_COUNT; c++)
			for (int a = 0; a < PLAN_ALGORITHM_COUNT * 5; a++) {
				enum plan_algorithm chosen = (enum plan_algorithm)(a / 5);
				if (!plan_has((enum coll_id)c, chosen))
					continue;
				struct plan_params params = {
					.collective = (enum coll_id)c,
					.algorithm =
						plan_across((enum coll_id)c, chosen, sizes[a % 5],
							    hosts.size, &hosts.topology),
					.rank = (int)draw(&random, (uint32_t)hosts.size),
					.size = hosts.size,
					.topology = &hosts.topology};
				struct plan plan;
				assert_true(plan_build(&params, steps, &plan));
				if (hosts.topology.host_count == 1 || plan_crosses_hosts(chosen))
					assert_int_equal(params.algorithm, chosen);
			}
	}
}

/* Messages between hosts in a short all-gather, as it is chosen. */
static int count_crossing(const struct hosts *hosts, uint64_t bytes)
{
	struct plan_step steps[256];
	struct plan_params params = {.collective = COLL_ALLGATHER,
				     .algorithm = plan_across(COLL_ALLGATHER, PLAN_DIRECT, bytes,
							      hosts->size, &hosts->topology),
				     .size = hosts->size,
				     .topology = &hosts->topology};
	int count = 0;
	for (params.rank = 0; params.rank < hosts->size; params.rank++) {
		struct plan plan;
		assert_true(plan_build(&params, steps, &plan));
		for (uint32_t i = 0; i < plan.step_count; i++)
			count += steps[i].kind == PLAN_STEP_SEND &&
				 hosts->of[steps[i].peer] != hosts->of[params.rank];
	}
	return count;
}

/* Each host sends one in each round, or two if the hosts are no power of two; all hosts know all
 * after log2 of their number. Round a ring each part goes from host to host. */
static void short_all_gathers_cross_seldom(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int few, round_a_ring;
	} cases[] = {{"0011", 2, 6}, {"00112233", 8, 28}, {"01", 2, 2}, {"01234", 16, 20}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct hosts hosts;
		hosts_of(cases[i].text, &hosts);
		assert_int_equal(count_crossing(&hosts, 8), cases[i].few);
		assert_int_equal(count_crossing(&hosts, 1 << 20), cases[i].round_a_ring);
		assert_int_equal(count_crossing(&hosts, UINT64_MAX), cases[i].round_a_ring);
	}
}

/* All algorithms whose number of messages does not grow with the square of the ranks. */
static void plans_work_for_all_ranks_of_a_job(void **state)
{
	(void)state;
	static const struct {
		enum coll_id collective;
		enum plan_algorithm algorithm;
	} sorts[] = {
		{COLL_ALLREDUCE, PLAN_RAILS}, {COLL_ALLREDUCE, PLAN_DOUBLING},
		{COLL_ALLREDUCE, PLAN_TREE},  {COLL_REDUCE, PLAN_TREE},
		{COLL_BROADCAST, PLAN_TREE},  {COLL_BROADCAST, PLAN_RING},
		{COLL_BARRIER, PLAN_TREE},    {COLL_BARRIER, PLAN_DOUBLING},
		{COLL_BARRIER, PLAN_LEADERS}, {COLL_ALLREDUCE, PLAN_LEADERS},
	};
	struct hosts *hosts = malloc(sizeof *hosts);
	assert_non_null(hosts);
	for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++) {
		hosts_of_size(LARGEST - (int)i % 2, RANKS_HOST_MAX, i % 3 == 2, hosts);
		struct plan_sim_op op = op_of(sorts[i].collective, sorts[i].algorithm, LARGEST, 32);
		struct plan_sim sim = sim_of(hosts, &op, 1);
		run(&sim);
	}
	/* as many hosts as possible with several ranks each */
	hosts_of_size(LARGEST, 5, true, hosts);
	struct plan_sim_op op = op_of(COLL_ALLREDUCE, PLAN_RAILS, LARGEST, 7);
	struct plan_sim sim = sim_of(hosts, &op, 1);
	run(&sim);
	free(hosts);
}

/* ---- what does not ---- */

static void windows_stay_on_their_host(void **state)
{
	(void)state;
	static const enum plan_algorithm windows[] = {PLAN_INLINE, PLAN_DIRECT, PLAN_PULL};
	struct plan_step steps[256];
	struct plan plan;
	struct hosts hosts;
	hosts_of("0011", &hosts);
	for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
		struct plan_params params = {
			.algorithm = windows[i], .size = 4, .topology = &hosts.topology};
		assert_false(plan_crosses_hosts(windows[i]));
		assert_false(plan_build(&params, steps, &plan));
		params.topology = NULL;
		assert_true(plan_build(&params, steps, &plan));
	}
}

static void topologies_out_of_range_are_refused(void **state)
{
	(void)state;
	static struct plan_step steps[8 * (RANKS_HOST_MAX + 2)];
	struct plan plan;
	struct hosts hosts;
	hosts_of("0123", &hosts);
	struct plan_params params = {.algorithm = PLAN_RING, .size = 4, .topology = &hosts.topology};
	assert_true(plan_build(&params, steps, &plan));
	hosts.topology.host_count = 3; /* rank 3 has no host */
	assert_false(plan_build(&params, steps, &plan));
	hosts.topology.host_count = 5; /* more hosts than ranks */
	assert_false(plan_build(&params, steps, &plan));
	hosts.topology.host_count = 0;
	assert_false(plan_build(&params, steps, &plan));
	hosts_of("0223", &hosts); /* no rank is on host 1 */
	assert_false(plan_build(&params, steps, &plan));
	params.size = RANKS_HOST_MAX + 2;
	memset(hosts.of, 0, sizeof hosts.of);
	hosts.of[RANKS_HOST_MAX] = hosts.of[RANKS_HOST_MAX + 1] = 1;
	hosts.topology.host_count = 2;
	assert_true(plan_build(&params, steps, &plan));
	hosts.of[RANKS_HOST_MAX] = 0; /* one rank more than a host may have */
	assert_false(plan_build(&params, steps, &plan));
}

/* ---- broken plans ---- */

enum change { DROP, DROP_SIGNAL, ONE_PEER, LESS_REACH, OTHER_HOST };

struct mutant {
	enum change change;
	int rank;
	uint32_t step;
	int number; /* DROP_SIGNAL: the phase; ONE_PEER, OTHER_HOST: the rank; LESS_REACH: buffer */
};

enum { MUTATED_OP = 1 }; /* the middle of the three operations */

static void drop_step(struct plan *plan, uint32_t at)
{
	struct plan_step *step = plan->steps + at;
	memmove(step, step + 1, (plan->step_count - at - 1) * sizeof *step);
	plan->step_count--;
}

static void drop_signals(struct plan *plan, int phase)
{
	for (uint32_t i = plan->step_count; i-- > 0;)
		if (plan->steps[i].kind == PLAN_STEP_SIGNAL && plan->steps[i].phase == phase)
			drop_step(plan, i);
}

static void mutate(const void *context, int op, struct plan *plan)
{
	const struct mutant *mutant = context;
	if (op != MUTATED_OP || (plan->rank != mutant->rank && mutant->change != DROP_SIGNAL))
		return;
	switch (mutant->change) {
	case DROP:
		drop_step(plan, mutant->step);
		break;
	case DROP_SIGNAL: /* one rank alone may give the signal together with a later one */
		drop_signals(plan, mutant->number);
		break;
	case ONE_PEER:
	case OTHER_HOST:
		plan->steps[mutant->step].peer = (int16_t)mutant->number;
		break;
	case LESS_REACH:
		if (mutant->number == PLAN_SCRATCH)
			plan->needs_scratch = false;
		else
			plan->reach[mutant->number]--;
		break;
	}
}

struct sort {
	enum coll_id collective;
	enum plan_algorithm algorithm;
};

static bool survives(const struct hosts *hosts, struct sort sort, enum plan_sim_place place,
		     const struct mutant *mutant, char *report)
{
	struct plan_sim_op op = {.collective = sort.collective,
				 .algorithm = sort.algorithm,
				 .place = place,
				 .count = 17};
	struct plan_sim_op ops[3] = {op, op, op};
	struct plan_sim sim = sim_of(hosts, ops, 3);
	sim.copied = false;
	sim.capacity = 2;
	sim.mutate = mutant ? mutate : NULL;
	sim.context = mutant;
	return plan_sim_run(&sim, report);
}

static void must_be_refused(const struct hosts *hosts, const struct plan *plan, int place,
			    const struct mutant *mutant)
{
	char report[PLAN_SIM_TEXT_BYTES], text[PLAN_TEXT_BYTES];
	struct sort sort = {(enum coll_id)plan->collective, (enum plan_algorithm)plan->algorithm};
	if (!survives(hosts, sort, (enum plan_sim_place)place, mutant, report))
		return;
	plan_step_text(plan, &plan->steps[mutant->step], text, sizeof text);
	fail_msg("size %d, place %d, rank %u: change %d of step %u (%s) was not noticed",
		 hosts->size, place, plan->rank, (int)mutant->change, mutant->step, text);
}

static int another_host(const struct hosts *hosts, int rank)
{
	int other = 0;
	while (hosts->of[other] == hosts->of[rank])
		other++;
	return other;
}

/* All mistakes that one step may have. */
static void break_step(const struct hosts *hosts, const struct plan *plan, uint32_t at, int place)
{
	const struct plan_step *step = &plan->steps[at];
	struct mutant mutant = {.rank = plan->rank, .step = at};
	mutant.change = step->kind == PLAN_STEP_SIGNAL ? DROP_SIGNAL : DROP;
	mutant.number = step->phase;
	must_be_refused(hosts, plan, place, &mutant);
	bool here = step->kind == PLAN_STEP_COPY ||
		    (step->kind == PLAN_STEP_AWAIT && !(step->flags & PLAN_UNTIL_TAKEN));
	if (here && step->peer != plan->rank) {
		mutant.change = OTHER_HOST;
		mutant.number = another_host(hosts, plan->rank);
		must_be_refused(hosts, plan, place, &mutant);
	}
	int here_count = 0;
	for (int q = 0; q < hosts->size; q++)
		here_count += hosts->of[q] == hosts->of[plan->rank];
	for (int q = 0; q < hosts->size && step->peer == PLAN_ALL && step->kind == PLAN_STEP_AWAIT;
	     q++) {
		mutant.change = ONE_PEER;
		mutant.number = q;
		if (q != plan->rank && hosts->of[q] == hosts->of[plan->rank] && here_count > 2)
			must_be_refused(hosts, plan, place, &mutant);
	}
}

static void must_need_all(const struct hosts *hosts, const struct plan *plan, int place)
{
	for (uint32_t at = 0; at < plan->step_count; at++)
		break_step(hosts, plan, at, place);
	for (int which = PLAN_INPUT; which <= PLAN_SCRATCH; which++) {
		struct mutant mutant = {.change = LESS_REACH, .rank = plan->rank, .number = which};
		if (which == PLAN_SCRATCH ? plan->needs_scratch : plan->reach[which] > 0)
			must_be_refused(hosts, plan, place, &mutant);
	}
}

static void two_levels_need_all_that_they_do(void **state)
{
	(void)state;
	enum { SORTS = 3 };
	static const struct sort sorts[SORTS] = {{COLL_ALLREDUCE, PLAN_RAILS},
						 {COLL_ALLREDUCE, PLAN_LEADERS},
						 {COLL_ALLGATHER, PLAN_LEADERS}};
	static const char *const texts[] = {"01",  "0011", "0101",     "00011",  "000111",
					    "012", "0112", "00112233", "0000111"};
	struct plan_step steps[256];
	char report[PLAN_SIM_TEXT_BYTES];
	struct hosts hosts;
	for (size_t i = 0; i < 2 * SORTS * (sizeof texts / sizeof *texts); i++) {
		struct sort sort = sorts[i / 2 % SORTS];
		int place = (int)(i % 2);
		hosts_of(texts[i / (2 * SORTS)], &hosts);
		if (!survives(&hosts, sort, (enum plan_sim_place)place, NULL, report))
			fail_msg("not changed at all: %s", report);
		for (int rank = 0; rank < hosts.size; rank++) {
			struct plan_params params = {.collective = sort.collective,
						     .algorithm = sort.algorithm,
						     .rank = rank,
						     .size = hosts.size,
						     .in_place = place == 1,
						     .topology = &hosts.topology};
			struct plan plan;
			assert_true(plan_build(&params, steps, &plan));
			must_need_all(&hosts, &plan, place);
		}
	}
}

/* ---- nightly: more than make check has time for ---- */

static int nightly_size;

/* Without clocks, which would be most of the work. */
static void every_plan_without_windows(void **state)
{
	(void)state;
	struct hosts *hosts = malloc(sizeof *hosts);
	assert_non_null(hosts);
	assert_true(nightly_size > 1 && nightly_size <= RANKS_JOB_MAX);
	hosts_of_size(nightly_size, RANKS_HOST_MAX, false, hosts);
	for (int c = 0; c < COLL_COUNT; c++)
		for (int a = 0; a < PLAN_ALGORITHM_COUNT; a++) {
			if (!plan_has((enum coll_id)c, (enum plan_algorithm)a) ||
			    !plan_crosses_hosts((enum plan_algorithm)a))
				continue;
			struct plan_sim_op op =
				op_of((enum coll_id)c, (enum plan_algorithm)a, nightly_size, 50);
			struct plan_sim sim = sim_of(hosts, &op, 1);
			sim.unordered = true;
			run(&sim);
		}
	free(hosts);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plans_work_on_any_hosts),
		cmocka_unit_test(every_choice_has_a_plan),
		cmocka_unit_test(short_all_gathers_cross_seldom),
		cmocka_unit_test(plans_work_for_all_ranks_of_a_job),
		cmocka_unit_test(windows_stay_on_their_host),
		cmocka_unit_test(topologies_out_of_range_are_refused),
		cmocka_unit_test(two_levels_need_all_that_they_do),
	};
	const struct CMUnitTest nightly[] = {
		cmocka_unit_test(every_plan_without_windows),
	};
	if (argc < 2)
		return cmocka_run_group_tests(tests, NULL, NULL);
	nightly_size = (int)strtol(argv[1], NULL, 10);
	return cmocka_run_group_tests(nightly, NULL, NULL);
}
