/* SPDX-License-Identifier: BSD-3-Clause
 * Operations that end by themselves outside the waits of a rank: three ranks wait for each other in
 * a ring, and rank 0 has other operations under way. */
#include "diagnose/collect_fixture.h"

enum { OTHER = 7, CLAIM = 8, CAUSE = 9 }; /* a group, and words of the segment of rank 0 */

/* The group that is waited in, and another one. */
static void publish_groups(struct collect_fixture *fixture)
{
	uint16_t members[SIZE] = {0, 1, 2};
	publish_ring(fixture);
	for (int r = 0; r < SIZE; r++) {
		struct trace_membership membership = {.id = GROUP,
						      .size = SIZE,
						      .rank = r,
						      .claim_offset = CLAIM * 8,
						      .cause_offset = CAUSE * 8,
						      .members = members};
		trace_group_fill(&fixture->traces[r], 0, &membership);
		membership.id = OTHER;
		trace_group_fill(&fixture->traces[r], 1, &membership);
	}
}

static void none_or_some(void **state)
{
	struct collect_fixture *fixture = *state;
	struct trace_group *other;
	publish_groups(fixture);
	other = &fixture->traces[0].groups[1];
	assert_false(collect(fixture, 0)->has_callbacks);
	assert_false(collect(fixture, 0)->calls_back);
	atomic_store(&other->callbacks, 1);
	assert_true(collect(fixture, 0)->has_callbacks);
	assert_false(collect(fixture, 0)->calls_back);
	assert_false(fixture->snapshot->ranks[1].has_callbacks);
	/* Of a group that is closed nothing is under way. */
	atomic_store(&other->id, 0);
	assert_false(collect(fixture, 0)->has_callbacks);
}

static void time_limits(void **state)
{
	struct collect_fixture *fixture = *state;
	struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
	publish_groups(fixture);
	atomic_store(&fixture->traces[0].groups[1].limits, 1);
	assert_false(collect(fixture, 0)->calls_back);
	assert_int_equal(test_cycle(fixture->snapshot, hops), SIZE);
	atomic_store(&fixture->traces[0].groups[1].callbacks, 1);
	assert_true(collect(fixture, 0)->calls_back);
	/* The group that is waited in ends with it. */
	atomic_store(&fixture->traces[0].groups[1].callbacks, 0);
	atomic_store(&fixture->traces[0].groups[0].limits, 1);
	collect(fixture, 0);
	assert_int_equal(test_cycle(fixture->snapshot, hops), 0);
}

static void a_group_that_ends(void **state)
{
	struct collect_fixture *fixture = *state;
	publish_groups(fixture);
	atomic_store(&fixture->traces[0].groups[1].callbacks, 1);
	fixture->segments[0][CAUSE] = 1;
	assert_true(collect(fixture, 0)->calls_back);
	fixture->segments[0][CAUSE] = 0;
	/* Another rank works out the cause, unless it is stopped. */
	fixture->segments[0][CLAIM] = 3;
	assert_true(collect(fixture, 0)->calls_back);
	fixture->sources[2].process = DIAGNOSE_PROCESS_STOPPED;
	assert_false(collect(fixture, 0)->calls_back);
	fixture->sources[2].process = DIAGNOSE_PROCESS_SLEEPING;
	fixture->segments[0][CLAIM] = SIZE + 1;
	assert_false(collect(fixture, 0)->calls_back);
}

static void members_that_are_gone(void **state)
{
	struct collect_fixture *fixture = *state;
	struct trace_group *other;
	publish_groups(fixture);
	other = &fixture->traces[0].groups[1];
	atomic_store(&other->callbacks, 1);
	atomic_store(&fixture->traces[1].groups[1].state, TRACE_GROUP_CLOSED);
	assert_true(collect(fixture, 0)->calls_back);
	atomic_store(&other->spared[0], 1 << 1);
	assert_false(collect(fixture, 0)->calls_back);
	fixture->sources[2].process = DIAGNOSE_PROCESS_DEAD;
	assert_true(collect(fixture, 0)->calls_back);
	atomic_store(&other->spared[0], 1 << 1 | 1 << 2);
	assert_false(collect(fixture, 0)->calls_back);
	/* What a rank writes is not trusted. */
	fixture->traces[0].members[fixture->traces[0].member_max + 1] = 200;
	atomic_store(&other->spared[0], 1 << 2);
	assert_true(collect(fixture, 0)->calls_back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(none_or_some),
		TEST(time_limits),
		TEST(a_group_that_ends),
		TEST(members_that_are_gone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
