/* SPDX-License-Identifier: BSD-3-Clause
 * What a hint changes: the verdict agrees with what the hinting rank's call returns, and the
 * snapshot still decides which rank is to blame. */
#include "diagnose/snapshot_fixture.h"

static struct diagnose_hint hint_of(ls_status status, int rank, int peer)
{
	return (struct diagnose_hint){
		.status = status, .rank = rank, .peer = peer, .group = TEST_GROUP, .seq = 58};
}

/* The hinting rank does not wait any more: its slot says outside. */
static struct diagnose_snapshot *given_up(int size, uint64_t absent)
{
	struct diagnose_snapshot *snapshot = test_absent(size, absent);
	for (int r = 0; r < size; r++)
		snapshot->ranks[r].threads[0].wait.state = WAIT_OUTSIDE;
	return snapshot;
}

static void hint_of_a_gone_peer(void **state)
{
	(void)state;
	struct diagnose_hint hint = hint_of(LS_PEER_DIED, 0, 2);
	struct diagnose_verdict want = {.cause = DIAGNOSE_DIED,
					.status = LS_PEER_DIED,
					.culprit = 2,
					.culprits = {{test_bit(2)}},
					.waiting = {{3}}, /* rank 1 is in #58 too */
					.seq = 58};
	/* Even if the snapshot does not show it. */
	test_verdict(given_up(3, test_bit(2)), &hint, want);
	struct diagnose_snapshot *snapshot = given_up(3, test_bit(2));
	snapshot->ranks[2].left = true;
	hint.status = want.status = LS_PEER_LEFT;
	want.cause = DIAGNOSE_LEFT;
	test_verdict(snapshot, &hint, want);
}

/* Rank 2 has left, as its own part in making the group failed: because rank 0 had died, or for
 * another reason. */
static void hint_of_who_left_for_a_death(void **state)
{
	(void)state;
	static const ls_status why[] = {LS_PEER_DIED, LS_ABORTED, LS_OK};
	for (size_t i = 0; i < sizeof why / sizeof why[0]; i++) {
		struct diagnose_hint hint = hint_of(LS_PEER_LEFT, 1, 2);
		struct diagnose_snapshot *snapshot = given_up(3, test_bit(2) | test_bit(0));
		struct diagnose_record *last =
			test_done(snapshot, 2, test_barrier(57), 1, "site.c:2");
		last->record.state = why[i] == LS_OK ? TRACE_DONE : TRACE_FAILED;
		last->record.status = (uint16_t)why[i];
		snapshot->ranks[2].left = true;
		snapshot->ranks[0].process = DIAGNOSE_PROCESS_DEAD;
		struct diagnose_verdict verdict = test_judge(snapshot, &hint);
		bool died = why[i] == LS_PEER_DIED;
		assert_int_equal(verdict.cause, died ? DIAGNOSE_DIED : DIAGNOSE_LEFT);
		assert_int_equal(verdict.status, died ? LS_PEER_DIED : LS_PEER_LEFT);
		assert_int_equal(verdict.culprit, died ? 0 : 2);
		free(snapshot);
	}
}

/* Rank 0 has done a broadcast which rank 1 left out before it left; a receive that it took back had
 * the same number. */
static void hint_of_a_collective(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(2);
	struct diagnose_hint hint = hint_of(LS_PEER_LEFT, 0, 1);
	char text[DIAGNOSE_TEXT_BYTES];
	struct trace_record receive = test_point(TRACE_RECV, 1, 7);
	receive.seq = 58;
	test_done(snapshot, 0, test_broadcast(58, 0), 2, "site.c:1");
	struct diagnose_record *taken_back = test_done(snapshot, 0, receive, 1, "site.c:2");
	taken_back->record.state = TRACE_FAILED;
	taken_back->record.status = LS_CANCELLED;
	test_done(snapshot, 1, test_broadcast(57, 0), 2, "site.c:1");
	snapshot->ranks[1].left = true;
	hint.seq_is_collective = true;
	struct diagnose_verdict verdict = test_judge(snapshot, &hint);
	diagnose_headline(snapshot, &verdict, text, sizeof text);
	assert_string_equal(text, "rank 1 finished after broadcast #57 but rank 0 called "
				  "broadcast #58, called from site.c:1");
	free(snapshot);
}

/* Rank 0 was killed while all were opening, and with it rank 2's ls_group_open failed; rank 1's had
 * just returned. It waits for both, or for rank 2 alone. */
static void check_victim(uint64_t needs)
{
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	struct diagnose_verdict want = {.cause = DIAGNOSE_DIED,
					.status = LS_PEER_DIED,
					.culprit = 0,
					.culprits = {{test_bit(0)}},
					.waiting = {{test_bit(1)}},
					.seq = 58};
	struct diagnose_hint hint = hint_of(LS_PEER_DIED, 1, 2);
	test_call(snapshot, 1, test_allreduce(58), 1, "site.c:1");
	test_wait(snapshot, 1, needs);
	snapshot->ranks[1].group_count = 1;
	snapshot->ranks[0].process = snapshot->ranks[2].process = DIAGNOSE_PROCESS_DEAD;
	snapshot->ranks[0].signal = 9;
	snapshot->ranks[2].signal = 0;
	snapshot->ranks[2].exit_code = 1;
	test_verdict(snapshot, &hint, want);
}

static void hint_of_a_victim(void **state)
{
	(void)state;
	check_victim(test_bit(0) | test_bit(2));
	check_victim(test_bit(2));
}

/* A watch that saw it from outside does not wait. */
static void hint_of_an_onlooker(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_ring(4, (const int[]){2, 2, -1, -1});
	struct diagnose_hint hint = hint_of(LS_PEER_LEFT, 3, 2);
	hint.seq = 1;
	snapshot->ranks[2].left = true;
	test_verdict(snapshot, &hint,
		     (struct diagnose_verdict){.cause = DIAGNOSE_LEFT,
					       .status = LS_PEER_LEFT,
					       .culprit = 2,
					       .culprits = {{test_bit(2)}},
					       .waiting = {{3}},
					       .seq = 1});
}

/* The rank has entered, so no record tells which ranks wait for it; the one that gave up does. */
static void hint_of_one_stopped_inside(void **state)
{
	(void)state;
	struct diagnose_hint hint = hint_of(LS_TIMED_OUT, 0, -1);
	struct diagnose_snapshot *snapshot = given_up(2, 0);
	snapshot->ranks[1].process = DIAGNOSE_PROCESS_STOPPED;
	hint.needs = ranks_of_bits(test_bit(1));
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	assert_int_equal(got.cause, DIAGNOSE_STOPPED);
	assert_int_equal(got.status, LS_TIMED_OUT);
	assert_int_equal(got.culprit, 1);
	free(snapshot);
}

/* Rank 0 waits for rank 1, which has given up too, so it is not seen to wait for rank 2 any more;
 * or its host has not answered. */
static void hint_beside_one_that_is_stopped(void **state)
{
	(void)state;
	struct diagnose_hint hint = hint_of(LS_TIMED_OUT, 0, -1);
	hint.needs = ranks_of_bits(test_bit(1));
	for (int unseen = 0; unseen < 2; unseen++) {
		struct diagnose_snapshot *snapshot = given_up(3, test_bit(2));
		snapshot->ranks[2].process = DIAGNOSE_PROCESS_STOPPED;
		if (unseen) {
			snapshot->ranks[1].known = false;
			snapshot->ranks[1].process = DIAGNOSE_PROCESS_UNKNOWN;
			snapshot->ranks[1].record_count = snapshot->ranks[1].thread_count = 0;
		}
		struct diagnose_verdict got = test_judge(snapshot, &hint);
		assert_int_equal(got.cause, DIAGNOSE_STOPPED);
		assert_int_equal(got.culprit, 2);
		free(snapshot);
	}
	/* It is elsewhere for certain. */
	struct diagnose_snapshot *snapshot = given_up(3, test_bit(1) | test_bit(2));
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_STOPPED;
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	assert_int_equal(got.cause, DIAGNOSE_ELSEWHERE);
	assert_int_equal(got.culprit, 1);
	free(snapshot);
	/* The stopped one has done its part. */
	snapshot = given_up(3, 0);
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_STOPPED;
	snapshot->ranks[2].records[0].record.state = TRACE_DONE;
	got = test_judge(snapshot, &hint);
	assert_int_equal(test_bits(got.culprits) & test_bit(2), 0);
	free(snapshot);
}

static void hint_of_a_time_out(void **state)
{
	(void)state;
	struct diagnose_hint hint = hint_of(LS_TIMED_OUT, 0, -1);
	struct diagnose_snapshot *snapshot = given_up(3, test_bit(2));
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	assert_true(got.timed_out);
	assert_int_equal(got.witness, 0);
	/* Rank 2 has not come to #58, so it must be what rank 0 has waited for. */
	struct diagnose_verdict want = {.cause = DIAGNOSE_ELSEWHERE,
					.status = LS_TIMED_OUT,
					.culprit = 2,
					.culprits = {{test_bit(2)}},
					.waiting = {{3}},
					.seq = 58};
	test_verdict(snapshot, &hint, want);
	snapshot = given_up(3, test_bit(2));
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_STOPPED;
	want.cause = DIAGNOSE_STOPPED;
	test_verdict(snapshot, &hint, want);
	/* Dead, although nobody's slot asks for it any more. */
	snapshot = given_up(3, test_bit(2));
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_DEAD;
	want.cause = DIAGNOSE_DIED;
	test_verdict(snapshot, &hint, want);
	/* All have come: nobody to name. */
	test_verdict(given_up(3, 0), &hint,
		     (struct diagnose_verdict){.cause = DIAGNOSE_TIMED_OUT,
					       .status = LS_TIMED_OUT,
					       .culprit = -1,
					       .waiting = {{test_bit(0)}},
					       .seq = 58});
}

/* The group's table knows of operations that the ring has lost. */
static void time_out_reads_the_group_table(void **state)
{
	(void)state;
	struct diagnose_hint hint = hint_of(LS_TIMED_OUT, 0, -1);
	struct diagnose_snapshot *snapshot = given_up(3, test_bit(2));
	struct diagnose_rank *rank = &snapshot->ranks[2];
	rank->groups[0] = (struct diagnose_group){.id = TEST_GROUP, .size = 3, .entered = 60};
	rank->group_count = 1;
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	assert_int_equal(got.cause, DIAGNOSE_TIMED_OUT);
	free(snapshot);
}

/* Somebody else waits for the rank that gave up, which is no reason why it had to; nobody is seen
 * to be. */
static void time_out_is_not_what_others_wait_for(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	struct diagnose_hint hint = hint_of(LS_TIMED_OUT, 0, -1);
	char text[DIAGNOSE_TEXT_BYTES];
	test_call(snapshot, 0, test_point(TRACE_RECV, 1, 7), 2, "a.c:1");
	test_call(snapshot, 2, test_point(TRACE_RECV, 0, 8), 2, "a.c:2");
	test_wait(snapshot, 2, test_bit(0));
	snapshot->ranks[1].threads[0].stable = false; /* it goes on */
	hint.seq = 1;
	hint.needs = ranks_of_bits(test_bit(1));
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	assert_int_equal(got.cause, DIAGNOSE_TIMED_OUT);
	assert_int_equal(test_bits(got.culprits), 0);
	diagnose_headline(snapshot, &got, text, sizeof text);
	assert_string_equal(text,
			    "rank 0 timed out in receive #1 from rank 1 (tag 7) after 2.0 s, called "
			    "from a.c:1; no rank is known to be dead, stopped or elsewhere");
	/* Rank 1 waits for rank 2, which is. */
	test_call(snapshot, 1, test_point(TRACE_RECV, 2, 9), 2, "a.c:3");
	test_wait(snapshot, 1, test_bit(2));
	snapshot->ranks[1].threads[0].stable = true;
	snapshot->ranks[2].threads[0].wait.state = WAIT_OUTSIDE;
	got = test_judge(snapshot, &hint);
	assert_int_equal(got.cause, DIAGNOSE_ELSEWHERE);
	assert_int_equal(test_bits(got.culprits), test_bit(2));
	/* It waits in a second thread, for rank 0, and is away with the first. */
	test_call(snapshot, 2, test_point(TRACE_RECV, 0, 8), 2, "a.c:2");
	test_wait_on(snapshot, 2, test_thread(snapshot, 2, 77), test_bit(0));
	test_done(snapshot, 2, test_point(TRACE_SEND, 1, 5), 1, "a.c:4");
	got = test_judge(snapshot, &hint);
	assert_int_equal(test_bits(got.culprits), test_bit(2));
	/* It waits for another thread of the one that gave up. */
	test_call(snapshot, 2, test_point(TRACE_RECV, 0, 8), 2, "a.c:2");
	test_wait(snapshot, 2, test_bit(0));
	got = test_judge(snapshot, &hint);
	assert_int_equal(test_bits(got.culprits), test_bit(0));
	diagnose_headline(snapshot, &got, text, sizeof text);
	assert_non_null(strstr(text, "rank 0 timed out in receive #1 from rank 1 (tag 7), called from "
				     "a.c:1: rank 0 is elsewhere"));
	free(snapshot);
}

static void hint_of_an_abort(void **state)
{
	(void)state;
	struct diagnose_hint hint = hint_of(LS_ABORTED, 1, -1);
	char note[400];
	memset(note, 'x', sizeof note);
	note[sizeof note - 1] = 0;
	hint.note = note;
	hint.seq = 0;
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	assert_int_equal(strlen(got.note), sizeof got.note - 1);
	struct diagnose_verdict want = {.cause = DIAGNOSE_ABORTED,
					.status = LS_ABORTED,
					.culprit = 1,
					.culprits = {{test_bit(1)}}};
	test_verdict(snapshot, &hint, want);
	hint.status = want.status = LS_INTERRUPTED;
	test_verdict(test_snapshot(3), &hint, want);
	hint.status = want.status = LS_SYSTEM;
	test_verdict(test_snapshot(3), &hint, want);
}

static void hint_of_a_rank_that_is_not(void **state)
{
	(void)state;
	struct diagnose_hint hint = hint_of(LS_PEER_DIED, 99, 77);
	struct diagnose_verdict got;
	struct diagnose_snapshot *snapshot = test_snapshot(2);
	got = test_judge(snapshot, &hint);
	assert_int_equal(got.cause, DIAGNOSE_DIED);
	assert_int_equal(test_bits(got.culprits), 0);
	assert_int_equal(got.culprit, -1);
	free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hint_of_a_collective),
		cmocka_unit_test(hint_of_a_gone_peer),
		cmocka_unit_test(hint_of_who_left_for_a_death),
		cmocka_unit_test(hint_of_a_victim),
		cmocka_unit_test(hint_of_an_onlooker),
		cmocka_unit_test(hint_of_one_stopped_inside),
		cmocka_unit_test(hint_beside_one_that_is_stopped),
		cmocka_unit_test(hint_of_a_time_out),
		cmocka_unit_test(time_out_reads_the_group_table),
		cmocka_unit_test(time_out_is_not_what_others_wait_for),
		cmocka_unit_test(hint_of_an_abort),
		cmocka_unit_test(hint_of_a_rank_that_is_not),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
