/* SPDX-License-Identifier: BSD-3-Clause
 * The exact words of a report, and its behaviour where there is little room. */
#include "diagnose/snapshot_fixture.h"

static void check(struct diagnose_snapshot *snapshot, const struct diagnose_hint *hint,
		  const char *want)
{
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_verdict verdict = test_judge(snapshot, hint);
	diagnose_headline(snapshot, &verdict, text, sizeof text);
	assert_string_equal(text, want);
	char report[DIAGNOSE_TEXT_BYTES];
	diagnose_text(snapshot, &verdict, report, sizeof report);
	assert_memory_equal(report, text, strlen(text)); /* the report begins with it */
	assert_int_equal(report[strlen(text)], '\n');
	free(snapshot);
}

static struct diagnose_snapshot *dead(int signal, int exit_code)
{
	struct diagnose_snapshot *snapshot = test_absent(4, test_bit(2));
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_DEAD;
	snapshot->ranks[2].signal = signal;
	snapshot->ranks[2].exit_code = exit_code;
	return snapshot;
}

static void left(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_absent(4, test_bit(2));
	snapshot->ranks[2].left = true;
	check(snapshot, NULL,
	      "rank 2 finished after all-reduce #57 while ranks 0, 1 and 3 wait in all-reduce #58, "
	      "called from train.c:211");
	snapshot = test_absent(2, test_bit(1)); /* its last collective, no receive */
	test_done(snapshot, 1, test_point(TRACE_RECV, 0, 3), 1, "train.c:300");
	snapshot->ranks[1].left = true;
	check(snapshot, NULL,
	      "rank 1 finished after all-reduce #57 while rank 0 waits in all-reduce #58, called "
	      "from train.c:211");
	snapshot = test_absent(3, test_bit(1) | test_bit(2));
	snapshot->ranks[1].left = snapshot->ranks[2].left = true;
	check(snapshot, NULL,
	      "ranks 1 and 2 finished while rank 0 waits in all-reduce #58, called from "
	      "train.c:211");
	snapshot = test_absent(2, test_bit(1));
	snapshot->ranks[1].record_count = 0;
	snapshot->ranks[1].left = true;
	check(snapshot, NULL,
	      "rank 1 finished before its first operation while rank 0 waits in all-reduce #58, "
	      "called from train.c:211");
	snapshot = test_ring(2, (const int[]){1, -1});
	struct diagnose_record *failed = test_done(snapshot, 1, test_allreduce(4), 1, "a.c:1");
	failed->record.state = TRACE_FAILED;
	failed->record.status = LS_ABORTED;
	snapshot->ranks[1].left = true;
	check(snapshot, NULL,
	      "rank 1 finished after its all-reduce #4 failed (LS_ABORTED) while rank 0 waits in "
	      "receive #1 from rank 1 (tag 7), called from ring.c:5");
}

static void died(void **state)
{
	(void)state;
	check(dead(9, -1), NULL,
	      "rank 2 (pid 102) was killed by SIGKILL (9) after all-reduce #57 while ranks 0, 1 and 3 "
	      "wait in all-reduce #58, called from train.c:211");
	check(dead(200, -1), NULL,
	      "rank 2 (pid 102) was killed by signal 200 after all-reduce #57 while ranks 0, 1 and 3 "
	      "wait in all-reduce #58, called from train.c:211");
	check(dead(0, 3), NULL,
	      "rank 2 (pid 102) exited with code 3 after all-reduce #57 without closing its group "
	      "while ranks 0, 1 and 3 wait in all-reduce #58, called from train.c:211");
	struct diagnose_snapshot *snapshot = dead(-1, -1);
	test_call(snapshot, 2, test_allreduce(58), 2, "train.c:211");
	check(snapshot, NULL,
	      "rank 2 (pid 102) died of an unknown cause in all-reduce #58 while ranks 0, 1 and 3 "
	      "wait in all-reduce #58, called from train.c:211");
	snapshot = dead(11, -1);
	snapshot->ranks[3].process = DIAGNOSE_PROCESS_DEAD;
	for (int r = 0; r < 2; r++)
		test_wait(snapshot, r, test_bit(2) | test_bit(3));
	check(snapshot, NULL,
	      "ranks 2 and 3 died while ranks 0 and 1 wait in all-reduce #58, called from "
	      "train.c:211");
	/* The hint's word when the snapshot shows nothing. */
	struct diagnose_hint hint = {.status = LS_PEER_DIED, .rank = 0, .peer = 1};
	check(test_snapshot(3), &hint,
	      "rank 1 (pid 101) died of an unknown cause before its first operation");
}

static void stopped(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_absent(3, test_bit(2));
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_STOPPED;
	check(snapshot, NULL,
	      "rank 2 (pid 102) is stopped after all-reduce #57 while ranks 0 and 1 wait in "
	      "all-reduce #58 for 2.0 s, called from train.c:211");
}

static void elsewhere(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_absent(3, test_bit(2));
	check(snapshot, NULL,
	      "rank 2 is elsewhere (its last operation was all-reduce #57, finished 3.0 s ago, called "
	      "from train.c:211; it is sleeping in a system call) while ranks 0 and 1 wait in "
	      "all-reduce #58 for 2.0 s, called from train.c:211");
	snapshot = test_absent(2, test_bit(1));
	struct diagnose_record *record =
		test_call(snapshot, 1, test_allreduce(58), 2, "train.c:211");
	record->record.step_count = 12;
	record->step = 2;
	snapshot->ranks[1].process = DIAGNOSE_PROCESS_RUNNING;
	check(snapshot, NULL,
	      "rank 1 is elsewhere (busy in all-reduce #58, step 3 of 12, called from train.c:211; it "
	      "is running) while rank 0 waits in all-reduce #58 for 2.0 s, called from train.c:211");
	snapshot = test_absent(2, test_bit(1));
	snapshot->ranks[1].record_count = 0;
	check(snapshot, NULL,
	      "rank 1 is elsewhere (it has called nothing yet; it is sleeping in a system call) while "
	      "rank 0 waits in all-reduce #58 for 2.0 s, called from train.c:211");
	snapshot = test_absent(2, test_bit(1));
	snapshot->ranks[1].known = false;
	snapshot->ranks[1].process = DIAGNOSE_PROCESS_UNKNOWN;
	snapshot->ranks[1].record_count = snapshot->ranks[1].thread_count = 0;
	check(snapshot, NULL,
	      "rank 1 is not seen (its trace cannot be read; it is in an unknown state) while rank 0 "
	      "waits in all-reduce #58 for 2.0 s, called from train.c:211");
	for (int unseen = 1; unseen <= 2; unseen++) {
		snapshot = test_absent(3, test_bit(1) | test_bit(2));
		for (int r = 1; r <= unseen; r++) {
			snapshot->ranks[r].known = false;
			snapshot->ranks[r].record_count = snapshot->ranks[r].thread_count = 0;
		}
		check(snapshot, NULL,
		      unseen == 1 ? "ranks 1 and 2 are elsewhere or not seen while rank 0 waits in "
				    "all-reduce #58 for 2.0 s, called from train.c:211"
				  : "ranks 1 and 2 are not seen while rank 0 waits in all-reduce #58 "
				    "for 2.0 s, called from train.c:211");
	}
}

/* The line of Python stands in the first line of a report about one rank; of several ranks each has
 * a line of its own, because they may be at different lines. */
static void lines_of_python(void **state)
{
	(void)state;
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_snapshot *snapshot = test_absent(2, test_bit(1));
	snprintf(snapshot->ranks[1].python, sizeof snapshot->ranks[1].python,
		 "its main thread is in l\033oad at data.py:88");
	check(snapshot, NULL,
	      "rank 1 is elsewhere (its last operation was all-reduce #57, finished 3.0 s ago, called "
	      "from train.c:211; its main thread is in l?oad at data.py:88; it is sleeping in a "
	      "system call) while rank 0 waits in all-reduce #58 for 2.0 s, called from train.c:211");
	snapshot = test_absent(4, test_bit(1) | test_bit(2) | test_bit(3));
	for (int r = 1; r < 4; r++)
		snprintf(snapshot->ranks[r].python, sizeof snapshot->ranks[r].python,
			 "its main thread is in load at data.py:%d", r < 3 ? 88 : 89);
	struct diagnose_verdict verdict = test_judge(snapshot, NULL);
	diagnose_text(snapshot, &verdict, text, sizeof text);
	assert_non_null(strstr(text,
			       "\n  ranks 1 and 2: elsewhere, last was all-reduce #57 of 1000 "
			       "float32, sum, finished 3.0 s ago, called from train.c:211; its "
			       "main thread is in load at data.py:88 (pids 101, 102; asleep)\n"
			       "  rank 3: elsewhere, "));
	assert_non_null(strstr(text, "data.py:89 (pid 103; asleep)"));
	assert_non_null(strstr(text, "\nNothing has failed yet. If the rank is only slow, wait."));
	assert_null(strstr(text, "No host has told"));
	snapshot->ranks[2].awaits_mutex = true;
	diagnose_text(snapshot, &verdict, text, sizeof text);
	assert_non_null(strstr(text, "\nIt can never continue, and no time limit helps. Let all "
				     "threads take these mutexes"));
	assert_null(strstr(text, "only slow"));
	snapshot->ranks[2].awaits_mutex = false;
	verdict.culprits = ranks_of(3); /* a rank that is not named does not count */
	snapshot->ranks[1].awaits_mutex = true;
	diagnose_text(snapshot, &verdict, text, sizeof text);
	assert_null(strstr(text, "never continue"));
	memset(snapshot->ranks[1].python, 'x', sizeof snapshot->ranks[1].python);
	assert_false(diagnose_snapshot_is_valid(snapshot, diagnose_snapshot_bytes(4)));
	free(snapshot);
}

static void different_sites(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_absent(4, test_bit(2));
	snprintf(snapshot->ranks[3].records[0].site, DIAGNOSE_SITE_BYTES, "other.c:9");
	snapshot->ranks[2].left = true;
	check(snapshot, NULL,
	      "rank 2 finished after all-reduce #57 while ranks 0, 1 and 3 wait in all-reduce #58, "
	      "called from train.c:211 (rank 0)");
}

static void deadlocks(void **state)
{
	(void)state;
	check(test_ring(4, (const int[]){1, 2, 0, 1}), NULL,
	      "ranks 0, 1 and 2 wait for each other and can never go on: rank 0 waits for rank 1 "
	      "(receive #1, tag 7, called from ring.c:5), rank 1 waits for rank 2 (receive #1, tag 7, "
	      "called from ring.c:5), rank 2 waits for rank 0 (receive #1, tag 7, called from "
	      "ring.c:5)");
	struct diagnose_snapshot *snapshot = test_ring(2, (const int[]){1, -1});
	test_call(snapshot, 1, test_allreduce(4), 1, "a.c:1");
	test_wait(snapshot, 1, 1);
	check(snapshot, NULL,
	      "ranks 0 and 1 wait for each other and can never go on: rank 0 waits for rank 1 "
	      "(receive #1, tag 7, called from ring.c:5), rank 1 waits for rank 0 (all-reduce #4, "
	      "called from a.c:1)");
	check(test_ring(2, (const int[]){-1, 1}), NULL,
	      "rank 1 waits for itself (receive #1, tag 7, called from ring.c:5) and can never go on");
	int peers[DIAGNOSE_HOP_MAX];
	for (int r = 0; r < 64; r++)
		peers[r] = (r + 1) % 64;
	snapshot = test_ring(64, peers);
	for (int r = 0; r < 64; r++)
		snapshot->ranks[r].record_count = 0; /* the ring has lost them */
	check(snapshot, NULL,
	      "ranks 0-63 wait for each other and can never go on: rank 0 waits for rank 1, rank 1 "
	      "waits for rank 2, rank 2 waits for rank 3, rank 3 waits for rank 4, rank 4 waits for "
	      "rank 5, rank 5 waits for rank 6, rank 6 waits for rank 7, rank 7 waits for rank 8, and "
	      "so on to rank 0");
}

static void with_hints(void **state)
{
	(void)state;
	struct diagnose_hint hint = {
		.status = LS_TIMED_OUT, .rank = 0, .peer = -1, .group = TEST_GROUP, .seq = 58};
	struct diagnose_snapshot *snapshot = test_absent(3, test_bit(2));
	snapshot->ranks[0].threads[0].wait.state = WAIT_OUTSIDE;
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_STOPPED;
	check(snapshot, &hint,
	      "rank 0 timed out in all-reduce #58: rank 2 (pid 102) is stopped after all-reduce #57 "
	      "while ranks 0 and 1 wait in all-reduce #58 for 2.0 s, called from train.c:211");
	snapshot = test_absent(2, 0);
	snapshot->ranks[0].threads[0].wait.state = WAIT_OUTSIDE;
	check(snapshot, &hint,
	      "rank 0 timed out in all-reduce #58 after 2.0 s, called from train.c:211; no rank is "
	      "known to be dead, stopped or elsewhere");
	hint.status = LS_INTERRUPTED;
	check(test_absent(3, test_bit(2)), &hint,
	      "rank 0 was interrupted by a signal in all-reduce #58, called from train.c:211");
	hint.status = LS_SYSTEM;
	check(test_absent(3, test_bit(2)), &hint,
	      "rank 0 failed in all-reduce #58, called from train.c:211: a system call failed that "
	      "Lockstep depends on");
	hint = (struct diagnose_hint){
		.status = LS_ABORTED, .rank = 1, .peer = -1, .note = "loss is \033[31mNaN"};
	check(test_snapshot(3), &hint, "rank 1 aborted the group: loss is ?[31mNaN");
	hint.closes = true;
	hint.note = "with send #3 under way";
	check(test_snapshot(3), &hint, "rank 1 closed the group with send #3 under way");
	check(test_snapshot(2), NULL, "no rank waits for a rank that does not come");
}

static const char demo[] =
	"rank 2 finished after all-reduce #57 while ranks 0, 1 and 3 wait in all-reduce #58, called "
	"from train.c:211\n"
	"  rank 2: left, last was all-reduce #57 of 1000 float32, sum, finished 3.0 s ago, called from "
	"train.c:211 (pid 102; running)\n"
	"  ranks 0, 1 and 3: waiting, in all-reduce #58 of 1000 float32, sum, for 2.0 s, called from "
	"train.c:211 (pids 100, 101, 103; asleep)\n"
	"Let all ranks make the same calls: give each the same number of batches, or let all agree\n"
	"when to stop before the first one closes its group.";

static struct diagnose_snapshot *demo_snapshot(void)
{
	struct diagnose_snapshot *snapshot = test_absent(4, test_bit(2));
	snapshot->ranks[2].left = true;
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_RUNNING;
	return snapshot;
}

static void whole_report(void **state)
{
	(void)state;
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_snapshot *snapshot = demo_snapshot();
	struct diagnose_verdict verdict = test_judge(snapshot, NULL);
	diagnose_text(snapshot, &verdict, text, sizeof text);
	assert_string_equal(text, demo);
	free(snapshot);
}

/* Between the look that found it and the report. */
static void waits_no_more(void **state)
{
	(void)state;
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_snapshot *snapshot = test_absent(3, test_bit(2));
	struct diagnose_verdict verdict = test_judge(snapshot, NULL);
	snapshot->ranks[1].thread_count = 0;
	snapshot->ranks[1].records[0].record.state = TRACE_DONE;
	diagnose_text(snapshot, &verdict, text, sizeof text);
	assert_non_null(strstr(text, "\n  rank 0: waiting, in all-reduce #58"));
	assert_non_null(strstr(text, "\n  rank 1: outside, last was all-reduce #58"));
	free(snapshot);
}

/* Whatever the room: never beyond it, always a string, and each line whole or not there. */
static void little_room(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = demo_snapshot();
	struct diagnose_verdict verdict = test_judge(snapshot, NULL);
	size_t headline = strcspn(demo, "\n");
	for (size_t bytes = 0; bytes < 1000; bytes++) {
		char text[1001];
		memset(text, '#', sizeof text);
		diagnose_text(snapshot, &verdict, text, bytes);
		assert_int_equal(text[bytes], '#');
		if (!bytes)
			continue;
		size_t length = strlen(text);
		assert_true(length < bytes);
		if (bytes <= headline) {
			assert_true(bytes < 4 || !strcmp(text + length - 3, "..."));
			continue;
		}
		assert_memory_equal(text, demo, headline);
		for (char *line = text + headline + 1; line < text + length;
		     line += strlen(line) + 1) {
			line[strcspn(line, "\n")] = 0;
			assert_true(strstr(demo, line) || strstr(line, "no room to tell"));
		}
	}
	free(snapshot);
}

/* 64 ranks that all differ do not fit; the text says which ranks it leaves out, and still what to
 * do. */
static void too_many_lines(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(64);
	char text[DIAGNOSE_TEXT_BYTES];
	for (int r = 0; r < 64; r++) {
		struct trace_record op = test_allreduce(12);
		op.count = 1000 + (uint64_t)r;
		test_call(snapshot, r, op, 1, "a.c:1");
	}
	struct diagnose_verdict verdict = test_judge(snapshot, NULL);
	diagnose_text(snapshot, &verdict, text, sizeof text);
	assert_non_null(strstr(text,
			       "ranks 0-63 called all-reduce #12 with different counts: rank 0 "
			       "has 1000, rank 1 has 1001, rank 2 has 1002, rank 3 has 1003, and "
			       "others, called from a.c:1\n"));
	assert_non_null(strstr(text, "\n  rank 3: differing, in all-reduce #12 of 1003 float32"));
	assert_non_null(strstr(text, "-63: no room to tell\nAll ranks must make"));
	assert_true(strlen(text) > DIAGNOSE_TEXT_BYTES / 2);
	free(snapshot);
}

static void numbers(void **state)
{
	(void)state;
	static const struct {
		uint64_t ns;
		const char *want;
	} durations[] = {
		{0, "0 us"},
		{999999, "999 us"},
		{1000000, "1 ms"},
		{12345678, "12 ms"},
		{3200000000, "3.2 s"},
		{99999999999, "99.9 s"},
		{100000000000, "100 s"},
		{600000000000, "10 min"},
		{7200000000000, "2 h"},
		{UINT64_MAX, "5124095 h"},
	};
	static const struct {
		uint64_t ranks;
		const char *want;
	} lists[] = {
		{1, "rank 0"},
		{3, "ranks 0 and 1"},
		{7, "ranks 0, 1 and 2"},
		{11, "ranks 0, 1 and 3"},
		{15, "ranks 0-3"},
		{15 | 1 << 5, "ranks 0-3, 5"},
		{UINT64_MAX, "ranks 0-63"},
		{UINT64_MAX >> 1, "ranks 0-62"},
		{UINT64_MAX & ~UINT64_C(4), "ranks 0, 1, 3-63"},
		{UINT64_C(1) << 63, "rank 63"},
	};
	char text[64];
	struct diagnose_writer writer;
	for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++) {
		diagnose_writer_init(&writer, NULL, text, sizeof text);
		diagnose_write_duration(&writer, durations[i].ns);
		assert_string_equal(text, durations[i].want);
	}
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		diagnose_writer_init(&writer, NULL, text, sizeof text);
		struct ranks ranks = ranks_of_bits(lists[i].ranks);
		diagnose_write_ranks(&writer, &ranks);
		assert_string_equal(text, lists[i].want);
	}
}

/* An ellipsis does not stand in the middle of a character. */
static void cut_between_characters(void **state)
{
	(void)state;
	char text[10];
	struct diagnose_writer writer;
	diagnose_writer_init(&writer, NULL, text, sizeof text);
	diagnose_write(&writer, "abcde\u00e9fghijkl");
	diagnose_write_ellipsis(&writer);
	assert_string_equal(text, "abcde...");
}

/* A process number says nothing without its host, if there are several. */
static void several_hosts(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_absent(3, test_bit(2));
	struct diagnose_verdict verdict;
	char text[DIAGNOSE_TEXT_BYTES];
	for (int r = 0; r < 3; r++)
		snprintf(snapshot->ranks[r].host, sizeof snapshot->ranks[r].host, "%s",
			 r ? "b" : "a");
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_STOPPED;
	diagnose_judge(snapshot, NULL, &verdict);
	diagnose_text(snapshot, &verdict, text, sizeof text);
	assert_non_null(strstr(text, "rank 2 (pid 102 on host b) is stopped"));
	assert_non_null(strstr(text, "(pids 100 on host a, 101 on host b; "));
	assert_non_null(strstr(text, "(pid 102 on host b; stopped)"));
	assert_non_null(strstr(text, "`kill -CONT 102` on host b, or"));
	for (int r = 0; r < 3; r++)
		snprintf(snapshot->ranks[r].host, sizeof snapshot->ranks[r].host, "a");
	diagnose_text(snapshot, &verdict, text, sizeof text);
	assert_null(strstr(text, "on host"));
	/* What is not seen is said to be on that host, once. */
	snprintf(snapshot->ranks[2].host, sizeof snapshot->ranks[2].host, "b");
	snapshot->ranks[2].known = false;
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_UNKNOWN;
	snapshot->ranks[2].record_count = snapshot->ranks[2].thread_count = 0;
	diagnose_judge(snapshot, NULL, &verdict);
	diagnose_text(snapshot, &verdict, text, sizeof text);
	assert_non_null(strstr(text, "rank 2: not seen, on host b (pid 102; in an unknown state)"));
	assert_non_null(strstr(text, "\nNo host has told what they do. A host is slow, or TCP"));
	free(snapshot);
	/* Those that are not seen have a line for each host; what they do is not known. */
	snapshot = test_absent(4, test_bit(1));
	for (int r = 0; r < 4; r++)
		snprintf(snapshot->ranks[r].host, sizeof snapshot->ranks[r].host, "%s",
			 r < 2   ? "a"
			 : r > 2 ? "c"
				 : "b");
	for (int r = 2; r < 4; r++) {
		snapshot->ranks[r].known = false;
		snapshot->ranks[r].process = DIAGNOSE_PROCESS_UNKNOWN;
		snapshot->ranks[r].record_count = snapshot->ranks[r].thread_count = 0;
	}
	diagnose_judge(snapshot, NULL, &verdict);
	diagnose_text(snapshot, &verdict, text, sizeof text);
	assert_non_null(
		strstr(text, "\n  rank 2: not seen, on host b (pid 102; in an unknown state)"));
	assert_non_null(
		strstr(text, "\n  rank 3: not seen, on host c (pid 103; in an unknown state)"));
	free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(left),
		cmocka_unit_test(died),
		cmocka_unit_test(stopped),
		cmocka_unit_test(elsewhere),
		cmocka_unit_test(several_hosts),
		cmocka_unit_test(lines_of_python),
		cmocka_unit_test(different_sites),
		cmocka_unit_test(deadlocks),
		cmocka_unit_test(with_hints),
		cmocka_unit_test(whole_report),
		cmocka_unit_test(waits_no_more),
		cmocka_unit_test(little_room),
		cmocka_unit_test(too_many_lines),
		cmocka_unit_test(numbers),
		cmocka_unit_test(cut_between_characters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
