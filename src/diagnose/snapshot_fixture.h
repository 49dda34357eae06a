/* SPDX-License-Identifier: BSD-3-Clause
 * Jobs made by hand, for the tests of this room: each rank is a process with one thread, known,
 * asleep, outside of Lockstep, with pid 100 + rank; the time is 1000 s. */
#ifndef DIAGNOSE_SNAPSHOT_FIXTURE_H
#define DIAGNOSE_SNAPSHOT_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/ranks_fixture.h"

enum { TEST_GROUP = 1 };
static const uint64_t test_second = UINT64_C(1000000000);
static const uint64_t test_now = UINT64_C(1000) * 1000000000;

TEST_UNUSED static struct diagnose_snapshot *test_snapshot(int size)
{
	struct diagnose_snapshot *snapshot = diagnose_snapshot_new(size);
	assert_non_null(snapshot);
	snapshot->now_ns = test_now;
	for (int r = 0; r < size; r++) {
		struct diagnose_rank *rank = &snapshot->ranks[r];
		rank->known = true;
		rank->rank = r;
		rank->pid = 100 + r;
		rank->process = DIAGNOSE_PROCESS_SLEEPING;
		rank->signal = rank->exit_code = -1;
		rank->thread_count = 1;
		rank->threads[0].stable = true;
		rank->threads[0].wait.state = WAIT_OUTSIDE;
		rank->threads[0].wait.tid = 100 + (uint32_t)r;
	}
	return snapshot;
}

/* Another thread of rank r, outside. */
TEST_UNUSED static struct diagnose_thread *test_thread(struct diagnose_snapshot *snapshot, int r,
						       uint32_t tid)
{
	struct diagnose_rank *rank = &snapshot->ranks[r];
	struct diagnose_thread *thread = &rank->threads[rank->thread_count++];
	thread->stable = true;
	thread->wait.state = WAIT_OUTSIDE;
	thread->wait.tid = tid;
	return thread;
}

/* The newest operation of rank r, running since `ago` seconds, by its first thread. */
TEST_UNUSED static struct diagnose_record *test_call(struct diagnose_snapshot *snapshot, int r,
						     struct trace_record op, unsigned ago,
						     const char *site)
{
	struct diagnose_rank *rank = &snapshot->ranks[r];
	struct diagnose_record *record = &rank->records[0];
	uint64_t index = rank->record_count ? record->record.index + 1 : 1;
	assert_true(rank->record_count < DIAGNOSE_RECORD_MAX);
	memmove(record + 1, record, rank->record_count++ * sizeof *record);
	*record = (struct diagnose_record){.record = op, .begin_ns = test_now - ago * test_second};
	record->record.index = index;
	record->record.group = TEST_GROUP;
	record->record.state = TRACE_RUNNING;
	record->record.tid = 100 + (uint32_t)r;
	snprintf(record->site, sizeof record->site, "%s", site);
	return record;
}

/* As test_call, and finished `ago` seconds ago. */
TEST_UNUSED static struct diagnose_record *test_done(struct diagnose_snapshot *snapshot, int r,
						     struct trace_record op, unsigned ago,
						     const char *site)
{
	struct diagnose_record *record = test_call(snapshot, r, op, ago + 1, site);
	record->record.state = TRACE_DONE;
	record->end_ns = test_now - ago * test_second;
	return record;
}

TEST_UNUSED static struct trace_record test_allreduce(uint64_t seq)
{
	return (struct trace_record){.kind = TRACE_ALLREDUCE,
				     .seq = seq,
				     .count = 1000,
				     .dtype = LS_FLOAT32,
				     .reduce_op = LS_SUM,
				     .peer = -1};
}

TEST_UNUSED static struct trace_record test_broadcast(uint64_t seq, int root)
{
	return (struct trace_record){.kind = TRACE_BROADCAST,
				     .seq = seq,
				     .count = 1000,
				     .dtype = LS_FLOAT32,
				     .peer = root};
}

TEST_UNUSED static struct trace_record test_barrier(uint64_t seq)
{
	return (struct trace_record){.kind = TRACE_BARRIER, .seq = seq, .peer = -1};
}

TEST_UNUSED static struct trace_record test_point(uint16_t kind, int peer, int tag)
{
	return (struct trace_record){
		.kind = kind, .seq = 1, .count = 1000, .dtype = LS_FLOAT32, .peer = peer, .tag = tag};
}

/* `thread` of rank r waits in its rank's newest operation, as long as that lasts, for all of
 * `peers`. */
TEST_UNUSED static void test_wait_on(struct diagnose_snapshot *snapshot, int r,
				     struct diagnose_thread *thread, uint64_t peers)
{
	struct diagnose_record *record = &snapshot->ranks[r].records[0];
	struct wait_slot_body *wait = &thread->wait;
	wait->state = WAIT_WORDS;
	wait->group = TEST_GROUP;
	wait->record = record->record.index;
	wait->since_ns = record->begin_ns;
	wait->deadline_ns = UINT64_MAX;
	wait->edge_count = 0;
	for (int p = 0; p < 64; p++)
		if (peers >> p & 1)
			wait->edges[wait->edge_count++] = (struct wait_edge){
				.owner = p, .peer = p, .value = 1, .segment = WAIT_SEGMENT_MAPPED};
	thread->satisfied = 0;
	record->record.tid = wait->tid;
}

TEST_UNUSED static void test_wait(struct diagnose_snapshot *snapshot, int r, uint64_t peers)
{
	test_wait_on(snapshot, r, &snapshot->ranks[r].threads[0], peers);
}

/* All ranks have done all-reduce #57; those of `waiting` wait since 2 s in #58 for those of
 * `absent`. */
TEST_UNUSED static struct diagnose_snapshot *test_absent(int size, uint64_t absent)
{
	struct diagnose_snapshot *snapshot = test_snapshot(size);
	for (int r = 0; r < size; r++) {
		test_done(snapshot, r, test_allreduce(57), 3, "train.c:211");
		if (absent >> r & 1)
			continue;
		test_call(snapshot, r, test_allreduce(58), 2, "train.c:211");
		test_wait(snapshot, r, absent);
	}
	return snapshot;
}

/* Rank r waits in a receive from `peers`[r] for each r below `size`; -1: it does not. */
TEST_UNUSED static struct diagnose_snapshot *test_ring(int size, const int *peers)
{
	struct diagnose_snapshot *snapshot = test_snapshot(size);
	for (int r = 0; r < size; r++) {
		if (peers[r] < 0)
			continue;
		test_call(snapshot, r, test_point(TRACE_RECV, peers[r], 7), 2, "ring.c:5");
		test_wait(snapshot, r, test_bit(peers[r]));
	}
	return snapshot;
}

TEST_UNUSED static uint64_t test_all(int size)
{
	return size == 64 ? UINT64_MAX : (UINT64_C(1) << size) - 1;
}

TEST_UNUSED static struct diagnose_verdict test_judge(const struct diagnose_snapshot *snapshot,
						      const struct diagnose_hint *hint)
{
	struct diagnose_verdict verdict;
	assert_true(diagnose_snapshot_is_valid(snapshot, diagnose_snapshot_bytes(snapshot->size)));
	diagnose_judge(snapshot, hint, &verdict);
	return verdict;
}

/* Judges, compares, and frees the snapshot. */
TEST_UNUSED static void test_verdict(struct diagnose_snapshot *snapshot,
				     const struct diagnose_hint *hint, struct diagnose_verdict want)
{
	struct diagnose_verdict got = test_judge(snapshot, hint);
	assert_string_equal(diagnose_cause_name(got.cause), diagnose_cause_name(want.cause));
	assert_int_equal(got.status, want.status);
	assert_int_equal(got.culprit, want.culprit);
	assert_int_equal(test_bits(got.culprits), test_bits(want.culprits));
	assert_int_equal(test_bits(got.waiting), test_bits(want.waiting));
	assert_int_equal(got.seq, want.seq);
	free(snapshot);
}

/* The verdict, of which a deadlock is one in the first operation; frees the snapshot. */
TEST_UNUSED static void test_judged_waits(struct diagnose_snapshot *snapshot,
					  enum diagnose_cause cause, uint64_t culprits,
					  uint64_t waiting)
{
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_string_equal(diagnose_cause_name(got.cause), diagnose_cause_name(cause));
	assert_int_equal(test_bits(got.culprits), culprits);
	assert_int_equal(test_bits(got.waiting), waiting);
	if (cause == DIAGNOSE_DEADLOCK) {
		assert_int_equal(got.status, LS_DEADLOCK);
		assert_int_equal(got.culprit, __builtin_popcountll(culprits) == 1
						      ? __builtin_ctzll(culprits)
						      : -1);
		assert_int_equal(got.seq, 1);
	}
	free(snapshot);
}

#endif
