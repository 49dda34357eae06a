/* SPDX-License-Identifier: BSD-3-Clause
 * Every test of several ranks. A new one: a function in one of the *_test.c, its name in tests.h, a line
 * here. */
#include "tests.h"

#define R RUNNER_RANKS
#define ALL (R(1) | R(2) | R(3) | R(4) | R(5) | R(6) | R(7) | R(8))
#define SOME (R(1) | R(2) | R(3) | R(4) | R(8))
#define FEW (R(2) | R(3) | R(5))
#define TEST(function, ...)                                              \
	{                                                                \
		.name = #function, .run = function, .ranks = __VA_ARGS__ \
	}
#define ALGORITHM(function, algorithm, ...)                                      \
	{                                                                        \
		.name = #function "_" algorithm, .run = function,                \
		.setting = "LOCKSTEP_ALGORITHM=" algorithm, .ranks = __VA_ARGS__ \
	}

const struct runner_test runner_tests[] = {
	TEST(runner_all_ranks_run, ALL),
	TEST(runner_one_rank_fails, R(3), .ends = RUNNER_FAIL),
	TEST(runner_wrong_status, R(1), .ends = RUNNER_FAIL),
	TEST(runner_one_rank_crashes, R(3), .ends = RUNNER_CRASH),
	TEST(runner_one_rank_hangs, R(3), .ends = RUNNER_HANG, .limit_ms = 200),
	TEST(runner_nobody_dies, R(2), .ends = RUNNER_FAIL, .killed = 2, .processes_only = true),

	TEST(open_and_close, ALL),
	TEST(open_and_close_leaves_nothing, R(1) | R(3), .processes_only = true),
	TEST(alloc_and_free, R(1) | R(2)),
	TEST(wrong_arguments, R(1) | R(2)),
	TEST(shorter_options, R(2)),
	TEST(a_forked_child_is_told, R(1) | R(3), .processes_only = true),

	TEST(allreduce_uint8, SOME),
	TEST(allreduce_int32, SOME),
	TEST(allreduce_int64, SOME),
	TEST(allreduce_float32, SOME),
	TEST(allreduce_float64, SOME),
	TEST(allreduce_mixed, ALL),
	ALGORITHM(allreduce_mixed, "direct", FEW | R(8)),
	ALGORITHM(allreduce_mixed, "ring", FEW | R(8)),
	ALGORITHM(allreduce_mixed, "doubling", FEW | R(7) | R(8)),
	ALGORITHM(allreduce_mixed, "tree", FEW | R(7) | R(8)),
	TEST(allreduce_same_bits, FEW | R(8)),
	ALGORITHM(allreduce_same_bits, "direct", FEW),
	ALGORITHM(allreduce_same_bits, "ring", FEW),
	ALGORITHM(allreduce_same_bits, "doubling", FEW | R(7)),
	ALGORITHM(allreduce_same_bits, "tree", FEW | R(7)),
	TEST(broadcast_all_roots, SOME),
	ALGORITHM(broadcast_all_roots, "direct", FEW),
	ALGORITHM(broadcast_all_roots, "ring", FEW),
	ALGORITHM(broadcast_all_roots, "tree", FEW | R(7)),
	TEST(barrier_waits_for_all, SOME),
	ALGORITHM(barrier_waits_for_all, "doubling", FEW),
	ALGORITHM(barrier_waits_for_all, "tree", FEW),
	TEST(root_runs_ahead, FEW),

	TEST(send_every_size, R(2)),
	TEST(tags_in_any_order, R(2)),
	TEST(many_unmatched_messages, R(2)),
	TEST(send_to_oneself, R(1) | R(2)),
	TEST(ring_exchange, SOME),
	TEST(all_pairs_exchange, FEW | R(8)),
	TEST(lanes_do_not_wait, FEW),

	TEST(random_program, ALL),
	ALGORITHM(random_program, "direct", FEW),
	ALGORITHM(random_program, "ring", FEW),
	ALGORITHM(random_program, "doubling", FEW | R(7)),
	ALGORITHM(random_program, "tree", FEW | R(7)),
	{.name = "random_program_sleeping",
	 .run = random_program,
	 .ranks = FEW,
	 .setting = "LOCKSTEP_WAIT=sleep"},

	TEST(an_open_group_has_no_failure, R(1) | R(2)),
	TEST(timeout_allreduce, FEW),
	TEST(timeout_broadcast, FEW),
	TEST(timeout_barrier, FEW),
	TEST(timeout_point, R(2)),
	TEST(abort_ends_every_wait, FEW),
	TEST(a_rank_that_left_is_named, FEW),
	TEST(a_rank_may_leave_when_done, R(3)),
	TEST(a_rank_that_died_is_named, FEW, .killed = 2, .processes_only = true),
	TEST(mismatch_count, FEW),
	TEST(mismatch_dtype, FEW),
	TEST(mismatch_op, FEW),
	TEST(mismatch_root, FEW),
	TEST(mismatch_kind, FEW),
	TEST(point_mismatch_small, R(2)),
	TEST(point_mismatch_large, R(2)),
	TEST(a_cycle_of_receives_is_proved, FEW),
};
const size_t runner_test_count = sizeof runner_tests / sizeof *runner_tests;
