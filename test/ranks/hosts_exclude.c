/* SPDX-License-Identifier: BSD-3-Clause
 * Which tests do not run on several hosts, and why. A name may end with "*". */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "hosts.h"

#define GROUPS "a group other than that of all ranks cannot span hosts yet"
#define PROOF "deadlocks of ranks on several hosts are not proved yet"
#define REPORT "needs the trace of a rank on another host, which cannot be read yet"
#define MEMORY "needs memory that all ranks share"
#define EAGER "between hosts a send of more than 192 bytes waits for its receive"
#define CANCEL "a long send to another host cannot be taken back once it is offered"

static const struct exclusion {
	const char *test, *why; /* the name of the function */
} exclusions[] = {
	/* groups across hosts */
	{"split_by_colour_and_key", GROUPS},
	{"split_without_a_colour", GROUPS},
	{"from_ranks_in_their_order", GROUPS},
	{"groups_of_groups", GROUPS},
	{"the_same_members_twice", GROUPS},
	{"a_late_member_finds_all", GROUPS},
	{"a_warm_group_takes_one_round", GROUPS},
	{"more_groups_than_bits", GROUPS},
	{"more_ids_than_bits", GROUPS},
	{"hundreds_of_groups_leave_nothing", GROUPS},
	{"as_many_groups_as_there_can_be", GROUPS},
	{"wrong_groups", GROUPS},
	{"lists_that_differ", GROUPS},
	{"groups_in_another_order", GROUPS},
	{"a_split_meets_another_collective", GROUPS},
	{"groups_end_one_by_one", GROUPS},
	{"a_mismatch_closes_one_group", GROUPS},
	{"a_time_out_closes_one_group", GROUPS},
	{"the_time_limit_is_inherited", GROUPS},
	{"a_rank_left_one_group", GROUPS},
	{"leaving_wakes_who_sleeps", GROUPS},
	{"a_death_closes_groups_that_need_it", GROUPS},
	{"a_cycle_through_groups_is_proved", GROUPS},
	{"groups_left_open_are_told", GROUPS},
	{"groups_that_wait_for_the_progress_thread", GROUPS},
	{"failures_do_not_wait_for_each_other", GROUPS},
	{"random_program_of_a_group", GROUPS},
	{"ddp_averages_in_a_group", GROUPS},
	{"members_*", GROUPS},
	{"in_series_cycle_through_groups", GROUPS},
	{"in_series_any_of_one_that_left_another", GROUPS},
	{"in_series_any_behind_another_group", GROUPS},
	{"in_series_before_a_group", GROUPS},
	{"both_send_first_in_a_group_is_told", GROUPS},
	{"another_group_is_told", GROUPS},
	{"register_with_some", GROUPS},
	{"last_collectives_differ", GROUPS},
	{"last_collectives_of_all_differ", GROUPS},
	{"blocking_finds_what_differs", GROUPS},
	{"a_rank_leaves_a_call_out", GROUPS},
	{"who_waits_learns_what_differs", GROUPS},
	{"a_failure_excuses_what_is_missing", GROUPS},
	{"beside_a_close", GROUPS},
	{"eager_messages_outlast_their_sender", GROUPS},
	{"lost_messages_are_told", GROUPS},
	{"what_is_not_lost_is_not_told", GROUPS},
	{"a_member_that_does_not_come", GROUPS},
	{"more_collectives_than_bits", GROUPS},
	{"a_rank_has_one_progress_thread", GROUPS},
	{"aborts_in_any_order", GROUPS},
	/* deadlocks across hosts */
	{"in_series_cycle", PROOF},
	{"in_series_behind_and_left", PROOF},
	{"a_batch_that_never_ends_is_proved", PROOF},
	{"a_batch_of_which_one_part_never_ends", PROOF},
	{"random_schedules*", PROOF},
	{"deadlock_*", PROOF},
	{"a_wait_in_short_turns_is_looked_at", PROOF},
	{"a_lane_is_shown_once_there_is_a_slot", PROOF},
	{"barriers_in_another_order_are_told", PROOF},
	{"a_resumed_*", PROOF},
	{"a_proof_is_told_as_it_was_found", PROOF},
	{"who_sleeps_is_stuck_without_who_left", PROOF},
	{"who_joins_*", PROOF},
	{"the_main_thread_is_dormant", PROOF},
	{"any_source_is_stuck_without_who_left", PROOF},
	{"self_only_receive_*", PROOF},
	{"async_cycle_is_proved", PROOF},
	{"a_cycle_of_receives_is_proved", PROOF},
	/* traces of other hosts */
	{"timelines_show_all_ranks", REPORT},
	{"a_helper_beside_the_close", REPORT},
	{"both_send_first_is_told", REPORT},
	{"both_send_several_first_is_told", REPORT},
	{"rings_are_told", REPORT},
	{"waited_sends_are_told", REPORT},
	{"both_that_close_tell_once", REPORT},
	{"lost_messages_are_an_error", REPORT},
	{"another_tag_is_told", REPORT},
	{"an_old_send_is_told", REPORT},
	{"a_rank_killed_before_its_record_is_named", REPORT},
	{"a_rank_stopped_*", REPORT},
	{"a_rank_that_died_is_named", REPORT},
	{"a_rank_that_left_is_named", REPORT},
	{"mismatch_count", REPORT},
	{"mismatch_dtype", REPORT},
	{"mismatch_op", REPORT},
	{"mismatch_root", REPORT},
	{"mismatch_kind", REPORT},
	{"mismatch_of_every_kind", REPORT},
	{"mismatch_of_a_late_rank", REPORT},
	{"receiver_dies_*", REPORT},
	{"ddp_ends_when_a_rank_dies", REPORT},
	{"sender_dies_while_it_is_read", REPORT},
	{"p2p_mismatch_small", REPORT},
	{"p2p_mismatch_large", REPORT},
	{"abort_ends_every_wait", REPORT},
	{"ddp_late_rank", REPORT},
	/* memory of one host */
	{"register_shared_memory", MEMORY},
	{"register_over_memory_that_is_gone", MEMORY},
	{"plain_memory_is_read", MEMORY},
	{"plain_memory_refused_to_one", MEMORY},
	{"plain_memory_of_a_dead_rank", MEMORY},
	{"root_runs_ahead", MEMORY},
	{"blocks_given_back_in_any_order", MEMORY},
	{"kept_blocks_hold_up_nobody", MEMORY},
	{"rings_in_order_are_not_told", MEMORY},
	{"pairs_need_nothing", MEMORY},
	{"more_long_messages_than_bits", MEMORY},
	{"open_and_close_leaves_nothing", MEMORY},
	{"sender_dies_in_a_message*", MEMORY},
	/* sends that need no receive */
	{"eager_sends_need_no_receive", EAGER},
	{"eager_sends_use_up_cells", EAGER},
	{"eager_sends_without_a_cell_call_the_receiver", EAGER},
	{"eager_messages_of_a_dead_rank", EAGER},
	/* taking back a long send */
	{"messages_are_taken_back", CANCEL},
	{"in_series_taken_back", CANCEL},
	{"in_series_turn_beside_a_barrier", CANCEL},
	{"in_series_taken_back_by_threads", CANCEL},
	{"in_series_goes_on", CANCEL},
	{"in_series_before_collectives", CANCEL},
	{"what_was_taken_back_leaves_room", CANCEL},
	{"what_was_taken_back_leaves_room_beside", CANCEL},
	{"what_was_taken_back_makes_room_for_one", CANCEL},
	{"beside_a_cancel_of_another", CANCEL},
};

static bool is_of(const struct exclusion *exclusion, const char *test)
{
	size_t length = strlen(exclusion->test);
	if (exclusion->test[length - 1] == '*')
		return strncmp(test, exclusion->test, length - 1) == 0;
	return strcmp(test, exclusion->test) == 0;
}

const char *hosts_exclude(const char *test)
{
	for (size_t i = 0; i < sizeof exclusions / sizeof *exclusions; i++)
		if (is_of(&exclusions[i], test))
			return exclusions[i].why;
	return NULL;
}

void hosts_tell_excluded(void)
{
	const char *why = "";
	for (size_t i = 0; i < sizeof exclusions / sizeof *exclusions; i++) {
		if (exclusions[i].why != why)
			printf("%s# not on several hosts: %s:", i ? "\n" : "", exclusions[i].why);
		printf(" %s", exclusions[i].test);
		why = exclusions[i].why;
	}
	printf("\n");
}
