/* SPDX-License-Identifier: BSD-3-Clause
 * Every test function; table.c says how each is run. */
#ifndef TEST_RANKS_TESTS_H
#define TEST_RANKS_TESTS_H

#include "runner.h"

/* death_test.c */
runner_function a_root_dies_in_long_broadcasts, a_sender_dies_in_long_messages,
	a_rank_that_execs_is_lost, a_rank_that_cannot_open_is_told, a_rank_without_arena_is_told;
/* entered_test.c */
runner_function a_rank_killed_before_its_record_is_named, a_rank_stopped_before_its_record_is_named;
/* runner_test.c */
runner_function runner_all_ranks_run, runner_one_rank_fails, runner_wrong_status,
	runner_one_rank_crashes, runner_one_rank_hangs, runner_nobody_dies;
/* members_end_test.c */
runner_function members_lose_one, members_are_aborted, members_wait_in_vain,
	members_go_on_after_signals, members_are_interrupted, members_differ_often,
	members_differ_and_leave, members_of_two_threads;
/* members_test.c */
runner_function members_make_their_group, members_make_many_groups, members_lists_that_differ,
	members_retry_after_a_pause, members_retry_at_once, members_retry_until_all_agree,
	a_member_that_does_not_come;
/* resume_test.c */
runner_function a_change_of_group_ends_no_thread, signals_end_no_wait, averages_under_signals,
	a_timeout_under_signals, a_resumed_deadlock_is_proved, a_resumed_collective_is_proved,
	left_calls_keep_the_order, left_calls_keep_their_counts, resumable_calls_keep_nothing,
	resumable_calls_are_many;
/* helper_close_test.c */
runner_function a_helper_beside_the_close;
/* timeline_test.c */
runner_function timelines_show_all_ranks;
/* life_test.c */
runner_function open_and_close, threads_that_close_one_group, open_and_close_leaves_nothing,
	closed_descriptors_harm_no_file, alloc_and_free, wrong_arguments, shorter_options,
	a_forked_child_is_told, different_settings_are_refused;
/* collectives_test.c */
runner_function allreduce_shapes, reduce_shapes, broadcast_shapes, allgather_shapes, gather_shapes,
	scatter_shapes, reduce_scatter_shapes, alltoall_shapes, every_dtype_and_op,
	barrier_waits_for_all, root_runs_ahead;
/* memory_test.c */
runner_function register_shared_memory, register_together_or_not, registered_memory_to_oneself,
	registered_memory_is_gone, register_over_memory_that_is_gone, plain_memory_is_read,
	plain_memory_refused_eperm, plain_memory_refused_enosys, plain_memory_refused_to_one,
	memory_that_no_peer_reads, plain_memory_in_fragments, plain_memory_read_and_in_fragments,
	plain_memory_of_a_dead_rank;
/* same_bits_test.c */
runner_function reductions_same_bits;
/* wrong_test.c */
runner_function wrong_collectives, mismatch_of_every_kind;
/* p2p_test.c */
runner_function send_every_size, tags_in_any_order, many_unmatched_messages, send_to_oneself,
	ring_exchange, all_pairs_exchange, lanes_do_not_wait;
/* message_test.c */
runner_function messages_all_at_once, messages_beyond_the_limit, messages_of_any_source,
	messages_are_taken_in_order, messages_are_probed, messages_are_taken_back,
	messages_taken_back_meanwhile, batches_need_not_agree, batches_keep_the_order,
	blocks_change_hands, messages_go_on_by_themselves, messages_call_back,
	messages_any_of_several;
/* eager_test.c */
runner_function eager_sends_need_no_receive, eager_sends_use_up_cells, eager_cells_are_filled_again,
	eager_sends_without_a_cell_call_the_receiver, eager_messages_outlast_their_sender,
	eager_messages_of_a_dead_rank;
/* beside_test.c */
runner_function beside_a_collective, beside_a_cancel, beside_a_cancel_of_another, beside_a_close,
	beside_a_limit, beside_a_limit_callback, beside_a_death, beside_a_death_callback,
	beside_a_leaving, beside_who_has_left, beside_who_has_left_callback, beside_an_abort,
	beside_who_only_asks, beside_a_send_that_is_lost, a_callback_of_a_rank_long_gone,
	a_callback_of_a_rank_that_leaves, a_callback_with_less_time;
/* let_sleep_test.c */
runner_function others_let_a_thread_sleep;
/* buffered_test.c */
runner_function both_send_first_is_told, what_is_in_order_is_not_told, several_threads_are_not_told,
	a_thread_beside_the_main_one_is_not_told, a_thread_that_received_is_not_told,
	a_thread_that_probed_is_not_told, a_thread_that_comes_later_is_not_told,
	both_send_several_first_is_told, both_send_first_in_a_group_is_told;
/* buffered_rings_test.c */
runner_function rings_are_told, waited_sends_are_told, rings_in_order_are_not_told;
/* huge_test.c */
runner_function huge_messages, a_message_of_two_gigabytes;
/* lanes_test.c */
runner_function unanswered_in_threads, unanswered_in_threads_long, unanswered_handles,
	unanswered_handles_long, unanswered_waited, unanswered_waited_long, unanswered_in_series,
	pairs_need_nothing;
/* series_test.c */
runner_function in_series_by_turns, in_series_before_a_group, in_series_taken_back, in_series_ended,
	in_series_cycle, in_series_cycle_through_groups, in_series_behind_a_limit, in_series_goes_on,
	in_series_any_goes_on, in_series_before_collectives, in_series_turn_beside_a_barrier,
	in_series_taken_back_meanwhile, in_series_taken_back_by_threads;
/* series_groups_test.c */
runner_function in_series_any_behind_another_group, in_series_any_of_one_that_left_another,
	in_series_behind_and_left, in_series_behind_who_comes;
/* room_test.c */
runner_function blocks_given_back_in_any_order, a_block_is_back_before_its_send,
	kept_blocks_hold_up_nobody, the_block_of_a_cancelled_send_is_kept,
	sends_that_nobody_goes_on_with, what_was_taken_back_leaves_room,
	what_was_taken_back_leaves_room_beside, what_was_taken_back_makes_room;
/* short_test.c */
runner_function short_ones_keep_the_order, short_blocks_change_hands, empty_blocks_change_hands,
	short_ones_wake, short_handles_are_shared, short_ones_to_oneself;
/* message_failure_test.c */
runner_function sender_dies_in_a_message, sender_dies_in_a_message_handle,
	sender_dies_in_a_message_any, sender_dies_in_a_message_callback,
	sender_dies_while_it_is_read, receiver_dies_before, receiver_dies_before_handle,
	receiver_dies_in_a_message, receiver_dies_in_a_message_handle,
	receiver_dies_in_a_message_callback, room_of_a_dead_rank, room_of_a_dead_rank_handle,
	room_of_a_dead_rank_callback, room_of_a_rank_that_left, room_of_a_rank_that_left_handle,
	peer_leaves_a_receive, peer_leaves_a_receive_handle, peer_leaves_a_receive_callback,
	peer_leaves_a_batch, peer_leaves_a_part_of_a_batch, all_leave_a_receive_of_any,
	all_send_and_leave, what_came_last_is_passed_on, peer_leaves_a_send,
	peer_leaves_a_send_handle, peer_leaves_a_send_callback, cancel_what_left,
	deadlock_beside_a_busy_group;
/* message_end_test.c */
runner_function timeout_of_a_receive_handle, timeout_of_a_receive_callback,
	timeout_of_a_receive_batch, timeout_of_a_send_handle, timeout_of_a_send_callback,
	timeout_without_room, timeout_without_room_handle, timeout_without_room_callback,
	a_wait_that_gives_up_is_no_time_out, timeout_of_a_probe, a_signal_ends_a_wait,
	closed_with_messages, closed_after_a_send_was_received, an_abort_ends_all_sends,
	an_abort_ends_all_receives, a_forked_child_has_no_messages;
/* close_test.c */
runner_function two_threads_close_two_groups, closed_before_a_message_is_over;
/* report_test.c */
runner_function short_handles_dropped_are_told, short_handles_left_are_counted,
	wrong_arguments_are_told, closed_with_a_collective, wrong_calls_are_found,
	freed_handles_are_found, callbacks_do_not_wait;
runner_function lost_messages_are_told, lost_blocks_are_told, what_is_not_lost_is_not_told,
	both_that_close_tell_once, lost_messages_are_an_error, closed_groups_leave_no_blocks;
runner_function another_tag_is_told, another_group_is_told, what_was_taken_before_is_told,
	barriers_in_another_order_are_told, a_receive_from_oneself_is_told;
runner_function an_old_send_is_told, a_send_not_on_record_is_told, a_batch_that_never_ends_is_proved;
runner_function a_batch_of_which_one_part_never_ends, any_of_a_collective_and_a_message,
	a_rank_that_is_debugged_is_not_stopped;
/* random_test.c */
runner_function random_program, random_program_of_a_group;
/* schedule_test.c */
runner_function random_schedules, random_schedules_few_places;
/* async_test.c */
runner_function async_many_in_flight, async_large_and_blocking, async_goes_on_by_itself,
	async_callbacks, async_dropped_handles, async_wait_has_a_limit,
	async_does_not_hold_messages, async_many_waiters, many_buffers_in_one_call,
	more_buffers_than_handles, async_ends_when_a_rank_dies, async_times_out,
	async_closed_too_early, async_cycle_is_proved, async_idle_costs_nothing;
/* group_test.c */
runner_function split_by_color_and_key, split_without_a_color, from_ranks_in_their_order,
	groups_of_groups, the_same_members_twice, a_group_is_opened_while_one_closes,
	a_late_member_finds_all, a_warm_group_takes_one_round, register_with_some,
	hundreds_of_groups_leave_nothing, as_many_groups_as_there_can_be, wrong_groups;
/* edge_test.c */
runner_function more_collectives_than_bits, more_groups_than_bits, more_ids_than_bits,
	more_long_messages_than_bits;
/* ending_test.c */
runner_function last_collectives_differ, last_collectives_of_all_differ, blocking_finds_what_differs,
	a_rank_leaves_a_call_out, who_waits_learns_what_differs, members_that_end_at_once_differ,
	groups_end_one_by_one, a_failure_excuses_what_is_missing, groups_left_open_are_told;
/* group_failure_test.c */
runner_function lists_that_differ, groups_in_another_order, a_split_meets_another_collective,
	a_mismatch_closes_one_group, a_misfit_closes_one_group, a_time_out_closes_one_group,
	a_chain_is_late, a_chain_is_late_handle, a_wait_ends_at_the_limit_of_another,
	a_rank_left_one_group, leaving_wakes_who_sleeps, buffers_are_free_after_a_failure,
	a_death_closes_groups_that_need_it, aborts_in_any_order, a_cycle_through_groups_is_proved,
	a_cycle_through_pairs_is_proved, the_time_limit_is_inherited;
/* failure_test.c */
runner_function an_open_group_has_no_failure, timeout_allreduce, timeout_broadcast, timeout_barrier,
	timeout_point, a_rank_stopped_inside_is_named, abort_ends_every_wait,
	a_rank_that_left_is_named, a_rank_may_leave_when_done, a_rank_that_died_is_named,
	a_rank_whose_end_was_fetched_is_named, mismatch_count, mismatch_dtype, mismatch_op,
	mismatch_root, mismatch_kind, mismatch_of_a_late_rank, p2p_mismatch_small,
	p2p_mismatch_large, a_cycle_of_receives_is_proved;
/* ddp_test.c */
runner_function ddp_averages, ddp_averages_in_a_group, ddp_averages_mixed_dtypes, ddp_begins_alike,
	ddp_trains_like_one_rank, ddp_ready_from_any_thread, ddp_accumulates, ddp_empty_parameters,
	ddp_ready_twice;
/* ddp_failure_test.c */
runner_function ddp_unused_is_named, ddp_unused_with_long_names, ddp_find_unused,
	ddp_closed_in_a_step, ddp_closed_before_a_bucket, ddp_ends_when_a_rank_dies, ddp_late_rank,
	ddp_holds_back_alone, ddp_accumulates_out_of_step, ddp_steps_in_another_order,
	ddp_once_in_another_order, ddp_names_world_ranks;
/* ddp_agree_test.c */
runner_function ddp_differences_are_named, ddp_open_fails_on_all;
/* join_test.c */
runner_function join_shadows, join_shadow_fails, join_error_by_setting, join_error_by_mode,
	join_wrong_arguments, join_ddp_by_all, join_ddp_by_active, join_ddp_accumulates,
	join_ddp_error, join_ddp_closed_in_a_step, join_ends_when_a_rank_dies;
/* posted_test.c */
runner_function posted_ones_match_in_order, posted_ones_are_cancelled,
	posted_ones_are_cancelled_meanwhile, posted_ones_are_freed,
	posted_by_two_awaited_by_a_third, posted_ones_taken_in_by_another;
/* posted_end_test.c */
runner_function posted_ones_time_out, posted_ones_with_less_time, posted_ones_of_one_that_dies,
	posted_ones_are_aborted, posted_ones_are_closed, deadlock_after_posted_ones;

/* polling_test.c */
runner_function polled_receive_of_one_that_left, polled_receive_of_one_that_died,
	polled_send_to_one_that_left, polled_send_to_one_that_died, polled_batch_of_one_that_left,
	polled_batch_to_one_that_died, polled_receive_when_all_left,
	polled_receive_when_all_are_gone, probed_one_that_left, probed_one_that_died,
	probed_when_all_are_gone, polled_behind_one_that_left, polled_before_many_that_run,
	polled_what_was_sent_before, sends_that_are_lost_are_told;
/* progress_test.c */
runner_function a_rank_has_one_progress_thread, deadlock_of_threads_in_one_group,
	deadlock_of_handles_in_one_group, a_wait_in_short_turns_is_looked_at,
	groups_that_wait_for_the_progress_thread, failures_do_not_wait_for_each_other,
	an_aborted_message_holds_up_no_other_group, a_close_with_such_a_message_holds_up_none,
	a_send_behind_it_is_no_deadlock, its_callback_is_no_deadlock,
	a_close_that_waits_takes_no_time, a_message_that_is_left_alone_ends,
	a_lane_is_shown_once_there_is_a_slot, deadlock_of_callbacks,
	a_failure_without_another_thread, a_callback_frees_the_handle;
/* proof_test.c */
runner_function deadlock_behind_many_sends, deadlock_behind_a_message, any_of_many_goes_on,
	deadlock_beside_a_message, any_source_is_stuck_without_who_left, the_main_thread_may_call,
	the_main_thread_is_dormant, who_joins_is_dormant, who_joins_sends_nothing,
	who_sleeps_may_be_woken, who_sleeps_may_be_called_back,
	who_sleeps_may_be_called_back_behind_many, who_sleeps_may_be_called_back_in_time,
	who_sleeps_may_be_called_back_by_who_leaves, who_has_not_called_may_be_woken,
	who_has_not_called_may_be_woken_by_a_handler, who_sleeps_is_stuck_without_who_left,
	who_waits_goes_on_when_another_is_late, who_is_woken_sends_to_any,
	a_thread_that_runs_may_call, a_proof_is_told_as_it_was_found;
/* self_only_test.c */
runner_function self_only_receive_of_a_thread, self_only_receive_of_a_newcomer,
	self_only_receive_blocks_both, self_only_receive_and_no_more_threads,
	self_only_receive_is_alone, self_only_receive_of_one_without_a_slot;

#endif
