/* SPDX-License-Identifier: BSD-3-Clause
 * Waits for any of several events, one of which may need several ranks. */
#include "diagnose/snapshot_fixture.h"

/* Rank 0 waits for a batch of receives from 1 and 2, that from 2 being in its wait's record; with
 * `either`, or for a message of 3. Rank 1 waits for rank 0, the others are still there. */
static struct diagnose_snapshot *batch_of_two(bool either)
{
	struct diagnose_snapshot *snapshot = test_snapshot(4);
	test_call(snapshot, 0, test_point(TRACE_RECV, 1, 7), 2, "batch.c:5");
	test_call(snapshot, 0, test_point(TRACE_RECV, 2, 7), 2, "batch.c:6");
	uint64_t peers = test_bit(1) | test_bit(2);
	test_wait(snapshot, 0, either ? peers | test_bit(3) : peers);
	struct wait_slot_body *wait = &snapshot->ranks[0].threads[0].wait;
	wait->state = WAIT_ANY_WORD;
	for (uint32_t i = 0; i < 2; i++) {
		wait->edges[i].alternative = 1;
		wait->edges[i].record = 1 + i;
	}
	test_call(snapshot, 1, test_point(TRACE_RECV, 0, 7), 2, "client.c:9");
	test_wait(snapshot, 1, test_bit(0));
	return snapshot;
}

/* One part of a batch that can never be over is enough; but not if something else would do as
 * well. */
static void a_part_of_a_batch(void **state)
{
	(void)state;
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_snapshot *snapshot = batch_of_two(false);
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	diagnose_headline(snapshot, &got, text, sizeof text);
	assert_string_equal(text, "ranks 0 and 1 wait for each other and can never go on: "
				  "rank 0 waits for rank 1 (receive #1, tag 7, called from "
				  "batch.c:5), rank 1 waits for rank 0 (receive #1, tag 7, called "
				  "from client.c:9)");
	test_judged_waits(snapshot, DIAGNOSE_DEADLOCK, 3, 0);
	test_judged_waits(batch_of_two(true), DIAGNOSE_ELSEWHERE, 12, 3);
	snapshot = batch_of_two(true);
	snapshot->ranks[3].left = true; /* nor does that come */
	test_judged_waits(snapshot, DIAGNOSE_DEADLOCK, 3, 0);
	/* A word that has its value wakes the waiting thread, which has to check what is left. */
	snapshot = batch_of_two(false);
	snapshot->ranks[0].threads[0].satisfied = 2;
	test_judged_waits(snapshot, DIAGNOSE_HEALTHY, 0, 0);
	/* The wait ends by itself, because a rank that it needs is gone. */
	snapshot = batch_of_two(false);
	snapshot->ranks[2].left = true;
	test_judged_waits(snapshot, DIAGNOSE_LEFT, 4, 3);
}

/* Rank 0 waits for any of a message of 1 and an all-reduce that another thread of it runs, for
 * `needs`; 1 for rank 0. */
static struct diagnose_snapshot *any_of_both(uint64_t needs)
{
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	struct diagnose_thread *running = test_thread(snapshot, 0, 777);
	test_call(snapshot, 0, test_allreduce(1), 2, "both.c:4");
	test_wait_on(snapshot, 0, running, needs);
	test_call(snapshot, 0, test_point(TRACE_RECV, 1, 7), 2, "both.c:5");
	test_wait(snapshot, 0, test_bit(1));
	struct wait_slot_body *wait = &snapshot->ranks[0].threads[0].wait;
	wait->state = WAIT_ANY_WORD;
	wait->edges[wait->edge_count++] = (struct wait_edge){
		.owner = 0, .peer = -1, .value = 1, .segment = WAIT_SEGMENT_MAPPED, .record = 1};
	test_call(snapshot, 1, test_point(TRACE_RECV, 0, 7), 2, "client.c:9");
	test_wait(snapshot, 1, test_bit(0));
	return snapshot;
}

/* A collective that needs a rank that can never go on cannot come, whichever other ranks it
 * needs. */
static void a_collective_among_others(void **state)
{
	(void)state;
	test_judged_waits(any_of_both(test_bit(1) | test_bit(2)), DIAGNOSE_DEADLOCK, 3, 0);
	test_judged_waits(any_of_both(test_bit(1)), DIAGNOSE_DEADLOCK, 3, 0);
	test_judged_waits(any_of_both(test_bit(2)), DIAGNOSE_ELSEWHERE, 4, 3);
	struct diagnose_snapshot *snapshot = any_of_both(test_bit(1) | test_bit(2));
	snapshot->ranks[0].threads[1].satisfied = 3; /* the other thread is about to go on */
	test_judged_waits(snapshot, DIAGNOSE_HEALTHY, 0, 0);
}

/* A wait that needs a dead rank ends by itself, whichever others it needs, and its own rank goes on
 * in other groups. */
static void who_needs_a_dead_one_goes_on(void **state)
{
	(void)state;
	struct diagnose_hint asks = {.rank = 1, .peer = -1, .group = TEST_GROUP};
	for (int dies = 0; dies < 2; dies++) {
		struct diagnose_snapshot *snapshot = test_snapshot(3);
		test_call(snapshot, 0, test_barrier(1), 2, "inner.c:4")->record.group = 5;
		test_wait(snapshot, 0, test_bit(1) | test_bit(2));
		snapshot->ranks[0].threads[0].wait.group = 5;
		test_call(snapshot, 1, test_point(TRACE_RECV, 0, 7), 2, "client.c:9");
		test_wait(snapshot, 1, test_bit(0));
		if (dies)
			snapshot->ranks[2].process = DIAGNOSE_PROCESS_DEAD;
		assert_int_equal(test_judge(snapshot, &asks).cause,
				 dies ? DIAGNOSE_HEALTHY : DIAGNOSE_DEADLOCK);
		free(snapshot);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_part_of_a_batch),
		cmocka_unit_test(a_collective_among_others),
		cmocka_unit_test(who_needs_a_dead_one_goes_on),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
