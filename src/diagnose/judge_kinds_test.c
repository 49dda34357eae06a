/* SPDX-License-Identifier: BSD-3-Clause
 * Mismatches of every kind of collective: which fields count for which, counts for each rank, and
 * two ranks of an all-to-allv that do not expect the same of each other. */
#include "diagnose/snapshot_fixture.h"

/* Number 12, as the many call it; what rank 1 calls differs in one field. */
static struct trace_record call_of(uint16_t kind)
{
	return (struct trace_record){.kind = kind,
				     .seq = 12,
				     .count = 1000,
				     .shape = 77,
				     .dtype = LS_FLOAT32,
				     .reduce_op = LS_SUM,
				     .peer = 0};
}

static struct diagnose_snapshot *snapshot_of(int size, struct trace_record many,
					     struct trace_record one)
{
	struct diagnose_snapshot *snapshot = test_snapshot(size);
	for (int r = 0; r < size; r++)
		test_call(snapshot, r, r == 1 ? one : many, 2, r == 1 ? "b.c:20" : "a.c:10");
	return snapshot;
}

static void every_kind_every_field(void **state)
{
	(void)state;
	for (uint16_t kind = TRACE_NONE + 1; kind < TRACE_KIND_COUNT; kind++) {
		struct trace_kind_facts facts = trace_kind_facts(kind);
		for (int field = 0; field < 5; field++) {
			struct trace_record one = call_of(kind);
			uint32_t want = 0;
			if (!facts.collective)
				continue;
			switch (field) {
			case 0:
				one.count++;
				want = facts.typed && !facts.own_counts ? DIAGNOSE_COUNT : 0;
				break;
			case 1:
				one.shape++;
				want = facts.per_rank && !facts.own_counts ? DIAGNOSE_COUNT : 0;
				break;
			case 2:
				one.dtype++;
				want = facts.typed ? DIAGNOSE_DTYPE : 0;
				break;
			case 3:
				one.reduce_op++;
				want = facts.reduces ? DIAGNOSE_REDUCE : 0;
				break;
			default:
				one.peer++;
				want = facts.rooted ? DIAGNOSE_ROOT : 0;
				break;
			}
			struct diagnose_snapshot *snapshot = snapshot_of(3, call_of(kind), one);
			struct diagnose_verdict got = test_judge(snapshot, NULL);
			assert_int_equal(got.cause, want ? DIAGNOSE_MISMATCH : DIAGNOSE_HEALTHY);
			assert_int_equal(got.fields, want);
			assert_int_equal(got.culprit, want ? 1 : -1);
			free(snapshot);
		}
	}
}

static void check_headline(struct diagnose_snapshot *snapshot, const struct diagnose_hint *hint,
			   const char *want)
{
	char text[512];
	struct diagnose_verdict got = test_judge(snapshot, hint);
	diagnose_headline(snapshot, &got, text, sizeof text);
	assert_string_equal(text, want);
	free(snapshot);
}

static void words_of_new_fields(void **state)
{
	(void)state;
	struct trace_record many = call_of(TRACE_ALLGATHERV), one = many;
	one.shape++;
	check_headline(snapshot_of(4, many, one), NULL,
		       "rank 1 called all-gatherv #12 with other counts per rank (1000 in all) where "
		       "ranks 0, 2 and 3 have 1000 in all, called from b.c:20 (rank 1) and a.c:10");
	one.count = 999;
	check_headline(snapshot_of(2, many, one), NULL,
		       "ranks 0 and 1 called all-gatherv #12 with different counts per rank: rank 0 "
		       "has 1000 in all, rank 1 has 999 in all, called from a.c:10 (rank 0) and "
		       "b.c:20 (rank 1)");
	many = one = call_of(TRACE_REDUCE);
	one.peer = 1;
	one.reduce_op = LS_BXOR;
	check_headline(snapshot_of(4, many, one), NULL,
		       "rank 1 called reduce #12 with reduce op bxor and root 1 where ranks 0, 2 and "
		       "3 have sum and 0, called from b.c:20 (rank 1) and a.c:10");
	many = one = call_of(TRACE_REDUCE_SCATTER);
	one.count = 999;
	one.dtype = LS_COMPLEX64;
	check_headline(snapshot_of(4, many, one), NULL,
		       "rank 1 called reduce-scatter #12 with count 999 and dtype complex64 where "
		       "ranks 0, 2 and 3 have 1000 and float32, called from b.c:20 (rank 1) and "
		       "a.c:10");
}

/* The lines of the ranks name what an operation has. */
static void words_of_the_lines(void **state)
{
	(void)state;
	static const struct {
		uint16_t kind;
		const char *text;
	} cases[] = {
		{TRACE_REDUCE, "in reduce #12 of 1000 float32, sum, root 0"},
		{TRACE_GATHERV, "in gatherv #12 of 1000 float32, root 0"},
		{TRACE_REDUCE_SCATTERV, "in reduce-scatterv #12 of 1000 float32, sum,"},
		{TRACE_ALLTOALL, "in all-to-all #12 of 1000 float32,"},
		{TRACE_BARRIER, "in barrier #12,"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct trace_record many = call_of(cases[i].kind), one = many;
		char text[DIAGNOSE_TEXT_BYTES];
		one.kind = TRACE_BROADCAST;
		struct diagnose_snapshot *snapshot = snapshot_of(3, many, one);
		struct diagnose_verdict got = test_judge(snapshot, NULL);
		diagnose_text(snapshot, &got, text, sizeof text);
		assert_non_null(strstr(text, cases[i].text));
		free(snapshot);
	}
}

/* ---- all-to-allv ---- */

static struct diagnose_snapshot *exchange_of(int size)
{
	struct diagnose_snapshot *snapshot = test_snapshot(size);
	for (int r = 0; r < size; r++) {
		struct trace_record op = call_of(TRACE_ALLTOALLV);
		op.count = 100 + (uint64_t)r; /* each has its own */
		op.shape = (uint64_t)r;
		op.peer = -1;
		test_call(snapshot, r, op, 2, r == 2 ? "b.c:20" : "a.c:10");
		test_wait(snapshot, r, test_all(size) & ~test_bit(r));
	}
	return snapshot;
}

static const struct diagnose_hint expected_other = {.status = LS_MISMATCH,
						    .rank = 0,
						    .peer = 2,
						    .group = TEST_GROUP,
						    .seq = 12,
						    .sent = 10,
						    .expected = 12};

static void two_ranks_of_an_exchange(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = exchange_of(4);
	struct diagnose_verdict got = test_judge(snapshot, &expected_other);
	assert_int_equal(got.cause, DIAGNOSE_MISMATCH);
	assert_int_equal(got.fields, DIAGNOSE_COUNT | DIAGNOSE_EXCHANGE);
	assert_int_equal(test_bits(got.culprits), test_bit(0) | test_bit(2));
	assert_int_equal(test_bits(got.waiting), test_bit(1) | test_bit(3));
	assert_int_equal(got.culprit, -1); /* either may be right */
	assert_int_equal(got.seq, 12);
	assert_true(got.from == 2 && got.to == 0 && got.sent == 10 && got.expected == 12);
	char text[DIAGNOSE_TEXT_BYTES];
	diagnose_text(snapshot, &got, text, sizeof text);
	assert_non_null(strstr(text, "send_counts"));
	free(snapshot);
	check_headline(exchange_of(4), &expected_other,
		       "rank 2 sends 10 elements to rank 0 in all-to-allv #12, where rank 0 expects "
		       "12, called from b.c:20 (rank 2) and a.c:10 (rank 0)");
	/* Its record is lost. */
	snapshot = exchange_of(3);
	snapshot->ranks[2].record_count = 0;
	check_headline(snapshot, &expected_other,
		       "rank 2 sends 10 elements to rank 0 in all-to-allv #12, where rank 0 expects "
		       "12, called from a.c:10");
	struct diagnose_hint one = expected_other;
	one.sent = 1;
	one.expected = 0;
	check_headline(exchange_of(4), &one,
		       "rank 2 sends 1 element to rank 0 in all-to-allv #12, where rank 0 expects 0, "
		       "called from b.c:20 (rank 2) and a.c:10 (rank 0)");
}

/* The records count more than a hint that contradicts them, and a hint that names an impossible
 * rank is ignored. */
static void hints_that_do_not_fit(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = exchange_of(3);
	snapshot->ranks[1].records[0].record.dtype = LS_INT8;
	struct diagnose_verdict got = test_judge(snapshot, &expected_other);
	assert_int_equal(got.fields, DIAGNOSE_DTYPE);
	free(snapshot);
	struct diagnose_hint strange = expected_other;
	strange.peer = 9;
	snapshot = exchange_of(3);
	got = test_judge(snapshot, &strange);
	assert_int_equal(got.cause, DIAGNOSE_MISMATCH);
	assert_int_equal(got.fields, 0);
	free(snapshot);
	/* Nobody differs, and nobody says so. */
	snapshot = exchange_of(3);
	for (int r = 0; r < 3; r++)
		snapshot->ranks[r].threads[0].satisfied = UINT64_MAX;
	got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_HEALTHY);
	assert_true(got.from == -1 && got.to == -1);
	free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_every_field),
		cmocka_unit_test(words_of_new_fields),
		cmocka_unit_test(words_of_the_lines),
		cmocka_unit_test(two_ranks_of_an_exchange),
		cmocka_unit_test(hints_that_do_not_fit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
