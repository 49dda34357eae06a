/* SPDX-License-Identifier: BSD-3-Clause
 * What reports say of operations on a stream of a device: how far they have come, in the exact
 * words. */
#include "diagnose/snapshot_fixture.h"

enum { LAUNCHED = TRACE_ON_STREAM | TRACE_LAUNCHED, REACHED = LAUNCHED | TRACE_REACHED };

static const struct {
	uint32_t stream;
	bool receives;
	const char *clause;
} cases[] = {
	{TRACE_ON_STREAM, false, ", which is being enqueued on its stream"},
	{LAUNCHED, false, ", to which its stream has not come yet"},
	{LAUNCHED, true, ", on a stream"}, /* it gives nothing to the stream */
	{REACHED, false, ", on a stream"},
	{REACHED | TRACE_ARRIVED, false, ", whose result its stream has not taken yet"},
	{0, false, ""},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* The report of a job whose rank 0 waits for rank 1. */
static void report(struct diagnose_snapshot *snapshot, char *text, size_t bytes)
{
	struct diagnose_verdict verdict = test_judge(snapshot, NULL);
	diagnose_text(snapshot, &verdict, text, bytes);
	free(snapshot);
}

static void expect_begin(const char *text, const char *begin)
{
	if (strncmp(text, begin, strlen(begin)) != 0)
		fail_msg("it does not begin with '%s': %s", begin, text);
}

static void expect_part(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in: %s", part, text);
}

static struct trace_record operation(size_t i)
{
	struct trace_record op =
		cases[i].receives ? test_point(TRACE_RECV, 0, 7) : test_allreduce(58);
	op.stream = cases[i].stream;
	return op;
}

/* A rank that the others wait for: in the first line, and in its own. */
static void a_late_rank(void **state)
{
	(void)state;
	for (size_t i = 0; i < CASES; i++) {
		struct diagnose_snapshot *snapshot = test_absent(2, test_bit(1));
		char text[DIAGNOSE_TEXT_BYTES], want[512];
		bool receives = cases[i].receives;
		test_call(snapshot, 1, operation(i), 2, "train.c:9");
		report(snapshot, text, sizeof text);
		snprintf(want, sizeof want,
			 "rank 1 is elsewhere (busy in %s%s, called from train.c:9; it is sleeping "
			 "in a system call) while rank 0 waits in all-reduce #58 for 2.0 s",
			 receives ? "receive #1 from rank 0 (tag 7)" : "all-reduce #58",
			 cases[i].clause);
		expect_begin(text, want);
		snprintf(want, sizeof want,
			 "\n  rank 1: elsewhere, in %s%s, for 2.0 s, called from train.c:9 (pid 101;",
			 receives ? "receive #1 of 1000 float32 from rank 0 (tag 7)"
				  : "all-reduce #58 of 1000 float32, sum",
			 cases[i].clause);
		expect_part(text, want);
	}
}

/* A rank that waits: its stream may be why it comes no further. */
static void a_waiting_rank(void **state)
{
	(void)state;
	for (size_t i = 0; i < CASES; i++) {
		char text[DIAGNOSE_TEXT_BYTES], want[512];
		if (cases[i].receives)
			continue;
		struct diagnose_snapshot *snapshot = test_absent(2, test_bit(1));
		snapshot->ranks[0].records[0].record.stream = cases[i].stream;
		snapshot->ranks[1].process = DIAGNOSE_PROCESS_STOPPED;
		report(snapshot, text, sizeof text);
		snprintf(want, sizeof want,
			 "\n  rank 0: waiting, in all-reduce #58 of 1000 float32, sum%s, for 2.0 s,",
			 cases[i].clause);
		expect_part(text, want);
	}
}

/* A report names no stream for an operation that has ended. */
static void one_that_has_ended(void **state)
{
	(void)state;
	for (size_t i = 0; i < CASES; i++) {
		char text[DIAGNOSE_TEXT_BYTES];
		if (cases[i].receives) /* a report says what collective was the last */
			continue;
		struct diagnose_snapshot *snapshot = test_absent(2, test_bit(1));
		test_done(snapshot, 1, operation(i), 1, "train.c:9");
		report(snapshot, text, sizeof text);
		expect_part(text, "its last operation was ");
		expect_part(text, "finished 1.0 s ago, called from train.c:9");
		assert_null(strstr(text, "stream"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_late_rank),
		cmocka_unit_test(a_waiting_rank),
		cmocka_unit_test(one_that_has_ended),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
