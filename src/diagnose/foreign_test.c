/* SPDX-License-Identifier: BSD-3-Clause
 * Ranks with a thread in a foreign call: no proof relies on this thread, and reports name the call.
 */
#include "base/seqlock.h"
#include "diagnose/collect_fixture.h"
#include "diagnose/snapshot_fixture.h"

/* The thread is in `call` for this many tenths of a second. */
static void test_foreign(struct diagnose_thread *thread, const char *call, unsigned tenths)
{
	thread->wait = (struct wait_slot_body){.state = WAIT_FOREIGN,
					       .tid = thread->wait.tid,
					       .since_ns = test_now - tenths * test_second / 10,
					       .deadline_ns = UINT64_MAX};
	snprintf(thread->wait.foreign, sizeof thread->wait.foreign, "%s", call);
}

static void check_headline(struct diagnose_snapshot *snapshot, const char *want)
{
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_verdict verdict = test_judge(snapshot, NULL);
	diagnose_headline(snapshot, &verdict, text, sizeof text);
	assert_string_equal(text, want);
	free(snapshot);
}

static void check_report(struct diagnose_snapshot *snapshot, const char *want)
{
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_verdict verdict = test_judge(snapshot, NULL);
	diagnose_text(snapshot, &verdict, text, sizeof text);
	if (!strstr(text, want))
		fail_msg("'%s' is not in: %s", want, text);
	free(snapshot);
}

/* All others wait for rank 2, whose only thread is in a foreign call. */
static struct diagnose_snapshot *one_in_a_call(void)
{
	struct diagnose_snapshot *snapshot = test_absent(3, test_bit(2));
	test_foreign(&snapshot->ranks[2].threads[0], "cuMemFree", 123);
	return snapshot;
}

static void the_only_thread(void **state)
{
	(void)state;
	test_verdict(one_in_a_call(), NULL,
		     (struct diagnose_verdict){.cause = DIAGNOSE_ELSEWHERE,
					       .status = LS_TIMED_OUT,
					       .culprit = 2,
					       .culprits = ranks_of(2),
					       .waiting = ranks_of_bits(3),
					       .seq = 58});
	check_headline(
		one_in_a_call(),
		"rank 2 is elsewhere (its last operation was all-reduce #57, finished 3.0 s ago, "
		"called from train.c:211; its main thread has been in the foreign call cuMemFree "
		"for 12.3 s; it is sleeping in a system call) while ranks 0 and 1 wait in "
		"all-reduce #58 for 2.0 s, called from train.c:211");
	check_report(
		one_in_a_call(),
		"\n  rank 2: elsewhere, last was all-reduce #57 of 1000 float32, sum, finished 3.0 s "
		"ago, called from train.c:211; its main thread has been in the foreign call cuMemFree "
		"for 12.3 s (pid 102; asleep)\n");
}

/* A ring in which rank 1 has a sleeping thread outside of Lockstep; if `foreign`, that thread is in
 * a foreign call. */
static struct diagnose_snapshot *ring_with(bool foreign, bool beside)
{
	struct diagnose_snapshot *snapshot = test_ring(3, (const int[]){1, 2, 0});
	if (!beside)
		snapshot->ranks[1].threads[0].wait =
			(struct wait_slot_body){.state = WAIT_OUTSIDE, .tid = 101};
	struct diagnose_thread *thread =
		beside ? test_thread(snapshot, 1, 777) : &snapshot->ranks[1].threads[0];
	if (foreign)
		test_foreign(thread, "cuMemFree", 123);
	thread->asleep = true; /* in a foreign call it never counts as that */
	return snapshot;
}

static void nothing_is_proved(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = ring_with(false, true);
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_DEADLOCK);
	free(snapshot);
	for (int beside = 0; beside < 2; beside++) {
		struct ranks cycle;
		snapshot = ring_with(true, beside);
		assert_int_equal(diagnose_find_cycle(snapshot, NULL, NULL, 0, &cycle), 0);
		got = test_judge(snapshot, NULL);
		assert_int_equal(got.cause, DIAGNOSE_ELSEWHERE);
		assert_int_equal(got.culprit, 1);
		free(snapshot);
	}
	/* A rank that all of them wait for is not in the deadlock of the others either. */
	snapshot = test_ring(4, (const int[]){1, 2, 0, -1});
	test_foreign(&snapshot->ranks[3].threads[0], "cuMemFree", 123);
	got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_DEADLOCK);
	free(snapshot);
}

/* Everybody is seen to wait, but one rank may still act: that is told, with the call. */
static void beside_a_thread_that_waits(void **state)
{
	(void)state;
	check_headline(
		ring_with(true, true),
		"rank 1 is elsewhere (busy in receive #1 from rank 2 (tag 7), called from "
		"ring.c:5; its thread 777 has been in the foreign call cuMemFree for 12.3 s; it is "
		"sleeping in a system call) while rank 0 waits in receive #1 from rank 1 (tag 7) "
		"for 2.0 s, called from ring.c:5");
}

/* It may have returned since. */
static void a_call_that_returns(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = one_in_a_call();
	snapshot->ranks[2].threads[0].stable = false;
	assert_null(diagnose_foreign_call(&snapshot->ranks[2]));
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_HEALTHY);
	free(snapshot);
}

static void several_threads(void **state)
{
	(void)state;
	char text[256];
	struct diagnose_snapshot *snapshot = one_in_a_call();
	test_foreign(test_thread(snapshot, 2, 778), "cuMemAlloc", 400);
	diagnose_foreign_call_text(snapshot, 2, text, sizeof text);
	assert_string_equal(text,
			    "its thread 778 has been in the foreign call cuMemAlloc for 40.0 s and "
			    "its main thread in cuMemFree for 12.3 s");
	test_foreign(test_thread(snapshot, 2, 779), "cuMemFree", 3);
	test_foreign(test_thread(snapshot, 2, 780), "cuLaunchKernel", 200);
	diagnose_foreign_call_text(snapshot, 2, text, sizeof text);
	assert_string_equal(text,
			    "its thread 778 has been in the foreign call cuMemAlloc for 40.0 s, "
			    "its thread 780 in cuLaunchKernel for 20.0 s, and 2 more of its "
			    "threads in such calls");
	diagnose_named_call_text(snapshot, &snapshot->ranks[2].threads[0].wait, text, sizeof text);
	assert_string_equal(text, "cuMemFree for 12.3 s");
	diagnose_foreign_call_text(snapshot, 1, text, sizeof text);
	assert_string_equal(text, "");
	snapshot->ranks[2].process =
		DIAGNOSE_PROCESS_DEAD; /* then its slots are what it left behind */
	diagnose_foreign_call_text(snapshot, 2, text, sizeof text);
	assert_string_equal(text, "");
	free(snapshot);
}

/* Ranks in the same call share a line. */
static void several_ranks(void **state)
{
	(void)state;
	for (int same = 0; same < 2; same++) {
		struct diagnose_snapshot *snapshot = test_absent(4, test_bit(2) | test_bit(3));
		test_foreign(&snapshot->ranks[2].threads[0], "ncclCommInitRank", 123);
		test_foreign(&snapshot->ranks[3].threads[0],
			     same ? "ncclCommInitRank" : "cuMemFree", 456);
		check_report(
			snapshot,
			same ? "\n  ranks 2 and 3: elsewhere, last was all-reduce #57 of 1000 "
			       "float32, sum, finished 3.0 s ago, called from train.c:211; a "
			       "thread of each has been in the foreign call ncclCommInitRank for "
			       "45.6 s (pids 102, 103; asleep)\n"
			     : "\n  rank 3: elsewhere, last was all-reduce #57 of 1000 float32, "
			       "sum, finished 3.0 s ago, called from train.c:211; its main thread "
			       "has been in the foreign call cuMemFree for 45.6 s (pid 103; "
			       "asleep)\n");
	}
}

/* Names and times come from another process. */
static void hostile_names(void **state)
{
	(void)state;
	char text[256];
	struct diagnose_snapshot *snapshot = one_in_a_call();
	struct wait_slot_body *wait = &snapshot->ranks[2].threads[0].wait;
	snprintf(wait->foreign, sizeof wait->foreign, "free\033[31m\n%%s\x9b%%n");
	wait->since_ns = UINT64_MAX;
	diagnose_foreign_call_text(snapshot, 2, text, sizeof text);
	assert_string_equal(text, "its main thread has been in the foreign call free?[31m?%s?%n");
	wait->foreign[0] = 0;
	diagnose_foreign_call_text(snapshot, 2, text, sizeof text);
	assert_string_equal(text, "its main thread has been in the foreign call without a name");
	memset(wait->foreign, 'x', sizeof wait->foreign);
	assert_false(diagnose_snapshot_is_valid(snapshot, diagnose_snapshot_bytes(snapshot->size)));
	free(snapshot);
}

/* The collector copies a slot of a foreign call, and cuts a name without an end. */
static void collected(void **state)
{
	struct collect_fixture *fixture = *state;
	struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
	publish_ring(fixture);
	struct wait_slot_body body = {.state = WAIT_FOREIGN, .tid = 2, .since_ns = 5};
	memset(body.foreign, 'x', sizeof body.foreign);
	publish(fixture, 1, 3, &body);
	const struct diagnose_rank *rank = collect(fixture, 1);
	assert_int_equal(rank->thread_count, 2);
	assert_int_equal(rank->threads[1].wait.state, WAIT_FOREIGN);
	assert_true(rank->threads[1].stable);
	assert_false(rank->threads[1].asleep);
	assert_int_equal(strlen(rank->threads[1].wait.foreign), WAIT_FOREIGN_BYTES - 1);
	assert_ptr_equal(diagnose_foreign_call(rank), &rank->threads[1]);
	assert_int_equal(test_cycle(fixture->snapshot, hops), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_only_thread),
		cmocka_unit_test(nothing_is_proved),
		cmocka_unit_test(beside_a_thread_that_waits),
		cmocka_unit_test(a_call_that_returns),
		cmocka_unit_test(several_threads),
		cmocka_unit_test(several_ranks),
		cmocka_unit_test(hostile_names),
		cmocka_unit_test_setup_teardown(collected, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
