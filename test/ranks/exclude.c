/* SPDX-License-Identifier: BSD-3-Clause
 * The lists. A name may end with "*". */
#include "exclude.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct exclusion {
	const char *test, *why; /* the name of the function; NULL: the end */
};

/* ---- on several hosts ---- */

#define PROOF "this deadlock of ranks on several hosts is not proved, or not told, yet"
#define REPORT "its report needs more of a rank on another host than its host tells yet"
#define MEMORY "needs memory that all ranks share"
#define LATER "expects that a rank which has left is known to have left at once"
#define INSIDE "counts or changes what is different on several hosts"
#define KILLED "what a rank has sent to another host, and its link has not, ends with its process"
#define MEETING "ranks of several hosts that give lists which differ may take a second to part"

static const struct exclusion on_hosts[] = {
	/* deadlocks across hosts */
	{"a_rank_that_cannot_open_is_told", "UCX needs a thread, and ends the process without one"},
	{"closed_descriptors_harm_no_file", "closes those of UCX, too"},
	{"a_proof_is_told_as_it_was_found", PROOF},
	{"any_source_is_stuck_without_who_left", REPORT},
	/* traces of other hosts */
	{"timelines_show_all_ranks", REPORT},
	{"a_helper_beside_the_close", REPORT},
	{"both_send_first_is_told", REPORT},
	{"both_send_several_first_is_told", REPORT},
	{"both_send_first_in_a_group_is_told", REPORT},
	{"rings_are_told", REPORT},
	{"waited_sends_are_told", REPORT},
	{"both_that_close_tell_once", REPORT},
	{"lost_messages_are_told", REPORT},
	{"lost_messages_are_an_error", REPORT},
	{"another_tag_is_told", REPORT},
	{"another_group_is_told", REPORT},
	{"an_old_send_is_told", REPORT},
	{"a_rank_killed_before_its_record_is_named", REPORT},
	{"a_rank_stopped_before_its_record_is_named", REPORT},
	{"a_rank_stopped_inside_is_named", REPORT},
	{"a_rank_that_died_is_named", REPORT},
	{"a_rank_that_left_is_named", REPORT},
	{"mismatch_root", REPORT},
	{"receiver_dies_*", REPORT},
	{"ddp_ends_when_a_rank_dies", REPORT},
	{"ddp_late_rank", REPORT},
	{"mismatch_of_every_kind", REPORT},
	{"mismatch_count", REPORT},
	{"mismatch_dtype", REPORT},
	{"mismatch_op", REPORT},
	{"mismatch_kind", REPORT},
	{"a_split_meets_another_collective", REPORT},
	{"sender_dies_while_it_is_read", REPORT},
	{"abort_ends_every_wait", REPORT},
	{"lists_that_differ", REPORT},
	{"groups_left_open_are_told", REPORT},
	/* memory of one host */
	{"register_shared_memory", MEMORY},
	{"register_over_memory_that_is_gone", MEMORY},
	{"plain_memory_is_read", MEMORY},
	{"plain_memory_refused_to_one", MEMORY},
	{"plain_memory_of_a_dead_rank", MEMORY},
	{"root_runs_ahead", MEMORY},
	{"blocks_given_back_in_any_order", MEMORY},
	{"the_block_of_a_cancelled_send_is_kept", MEMORY}, /* its place is free at once */
	{"kept_blocks_hold_up_nobody", MEMORY},
	{"sender_dies_in_a_message*", MEMORY},
	/* what is known a moment later */
	{"sends_that_are_lost_are_told", LATER},
	/* the inside of one host */
	{"more_long_messages_than_bits", INSIDE},
	{"pairs_need_nothing", INSIDE},
	{"more_collectives_than_bits", INSIDE},
	{"a_warm_group_takes_one_round", INSIDE},
	{"a_rank_has_one_progress_thread", INSIDE},
	{"hundreds_of_groups_leave_nothing", INSIDE},
	/* sends that need no receive */
	/* taking back a long send */
	{"eager_messages_of_a_dead_rank", KILLED},
	{"members_retry_*", MEETING},
	{"members_differ_*", MEETING},
	{"members_of_two_threads", MEETING},
	{NULL, NULL},
};

/* ---- with LOCKSTEP_CHECK=1 ---- */

#define LOST "leaves messages that nobody receives, which is an error with the setting"
#define SHORT_PATH "is about short calls without an operation, which the setting does not have"

static const struct exclusion checked[] = {
	{"lost_messages_are_told", LOST},
	{"in_series_cycle_through_groups", LOST},
	{"room_of_a_rank_that_left*", LOST},
	{"random_schedules*", LOST},
	{"a_rank_killed_before_its_record_is_named", SHORT_PATH},
	{"a_rank_stopped_before_its_record_is_named", SHORT_PATH},
	{"buffers_are_free_after_a_failure", "has the setting, and makes the mistakes that it finds"},
	{NULL, NULL},
};

/* ---- the search ---- */

static bool is_of(const struct exclusion *exclusion, const char *test)
{
	size_t length = strlen(exclusion->test);
	if (exclusion->test[length - 1] == '*')
		return strncmp(test, exclusion->test, length - 1) == 0;
	return strcmp(test, exclusion->test) == 0;
}

static const char *find(const struct exclusion *list, const char *test)
{
	while (list->test && !is_of(list, test))
		list++;
	return list->why;
}

static void tell(const struct exclusion *list, const char *how)
{
	const char *why = "";
	for (const struct exclusion *at = list; at->test; at++) {
		if (at->why != why)
			printf("%s# not %s: %s:", at == list ? "" : "\n", how, at->why);
		printf(" %s", at->test);
		why = at->why;
	}
	if (list->test)
		printf("\n");
}

const char *exclude_on_hosts(const char *test)
{
	return find(on_hosts, test);
}

const char *exclude_checked(const char *test)
{
	return find(checked, test);
}

void exclude_tell_on_hosts(void)
{
	tell(on_hosts, "on several hosts");
}

void exclude_tell_checked(void)
{
	tell(checked, "with LOCKSTEP_CHECK=1");
}
