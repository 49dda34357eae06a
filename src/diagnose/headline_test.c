/* SPDX-License-Identifier: BSD-3-Clause
 * The first line of a report where there are several groups: of a rank that has closed one of them,
 * and of one of several deadlocks. */
#include "diagnose/snapshot_fixture.h"

enum { OTHER_GROUP = 9 };

static void check(struct diagnose_snapshot *snapshot, const char *want)
{
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_verdict verdict = test_judge(snapshot, NULL);
	diagnose_headline(snapshot, &verdict, text, sizeof text);
	assert_string_equal(text, want);
	free(snapshot);
}

/* Two ranks, of which rank 1 has closed the group of the wait, and not the one of all. */
static struct diagnose_snapshot *closed_snapshot(void)
{
	struct diagnose_snapshot *snapshot = test_absent(2, test_bit(1));
	snapshot->ranks[1].groups[snapshot->ranks[1].group_count++] =
		(struct diagnose_group){.id = TEST_GROUP, .closed = 1};
	return snapshot;
}

/* The headline names what a rank did before it closed this group, not what it does in another
 * one. */
static void closed_one_group(void **state)
{
	(void)state;
	check(closed_snapshot(),
	      "rank 1 closed the group after all-reduce #57 while rank 0 waits in all-reduce #58, "
	      "called from train.c:211");
	struct diagnose_snapshot *snapshot = closed_snapshot();
	test_call(snapshot, 1, test_barrier(3), 1, "b.c:2")->record.group = OTHER_GROUP;
	check(snapshot,
	      "rank 1 closed the group and is in barrier #3 while rank 0 waits in all-reduce #58, "
	      "called from train.c:211");
	snapshot = closed_snapshot();
	snapshot->ranks[1].record_count = 0;
	test_done(snapshot, 1, test_barrier(3), 1, "b.c:2")->record.group = OTHER_GROUP;
	check(snapshot,
	      "rank 1 closed the group (its last operation was barrier #3) while rank 0 waits in "
	      "all-reduce #58, called from train.c:211");
	snapshot = test_absent(3, test_bit(1) | test_bit(2));
	for (int r = 1; r < 3; r++)
		snapshot->ranks[r].groups[snapshot->ranks[r].group_count++] =
			(struct diagnose_group){.id = TEST_GROUP, .closed = 1};
	check(snapshot,
	      "ranks 1 and 2 closed the group while rank 0 waits in all-reduce #58, called from "
	      "train.c:211");
}

/* Two pairs wait for each other, each in a group of its own: each group is told of its pair. */
static void each_group_has_its_own_cycle(void **state)
{
	(void)state;
	for (int turn = 0; turn < 2; turn++) {
		struct diagnose_snapshot *snapshot = test_ring(4, (const int[]){1, 0, 3, 2});
		struct diagnose_hint focus = {.status = LS_OK,
					      .group = turn ? OTHER_GROUP : TEST_GROUP};
		char text[DIAGNOSE_TEXT_BYTES], report[DIAGNOSE_TEXT_BYTES];
		for (int r = 2; r < 4; r++) {
			snapshot->ranks[r].records[0].record.group = OTHER_GROUP;
			snapshot->ranks[r].threads[0].wait.group = OTHER_GROUP;
		}
		struct diagnose_verdict verdict = test_judge(snapshot, &focus);
		assert_int_equal(verdict.cause, DIAGNOSE_DEADLOCK);
		assert_int_equal(test_bits(verdict.culprits), turn ? 12 : 3);
		diagnose_headline(snapshot, &verdict, text, sizeof text);
		assert_non_null(strstr(text, turn ? ": rank 2 waits for rank 3 (receive #1"
						  : ": rank 0 waits for rank 1 (receive #1"));
		diagnose_text(snapshot, &verdict, report, sizeof report);
		assert_non_null(strstr(report, "let it send before it receives"));
		free(snapshot);
	}
}

static void call_in(struct diagnose_snapshot *snapshot, int r, struct trace_record op,
		    uint32_t group, uint64_t peers)
{
	test_call(snapshot, r, op, 1, "a.c:1")->record.group = group;
	test_wait(snapshot, r, peers);
	snapshot->ranks[r].threads[0].wait.group = group;
}

/* Rank 1 receives from any rank of a group that rank 0 has closed. So it waits for rank 2, and not
 * for rank 0, although that one waits for rank 1 in the group of all. */
static void who_has_left_is_in_no_cycle(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	struct diagnose_hint focus = {.status = LS_OK};
	char text[DIAGNOSE_TEXT_BYTES];
	snapshot->ranks[0].groups[snapshot->ranks[0].group_count++] =
		(struct diagnose_group){.id = OTHER_GROUP, .closed = 1};
	call_in(snapshot, 0, test_barrier(3), TEST_GROUP, 6);
	call_in(snapshot, 1, test_point(TRACE_RECV, -1, 7), OTHER_GROUP, 5);
	snapshot->ranks[1].threads[0].wait.state = WAIT_ANY_WORD;
	call_in(snapshot, 2, test_point(TRACE_RECV, 1, 7), OTHER_GROUP, 2);
	for (uint32_t group = 0; group <= OTHER_GROUP; group += OTHER_GROUP) {
		focus.group = group;
		struct diagnose_verdict verdict = test_judge(snapshot, group ? &focus : NULL);
		assert_int_equal(verdict.cause, DIAGNOSE_DEADLOCK);
		assert_int_equal(test_bits(verdict.culprits), 6);
		diagnose_headline(snapshot, &verdict, text, sizeof text);
		assert_non_null(strstr(text, "; rank 0 has left"));
	}
	free(snapshot);
}

/* Rank 1 waits for any of a send to rank 2 and an all-reduce, which its other thread runs. All wait
 * for rank 2 then, also rank 0, which is in the all-reduce; so rank 0 is in no cycle. */
static void a_send_is_told_with_its_receiver(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	char text[DIAGNOSE_TEXT_BYTES];
	test_call(snapshot, 0, test_allreduce(1), 1, "a.c:1");
	test_wait(snapshot, 0, 6);
	test_call(snapshot, 1, test_allreduce(1), 1, "a.c:1");
	test_wait_on(snapshot, 1, test_thread(snapshot, 1, 7), 5);
	test_call(snapshot, 1, test_point(TRACE_SEND, 2, 7), 1, "a.c:2");
	test_wait(snapshot, 1, 4);
	struct wait_slot_body *wait = &snapshot->ranks[1].threads[0].wait;
	wait->state = WAIT_ANY_WORD;
	wait->edges[0].record = 2;
	wait->edges[wait->edge_count++] = (struct wait_edge){
		.owner = 1, .peer = -1, .value = 1, .record = 1, .segment = WAIT_SEGMENT_MAPPED};
	test_call(snapshot, 2, test_point(TRACE_RECV, 1, 9), 1, "a.c:3");
	test_wait(snapshot, 2, 2);
	struct diagnose_verdict verdict = test_judge(snapshot, NULL);
	assert_int_equal(verdict.cause, DIAGNOSE_DEADLOCK);
	assert_int_equal(test_bits(verdict.culprits), 6);
	diagnose_headline(snapshot, &verdict, text, sizeof text);
	assert_non_null(strstr(text, "rank 1 waits for rank 2 (send #1"));
	free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(closed_one_group),
		cmocka_unit_test(each_group_has_its_own_cycle),
		cmocka_unit_test(who_has_left_is_in_no_cycle),
		cmocka_unit_test(a_send_is_told_with_its_receiver),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
