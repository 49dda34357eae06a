/* SPDX-License-Identifier: BSD-3-Clause
 * Verdicts over jobs made by hand: which ranks are gone, stopped or elsewhere, and which are not.
 */
#include "diagnose/snapshot_fixture.h"

static const int sizes[] = {2, 3, 4, 5, 64};
#define FOR_SIZES(n)                                                                              \
	for (size_t i_ = 0, n; i_ < sizeof sizes / sizeof sizes[0] && (n = (size_t)sizes[i_], 1); \
	     i_++)

static const struct diagnose_verdict healthy = {.culprit = -1};

static struct diagnose_verdict absent_verdict(enum diagnose_cause cause, ls_status status, int size)
{
	int culprit = size - 1;
	return (struct diagnose_verdict){
		.cause = cause,
		.status = status,
		.culprit = culprit,
		.culprits = {{test_bit(culprit)}},
		.waiting = {{test_all(size) & ~test_bit(culprit)}},
		.seq = 58,
	};
}

static void dead_rank_that_is_needed(void **state)
{
	(void)state;
	FOR_SIZES(n)
	{
		int size = (int)n;
		struct diagnose_snapshot *snapshot = test_absent(size, test_bit(size - 1));
		snapshot->ranks[size - 1].process = DIAGNOSE_PROCESS_DEAD;
		snapshot->ranks[size - 1].signal = 9;
		test_verdict(snapshot, NULL, absent_verdict(DIAGNOSE_DIED, LS_PEER_DIED, size));
	}
}

static void exit_without_close_is_death(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_absent(3, test_bit(2));
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_DEAD;
	snapshot->ranks[2].signal = 0;
	snapshot->ranks[2].exit_code = 0;
	test_verdict(snapshot, NULL, absent_verdict(DIAGNOSE_DIED, LS_PEER_DIED, 3));
}

static void left_rank_that_is_needed(void **state)
{
	(void)state;
	FOR_SIZES(n)
	{
		int size = (int)n;
		struct diagnose_snapshot *snapshot = test_absent(size, test_bit(size - 1));
		snapshot->ranks[size - 1].left = true;
		/* That its process has ended since makes no difference. */
		snapshot->ranks[size - 1].process =
			size % 2 ? DIAGNOSE_PROCESS_DEAD : DIAGNOSE_PROCESS_RUNNING;
		test_verdict(snapshot, NULL, absent_verdict(DIAGNOSE_LEFT, LS_PEER_LEFT, size));
	}
}

static void unreadable_dead_rank(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_absent(3, test_bit(2));
	snapshot->ranks[2].known = false;
	snapshot->ranks[2].record_count = snapshot->ranks[2].thread_count = 0;
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_DEAD;
	test_verdict(snapshot, NULL, absent_verdict(DIAGNOSE_DIED, LS_PEER_DIED, 3));
}

static void gone_ranks_that_nobody_needs(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(4); /* nobody waits */
	snapshot->ranks[1].process = DIAGNOSE_PROCESS_DEAD;
	snapshot->ranks[2].left = true;
	test_verdict(snapshot, NULL, healthy);

	snapshot = test_absent(4, test_bit(3)); /* the words are there already */
	for (int r = 0; r < 3; r++)
		snapshot->ranks[r].threads[0].satisfied = 1;
	snapshot->ranks[3].process = DIAGNOSE_PROCESS_DEAD;
	test_verdict(snapshot, NULL, healthy);

	snapshot = test_absent(4, test_bit(3)); /* the waits had ended when looked at again */
	for (int r = 0; r < 3; r++)
		snapshot->ranks[r].threads[0].stable = false;
	snapshot->ranks[3].process = DIAGNOSE_PROCESS_DEAD;
	test_verdict(snapshot, NULL, healthy);

	snapshot = test_absent(4, test_bit(2) | test_bit(3)); /* any of the two suffices */
	for (int r = 0; r < 2; r++)
		snapshot->ranks[r].threads[0].wait.state = WAIT_ANY_WORD;
	snapshot->ranks[3].process = DIAGNOSE_PROCESS_DEAD;
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_RUNNING;
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_ELSEWHERE);
	assert_int_equal(test_bits(got.culprits), test_bit(2));
	free(snapshot);
}

/* A rank that ended because its own operation had failed is not the cause if another rank can
 * be. */
static void first_of_several_gone(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_absent(4, test_bit(2) | test_bit(3));
	struct diagnose_record *failed =
		test_call(snapshot, 2, test_allreduce(58), 2, "train.c:211");
	failed->record.state = TRACE_FAILED;
	failed->record.status = LS_PEER_LEFT;
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_DEAD;
	snapshot->ranks[3].left = true;
	test_verdict(snapshot, NULL,
		     (struct diagnose_verdict){.cause = DIAGNOSE_LEFT,
					       .status = LS_PEER_LEFT,
					       .culprit = 3,
					       .culprits = {{test_bit(3)}},
					       .waiting = {{test_bit(0) | test_bit(1)}},
					       .seq = 58});
}

static void two_dead_ranks(void **state)
{
	(void)state;
	uint64_t dead = test_bit(2) | test_bit(3);
	struct diagnose_snapshot *snapshot = test_absent(4, dead);
	snapshot->ranks[2].process = snapshot->ranks[3].process = DIAGNOSE_PROCESS_DEAD;
	test_verdict(snapshot, NULL,
		     (struct diagnose_verdict){.cause = DIAGNOSE_DIED,
					       .status = LS_PEER_DIED,
					       .culprit = -1,
					       .culprits = {{dead}},
					       .waiting = {{3}},
					       .seq = 58});
}

static void stopped_rank(void **state)
{
	(void)state;
	FOR_SIZES(n)
	{
		int size = (int)n;
		struct diagnose_snapshot *snapshot = test_absent(size, test_bit(size - 1));
		snapshot->ranks[size - 1].process = DIAGNOSE_PROCESS_STOPPED;
		test_verdict(snapshot, NULL, absent_verdict(DIAGNOSE_STOPPED, LS_TIMED_OUT, size));
	}
}

/* Stopped inside a wait whose end has come: it would go on, so it is what holds the others up. */
static void stopped_in_a_wait_that_is_over(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_absent(3, test_bit(2));
	snapshot->ranks[2].records[0].record.state = TRACE_RUNNING;
	test_wait(snapshot, 2, 3);
	snapshot->ranks[2].threads[0].satisfied = 3;
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_HEALTHY); /* as long as it is not stopped */
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_STOPPED;
	test_verdict(snapshot, NULL, absent_verdict(DIAGNOSE_STOPPED, LS_TIMED_OUT, 3));
}

/* Stopped while it waits for another one, which is the cause. */
static void stopped_rank_that_only_waits(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_ring(3, (const int[]){1, 2, -1});
	snapshot->ranks[1].process = DIAGNOSE_PROCESS_STOPPED;
	test_verdict(snapshot, NULL,
		     (struct diagnose_verdict){.cause = DIAGNOSE_ELSEWHERE,
					       .status = LS_TIMED_OUT,
					       .culprit = 2,
					       .culprits = {{test_bit(2)}},
					       .waiting = {{3}},
					       .seq = 1});
}

static void stopped_rank_that_nobody_needs(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	snapshot->ranks[1].process = DIAGNOSE_PROCESS_STOPPED;
	test_verdict(snapshot, NULL, healthy);
}

static void rank_elsewhere(void **state)
{
	(void)state;
	FOR_SIZES(n)
	{
		int size = (int)n;
		struct diagnose_snapshot *snapshot = test_absent(size, test_bit(size - 1));
		struct diagnose_verdict got = test_judge(snapshot, NULL);
		assert_int_equal(got.since_ns, test_now - 2 * test_second);
		test_verdict(snapshot, NULL, absent_verdict(DIAGNOSE_ELSEWHERE, LS_TIMED_OUT, size));
	}
}

/* Rank 0 waits for 1, which waits for 2, which computes: only 2 is the cause, and all wait for
 * it. */
static void chain_to_a_rank_elsewhere(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_ring(4, (const int[]){1, 2, -1, -1});
	snapshot->ranks[0].threads[0].wait.since_ns -= test_second;
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.witness, 1); /* the one that waits for it directly */
	assert_int_equal(got.since_ns, test_now - 3 * test_second);
	test_verdict(snapshot, NULL,
		     (struct diagnose_verdict){.cause = DIAGNOSE_ELSEWHERE,
					       .status = LS_TIMED_OUT,
					       .culprit = 2,
					       .culprits = {{test_bit(2)}},
					       .waiting = {{3}},
					       .seq = 1});
}

/* The wait slots of a dead rank are stale: it waits for no rank. */
static void dead_ranks_do_not_wait(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_ring(3, (const int[]){2, 2, -1});
	snapshot->ranks[1].process = DIAGNOSE_PROCESS_DEAD;
	test_verdict(snapshot, NULL,
		     (struct diagnose_verdict){.cause = DIAGNOSE_ELSEWHERE,
					       .status = LS_TIMED_OUT,
					       .culprit = 2,
					       .culprits = {{test_bit(2)}},
					       .waiting = {{test_bit(0)}},
					       .seq = 1});
}

static void rank_that_moves_is_not_elsewhere(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_absent(3, test_bit(2));
	snapshot->ranks[2].threads[0].stable = false;
	test_verdict(snapshot, NULL, healthy);
}

/* A rank has several threads: the verdict is about the one that calls the collectives. */
static void helper_threads(void **state)
{
	(void)state;
	/* Rank 2 computes; a helper of it always waits in a receive. */
	struct diagnose_snapshot *snapshot = test_absent(3, test_bit(2));
	test_call(snapshot, 2, test_point(TRACE_RECV, 0, 1), 900, "serve.c:1");
	test_wait_on(snapshot, 2, test_thread(snapshot, 2, 777), test_bit(0));
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_ELSEWHERE);
	assert_int_equal(test_bits(got.culprits) & test_bit(2), test_bit(2));
	free(snapshot);

	/* Rank 1's main thread only opened the group; its other thread waits for rank 2. */
	snapshot = test_absent(3, test_bit(2));
	test_wait_on(snapshot, 1, test_thread(snapshot, 1, 777), test_bit(2));
	snapshot->ranks[1].threads[0].wait.state = WAIT_OUTSIDE;
	snapshot->ranks[0].threads[0].wait.edges[0].peer = 1; /* 0 waits for 1, which waits for 2 */
	test_verdict(snapshot, NULL, absent_verdict(DIAGNOSE_ELSEWHERE, LS_TIMED_OUT, 3));

	/* Rank 1's main thread last sent to rank 0, which now waits for more; that another thread
	 * of it waits for rank 2 is no excuse. */
	snapshot = test_ring(3, (const int[]){1, -1, -1});
	test_done(snapshot, 1, test_point(TRACE_SEND, 0, 7), 3, "a.c:1");
	test_call(snapshot, 1, test_point(TRACE_RECV, 2, 7), 2, "b.c:1");
	test_wait_on(snapshot, 1, test_thread(snapshot, 1, 777), test_bit(2));
	got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_ELSEWHERE);
	assert_int_equal(test_bits(got.culprits), test_bit(1) | test_bit(2));
	free(snapshot);
}

static void nobody_waits(void **state)
{
	(void)state;
	FOR_SIZES(n) test_verdict(test_snapshot((int)n), NULL, healthy);
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	for (int r = 0; r < 3; r++)
		snapshot->ranks[r].known = false;
	test_verdict(snapshot, NULL, healthy);
}

static void descriptor_waits_prove_nothing(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_ring(2, (const int[]){1, 0});
	for (int r = 0; r < 2; r++)
		snapshot->ranks[r].threads[0].wait.state = WAIT_FDS;
	test_verdict(snapshot, NULL, healthy);
}

static void nonsense_edges(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_ring(2, (const int[]){1, 0});
	snapshot->ranks[0].threads[0].wait.edges[0].peer = 64;
	snapshot->ranks[1].threads[0].wait.edges[0].peer = -5;
	test_verdict(snapshot, NULL, healthy);
}

static void validity(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(2);
	size_t bytes = diagnose_snapshot_bytes(2);
	assert_true(diagnose_snapshot_is_valid(snapshot, bytes));
	assert_false(diagnose_snapshot_is_valid(snapshot, bytes - 1));
	assert_false(diagnose_snapshot_is_valid(snapshot, 4));
	assert_null(diagnose_snapshot_new(RANKS_JOB_MAX + 1));
	assert_null(diagnose_snapshot_new(-1));
	snapshot->ranks[1].thread_count = WAIT_SLOT_MAX + 1;
	assert_false(diagnose_snapshot_is_valid(snapshot, bytes));
	snapshot->ranks[1].thread_count = 1;
	snapshot->ranks[1].threads[0].wait.edge_count = WAIT_EDGE_MAX + 1;
	assert_false(diagnose_snapshot_is_valid(snapshot, bytes));
	snapshot->ranks[1].threads[0].wait.edge_count = 0;
	memset(snapshot->ranks[1].host, 'a', sizeof snapshot->ranks[1].host);
	assert_false(diagnose_snapshot_is_valid(snapshot, bytes));
	snapshot->ranks[1].host[0] = 0;
	memset(&snapshot->ranks[0].left, 7, 1);
	assert_false(diagnose_snapshot_is_valid(snapshot, bytes));
	free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dead_rank_that_is_needed),
		cmocka_unit_test(exit_without_close_is_death),
		cmocka_unit_test(left_rank_that_is_needed),
		cmocka_unit_test(unreadable_dead_rank),
		cmocka_unit_test(gone_ranks_that_nobody_needs),
		cmocka_unit_test(first_of_several_gone),
		cmocka_unit_test(two_dead_ranks),
		cmocka_unit_test(stopped_rank),
		cmocka_unit_test(stopped_in_a_wait_that_is_over),
		cmocka_unit_test(stopped_rank_that_only_waits),
		cmocka_unit_test(stopped_rank_that_nobody_needs),
		cmocka_unit_test(rank_elsewhere),
		cmocka_unit_test(chain_to_a_rank_elsewhere),
		cmocka_unit_test(dead_ranks_do_not_wait),
		cmocka_unit_test(rank_that_moves_is_not_elsewhere),
		cmocka_unit_test(helper_threads),
		cmocka_unit_test(nobody_waits),
		cmocka_unit_test(descriptor_waits_prove_nothing),
		cmocka_unit_test(nonsense_edges),
		cmocka_unit_test(validity),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
