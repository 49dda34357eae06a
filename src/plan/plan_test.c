/* SPDX-License-Identifier: BSD-3-Clause
 * What plans show without being run: arguments, choice, blocks, names, texts. The simulator,
 * test/model/plan_sim_test.c, shows whether the steps are right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/ranks.h"
#include "plan/plan.h"

enum { STEPS_MAX = 8 * RANKS_JOB_MAX };

static void check_bounds(int size, int rank)
{
	static struct plan_step steps[STEPS_MAX + 1];
	for (int i = 0; i < COLL_COUNT * PLAN_ALGORITHM_COUNT * 2; i++) {
		struct plan plan;
		struct plan_params params = {.collective = (enum coll_id)(i % COLL_COUNT),
					     .algorithm = (enum plan_algorithm)(i / COLL_COUNT / 2),
					     .rank = rank,
					     .size = size,
					     .in_place = i / COLL_COUNT % 2};
		bool has = plan_has(params.collective, params.algorithm);
		size_t most = plan_steps_max(&params);
		assert_true(most <= STEPS_MAX);
		steps[most].kind = 99;
		assert_int_equal(plan_build(&params, steps, &plan), has);
		assert_true(plan.step_count <= most);
		assert_int_equal(steps[most].kind, 99);
		assert_int_equal(plan.blocks > 0, has);
	}
}

static void plans_stay_within_their_bounds(void **state)
{
	(void)state;
	for (int size = 1; size <= RANKS_WORLD_MAX; size++)
		for (int rank = 0; rank < size; rank++)
			check_bounds(size, rank);
	for (int rank = 0; rank < RANKS_JOB_MAX; rank += 93)
		check_bounds(RANKS_JOB_MAX, rank);
}

static struct plan build(const struct plan_params *params)
{
	static struct plan_step steps[STEPS_MAX];
	struct plan plan;
	assert_true(plan_build(params, steps, &plan));
	return plan;
}

/* The layout is a matter of the collective; in entries and messages of an inline plan nobody is
 * reached. */
static void plans_say_who_touches_what(void **state)
{
	(void)state;
	static const uint8_t layouts[COLL_COUNT][2] = {
		[COLL_ALLREDUCE] = {PLAN_LAYOUT_BLOCKS, PLAN_LAYOUT_BLOCKS},
		[COLL_REDUCE] = {PLAN_LAYOUT_BLOCKS, PLAN_LAYOUT_BLOCKS},
		[COLL_BROADCAST] = {PLAN_LAYOUT_BLOCKS, PLAN_LAYOUT_BLOCKS},
		[COLL_ALLGATHER] = {PLAN_LAYOUT_PART, PLAN_LAYOUT_PARTS},
		[COLL_GATHER] = {PLAN_LAYOUT_PART, PLAN_LAYOUT_PARTS},
		[COLL_SCATTER] = {PLAN_LAYOUT_PARTS, PLAN_LAYOUT_PART},
		[COLL_REDUCE_SCATTER] = {PLAN_LAYOUT_PARTS, PLAN_LAYOUT_PART},
		[COLL_ALLTOALL] = {PLAN_LAYOUT_PARTS, PLAN_LAYOUT_PARTS},
		[COLL_BARRIER] = {PLAN_LAYOUT_BLOCKS, PLAN_LAYOUT_BLOCKS},
	};
	for (int c = 0; c < COLL_COUNT; c++)
		for (int a = 0; a < PLAN_ALGORITHM_COUNT; a++) {
			struct plan_params params = {.collective = (enum coll_id)c,
						     .algorithm = (enum plan_algorithm)a,
						     .rank = 2,
						     .size = 5};
			if (!plan_has(params.collective, params.algorithm))
				continue;
			struct plan plan = build(&params);
			assert_memory_equal(plan.layout, layouts[c], 2);
			assert_int_equal(plan.layout[PLAN_SCRATCH], layouts[c][PLAN_OUTPUT]);
			if (layouts[c][PLAN_INPUT] != PLAN_LAYOUT_BLOCKS)
				assert_int_equal(plan.blocks, 5);
			if (a == PLAN_INLINE)
				assert_int_equal(plan.reach[PLAN_INPUT] + plan.reach[PLAN_OUTPUT],
						 2 * PLAN_REACH_PRIVATE);
		}
}

static void reach_is_what_peers_need(void **state)
{
	(void)state;
	static const struct {
		enum coll_id collective;
		enum plan_algorithm algorithm;
		int rank;
		enum plan_reach input, output;
	} cases[] = {
		{COLL_ALLREDUCE, PLAN_DIRECT, 1, PLAN_REACH_READ, PLAN_REACH_MAPPED},
		{COLL_ALLREDUCE, PLAN_PULL, 1, PLAN_REACH_READ, PLAN_REACH_READ},
		{COLL_ALLREDUCE, PLAN_RING, 1, PLAN_REACH_PRIVATE, PLAN_REACH_MAPPED},
		{COLL_REDUCE, PLAN_DIRECT, 0, PLAN_REACH_READ, PLAN_REACH_MAPPED},
		{COLL_REDUCE, PLAN_DIRECT, 1, PLAN_REACH_READ, PLAN_REACH_PRIVATE},
		{COLL_REDUCE, PLAN_TREE, 0, PLAN_REACH_PRIVATE, PLAN_REACH_PRIVATE},
		{COLL_REDUCE, PLAN_TREE, 1, PLAN_REACH_MAPPED, PLAN_REACH_PRIVATE},
		{COLL_REDUCE, PLAN_TREE, 2, PLAN_REACH_PRIVATE,
		 PLAN_REACH_MAPPED}, /* it has a child */
		{COLL_BROADCAST, PLAN_DIRECT, 0, PLAN_REACH_READ, PLAN_REACH_PRIVATE},
		{COLL_BROADCAST, PLAN_DIRECT, 1, PLAN_REACH_PRIVATE, PLAN_REACH_PRIVATE},
		{COLL_BROADCAST, PLAN_TREE, 0, PLAN_REACH_MAPPED, PLAN_REACH_PRIVATE},
		{COLL_BROADCAST, PLAN_TREE, 2, PLAN_REACH_PRIVATE, PLAN_REACH_MAPPED},
		{COLL_ALLGATHER, PLAN_DIRECT, 1, PLAN_REACH_READ, PLAN_REACH_PRIVATE},
		{COLL_ALLGATHER, PLAN_RING, 1, PLAN_REACH_PRIVATE, PLAN_REACH_MAPPED},
		{COLL_GATHER, PLAN_DIRECT, 0, PLAN_REACH_PRIVATE, PLAN_REACH_PRIVATE},
		{COLL_GATHER, PLAN_DIRECT, 1, PLAN_REACH_READ, PLAN_REACH_PRIVATE},
		{COLL_GATHER, PLAN_PAIRWISE, 1, PLAN_REACH_MAPPED, PLAN_REACH_PRIVATE},
		{COLL_SCATTER, PLAN_DIRECT, 0, PLAN_REACH_READ, PLAN_REACH_PRIVATE},
		{COLL_SCATTER, PLAN_PAIRWISE, 1, PLAN_REACH_PRIVATE, PLAN_REACH_PRIVATE},
		{COLL_REDUCE_SCATTER, PLAN_DIRECT, 1, PLAN_REACH_READ, PLAN_REACH_PRIVATE},
		{COLL_REDUCE_SCATTER, PLAN_PAIRWISE, 1, PLAN_REACH_MAPPED, PLAN_REACH_PRIVATE},
		{COLL_ALLTOALL, PLAN_DIRECT, 1, PLAN_REACH_READ, PLAN_REACH_PRIVATE},
		{COLL_ALLTOALL, PLAN_PAIRWISE, 1, PLAN_REACH_MAPPED, PLAN_REACH_PRIVATE},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct plan plan = build(&(struct plan_params){.collective = cases[i].collective,
							       .algorithm = cases[i].algorithm,
							       .rank = cases[i].rank,
							       .size = 4});
		assert_int_equal(plan.reach[PLAN_INPUT], cases[i].input);
		assert_int_equal(plan.reach[PLAN_OUTPUT], cases[i].output);
	}
}

static bool has_local_copy(const struct plan *plan)
{
	for (uint32_t i = 0; i < plan->step_count; i++)
		if (plan->steps[i].kind == PLAN_STEP_COPY && plan->steps[i].peer == plan->rank)
			return true;
	return false;
}

/* Only a rank that has both buffers can have them in one. */
static void in_place_is_looked_at_where_it_can_be(void **state)
{
	(void)state;
	static const struct {
		enum coll_id collective;
		enum plan_algorithm algorithm;
		int rank;
		bool copy[2]; /* out of place, in place */
	} cases[] = {
		{COLL_ALLGATHER, PLAN_RING, 2, {true, false}},
		{COLL_REDUCE_SCATTER, PLAN_PAIRWISE, 2, {true, false}},
		{COLL_ALLTOALL, PLAN_DIRECT, 2, {true, true}},
		{COLL_REDUCE, PLAN_TREE, 0, {true, false}},
		{COLL_REDUCE, PLAN_TREE, 2, {true, true}}, /* in memory of the engine's */
		{COLL_GATHER, PLAN_PAIRWISE, 0, {true, false}},
		{COLL_GATHER, PLAN_PAIRWISE, 2, {false, false}},
		{COLL_SCATTER, PLAN_DIRECT, 0, {true, false}},
		{COLL_BROADCAST, PLAN_DIRECT, 0, {true, false}},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (int in_place = 0; in_place < 2; in_place++) {
			struct plan plan =
				build(&(struct plan_params){.collective = cases[i].collective,
							    .algorithm = cases[i].algorithm,
							    .rank = cases[i].rank,
							    .size = 4,
							    .in_place = in_place});
			assert_int_equal(has_local_copy(&plan), cases[i].copy[in_place]);
		}
	assert_true(plan_has_root(COLL_GATHER));
	assert_false(plan_has_root(COLL_ALLGATHER) || plan_has_root(COLL_COUNT));
}

static void requests_out_of_range_are_refused(void **state)
{
	(void)state;
	static const struct plan_params bad[] = {
		{.collective = COLL_COUNT, .algorithm = PLAN_DIRECT, .size = 2},
		{.collective = (enum coll_id) - 1, .algorithm = PLAN_DIRECT, .size = 2},
		{.algorithm = PLAN_NONE, .size = 2},
		{.algorithm = PLAN_ALGORITHM_COUNT, .size = 2},
		{.collective = COLL_BARRIER, .algorithm = PLAN_RING, .size = 2},
		{.algorithm = PLAN_DIRECT, .size = 0},
		{.algorithm = PLAN_DIRECT, .size = RANKS_JOB_MAX + 1},
		{.algorithm = PLAN_DIRECT, .size = 2, .rank = 2},
		{.algorithm = PLAN_DIRECT, .size = 2, .rank = -1},
		{.collective = COLL_BROADCAST, .algorithm = PLAN_DIRECT, .size = 2, .root = 2},
		{.collective = COLL_BROADCAST, .algorithm = PLAN_DIRECT, .size = 2, .root = -1},
		{.collective = COLL_SCATTER, .algorithm = PLAN_INLINE, .size = 2, .root = 2},
		{.collective = COLL_ALLREDUCE, .algorithm = PLAN_DIRECT, .size = 2, .root = 1},
		{.collective = COLL_ALLGATHER, .algorithm = PLAN_DIRECT, .size = 2, .root = 1},
		{.collective = COLL_REDUCE, .algorithm = PLAN_PULL, .size = 2},
		{.collective = COLL_REDUCE, .algorithm = PLAN_RAILS, .size = 2},
	};
	const struct plan none = {0};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct plan_step steps[1];
		struct plan plan = {.step_count = 7};
		assert_false(plan_build(&bad[i], steps, &plan));
		assert_memory_equal(&plan, &none, sizeof plan);
	}
}

static void one_rank_copies_for_itself(void **state)
{
	(void)state;
	for (int c = 0; c < COLL_COUNT; c++)
		for (int in_place = 0; in_place < 2; in_place++) {
			struct plan plan = build(&(struct plan_params){.collective = (enum coll_id)c,
								       .algorithm = PLAN_DIRECT,
								       .size = 1,
								       .in_place = in_place});
			bool copy = c != COLL_BARRIER && (!in_place || c == COLL_ALLTOALL);
			assert_int_equal(plan.step_count, copy);
			assert_int_equal(has_local_copy(&plan), copy);
			assert_int_equal(plan.blocks, 1);
			assert_false(plan.reach[PLAN_INPUT] || plan.reach[PLAN_OUTPUT] ||
				     plan.needs_scratch);
		}
}

static void check_blocks(uint64_t count, unsigned align, unsigned total)
{
	uint64_t next = 0, least = UINT64_MAX, most = 0;
	for (unsigned b = 0; b < total; b++) {
		uint64_t first, elements;
		plan_block_range(count, align, total, b, 1, &first, &elements);
		assert_true(first == next);
		assert_true(first % align == 0 || first == count);
		next = first + elements;
		uint64_t units = elements / align + (elements % align != 0);
		least = units < least ? units : least;
		most = units > most ? units : most;
	}
	assert_true(next == count);
	assert_true(most - least <= 1);
}

static void blocks_cover_every_element_once(void **state)
{
	(void)state;
	static const uint64_t counts[] = {
		0, 1, 2, 15, 16, 17, 63, 64, 100, 1000, 65537, UINT64_MAX - 1, UINT64_MAX};
	static const unsigned aligns[] = {1, 3, 8, 16, 64};
	for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
		for (size_t a = 0; a < sizeof aligns / sizeof *aligns; a++)
			for (unsigned total = 1; total <= RANKS_WORLD_MAX; total++)
				check_blocks(counts[c], aligns[a], total);
	uint64_t first, elements;
	plan_block_range(100, 16, 4, 1, 2, &first, &elements); /* units of 16: 2 2 2 1 */
	assert_int_equal(first, 32);
	assert_int_equal(elements, 64);
	plan_block_range(100, 16, 4, 3, 1, &first, &elements);
	assert_int_equal(elements, 4);
}

static void names_go_both_ways(void **state)
{
	(void)state;
	for (unsigned i = 0; i < COLL_COUNT; i++)
		assert_int_equal(plan_collective_from(plan_collective_name(i)), i);
	assert_int_equal(plan_collective_from("all-reduce"), COLL_ALLREDUCE);
	assert_int_equal(plan_collective_from("reducescatter"), COLL_REDUCE_SCATTER);
	assert_int_equal(plan_collective_from("all-reduc"), -1);
	assert_int_equal(plan_collective_from("allreduces"), -1);
	assert_int_equal(plan_collective_from(""), -1);
	for (unsigned i = PLAN_NONE + 1; i < PLAN_ALGORITHM_COUNT; i++)
		assert_int_equal(plan_algorithm_from(plan_algorithm_name(i)), i);
	for (unsigned i = PLAN_STEP_SIGNAL; i < PLAN_STEP_KIND_COUNT; i++)
		assert_string_not_equal(plan_step_name(i), "?");
	assert_string_equal(plan_algorithm_name(PLAN_NONE), "none");
	assert_int_equal(plan_algorithm_from("none"), -1);
	assert_int_equal(plan_algorithm_from("rings"), -1);
	assert_int_equal(plan_collective_from(""), -1);
	assert_int_equal(plan_collective_from("reduce-scatter"), COLL_REDUCE_SCATTER);
	assert_string_equal(plan_collective_name(COLL_COUNT), "?");
	assert_string_equal(plan_algorithm_name(PLAN_ALGORITHM_COUNT), "?");
	assert_string_equal(plan_step_name(0), "?");
	assert_string_equal(plan_step_name(PLAN_STEP_KIND_COUNT), "?");
}

/* All steps of one rank, a line each. */
static void plan_text(const struct plan_params *params, char *out, size_t bytes)
{
	struct plan plan = build(params);
	size_t used = 0;
	out[0] = '\0';
	for (uint32_t i = 0; i < plan.step_count; i++) {
		char line[PLAN_TEXT_BYTES];
		plan_step_text(&plan, &plan.steps[i], line, sizeof line);
		int wrote = snprintf(out + used, bytes - used, "%s\n", line);
		assert_true(wrote > 0 && (size_t)wrote < bytes - used);
		used += (size_t)wrote;
	}
}

static const uint16_t four_ranks[] = {0, 0, 1, 1};
static const struct plan_topology two_hosts = {.host_count = 2, .hosts = four_ranks};

static const struct {
	struct plan_params params;
	const char *text;
} texts[] = {
	{{.algorithm = PLAN_DIRECT, .rank = 1, .size = 4},
	 "await all ranks, phase 0\n"
	 "reduce block 1 of all ranks to all ranks\n"
	 "signal phase 1\n"
	 "await all ranks, phase 1\n"},
	{{.algorithm = PLAN_INLINE, .size = 2},
	 "await all ranks, phase 0\n"
	 "reduce all of all ranks to my output\n"},
	{{.collective = COLL_BROADCAST, .algorithm = PLAN_DIRECT, .rank = 0, .size = 3, .root = 2},
	 "await rank 2, phase 0\n"
	 "copy all of the input of rank 2 to my output\n"
	 "signal phase 1\n"},
	{{.algorithm = PLAN_RING, .rank = 1, .size = 2},
	 "copy all blocks of the input of rank 1 (me) to my output\n"
	 "send block 1 of my output to rank 0\n"
	 "receive block 0 from rank 0 into my scratch\n"
	 "combine block 0: output = scratch op output\n"
	 "divide block 0 of my output by 2 if the op is average\n"
	 "send block 0 of my output to rank 0\n"
	 "receive block 1 from rank 0 into my output\n"},
	{{.algorithm = PLAN_DOUBLING, .rank = 0, .size = 2, .in_place = true},
	 "send all of my output to rank 1\n"
	 "receive all from rank 1 into my scratch\n"
	 "await that rank 1 has taken what I sent\n"
	 "combine all: output = output op scratch\n"
	 "divide all of my output by 2 if the op is average\n"},
	{{.algorithm = PLAN_PULL, .rank = 1, .size = 2, .in_place = true},
	 "await all ranks, phase 0\n"
	 "reduce block 1 of all ranks to my output\n"
	 "signal phase 1\n"
	 "await rank 0, phase 1\n"
	 "copy block 0 of the output of rank 0 to my output\n"
	 "signal phase 2\n"
	 "await all ranks, phase 2\n"},
	{{.algorithm = PLAN_RAILS, .rank = 1, .size = 2},
	 "await all ranks, phase 0\n"
	 "reduce block 1 of all ranks to all ranks\n"
	 "signal phase 1\n"
	 "await all ranks, phase 1\n"},
	{{.algorithm = PLAN_RAILS, .rank = 1, .size = 4, .topology = &two_hosts},
	 "await all ranks here, phase 0\n"
	 "reduce block 1 of all ranks here to my output\n"
	 "send block 1 of my output to rank 3\n"
	 "receive block 1 from rank 3 into my scratch\n"
	 "await that rank 3 has taken what I sent\n"
	 "combine block 1: output = output op scratch\n"
	 "divide block 1 of my output by 4 if the op is average\n"
	 "signal phase 1\n"
	 "await rank 0, phase 1\n"
	 "copy block 0 of the output of rank 0 to my output\n"
	 "signal phase 2\n"
	 "await all ranks here, phase 2\n"},
	{{.collective = COLL_REDUCE, .algorithm = PLAN_DIRECT, .rank = 1, .size = 2},
	 "await all ranks, phase 0\n"
	 "reduce block 1 of all ranks to rank 0\n"
	 "signal phase 1\n"
	 "await all ranks, phase 1\n"},
	{{.collective = COLL_ALLTOALL, .algorithm = PLAN_INLINE, .rank = 2, .size = 3},
	 "copy part 2 of the input of rank 2 (me) to my output\n"
	 "await all ranks, phase 0\n"
	 "copy part 2 of the input of rank 0 to part 0 of my output\n"
	 "copy part 2 of the input of rank 1 to part 1 of my output\n"},
	{{.collective = COLL_REDUCE_SCATTER, .algorithm = PLAN_PAIRWISE, .size = 2},
	 "copy part 0 of the input of rank 0 (me) to my output\n"
	 "send part 1 of my input to rank 1\n"
	 "receive part 0 from rank 1 into my scratch\n"
	 "combine part 0: output = output op scratch\n"
	 "divide part 0 of my output by 2 if the op is average\n"},
	{{.collective = COLL_GATHER, .algorithm = PLAN_INLINE, .rank = 1, .size = 3}, ""},
	{{.collective = COLL_BARRIER, .algorithm = PLAN_TREE, .rank = 1, .size = 2},
	 "send an empty message to rank 0\n"
	 "receive an empty message from rank 0\n"},
};

static void steps_read_as_sentences(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		char text[1024];
		plan_text(&texts[i].params, text, sizeof text);
		assert_string_equal(text, texts[i].text);
	}
}

static void texts_are_cut_not_overrun(void **state)
{
	(void)state;
	struct plan plan = {.blocks = UINT16_MAX, .rank = UINT16_MAX, .size = UINT16_MAX};
	struct plan_step worst = {.peer = INT16_MIN,
				  .phase = UINT16_MAX,
				  .block = UINT16_MAX - 1,
				  .blocks = UINT16_MAX - 1};
	for (unsigned i = 0; i <= 4 * UINT8_MAX; i++) {
		char text[PLAN_TEXT_BYTES], cut[8] = "xxxxxxx";
		worst.kind = (uint8_t)(i / 4);
		worst.flags = i % 2 ? UINT8_MAX : PLAN_TO_PEER;
		worst.from = worst.to = i & 2 ? PLAN_SCRATCH : UINT8_MAX;
		plan_step_text(&plan, &worst, text, sizeof text);
		assert_true(strlen(text) < sizeof text - 1); /* it fitted, as promised */
		plan_step_text(&plan, &worst, cut, 4);
		assert_int_equal(strlen(cut), 3);
		assert_string_equal(cut + 4, "xxx");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plans_stay_within_their_bounds),
		cmocka_unit_test(plans_say_who_touches_what),
		cmocka_unit_test(reach_is_what_peers_need),
		cmocka_unit_test(in_place_is_looked_at_where_it_can_be),
		cmocka_unit_test(requests_out_of_range_are_refused),
		cmocka_unit_test(one_rank_copies_for_itself),
		cmocka_unit_test(blocks_cover_every_element_once),
		cmocka_unit_test(names_go_both_ways),
		cmocka_unit_test(steps_read_as_sentences),
		cmocka_unit_test(texts_are_cut_not_overrun),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
