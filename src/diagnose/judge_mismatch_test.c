/* SPDX-License-Identifier: BSD-3-Clause
 * Mismatches: every field, every number of ranks, which rank is blamed and when none is, and the
 * exact words of each. */
#include "diagnose/snapshot_fixture.h"

static const int sizes[] = {2, 3, 4, 5, 64};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static struct trace_record with_count(uint64_t seq)
{
	struct trace_record op = test_allreduce(seq);
	op.count = 999;
	return op;
}
static struct trace_record with_dtype(uint64_t seq)
{
	struct trace_record op = test_allreduce(seq);
	op.dtype = LS_FLOAT64;
	return op;
}
static struct trace_record with_reduce(uint64_t seq)
{
	struct trace_record op = test_allreduce(seq);
	op.reduce_op = LS_MIN;
	return op;
}
static struct trace_record root_0(uint64_t seq)
{
	return test_broadcast(seq, 0);
}
static struct trace_record root_1(uint64_t seq)
{
	return test_broadcast(seq, 1);
}

/* What all ranks but 1 call, what rank 1 calls, and the headline with four ranks and with two. */
static const struct {
	struct trace_record (*many)(uint64_t seq), (*one)(uint64_t seq);
	uint32_t fields;
	const char *four, *two;
} table[] = {
	{test_allreduce, with_count, DIAGNOSE_COUNT,
	 "rank 1 called all-reduce #12 with count 999 where ranks 0, 2 and 3 have 1000, called from "
	 "b.c:20 (rank 1) and a.c:10",
	 "ranks 0 and 1 called all-reduce #12 with different counts: rank 0 has 1000, rank 1 has "
	 "999, called from a.c:10 (rank 0) and b.c:20 (rank 1)"},
	{test_allreduce, with_dtype, DIAGNOSE_DTYPE,
	 "rank 1 called all-reduce #12 with dtype float64 where ranks 0, 2 and 3 have float32, "
	 "called from b.c:20 (rank 1) and a.c:10",
	 "ranks 0 and 1 called all-reduce #12 with different dtypes: rank 0 has float32, rank 1 has "
	 "float64, called from a.c:10 (rank 0) and b.c:20 (rank 1)"},
	{test_allreduce, with_reduce, DIAGNOSE_REDUCE,
	 "rank 1 called all-reduce #12 with reduce op min where ranks 0, 2 and 3 have sum, called "
	 "from b.c:20 (rank 1) and a.c:10",
	 "ranks 0 and 1 called all-reduce #12 with different reduce ops: rank 0 has sum, rank 1 has "
	 "min, called from a.c:10 (rank 0) and b.c:20 (rank 1)"},
	{root_0, root_1, DIAGNOSE_ROOT,
	 "rank 1 called broadcast #12 with root 1 where ranks 0, 2 and 3 have 0, called from b.c:20 "
	 "(rank 1) and a.c:10",
	 "ranks 0 and 1 called broadcast #12 with different roots: rank 0 has 0, rank 1 has 1, "
	 "called from a.c:10 (rank 0) and b.c:20 (rank 1)"},
	{test_allreduce, root_1, DIAGNOSE_KIND,
	 "rank 1 called broadcast #12 where ranks 0, 2 and 3 called all-reduce #12, called from "
	 "b.c:20 (rank 1) and a.c:10",
	 "ranks 0 and 1 called different operations as #12: rank 0 all-reduce, rank 1 broadcast, "
	 "called from a.c:10 (rank 0) and b.c:20 (rank 1)"},
	{test_barrier, test_allreduce, DIAGNOSE_KIND,
	 "rank 1 called all-reduce #12 where ranks 0, 2 and 3 called barrier #12, called from b.c:20 "
	 "(rank 1) and a.c:10",
	 "ranks 0 and 1 called different operations as #12: rank 0 barrier, rank 1 all-reduce, "
	 "called from a.c:10 (rank 0) and b.c:20 (rank 1)"},
};

static struct diagnose_snapshot *snapshot_of(int size, size_t i)
{
	struct diagnose_snapshot *snapshot = test_snapshot(size);
	for (int r = 0; r < size; r++) {
		bool one = r == 1;
		test_done(snapshot, r, test_allreduce(11), 3, "a.c:10");
		test_call(snapshot, r, one ? table[i].one(12) : table[i].many(12), 2,
			  one ? "b.c:20" : "a.c:10");
	}
	return snapshot;
}

static void check_headline(const struct diagnose_snapshot *snapshot,
			   const struct diagnose_verdict *verdict, const char *want)
{
	char text[512];
	diagnose_headline(snapshot, verdict, text, sizeof text);
	assert_string_equal(text, want);
}

static void every_field_every_size(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		for (size_t s = 0; s < SIZES; s++) {
			int size = sizes[s];
			struct diagnose_snapshot *snapshot = snapshot_of(size, i);
			struct diagnose_verdict got = test_judge(snapshot, NULL);
			assert_int_equal(got.cause, DIAGNOSE_MISMATCH);
			assert_int_equal(got.status, LS_MISMATCH);
			assert_int_equal(got.fields, table[i].fields);
			assert_int_equal(got.seq, 12);
			assert_int_equal(got.group, TEST_GROUP);
			assert_int_equal(got.culprit, size == 2 ? -1 : 1);
			assert_int_equal(test_bits(got.culprits), size == 2 ? 3 : test_bit(1));
			assert_int_equal(test_bits(got.waiting),
					 test_all(size) & ~test_bits(got.culprits));
			if (size == 4)
				check_headline(snapshot, &got, table[i].four);
			if (size == 2)
				check_headline(snapshot, &got, table[i].two);
			free(snapshot);
		}
}

/* Fields that an operation does not have may hold anything. */
static void fields_that_do_not_count(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	for (int r = 0; r < 3; r++) {
		struct trace_record barrier = test_barrier(1), broadcast = test_broadcast(2, 1);
		struct trace_record allreduce = test_allreduce(3);
		barrier.count = (uint64_t)r;
		barrier.dtype = (uint8_t)r;
		barrier.reduce_op = (uint8_t)r;
		barrier.peer = r;
		broadcast.reduce_op = (uint8_t)r;
		allreduce.peer = r;
		allreduce.tag = broadcast.tag = r;
		test_done(snapshot, r, barrier, 3, "a.c:1");
		test_done(snapshot, r, broadcast, 2, "a.c:2");
		test_done(snapshot, r, allreduce, 1, "a.c:3");
		/* Sends and receives are numbered by themselves. */
		test_done(snapshot, r, test_point(TRACE_SEND, (r + 1) % 3, r), 1, "a.c:4");
	}
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_HEALTHY);
	free(snapshot);
}

static void the_earliest_counts(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(4);
	for (int r = 0; r < 4; r++) {
		test_done(snapshot, r, test_allreduce(5), 5, "a.c:5");
		test_done(snapshot, r, r == 2 ? with_dtype(6) : test_allreduce(6), 4, "a.c:6");
		test_call(snapshot, r, r == 1 ? with_count(7) : test_allreduce(7), 3, "a.c:7");
	}
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.seq, 6);
	assert_int_equal(got.culprit, 2);
	assert_int_equal(got.fields, DIAGNOSE_DTYPE);
	free(snapshot);
	snapshot = test_snapshot(4); /* also when a later one is found later */
	for (int r = 0; r < 4; r++) {
		test_done(snapshot, r, r == 0 ? with_dtype(6) : test_allreduce(6), 4, "a.c:6");
		test_call(snapshot, r, r == 3 ? with_count(7) : test_allreduce(7), 3, "a.c:7");
	}
	got = test_judge(snapshot, NULL);
	assert_int_equal(got.seq, 6);
	assert_int_equal(got.culprit, 0);
	free(snapshot);
}

/* Other groups number for themselves. */
static void groups_apart(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(2);
	test_call(snapshot, 0, test_allreduce(1), 1, "a.c:1");
	test_call(snapshot, 1, with_count(1), 1, "a.c:1")->record.group = 2;
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_HEALTHY);
	free(snapshot);
}

/* Ranks that are not there yet, or whose record is lost, are no party. */
static void some_have_not_come(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(5);
	test_call(snapshot, 1, test_allreduce(12), 1, "a.c:1");
	test_call(snapshot, 2, with_count(12), 1, "a.c:1");
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(test_bits(got.culprits), 6);
	assert_int_equal(got.culprit, -1);
	test_call(snapshot, 4, test_allreduce(12), 1, "a.c:1");
	got = test_judge(snapshot, NULL);
	assert_int_equal(test_bits(got.culprits), 4);
	assert_int_equal(got.culprit, 2);
	assert_int_equal(test_bits(got.waiting), test_bit(1) | test_bit(4));
	check_headline(snapshot, &got,
		       "rank 2 called all-reduce #12 with count 999 where ranks 1 and 4 have 1000, "
		       "called from a.c:1");
	free(snapshot);
}

static void ties_and_several_minorities(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(4);
	for (int r = 0; r < 4; r++)
		test_call(snapshot, r, r < 2 ? test_allreduce(12) : with_count(12), 1, "a.c:1");
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(test_bits(got.culprits), 15);
	assert_int_equal(got.culprit, -1);
	assert_int_equal(test_bits(got.waiting), 0);
	check_headline(snapshot, &got,
		       "ranks 0-3 called all-reduce #12 with different counts: ranks 0 and 1 have "
		       "1000, ranks 2 and 3 have 999, called from a.c:1");
	free(snapshot);

	snapshot = test_snapshot(5);
	for (int r = 0; r < 5; r++)
		test_call(snapshot, r,
			  r == 1   ? with_count(12)
			  : r == 3 ? with_dtype(12)
				   : test_allreduce(12),
			  1, "a.c:1");
	got = test_judge(snapshot, NULL);
	assert_int_equal(test_bits(got.culprits), test_bit(1) | test_bit(3));
	assert_int_equal(got.fields, DIAGNOSE_COUNT | DIAGNOSE_DTYPE);
	assert_int_equal(got.culprit, -1);
	check_headline(snapshot, &got,
		       "ranks 0-4 called all-reduce #12 with different arguments: ranks 0, 2 and 4 "
		       "have 1000 and float32, rank 1 has 999 and float32, rank 3 has 1000 and "
		       "float64, called from a.c:1");
	free(snapshot);
}

static void two_fields_at_once(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	for (int r = 0; r < 3; r++) {
		struct trace_record op = r == 2 ? with_count(12) : test_allreduce(12);
		if (r == 2)
			op.reduce_op = LS_PRODUCT;
		test_call(snapshot, r, op, 1, "");
	}
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.fields, DIAGNOSE_COUNT | DIAGNOSE_REDUCE);
	check_headline(snapshot, &got,
		       "rank 2 called all-reduce #12 with count 999 and reduce op product where "
		       "ranks 0 and 1 have 1000 and sum");
	free(snapshot);
}

static void mismatch_goes_before_all_else(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = snapshot_of(4, 0);
	snapshot->ranks[3].process = DIAGNOSE_PROCESS_DEAD;
	for (int r = 0; r < 3; r++)
		test_wait(snapshot, r, test_bit(3));
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_MISMATCH);
	assert_int_equal(got.since_ns, test_now - 2 * test_second);
	free(snapshot);
}

/* ---- with a hint ---- */

/* Rank 0 has sent, which is its record *send, and rank 1 receives 999 with the same tag. */
static struct diagnose_snapshot *pair_of(uint64_t send_count, uint64_t *send)
{
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	struct trace_record sent = test_point(TRACE_SEND, 1, 7), recv = test_point(TRACE_RECV, 0, 7);
	sent.count = send_count;
	recv.count = 999;
	recv.seq = 4;
	*send = test_done(snapshot, 0, sent, 1, "a.c:1")->record.index; /* it was buffered */
	test_call(snapshot, 1, recv, 1, "b.c:2");
	return snapshot;
}

static struct diagnose_hint hint_of_pair(ls_status status, uint64_t sent, uint64_t record)
{
	return (struct diagnose_hint){.status = status,
				      .rank = 1,
				      .peer = 0,
				      .group = TEST_GROUP,
				      .seq = 4,
				      .sent = sent,
				      .expected = 999,
				      .matched = {.known = true,
						  .tag = 7,
						  .sent_dtype = LS_FLOAT32,
						  .expected_dtype = LS_FLOAT32,
						  .record = record}};
}

static void send_and_receive(void **state)
{
	(void)state;
	uint64_t send;
	struct diagnose_snapshot *snapshot = pair_of(998, &send);
	struct diagnose_hint hint = hint_of_pair(LS_MISMATCH, 998, send);
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	assert_int_equal(got.cause, DIAGNOSE_MISMATCH);
	assert_int_equal(got.fields, DIAGNOSE_COUNT | DIAGNOSE_PAIR);
	assert_int_equal(test_bits(got.culprits), 3);
	assert_int_equal(got.culprit, -1);
	assert_int_equal(got.seq, 4);
	check_headline(snapshot, &got,
		       "rank 0 sends 998 float32 to rank 1 with tag 7 where rank 1 receives 999 "
		       "float32, called from a.c:1 (rank 0) and b.c:2 (rank 1)");
	/* Others that look more like it are not meant. */
	struct trace_record later = test_point(TRACE_SEND, 1, 7);
	later.count = 600;
	later.seq = 4;
	test_call(snapshot, 0, later, 1, "a.c:9");
	check_headline(snapshot, &got,
		       "rank 0 sends 998 float32 to rank 1 with tag 7 where rank 1 receives 999 "
		       "float32, called from a.c:1 (rank 0) and b.c:2 (rank 1)");
	/* Without a hint nobody knows that these two matched. */
	got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_HEALTHY);
	free(snapshot);
}

static void message_too_long(void **state)
{
	(void)state;
	uint64_t send;
	struct diagnose_snapshot *snapshot = pair_of(1000, &send);
	struct diagnose_hint hint = hint_of_pair(LS_TRUNCATED, 1000, send);
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	assert_int_equal(got.cause, DIAGNOSE_MISMATCH);
	assert_int_equal(got.status, LS_TRUNCATED);
	check_headline(snapshot, &got,
		       "rank 0 sends 1000 float32 to rank 1 with tag 7, longer than the receive "
		       "buffer: rank 1 receives 999 float32, called from a.c:1 (rank 0) "
		       "and b.c:2 (rank 1)");
	free(snapshot);
}

/* The index of the hint leads to another operation than the send: in each case one property
 * differs. */
static void send_that_is_not_on_record(void **state)
{
	(void)state;
	static const char want[] =
		"rank 0 sends 998 float32 to rank 1 with tag 7 where rank 1 receives 999 float32, "
		"called from b.c:2 (rank 1); the send is not on record";
	for (int i = 0; i < 8; i++) {
		uint64_t send;
		struct diagnose_snapshot *snapshot = pair_of(998, &send);
		struct trace_record *record = &snapshot->ranks[0].records[0].record;
		struct diagnose_hint hint = hint_of_pair(LS_MISMATCH, 998, i == 0 ? 0 : send);
		record->kind = i == 1 ? TRACE_RECV : TRACE_SEND;
		record->tag += i == 2;
		record->count += i == 3;
		record->dtype = i == 4 ? LS_INT32 : LS_FLOAT32;
		record->peer += i == 5;
		record->group += i == 6;
		hint.matched.record += i == 7;
		struct diagnose_verdict got = test_judge(snapshot, &hint);
		assert_int_equal(test_bits(got.culprits), 3);
		check_headline(snapshot, &got, want);
		free(snapshot);
	}
}

/* The collectives of both ranks differ too, or seem to; the verdict names the message, because that
 * is what failed. */
static void message_beside_collectives(void **state)
{
	(void)state;
	uint64_t send;
	struct diagnose_snapshot *snapshot = pair_of(998, &send);
	struct diagnose_hint hint = hint_of_pair(LS_MISMATCH, 998, 0);
	test_call(snapshot, 0, test_barrier(4), 1, "a.c:3");
	test_call(snapshot, 2, test_allreduce(4), 1, "c.c:3");
	hint.matched.sent_dtype = 200; /* a peer may say anything */
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	assert_int_equal(got.fields, DIAGNOSE_COUNT | DIAGNOSE_DTYPE | DIAGNOSE_PAIR);
	assert_int_equal(test_bits(got.culprits), 3);
	snapshot->ranks[1].record_count = 0; /* the receive is not on record either */
	check_headline(snapshot, &got,
		       "rank 0 sends 998 ? to rank 1 with tag 7 where rank 1 receives 999 "
		       "float32; the send and the receive are not on record");
	free(snapshot);
}

static void hint_that_the_records_do_not_show(void **state)
{
	(void)state;
	struct diagnose_hint hint = {
		.status = LS_MISMATCH, .rank = 1, .peer = 0, .group = TEST_GROUP, .seq = 4};
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	assert_int_equal(got.cause, DIAGNOSE_MISMATCH);
	assert_int_equal(test_bits(got.culprits), 3);
	assert_int_equal(got.culprit, -1);
	check_headline(snapshot, &got, "ranks 0 and 1 called different operations as #4");
	free(snapshot);
	hint.peer = -1; /* rank 1 is not to blame for having seen it */
	snapshot = test_snapshot(3);
	got = test_judge(snapshot, &hint);
	assert_int_equal(test_bits(got.culprits), 0);
	assert_int_equal(got.culprit, -1);
	check_headline(snapshot, &got, "ranks called different operations as #4");
	free(snapshot);
}

/* A collective's hint whose number is also that of a send. */
static void hint_of_a_collective(void **state)
{
	(void)state;
	struct diagnose_hint hint = {
		.status = LS_MISMATCH, .rank = 0, .peer = 1, .group = TEST_GROUP, .seq = 12};
	struct diagnose_snapshot *snapshot = snapshot_of(4, 0);
	struct trace_record send = test_point(TRACE_SEND, 1, 7);
	send.seq = 12;
	test_call(snapshot, 0, send, 1, "c.c:3");
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	check_headline(snapshot, &got, table[0].four);
	assert_int_equal(got.culprit, 1);
	hint.seq = 13; /* the rank that saw it was ahead */
	test_call(snapshot, 0, test_allreduce(13), 1, "a.c:10");
	got = test_judge(snapshot, &hint);
	assert_int_equal(got.seq, 12);
	free(snapshot);
}

/* The call runs into its time limit, and the reason turns out to be a mismatch. */
static void timed_out_on_a_mismatch(void **state)
{
	(void)state;
	struct diagnose_hint hint = {
		.status = LS_TIMED_OUT, .rank = 0, .peer = -1, .group = TEST_GROUP, .seq = 12};
	struct diagnose_snapshot *snapshot = snapshot_of(4, 0);
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	char want[300];
	assert_int_equal(got.status, LS_TIMED_OUT);
	assert_int_equal(got.cause, DIAGNOSE_MISMATCH);
	snprintf(want, sizeof want, "rank 0 timed out in all-reduce #12: %s", table[0].four);
	check_headline(snapshot, &got, want);
	free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_field_every_size),
		cmocka_unit_test(fields_that_do_not_count),
		cmocka_unit_test(the_earliest_counts),
		cmocka_unit_test(groups_apart),
		cmocka_unit_test(some_have_not_come),
		cmocka_unit_test(ties_and_several_minorities),
		cmocka_unit_test(two_fields_at_once),
		cmocka_unit_test(mismatch_goes_before_all_else),
		cmocka_unit_test(send_and_receive),
		cmocka_unit_test(message_too_long),
		cmocka_unit_test(send_that_is_not_on_record),
		cmocka_unit_test(message_beside_collectives),
		cmocka_unit_test(hint_that_the_records_do_not_show),
		cmocka_unit_test(hint_of_a_collective),
		cmocka_unit_test(timed_out_on_a_mismatch),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
