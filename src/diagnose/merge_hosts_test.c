/* SPDX-License-Identifier: BSD-3-Clause
 * Snapshots of several hosts: two looks of each, put together, and what is under way. Three ranks
 * wait in a ring; ranks 0 and 1 are on this host, rank 2 is on another one. */
#include "diagnose/collect_fixture.h"

enum { REMOTE = 2 };
static const uint16_t hosts[SIZE] = {0, 0, REMOTE};

/* One host's look at its own ranks; those of the other host are named only. */
static struct diagnose_snapshot *look(const struct collect_fixture *fixture, bool at_remote)
{
	struct diagnose_snapshot *snapshot = diagnose_snapshot_new(SIZE);
	struct diagnose_source sources[SIZE];
	assert_non_null(snapshot);
	for (int r = 0; r < SIZE; r++) {
		sources[r] = fixture->sources[r];
		if ((r == REMOTE) == at_remote)
			continue;
		sources[r].trace = NULL;
		sources[r].pid = 0;
		sources[r].host = "b";
		sources[r].process = DIAGNOSE_PROCESS_UNKNOWN;
	}
	diagnose_collect(sources, SIZE, NULL, snapshot);
	/* All ranks are of this process, which runs; rank 2 would be alone in its process, and
	 * sleep.
	 * */
	snapshot->ranks[REMOTE].awake = false;
	snapshot->ranks[REMOTE].sleep = 1;
	return snapshot;
}

static struct ranks ranks_at(bool at_remote)
{
	return ranks_of_bits(at_remote ? 1u << REMOTE : 3u);
}

/* A snapshot with what both looks of a host show. */
static struct diagnose_snapshot *look_twice(const struct collect_fixture *fixture, bool at_remote)
{
	struct ranks here = ranks_at(at_remote);
	struct diagnose_snapshot *first = look(fixture, at_remote),
				 *second = look(fixture, at_remote);
	diagnose_confirm(second, first, &here);
	free(first);
	return second;
}

static struct diagnose_traffic *new_traffic(void)
{
	struct diagnose_traffic *traffic = calloc(SIZE, sizeof *traffic);
	assert_non_null(traffic);
	for (int r = 0; r < SIZE; r++)
		traffic[r].is_served = true;
	return traffic;
}

/* All ranks, as this host sees them in the end. */
static bool stopped; /* rank REMOTE is */

static struct diagnose_snapshot *look_at_all(const struct collect_fixture *fixture,
					     struct diagnose_traffic *traffic)
{
	struct ranks here = ranks_at(false), there = ranks_at(true);
	struct diagnose_snapshot *snapshot = look_twice(fixture, false),
				 *other = look_twice(fixture, true);
	struct diagnose_traffic *read = new_traffic();
	size_t bytes;
	void *block = diagnose_pack(other, &there, traffic, &bytes);
	assert_non_null(block);
	assert_true(diagnose_unpack(snapshot, &here, block, bytes, read));
	read[0] = traffic[0];
	read[1] = traffic[1];
	assert_memory_equal(&read[REMOTE], &traffic[REMOTE], sizeof read[REMOTE]);
	if (stopped)
		snapshot->ranks[REMOTE].process = DIAGNOSE_PROCESS_STOPPED;
	diagnose_check_traffic(snapshot, hosts, read);
	free(block);
	free(read);
	free(other);
	return snapshot;
}

static uint64_t stuck(const struct collect_fixture *fixture, struct diagnose_traffic *traffic)
{
	struct diagnose_snapshot *snapshot = look_at_all(fixture, traffic);
	uint64_t bits = test_bits(diagnose_find_stuck(snapshot));
	free(snapshot);
	return bits;
}

static void test_a_ring_over_hosts(void **state)
{
	struct collect_fixture *fixture = *state;
	struct diagnose_traffic *traffic = new_traffic();
	publish_ring(fixture);
	struct diagnose_snapshot *alone = look(fixture, false);
	assert_int_equal(test_bits(diagnose_find_stuck(alone)), 0);
	assert_false(alone->ranks[REMOTE].known);
	assert_string_equal(alone->ranks[REMOTE].host, "b");
	assert_int_equal(stuck(fixture, traffic), 7);
	free(alone);
	free(traffic);
}

/* A word that the writer's host has sent, and that is there: its thread goes on. */
static void test_a_word_that_has_come(void **state)
{
	struct collect_fixture *fixture = *state;
	struct diagnose_traffic *traffic = new_traffic();
	publish_ring(fixture);
	atomic_store(&fixture->segments[1][1], 5);
	assert_int_equal(stuck(fixture, traffic), 0);
	free(traffic);
}

/* Whatever is under way between the hosts may be the word that is awaited. */
static void test_what_is_under_way(void **state)
{
	struct collect_fixture *fixture = *state;
	struct diagnose_traffic *traffic = new_traffic();
	publish_ring(fixture);
	uint64_t *one_sided[] = {&traffic[0].posted[REMOTE],  &traffic[REMOTE].posted[1],
				 &traffic[1].arrived[REMOTE], &traffic[REMOTE].begun[0],
				 &traffic[0].fetched[REMOTE], &traffic[REMOTE].released[1],
				 &traffic[REMOTE].ahead[0],   &traffic[0].copied[REMOTE]};
	for (size_t i = 0; i < sizeof one_sided / sizeof one_sided[0]; i++) {
		*one_sided[i] = 1;
		assert_int_equal(stuck(fixture, traffic), 0);
		*one_sided[i] = 0;
	}
	traffic[REMOTE].is_served = false;
	assert_int_equal(stuck(fixture, traffic), 0);
	traffic[REMOTE].is_served = true;
	traffic[0].posted[REMOTE] = traffic[REMOTE].arrived[0] = 7;
	traffic[REMOTE].begun[1] = traffic[REMOTE].fetched[1] = traffic[1].released[REMOTE] = 3;
	assert_int_equal(stuck(fixture, traffic), 7);
	/* An eager payload that was fetched is one of which its source does not know. */
	traffic[REMOTE].begun[1] = traffic[REMOTE].fetched[1] = 4;
	traffic[REMOTE].copied[1] = 1;
	assert_int_equal(stuck(fixture, traffic), 7);
	free(traffic);
}

/* Rank 1 waits for a word that REMOTE writes. */
static void wait_for_remote(struct collect_fixture *fixture)
{
	struct wait_slot_body body = wait_for(1, REMOTE);
	body.edges[0].segment = WAIT_SEGMENT_MIRROR;
	publish(fixture, 1, 0, &body);
}

/* A stopped rank takes nothing that is sent to it. That does not hide which ranks wait for it; what
 * it has sent may be what they wait for. */
static void test_who_is_stopped(void **state)
{
	struct collect_fixture *fixture = *state;
	struct diagnose_traffic *traffic = new_traffic();
	struct diagnose_hint hint = {.status = LS_OK, .group = GROUP};
	struct diagnose_verdict verdict;
	wait_for_remote(fixture);
	stopped = true;
	for (int sent = 0; sent < 3; sent++) {
		traffic[1].posted[REMOTE] = 1;
		traffic[REMOTE].posted[1] = (uint64_t)sent;
		traffic[REMOTE].kept_back[1] =
			sent == 2 ? 2 : 0; /* and will not come before it goes on */
		struct diagnose_snapshot *snapshot = look_at_all(fixture, traffic);
		diagnose_judge(snapshot, &hint, &verdict);
		assert_int_equal(verdict.cause, sent == 1 ? DIAGNOSE_HEALTHY : DIAGNOSE_STOPPED);
		assert_int_equal(verdict.culprit, sent == 1 ? -1 : REMOTE);
		free(snapshot);
	}
	stopped = false;
	free(traffic);
}

/* The awaited rank has left; what it has said before may not be there yet. */
static void test_who_has_left(void **state)
{
	struct collect_fixture *fixture = *state;
	struct diagnose_traffic *traffic = new_traffic();
	struct diagnose_hint hint = {.status = LS_OK, .group = GROUP};
	struct diagnose_verdict verdict;
	wait_for_remote(fixture);
	atomic_store(&fixture->traces[REMOTE].header->left_ns, 99);
	struct diagnose_snapshot *snapshot = look_at_all(fixture, traffic);
	diagnose_judge(snapshot, &hint, &verdict);
	assert_int_equal(verdict.cause, DIAGNOSE_LEFT);
	free(snapshot);
	traffic[REMOTE].posted[1] = 1;
	snapshot = look_at_all(fixture, traffic);
	diagnose_judge(snapshot, &hint, &verdict);
	assert_int_not_equal(verdict.cause, DIAGNOSE_LEFT);
	free(snapshot);
	traffic[1].lost[REMOTE] = true; /* nothing comes from there any more */
	snapshot = look_at_all(fixture, traffic);
	diagnose_judge(snapshot, &hint, &verdict);
	assert_int_equal(verdict.cause, DIAGNOSE_LEFT);
	free(snapshot);
	free(traffic);
}

/* What only one of the two looks of a host shows is no proof. */
static void test_two_looks(void **state)
{
	struct collect_fixture *fixture = *state;
	struct ranks here = ranks_at(false);
	publish_ring(fixture);
	struct diagnose_snapshot *first = look(fixture, false), *second = look(fixture, false);
	first->ranks[0].threads[0].epoch += 2;
	first->ranks[1].sleep = 5;
	second->ranks[1].sleep = 7;
	diagnose_confirm(second, first, &here);
	assert_false(second->ranks[0].threads[0].stable);
	assert_true(second->ranks[1].threads[0].stable);
	assert_false(second->ranks[0].awake);
	assert_true(second->ranks[1].awake);
	free(second);
	second = look(fixture, false);
	first->ranks[0].thread_count = 0;
	first->ranks[1].sleep = 0;
	diagnose_confirm(second, first, &here);
	assert_false(second->ranks[0].threads[0].stable);
	assert_true(second->ranks[0].incomplete);
	assert_true(second->ranks[1].awake);
	free(first);
	free(second);
}

/* Blocks that are no blocks: cut off anywhere, or with a byte changed. None may be read beyond its
 * end, and what is accepted is a snapshot that can be judged. */
static void test_bad_blocks(void **state)
{
	struct collect_fixture *fixture = *state;
	struct diagnose_traffic *traffic = new_traffic();
	struct ranks here = ranks_at(false), there = ranks_at(true);
	publish_ring(fixture);
	test_members(fixture->snapshot, 9, 3);
	struct diagnose_snapshot *other = look(fixture, true);
	size_t bytes;
	unsigned char *block = diagnose_pack(other, &there, traffic, &bytes);
	assert_non_null(block);
	for (size_t cut = 0; cut < bytes; cut += cut < 200 ? 1 : 97) {
		struct diagnose_snapshot *snapshot = look(fixture, false);
		void *part = malloc(cut ? cut : 1);
		assert_non_null(part);
		memcpy(part, block, cut);
		assert_false(diagnose_unpack(snapshot, &here, part, cut, traffic));
		free(part);
		free(snapshot);
	}
	for (size_t at = 0; at < bytes; at += at < 900 ? 1 : 31) {
		struct diagnose_snapshot *snapshot = look(fixture, false);
		block[at] ^= 0xff;
		if (diagnose_unpack(snapshot, &here, block, bytes, traffic)) {
			struct diagnose_hint hint = {.status = LS_OK, .group = GROUP};
			struct diagnose_verdict verdict;
			diagnose_judge(snapshot, &hint, &verdict);
		}
		block[at] ^= 0xff;
		free(snapshot);
	}
	struct diagnose_snapshot *snapshot = look(fixture, false);
	assert_false(diagnose_unpack(snapshot, &there, block, bytes, traffic)); /* it is here */
	free(snapshot);
	free(block);
	free(other);
	free(traffic);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_ring_over_hosts, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_word_that_has_come, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_is_under_way, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_who_is_stopped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_who_has_left, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_two_looks, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_bad_blocks, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
