/* SPDX-License-Identifier: BSD-3-Clause
 * For tests of operations that stand behind others on a stream, on live memory. On each of ranks 0
 * and 1 a stream has a collective of FRONT in front of one of BEHIND, and they disagree which group
 * that is; so they can never go on. Then one thing after the other is different, with which they
 * can. */
#ifndef DIAGNOSE_BEHIND_FIXTURE_H
#define DIAGNOSE_BEHIND_FIXTURE_H

#include "diagnose/collect_fixture.h"

enum {
	ONE = 5, /* two groups of ranks 0 and 1 */
	TWO = 6,
	CLAIM = 8, /* words of the segment of rank 0, and one more for the second group */
	CAUSE = 10,
	LAUNCHED = TRACE_ON_STREAM | TRACE_LAUNCHED,
	REACHED = LAUNCHED | TRACE_REACHED,
	ARRIVED = LAUNCHED | TRACE_ARRIVED,
};

struct stream_fixture {
	struct collect_fixture *collect;
	uint64_t front[2], behind[2]; /* records of ranks 0 and 1 */
};

FIXTURE_UNUSED static uint64_t add_collective(struct collect_fixture *fixture, int r,
					      uint32_t group, uint32_t steps)
{
	struct trace_begin begin = {.kind = TRACE_ALLREDUCE,
				    .group = group,
				    .seq = 1,
				    .peer = -1,
				    .stream = TRACE_ON_STREAM};
	uint64_t record = trace_begin(&fixture->traces[r], &begin);
	trace_stream(&fixture->traces[r], record, (enum trace_stream)steps);
	return record;
}

/* Rank r waits until the other rank has stored word r of r's segment. */
FIXTURE_UNUSED static struct wait_slot_body wait_in(const struct stream_fixture *fixture, int r)
{
	struct wait_slot_body body = wait_for(r, !r);
	body.group = r == 0 ? ONE : TWO;
	body.record = fixture->front[r];
	return body;
}

/* And for the device to come to the operation behind it. */
FIXTURE_UNUSED static struct wait_slot_body wait_for_device(const struct stream_fixture *fixture,
							    int r)
{
	return (struct wait_slot_body){.state = WAIT_ANY_WORD,
				       .tid = 2,
				       .group = r == 0 ? TWO : ONE,
				       .record = fixture->behind[r],
				       .edge_count = 2,
				       .edges = {{.value = 1,
						  .offset = fixture->behind[r],
						  .owner = -1,
						  .peer = -1,
						  .segment = WAIT_SEGMENT_DEVICE},
						 {.value = 1,
						  .offset = WAIT_DEVICE_BROKEN,
						  .owner = -1,
						  .peer = -1,
						  .segment = WAIT_SEGMENT_DEVICE}}};
}

FIXTURE_UNUSED static void publish_both(struct stream_fixture *fixture)
{
	for (int r = 0; r < 2; r++) {
		struct wait_slot_body front = wait_in(fixture, r);
		struct wait_slot_body behind = wait_for_device(fixture, r);
		publish(fixture->collect, r, 0, &front);
		publish(fixture->collect, r, 1, &behind);
	}
}

FIXTURE_UNUSED static void join_groups(struct collect_fixture *fixture, int r)
{
	static const uint32_t ids[] = {GROUP, ONE, TWO};
	uint16_t members[SIZE] = {0, 1, 2};
	for (int i = 0; i < 3; i++) {
		struct trace_membership membership = {.id = ids[i],
						      .size = i == 0 ? SIZE : 2,
						      .rank = r,
						      .claim_offset = CLAIM * 8,
						      .cause_offset = (CAUSE + (uint64_t)i) * 8,
						      .members = members};
		if (r < (i == 0 ? SIZE : 2))
			trace_group_fill(&fixture->traces[r], i, &membership);
	}
}

FIXTURE_UNUSED static int set_up_streams(void **state)
{
	struct stream_fixture *fixture = calloc(1, sizeof *fixture);
	assert_non_null(fixture);
	assert_int_equal(set_up((void **)&fixture->collect), 0);
	for (int r = 0; r < SIZE; r++)
		join_groups(fixture->collect, r);
	for (int r = 0; r < 2; r++) {
		struct trace *trace = &fixture->collect->traces[r];
		fixture->front[r] = add_collective(fixture->collect, r, r == 0 ? ONE : TWO, REACHED);
		fixture->behind[r] =
			add_collective(fixture->collect, r, r == 0 ? TWO : ONE, LAUNCHED);
		trace_behind(trace, fixture->behind[r], fixture->front[r], 0);
	}
	publish_both(fixture);
	*state = fixture;
	return 0;
}

FIXTURE_UNUSED static int tear_down_streams(void **state)
{
	struct stream_fixture *fixture = *state;
	void *collect_state = fixture->collect;
	tear_down(&collect_state);
	free(fixture);
	return 0;
}

FIXTURE_UNUSED static bool is_deadlock(const struct stream_fixture *fixture)
{
	struct diagnose_verdict verdict;
	collect(fixture->collect, 0);
	diagnose_judge(fixture->collect->snapshot, NULL, &verdict);
	return verdict.cause == DIAGNOSE_DEADLOCK && test_bits(verdict.culprits) == 3;
}

/* The ranks that can never go on, as bits. */
FIXTURE_UNUSED static uint64_t deadlocked(const struct stream_fixture *fixture)
{
	collect(fixture->collect, 0);
	return test_bits(diagnose_find_stuck(fixture->collect->snapshot));
}

#define ON_STREAMS(test) cmocka_unit_test_setup_teardown(test, set_up_streams, tear_down_streams)

#endif
