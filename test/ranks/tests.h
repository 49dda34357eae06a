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
	shorter_options, a_forked_child_is_told, different_settings_are_refused;
/* collectives_test.c */
runner_function allreduce_shapes, reduce_shapes, broadcast_shapes, allgather_shapes, gather_shapes,
	scatter_shapes, reduce_scatter_shapes, alltoall_shapes, every_dtype_and_op,
	barrier_waits_for_all, root_runs_ahead;
/* memory_test.c */
runner_function register_shared_memory, register_together_or_not, plain_memory_is_read,
	plain_memory_refused_eperm, plain_memory_refused_enosys, plain_memory_refused_to_one,
	plain_memory_in_fragments, plain_memory_read_and_in_fragments, plain_memory_of_a_dead_rank;
/* same_bits_test.c */
runner_function reductions_same_bits;
/* wrong_test.c */
runner_function wrong_collectives, mismatch_of_every_kind;
/* point_test.c */
runner_function send_every_size, tags_in_any_order, many_unmatched_messages, send_to_oneself,
	ring_exchange, all_pairs_exchange, lanes_do_not_wait;
/* random_test.c */
runner_function random_program;
/* async_test.c */
runner_function async_many_in_flight, async_large_and_blocking, async_goes_on_by_itself,
	async_callbacks, async_dropped_handles, async_wait_has_a_limit,
	async_does_not_hold_messages, async_many_waiters, many_buffers_in_one_call,
	more_buffers_than_handles, async_ends_when_a_rank_dies, async_times_out,
	async_closed_too_early, async_cycle_is_proved, async_idle_costs_nothing;
/* failure_test.c */
runner_function an_open_group_has_no_failure, timeout_allreduce, timeout_broadcast, timeout_barrier,
	timeout_point, a_rank_stopped_inside_is_named, abort_ends_every_wait,
	a_rank_that_left_is_named, a_rank_may_leave_when_done, a_rank_that_died_is_named,
	mismatch_count, mismatch_dtype, mismatch_op, mismatch_root, mismatch_kind,
	point_mismatch_small, point_mismatch_large, a_cycle_of_receives_is_proved;
/* ddp_test.c */
runner_function ddp_averages, ddp_averages_mixed_dtypes, ddp_begins_alike, ddp_trains_like_one_rank,
	ddp_ready_from_any_thread, ddp_accumulates, ddp_empty_parameters, ddp_ready_twice;
/* ddp_failure_test.c */
runner_function ddp_unused_is_named, ddp_unused_with_long_names, ddp_find_unused,
	ddp_closed_in_a_step, ddp_closed_before_a_bucket, ddp_ends_when_a_rank_dies, ddp_late_rank,
	ddp_holds_back_alone, ddp_accumulates_out_of_step;
/* ddp_agree_test.c */
runner_function ddp_differences_are_named, ddp_open_fails_on_all;
/* join_test.c */
runner_function join_shadows, join_shadow_fails, join_error_by_setting, join_error_by_mode,
	join_wrong_arguments, join_ddp_by_all, join_ddp_by_active, join_ddp_accumulates,
	join_ddp_error, join_ddp_closed_in_a_step, join_ends_when_a_rank_dies;

#endif
