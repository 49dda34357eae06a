/* SPDX-License-Identifier: BSD-3-Clause
 * Deadlocks of ranks with callbacks under way: three ranks in a ring, each of which in turn has one
 * more operation. */
#include "diagnose/snapshot_fixture.h"

/* Adds the slot that shows which words would wake the rank's progress thread; `others` are the
 * ranks that need it. */
static void add_armed(struct diagnose_snapshot *snapshot, int r, uint64_t others)
{
	struct diagnose_thread *thread = test_thread(snapshot, r, 778);
	thread->wait.state = WAIT_ANY_WORD;
	thread->wait.edge_count = 1;
	thread->wait.edges[0] = (struct wait_edge){.owner = r,
						   .peer = (r + 1) % 3,
						   .segment = WAIT_SEGMENT_MAPPED,
						   .record = WAIT_RECORD_OTHERS};
	thread->others = ranks_of_bits(others);
}

/* Sets whether the rank has callbacks, whether it is idle, and whether a callback of it may run. */
static void set_callbacks(struct diagnose_snapshot *snapshot, int r, bool idle, bool calls_back)
{
	snapshot->ranks[r].has_callbacks = true;
	snapshot->ranks[r].idle = idle;
	snapshot->ranks[r].calls_back = calls_back;
}
static void add_call_by_itself(struct diagnose_snapshot *snapshot, int r)
{
	set_callbacks(snapshot, r, true, true);
}
static void add_call_for_a_sleeper(struct diagnose_snapshot *snapshot, int r)
{
	set_callbacks(snapshot, r, false, true);
	test_thread(snapshot, r, 777)->asleep = true;
}
static void add_call_from_outside_the_ring(struct diagnose_snapshot *snapshot, int r)
{
	set_callbacks(snapshot, r, true, false);
	add_armed(snapshot, r, UINT64_C(1) << 9);
}
static void add_call_for_nobody(struct diagnose_snapshot *snapshot, int r)
{
	set_callbacks(snapshot, r, false, true);
}
static void add_call_from_the_ring(struct diagnose_snapshot *snapshot, int r)
{
	set_callbacks(snapshot, r, true, false);
	add_armed(snapshot, r, 7);
}
static void add_others_without_callbacks(struct diagnose_snapshot *snapshot, int r)
{
	test_thread(snapshot, r, 777)->asleep = true;
	add_armed(snapshot, r, UINT64_C(1) << 9);
}

static void check(void (*add)(struct diagnose_snapshot *snapshot, int r), int length)
{
	static const int peers[] = {1, 2, 0};
	for (int r = 0; r < 3; r++) {
		struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
		struct diagnose_snapshot *snapshot = test_ring(3, peers);
		add(snapshot, r);
		assert_int_equal(test_cycle(snapshot, hops), length);
		free(snapshot);
	}
}

static void what_may_come(void **state)
{
	(void)state;
	check(add_call_by_itself, 0);
	check(add_call_for_a_sleeper, 0);
	check(add_call_from_outside_the_ring, 0);
}

static void what_cannot(void **state)
{
	(void)state;
	check(add_call_for_nobody, 3);
	check(add_call_from_the_ring, 3);
	check(add_others_without_callbacks, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_may_come),
		cmocka_unit_test(what_cannot),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
