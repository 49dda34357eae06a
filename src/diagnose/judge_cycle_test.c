/* SPDX-License-Identifier: BSD-3-Clause
 * Deadlocks: which waits are one, and above all which are not. */
#include "diagnose/snapshot_fixture.h"

static struct diagnose_snapshot *full_ring(int size)
{
	int peers[DIAGNOSE_HOP_MAX];
	for (int r = 0; r < size; r++)
		peers[r] = (r + 1) % size;
	return test_ring(size, peers);
}

static void rings(void **state)
{
	(void)state;
	static const int sizes[] = {1, 2, 3, 4, 5, 64};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
		struct diagnose_snapshot *snapshot = full_ring(sizes[i]);
		assert_int_equal(test_cycle(snapshot, hops), sizes[i]);
		for (int h = 0; h < sizes[i]; h++) {
			assert_int_equal(hops[h].rank, h);
			assert_int_equal(hops[h].peer, (h + 1) % sizes[i]);
		}
		test_judged_waits(snapshot, DIAGNOSE_DEADLOCK, test_all(sizes[i]), 0);
	}
}

/* Ranks in one barrier wait for each other's words, but what they all wait for is the rank that has
 * not come; of a broadcast only the root. */
static void the_one_that_has_not_come(void **state)
{
	(void)state;
	for (int rooted = 0; rooted < 2; rooted++) {
		struct diagnose_snapshot *snapshot = test_snapshot(3);
		struct trace_record op = rooted ? test_broadcast(1, 1) : test_barrier(1);
		for (int r = 0; r < 2; r++) {
			test_call(snapshot, r, op, 1, "train.c:7");
			test_wait(snapshot, r, test_bit(1 - r));
		}
		test_call(snapshot, 2, test_point(TRACE_RECV, 0, 7), 1, "train.c:9");
		test_wait(snapshot, 2, test_bit(0));
		test_judged_waits(snapshot, DIAGNOSE_DEADLOCK, rooted ? 3 : 5, rooted ? 4 : 2);
	}
}

/* Each thing that alone breaks the proof, on each rank of a ring of three in turn. */
static void breaks(void (*break_it)(struct diagnose_snapshot *snapshot, int r))
{
	for (int r = 0; r < 3; r++) {
		struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
		struct diagnose_snapshot *snapshot = full_ring(3);
		assert_int_equal(test_cycle(snapshot, hops), 3);
		break_it(snapshot, r);
		assert_int_equal(test_cycle(snapshot, hops), 0);
		assert_int_not_equal(test_judge(snapshot, NULL).cause, DIAGNOSE_DEADLOCK);
		free(snapshot);
	}
}

static void make_satisfied(struct diagnose_snapshot *snapshot, int r)
{
	snapshot->ranks[r].threads[0].satisfied = 1;
}
static void make_unstable(struct diagnose_snapshot *snapshot, int r)
{
	snapshot->ranks[r].threads[0].stable = false;
}
static void limit_wait(struct diagnose_snapshot *snapshot, int r)
{
	snapshot->ranks[r].threads[0].wait.has_own_limit = 1;
}
static void make_incomplete(struct diagnose_snapshot *snapshot, int r)
{
	snapshot->ranks[r].incomplete = true;
}
static void make_unknown(struct diagnose_snapshot *snapshot, int r)
{
	snapshot->ranks[r].known = false;
}
static void make_dead(struct diagnose_snapshot *snapshot, int r)
{
	snapshot->ranks[r].process = DIAGNOSE_PROCESS_DEAD;
}
static void make_left(struct diagnose_snapshot *snapshot, int r)
{
	snapshot->ranks[r].left = true;
}
static void make_threadless(struct diagnose_snapshot *snapshot, int r)
{
	snapshot->ranks[r].thread_count = 0;
}
static void make_fd_wait(struct diagnose_snapshot *snapshot, int r)
{
	snapshot->ranks[r].threads[0].wait.state = WAIT_FDS;
}
static void add_thread_outside(struct diagnose_snapshot *snapshot, int r)
{
	test_thread(snapshot, r, 777);
}
static void add_thread_that_waits_outside_the_ring(struct diagnose_snapshot *snapshot, int r)
{
	struct diagnose_thread *thread = test_thread(snapshot, r, 777);
	test_wait_on(snapshot, r, thread, test_bit(r));
	thread->satisfied = 1; /* its turn has come */
}
/* A thread that waits for its rank's own lane, next to the one that is in the ring. */
static struct diagnose_thread *add_follower(struct diagnose_snapshot *snapshot, int r)
{
	struct diagnose_thread *thread = test_thread(snapshot, r, 777);
	thread->wait.state = WAIT_WORDS;
	thread->wait.group = TEST_GROUP;
	thread->wait.record =
		test_call(snapshot, r, test_allreduce(2), 1, "train.c:8")->record.index;
	thread->wait.edge_count = 1;
	thread->wait.edges[0] =
		(struct wait_edge){.owner = r, .peer = -1, .segment = WAIT_SEGMENT_MAPPED};
	thread->stable = true;
	return thread;
}
/* The ring is one of messages, and no thread is seen to run the lane: one may be about to. */
static void add_follower_of_nobody(struct diagnose_snapshot *snapshot, int r)
{
	add_follower(snapshot, r);
}
static struct diagnose_thread *add_follower_of_another(struct diagnose_snapshot *snapshot, int r)
{
	struct wait_slot_body *running = &snapshot->ranks[r].threads[0].wait;
	running->record = test_call(snapshot, r, test_allreduce(1), 1, "train.c:7")->record.index;
	struct diagnose_thread *thread =
		add_follower(snapshot, r); /* or until nobody runs the lane */
	thread->wait.state = WAIT_ANY_WORD;
	thread->wait.edges[thread->wait.edge_count++] = thread->wait.edges[0];
	return thread;
}
/* A thread that waits for messages on which another thread makes progress follows none of the
 * other's collectives. */
static void add_rester_of_messages(struct diagnose_snapshot *snapshot, int r)
{
	uint64_t index = test_call(snapshot, r, test_point(TRACE_RECV, 0, 7), 1, "")->record.index;
	add_follower_of_another(snapshot, r)->wait.record = index;
}
static void add_rester_that_is_called(struct diagnose_snapshot *snapshot, int r)
{
	add_follower_of_another(snapshot, r)->satisfied = 2;
}
static void add_follower_that_is_done(struct diagnose_snapshot *snapshot, int r)
{
	add_follower_of_another(snapshot, r)->satisfied = 1;
}
static void add_follower_that_moves(struct diagnose_snapshot *snapshot, int r)
{
	add_follower_of_another(snapshot, r)->stable = false;
}
static void add_follower_with_own_limit(struct diagnose_snapshot *snapshot, int r)
{
	add_follower_of_another(snapshot, r)->wait.has_own_limit = 1;
}

static void followers(void **state)
{
	(void)state;
	for (int r = 0; r < 3; r++) {
		struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
		struct diagnose_snapshot *snapshot = full_ring(3);
		add_follower_of_another(snapshot, r);
		assert_int_equal(test_cycle(snapshot, hops), 3);
		free(snapshot);
	}
	breaks(add_follower_of_nobody);
	breaks(add_rester_of_messages);
	breaks(add_rester_that_is_called);
	breaks(add_follower_that_is_done);
	breaks(add_follower_that_moves);
	breaks(add_follower_with_own_limit);
}

/* Adds the slot that shows which words would wake the rank's progress thread, beside the thread
 * that is in the ring. */
static struct diagnose_thread *add_armed(struct diagnose_snapshot *snapshot, int r)
{
	struct diagnose_thread *thread = test_thread(snapshot, r, 777);
	thread->wait.state = WAIT_ANY_WORD;
	thread->wait.edge_count = 1;
	thread->wait.edges[0] = (struct wait_edge){.owner = r,
						   .peer = (r + 1) % 3,
						   .segment = WAIT_SEGMENT_MAPPED,
						   .record = WAIT_RECORD_OTHERS};
	return thread;
}
static void add_armed_with_something_to_do(struct diagnose_snapshot *snapshot, int r)
{
	add_armed(snapshot, r)->satisfied = 1;
}
static void add_armed_that_moves(struct diagnose_snapshot *snapshot, int r)
{
	add_armed(snapshot, r)->stable = false;
}

static void armed_ones(void **state)
{
	(void)state;
	for (int r = 0; r < 3; r++) {
		struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
		struct diagnose_snapshot *snapshot = full_ring(3);
		add_armed(snapshot, r);
		assert_int_equal(test_cycle(snapshot, hops), 3);
		free(snapshot);
	}
	breaks(add_armed_with_something_to_do);
	breaks(add_armed_that_moves);
}

static void make_any_with_a_way_out(struct diagnose_snapshot *snapshot, int r)
{
	struct wait_slot_body *wait = &snapshot->ranks[r].threads[0].wait;
	wait->state = WAIT_ANY_WORD;
	wait->edges[wait->edge_count++] = (struct wait_edge){.peer = 99};
}

static void no_deadlocks(void **state)
{
	(void)state;
	breaks(make_satisfied);
	breaks(make_unstable);
	breaks(limit_wait);
	breaks(make_incomplete);
	breaks(make_unknown);
	breaks(make_dead);
	breaks(make_left);
	breaks(make_threadless);
	breaks(make_fd_wait);
	breaks(add_thread_outside);
	breaks(add_thread_that_waits_outside_the_ring);
	breaks(make_any_with_a_way_out);
}

/* Rank 0 waits for a message of any other, rank 1 for rank 0; rank 2 is still there. */
static struct diagnose_snapshot *any_of_two(int tag)
{
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	test_call(snapshot, 0, test_point(TRACE_RECV, -1, tag), 2, "server.c:5");
	test_wait(snapshot, 0, test_bit(1) | test_bit(2));
	snapshot->ranks[0].threads[0].wait.state = WAIT_ANY_WORD;
	test_call(snapshot, 1, test_point(TRACE_RECV, 0, 7), 2, "client.c:9");
	test_wait(snapshot, 1, test_bit(0));
	return snapshot;
}

static void any_source_without_those_that_are_gone(void **state)
{
	(void)state;
	static const char *const ends[] = {"; rank 2 has left", "; rank 2 died"};
	char text[DIAGNOSE_TEXT_BYTES], want[DIAGNOSE_TEXT_BYTES];
	test_judged_waits(any_of_two(7), DIAGNOSE_ELSEWHERE, test_bit(2), 3);
	for (int dies = 0; dies < 2; dies++) {
		struct diagnose_snapshot *snapshot = any_of_two(dies ? -1 : 7);
		if (dies)
			snapshot->ranks[2].process = DIAGNOSE_PROCESS_DEAD;
		else
			snapshot->ranks[2].left = true;
		struct diagnose_verdict got = test_judge(snapshot, NULL);
		diagnose_headline(snapshot, &got, text, sizeof text);
		snprintf(want, sizeof want,
			 "ranks 0 and 1 wait for each other and can never go on: rank 0 waits for any "
			 "rank (receive #1, %s, called from server.c:5), rank 1 waits for rank 0 "
			 "(receive #1, tag 7, called from client.c:9)%s",
			 dies ? "any tag" : "tag 7", ends[dies]);
		assert_string_equal(text, want);
		/* A time limit that comes first blames nobody else. */
		struct diagnose_hint hint = {.status = LS_TIMED_OUT,
					     .rank = 0,
					     .peer = -1,
					     .group = TEST_GROUP,
					     .seq = 1,
					     .record = snapshot->ranks[0].records[0].record.index,
					     .needs = {{6}}};
		assert_int_equal(test_judge(snapshot, &hint).cause, DIAGNOSE_DEADLOCK);
		/* Without the last one the wait ends by itself. */
		snapshot->ranks[1].left = true;
		assert_int_not_equal(test_judge(snapshot, NULL).cause, DIAGNOSE_DEADLOCK);
		snapshot->ranks[1].left = false;
		test_judged_waits(snapshot, DIAGNOSE_DEADLOCK, 3, 0);
	}
}

/* The report is made of the look that has proved it; one that is not borne out names two. */
static void a_cycle_that_is_not_shown(void **state)
{
	(void)state;
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_snapshot *snapshot = full_ring(2);
	struct diagnose_hint hint = {
		.status = LS_DEADLOCK, .rank = 1, .peer = 0, .group = TEST_GROUP};
	snapshot->ranks[1].threads[0].stable = false;
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	assert_int_equal(got.status, LS_DEADLOCK);
	assert_int_equal(test_bits(got.culprits), 3);
	diagnose_headline(snapshot, &got, text, sizeof text);
	assert_string_equal(text, "ranks 0 and 1 wait for each other and can never go on");
	free(snapshot);
}

/* Rank 1 also sends to rank 3: after that it begins a send for which rank 0 may wait. */
static void sends_one_after_the_other(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
		bool serial = i & 1, away = i & 2;
		struct diagnose_snapshot *snapshot = test_ring(4, (int[]){1, 2, 0, 0});
		if (away)
			snapshot->ranks[3].threads[0].wait.state = WAIT_OUTSIDE;
		snapshot->ranks[1].serial = serial;
		snapshot->ranks[1].threads[0].wait.state = WAIT_ANY_WORD;
		snapshot->ranks[1].threads[0].others = ranks_of_bits(test_bit(3));
		assert_int_equal(test_cycle(snapshot, hops), serial && away ? 0 : 3);
		free(snapshot);
	}
}

/* A stopped rank whose wait is over looks like the others, but for its satisfied condition. */
static void stopped_before_its_wake_up(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = full_ring(3);
	snapshot->ranks[1].process = DIAGNOSE_PROCESS_STOPPED;
	snapshot->ranks[1].threads[0].satisfied = 1;
	test_judged_waits(snapshot, DIAGNOSE_STOPPED, test_bit(1), test_bit(0) | test_bit(2));
	/* Stopped inside a true cycle it is a deadlock all the same. */
	snapshot = full_ring(3);
	snapshot->ranks[1].process = DIAGNOSE_PROCESS_STOPPED;
	test_judged_waits(snapshot, DIAGNOSE_DEADLOCK, test_all(3), 0);
}

static void slots_without_a_thread_do_not_count(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = full_ring(3);
	test_thread(snapshot, 1, 777)->wait.state = WAIT_UNUSED;
	test_judged_waits(snapshot, DIAGNOSE_DEADLOCK, test_all(3), 0);
}

static void all_threads_of_a_rank_in_the_set(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = full_ring(3);
	test_call(snapshot, 1, test_point(TRACE_RECV, 0, 9), 1, "ring.c:9");
	test_wait_on(snapshot, 1, test_thread(snapshot, 1, 777), test_bit(0));
	test_judged_waits(snapshot, DIAGNOSE_DEADLOCK, test_all(3), 0);
}

static void cycle_of_one(void **state)
{
	(void)state;
	test_judged_waits(test_ring(3, (const int[]){-1, 1, -1}), DIAGNOSE_DEADLOCK, test_bit(1), 0);
}

static void two_cycles(void **state)
{
	(void)state;
	/* The one with the lowest rank is told. */
	test_judged_waits(test_ring(4, (const int[]){2, 3, 0, 1}), DIAGNOSE_DEADLOCK,
			  test_bit(0) | test_bit(2), 0);
}

static void chain_into_a_cycle(void **state)
{
	(void)state;
	/* 0 waits for 1, 1 for 2; 2 and 3 wait for each other; 4 is not involved. */
	test_judged_waits(test_ring(5, (const int[]){1, 2, 3, 2, -1}), DIAGNOSE_DEADLOCK,
			  test_bit(2) | test_bit(3), test_bit(0) | test_bit(1));
}

/* However it is come upon, it is told from its lowest rank on. */
static void begins_at_the_lowest_rank(void **state)
{
	(void)state;
	struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
	struct diagnose_snapshot *snapshot = test_ring(4, (const int[]){3, 2, 3, 1});
	assert_int_equal(test_cycle(snapshot, hops), 3);
	assert_int_equal(hops[0].rank, 1);
	assert_int_equal(hops[1].rank, 2);
	assert_int_equal(hops[2].rank, 3);
	free(snapshot);
}

/* A rank has threads that nobody sees, so its ring is not proved; but it is known how long the ring
 * has lasted. */
static void unproved_since(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_ring(2, (const int[]){1, 0});
	snapshot->ranks[0].awake = snapshot->ranks[1].awake = true;
	snapshot->ranks[1].threads[0].wait.since_ns += test_second;
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.since_ns, test_now - 2 * test_second);
	assert_int_equal(got.witness, 0);
	test_judged_waits(snapshot, DIAGNOSE_ELSEWHERE, 3, 0);
}

static void waits_for_any(void **state)
{
	(void)state;
	/* All of several, one of which never comes; any of several, none of which ever comes. */
	struct diagnose_snapshot *snapshot = test_ring(4, (const int[]){1, 0, -1, -1});
	struct wait_slot_body *wait = &snapshot->ranks[0].threads[0].wait;
	wait->edges[wait->edge_count++] = (struct wait_edge){.peer = 2};
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_DEADLOCK);
	wait->state = WAIT_ANY_WORD; /* rank 2 can still help */
	got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_ELSEWHERE);
	assert_int_equal(test_bits(got.culprits), test_bit(2));
	wait->edges[1].peer = 1;
	test_judged_waits(snapshot, DIAGNOSE_DEADLOCK, 3, 0);
}

/* A set can only go as long as all that feeds it is inside: take one rank away and all follow. */
static void long_chain_unravels(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = full_ring(64);
	struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
	snapshot->ranks[63].threads[0].satisfied = 1;
	assert_int_equal(test_cycle(snapshot, hops), 0);
	free(snapshot);
}

static void dead_rank_goes_before_the_cycle(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_ring(4, (const int[]){1, 0, 3, -1});
	snapshot->ranks[3].process = DIAGNOSE_PROCESS_DEAD;
	test_judged_waits(snapshot, DIAGNOSE_DIED, test_bit(3), test_bit(2));
	/* A dead rank's slots are stale, and prove nothing. */
	snapshot = test_ring(2, (const int[]){1, 0});
	snapshot->ranks[0].process = DIAGNOSE_PROCESS_DEAD;
	test_judged_waits(snapshot, DIAGNOSE_DIED, test_bit(0), test_bit(1));
}

static void hinted(void **state)
{
	(void)state;
	struct diagnose_hint hint = {
		.status = LS_DEADLOCK, .rank = 3, .peer = -1, .group = TEST_GROUP, .seq = 1};
	struct diagnose_snapshot *snapshot = test_ring(4, (const int[]){1, 2, 0, -1});
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	assert_int_equal(got.cause, DIAGNOSE_DEADLOCK);
	assert_int_equal(test_bits(got.culprits), 7);
	assert_int_equal(got.culprit, -1);
	assert_int_equal(test_bits(got.waiting), 0); /* rank 3 only looked */
	free(snapshot);
	snapshot = test_snapshot(4); /* nobody waits: nobody to name */
	got = test_judge(snapshot, &hint);
	assert_int_equal(got.cause, DIAGNOSE_DEADLOCK);
	assert_int_equal(got.status, LS_DEADLOCK);
	assert_int_equal(test_bits(got.culprits), 0);
	assert_int_equal(got.culprit, -1);
	free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rings),
		cmocka_unit_test(the_one_that_has_not_come),
		cmocka_unit_test(any_source_without_those_that_are_gone),
		cmocka_unit_test(a_cycle_that_is_not_shown),
		cmocka_unit_test(followers),
		cmocka_unit_test(armed_ones),
		cmocka_unit_test(sends_one_after_the_other),
		cmocka_unit_test(no_deadlocks),
		cmocka_unit_test(stopped_before_its_wake_up),
		cmocka_unit_test(slots_without_a_thread_do_not_count),
		cmocka_unit_test(all_threads_of_a_rank_in_the_set),
		cmocka_unit_test(cycle_of_one),
		cmocka_unit_test(two_cycles),
		cmocka_unit_test(chain_into_a_cycle),
		cmocka_unit_test(begins_at_the_lowest_rank),
		cmocka_unit_test(unproved_since),
		cmocka_unit_test(waits_for_any),
		cmocka_unit_test(long_chain_unravels),
		cmocka_unit_test(dead_rank_goes_before_the_cycle),
		cmocka_unit_test(hinted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
