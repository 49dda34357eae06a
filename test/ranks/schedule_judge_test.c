/* SPDX-License-Identifier: BSD-3-Clause
 * The reference matcher on programs made by hand, with known outcomes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "schedule.h"

enum { SHORT, LONG, ANY = SCHEDULE_ANY }; /* tags: how long their messages are */

static struct schedule schedule;
static struct schedule_verdict verdict;

static void begin(int ranks, int limit)
{
	memset(&schedule, 0, sizeof schedule);
	schedule.ranks = ranks;
	schedule.limit = limit;
	schedule.by_tag = true;
	schedule.bytes[SHORT] = SCHEDULE_BUFFERED;
	schedule.bytes[LONG] = SCHEDULE_BUFFERED + 1;
}

static int call(int rank, struct schedule_action action)
{
	struct schedule_program *program = &schedule.programs[rank];
	program->actions[program->count] = action;
	return program->count++;
}

static int message(int rank, enum schedule_kind kind, int peer, int tag, bool blocks)
{
	return call(rank, (struct schedule_action){.kind = (uint8_t)kind,
						   .peer = (int8_t)peer,
						   .tag = (int8_t)tag,
						   .blocks = blocks});
}

static int send(int rank, int peer, int tag)
{
	return message(rank, SCHEDULE_SEND, peer, tag, true);
}

static int recv(int rank, int peer, int tag)
{
	return message(rank, SCHEDULE_RECV, peer, tag, true);
}

static int isend(int rank, int peer, int tag)
{
	return message(rank, SCHEDULE_SEND, peer, tag, false);
}

static int irecv(int rank, int peer, int tag)
{
	return message(rank, SCHEDULE_RECV, peer, tag, false);
}

static int barrier(int rank, bool blocks)
{
	return call(rank, (struct schedule_action){.kind = SCHEDULE_COLLECTIVE, .blocks = blocks});
}

static int wait(int rank, enum schedule_kind kind, uint64_t of)
{
	return call(rank, (struct schedule_action){.kind = (uint8_t)kind, .blocks = true, .of = of});
}

static uint64_t set(int i)
{
	return UINT64_C(1) << i;
}

static void ends_well(void)
{
	schedule_judge(&schedule, &verdict);
	assert_int_equal(verdict.outcome, SCHEDULE_ENDS_WELL);
	assert_int_equal(verdict.end_count, 1);
	for (int r = 0; r < schedule.ranks; r++)
		assert_int_equal(verdict.ends[0].at[r], schedule.programs[r].count);
}

static void deadlocks(void)
{
	schedule_judge(&schedule, &verdict);
	assert_int_equal(verdict.outcome, SCHEDULE_DEADLOCKS);
}

static void is_stuck(int rank, int at, unsigned waits)
{
	assert_int_equal(verdict.ends[0].at[rank], at);
	assert_int_equal(verdict.ends[0].waits[rank], waits);
}

static void got(int rank, int i, int source, int sent)
{
	assert_true(verdict.unique);
	assert_int_equal(verdict.ends[0].source[rank][i], source);
	assert_int_equal(verdict.ends[0].sent[rank][i], sent);
}

static bool is_cycle(int a, int b, int c)
{
	struct schedule_hop hops[3] = {{a, b}, {b, c < 0 ? a : c}, {c, a}};
	return schedule_is_cycle(&verdict.ends[0], hops, c < 0 ? 2 : 3);
}

/* ---- sends and receives ---- */

static void a_short_message_needs_no_receiver(void **state)
{
	(void)state;
	begin(2, 4);
	for (int r = 0; r < 2; r++) {
		send(r, 1 - r, SHORT);
		recv(r, 1 - r, SHORT);
	}
	ends_well();
	assert_false(verdict.leftover);
	got(0, 1, 1, 0);
}

static void a_long_message_needs_one(void **state)
{
	(void)state;
	begin(2, 4);
	for (int r = 0; r < 2; r++) {
		send(r, 1 - r, LONG);
		recv(r, 1 - r, LONG);
	}
	deadlocks();
	is_stuck(0, 0, 2);
	is_stuck(1, 0, 1);
	assert_true(is_cycle(0, 1, -1));
}

static void tags_choose(void **state)
{
	(void)state;
	begin(2, 4);
	send(0, 1, SHORT);
	isend(0, 1, LONG);
	send(0, 1, SHORT);
	recv(1, 0, LONG);
	recv(1, 0, SHORT);
	recv(1, 0, SHORT);
	ends_well();
	got(1, 0, 0, 1);
	got(1, 1, 0, 0);
	got(1, 2, 0, 2);
}

static void a_message_that_nobody_takes_is_left_over(void **state)
{
	(void)state;
	begin(2, 4);
	send(0, 1, SHORT);
	barrier(0, true);
	barrier(1, true);
	ends_well();
	assert_true(verdict.leftover);
}

/* The earlier receive has the first claim, whichever of them is waited for first. */
static void receives_take_turns(void **state)
{
	(void)state;
	begin(2, 4);
	int any = irecv(1, 0, ANY), second = irecv(1, 0, SHORT);
	wait(1, SCHEDULE_WAIT, set(second));
	wait(1, SCHEDULE_WAIT, set(any));
	isend(0, 1, SHORT);
	send(0, 1, LONG);
	deadlocks(); /* the first gets the short one, the second nothing */
	is_stuck(1, 2, 1);
	is_stuck(0, 1, 2);
	assert_int_equal(verdict.ends[0].source[1][any], 0);
	assert_int_equal(verdict.ends[0].source[1][second], -1);
}

static void oneself(void **state)
{
	(void)state;
	begin(2, 4);
	int sent = isend(0, 0, LONG);
	recv(0, 0, LONG);
	wait(0, SCHEDULE_WAIT, set(sent));
	ends_well();
	begin(2, 4);
	send(0, 0, LONG);
	barrier(0, true);
	barrier(1, true);
	deadlocks();
	is_stuck(0, 0, 1);
	is_stuck(1, 0, 1);
	struct schedule_hop hop = {0, 0}, wrong = {1, 1};
	assert_true(schedule_is_cycle(&verdict.ends[0], &hop, 1));
	assert_false(schedule_is_cycle(&verdict.ends[0], &wrong, 1));
	assert_false(is_cycle(0, 1, -1));
}

/* ---- the limit ---- */

static void as_many_as_there_are_places(void **state)
{
	(void)state;
	for (int extra = 0; extra < 2; extra++) {
		begin(2, 3);
		for (int i = 0; i < 3 + extra; i++)
			send(0, 1, SHORT);
		send(1, 0, LONG);
		recv(0, 1, LONG);
		for (int i = 0; i < 3 + extra; i++)
			recv(1, 0, SHORT);
		if (extra == 0) {
			ends_well();
		} else {
			deadlocks();
			is_stuck(0, 3, 2);
			is_stuck(1, 0, 1);
		}
	}
}

static void places_are_those_of_one_peer(void **state)
{
	(void)state;
	begin(3, 1);
	send(0, 1, SHORT);
	send(0, 2, SHORT);
	recv(1, 2, SHORT);
	recv(1, 0, SHORT);
	recv(2, 0, SHORT);
	send(2, 1, SHORT);
	ends_well();
	assert_false(verdict.leftover);
}

/* A nonblocking send that the receiver waits for is behind one that has the only slot. */
static void the_head_of_the_line_holds_back(void **state)
{
	(void)state;
	begin(2, 1);
	isend(0, 1, SHORT);
	int second = isend(0, 1, LONG);
	barrier(0, true);
	wait(0, SCHEDULE_WAIT, set(second));
	recv(1, 0, LONG);
	recv(1, 0, SHORT);
	barrier(1, true);
	deadlocks();
	is_stuck(0, 2, 2);
	is_stuck(1, 0, 1);
	schedule.limit = 2;
	ends_well();
}

/* The same where the sender waits for a third rank, which waits for it: rank 1 and rank 0 are a
 * cycle of their own, as what rank 1 waits for was sent long ago. */
static void what_is_held_back_waits_too(void **state)
{
	(void)state;
	begin(3, 1);
	isend(0, 1, SHORT);
	isend(0, 1, LONG);
	recv(0, 2, SHORT);
	recv(2, 0, SHORT);
	recv(1, 0, LONG);
	deadlocks();
	is_stuck(0, 2, 4 | 2);
	is_stuck(1, 0, 1);
	is_stuck(2, 0, 1);
	assert_true(is_cycle(0, 2, -1));
	assert_true(is_cycle(0, 1, -1));
}

/* ---- cycles ---- */

static void a_cycle_of_three(void **state)
{
	(void)state;
	begin(4, 4);
	for (int r = 0; r < 3; r++) {
		recv(r, (r + 1) % 3, SHORT);
		send(r, (r + 2) % 3, SHORT);
	}
	recv(3, 0, SHORT);
	deadlocks();
	for (int r = 0; r < 3; r++)
		is_stuck(r, 0, 1u << (r + 1) % 3);
	is_stuck(3, 0, 1);
	assert_true(is_cycle(0, 1, 2));
	assert_true(is_cycle(1, 2, 0));
	assert_false(is_cycle(0, 2, 1));
	assert_false(is_cycle(0, 1, -1));
	assert_false(is_cycle(3, 0, -1));
}

/* Ranks 0 and 1 wait in the barrier for rank 2 only: not for each other. */
static void who_only_waits_is_in_no_cycle(void **state)
{
	(void)state;
	begin(3, 4);
	barrier(0, true);
	barrier(1, true);
	recv(2, 0, SHORT);
	barrier(2, true);
	deadlocks();
	is_stuck(0, 0, 4);
	is_stuck(1, 0, 4);
	is_stuck(2, 0, 1);
	assert_true(is_cycle(0, 2, -1));
	assert_false(is_cycle(0, 1, -1));
	assert_false(is_cycle(1, 2, -1));
	assert_true(is_cycle(0, 1, 2)); /* in a tree rank 0 may hear of rank 2 through rank 1 */
}

/* ---- waits, batches and collectives ---- */

static void one_of_several(void **state)
{
	(void)state;
	for (int all = 0; all < 2; all++) {
		begin(2, 4);
		int first = irecv(0, 1, LONG), second = irecv(0, 1, SHORT);
		wait(0, all ? SCHEDULE_WAIT : SCHEDULE_WAIT_ANY, set(first) | set(second));
		send(0, 1, SHORT);
		wait(0, SCHEDULE_WAIT, set(first) | set(second));
		send(1, 0, SHORT);
		recv(1, 0, SHORT);
		send(1, 0, LONG);
		if (all) {
			deadlocks();
			is_stuck(0, 2, 2);
			is_stuck(1, 1, 1);
		} else {
			ends_well();
		}
	}
}

/* Both send and receive long messages: in a batch that is no deadlock. */
static void a_batch_is_called_whole(void **state)
{
	(void)state;
	begin(2, 4);
	for (int r = 0; r < 2; r++) {
		call(r, (struct schedule_action){.kind = SCHEDULE_BATCH});
		int sent = isend(r, 1 - r, LONG), received = irecv(r, 1 - r, LONG);
		call(r, (struct schedule_action){.kind = SCHEDULE_BATCH_END,
						 .blocks = r == 0,
						 .of = set(sent) | set(received)});
		wait(r, SCHEDULE_WAIT, set(3));
	}
	ends_well();
	schedule.programs[1].actions[1].blocks = true;
	schedule.programs[0].actions[2].blocks = true;
	ends_well();
	schedule.programs[0].actions[1].blocks = true;
	deadlocks();
}

static void a_collective_needs_all_calls(void **state)
{
	(void)state;
	begin(3, 4);
	for (int r = 0; r < 3; r++) {
		int first = barrier(r, false);
		if (r == 1)
			recv(r, 0, SHORT);
		wait(r, SCHEDULE_WAIT, set(first));
		if (r == 0)
			send(r, 1, SHORT);
	}
	ends_well(); /* rank 1 has called it, and that is enough */
	schedule.programs[1].actions[0].blocks = true;
	ends_well();
	begin(2, 4);
	barrier(0, true);
	send(0, 1, SHORT);
	recv(1, 0, SHORT);
	barrier(1, true);
	deadlocks();
	is_stuck(0, 0, 2);
	is_stuck(1, 0, 1);
}

/* ---- any source ---- */

static void any_source_gets_one_of_each(void **state)
{
	(void)state;
	begin(3, 4);
	recv(0, ANY, SHORT);
	recv(0, ANY, SHORT);
	send(1, 0, SHORT);
	send(2, 0, SHORT);
	ends_well();
	assert_false(verdict.unique);
	assert_false(verdict.leftover);
}

/* A later receive may find its message taken, also if both are called before there is any. */
static void any_source_may_take_what_others_need(void **state)
{
	(void)state;
	for (int blocks = 0; blocks < 2; blocks++) {
		begin(3, 4);
		message(0, SCHEDULE_RECV, ANY, SHORT, blocks);
		message(0, SCHEDULE_RECV, 1, SHORT, blocks);
		wait(0, SCHEDULE_WAIT, set(0) | set(1));
		send(1, 0, SHORT);
		send(2, 0, SHORT);
		schedule_judge(&schedule, &verdict);
		assert_int_equal(verdict.outcome, SCHEDULE_DEPENDS);
	}
}

/* What rank 2 sends can only come after rank 0 has taken what rank 1 sent. */
static void any_source_knows_what_comes_first(void **state)
{
	(void)state;
	begin(3, 4);
	recv(0, ANY, SHORT);
	send(0, 2, SHORT);
	recv(0, 2, SHORT);
	send(1, 0, SHORT);
	recv(2, 0, SHORT);
	send(2, 0, SHORT);
	ends_well();
	got(0, 0, 1, 0);
}

/* Rank 3's choice decides whether rank 2 sends before rank 0 has chosen. */
static void choices_of_one_rank_make_those_of_another(void **state)
{
	(void)state;
	begin(4, 4);
	recv(0, ANY, SHORT);
	recv(0, 1, SHORT); /* is gone, unless rank 0 took rank 3's */
	send(1, 0, SHORT);
	send(2, 3, SHORT);
	recv(3, ANY, SHORT);
	send(3, 0, SHORT);
	schedule_judge(&schedule, &verdict);
	assert_int_equal(verdict.outcome, SCHEDULE_DEPENDS);
}

static void any_source_of_none(void **state)
{
	(void)state;
	begin(3, 4);
	recv(0, ANY, SHORT);
	barrier(0, true);
	barrier(1, true);
	barrier(2, true);
	deadlocks();
	is_stuck(0, 0, 2 | 4);
	is_stuck(1, 0, 1);
	assert_true(is_cycle(0, 1, -1));
	assert_true(is_cycle(0, 2, -1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_short_message_needs_no_receiver),
		cmocka_unit_test(a_long_message_needs_one),
		cmocka_unit_test(tags_choose),
		cmocka_unit_test(a_message_that_nobody_takes_is_left_over),
		cmocka_unit_test(receives_take_turns),
		cmocka_unit_test(oneself),
		cmocka_unit_test(as_many_as_there_are_places),
		cmocka_unit_test(places_are_those_of_one_peer),
		cmocka_unit_test(the_head_of_the_line_holds_back),
		cmocka_unit_test(what_is_held_back_waits_too),
		cmocka_unit_test(a_cycle_of_three),
		cmocka_unit_test(who_only_waits_is_in_no_cycle),
		cmocka_unit_test(one_of_several),
		cmocka_unit_test(a_batch_is_called_whole),
		cmocka_unit_test(a_collective_needs_all_calls),
		cmocka_unit_test(any_source_gets_one_of_each),
		cmocka_unit_test(any_source_may_take_what_others_need),
		cmocka_unit_test(any_source_knows_what_comes_first),
		cmocka_unit_test(choices_of_one_rank_make_those_of_another),
		cmocka_unit_test(any_source_of_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
