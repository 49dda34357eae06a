/* SPDX-License-Identifier: BSD-3-Clause
 * Every test function; table.c says how each is run. */
#ifndef TEST_RANKS_TESTS_H
#define TEST_RANKS_TESTS_H

#include "runner.h"

/* runner_test.c */
runner_function runner_all_ranks_run, runner_one_rank_fails, runner_wrong_status,
	runner_one_rank_crashes, runner_one_rank_hangs, runner_nobody_dies;
/* life_test.c */
runner_function open_and_close, open_and_close_leaves_nothing, alloc_and_free, wrong_arguments,
	shorter_options, a_forked_child_is_told;
/* collectives_test.c */
runner_function allreduce_uint8, allreduce_int32, allreduce_int64, allreduce_float32,
	allreduce_float64, allreduce_mixed, allreduce_same_bits, broadcast_all_roots,
	barrier_waits_for_all, root_runs_ahead;
/* point_test.c */
runner_function send_every_size, tags_in_any_order, many_unmatched_messages, send_to_oneself,
	ring_exchange, all_pairs_exchange, lanes_do_not_wait;
/* random_test.c */
runner_function random_program;
/* failure_test.c */
runner_function an_open_group_has_no_failure, timeout_allreduce, timeout_broadcast, timeout_barrier,
	timeout_point, abort_ends_every_wait, a_rank_that_left_is_named, a_rank_may_leave_when_done,
	a_rank_that_died_is_named, mismatch_count, mismatch_dtype, mismatch_op, mismatch_root,
	mismatch_kind, point_mismatch_small, point_mismatch_large, a_cycle_of_receives_is_proved;

#endif
