/* SPDX-License-Identifier: BSD-3-Clause
 * Jobs with several groups: a verdict is on one, whatever the state of the others; a cycle may go
 * through several; reports give ranks their numbers in the world, and operations their group. */
#include <pthread.h>
#include <sched.h>

#include "diagnose/collect_fixture.h"
#include "diagnose/snapshot_fixture.h"

enum { FIRST = 5, SECOND = 9 };

/* Rank r's newest record is of this group. */
static struct diagnose_record *in_group(struct diagnose_snapshot *snapshot, int r, uint32_t group,
					uint64_t members)
{
	struct diagnose_record *record = &snapshot->ranks[r].records[0];
	record->record.group = group;
	test_members(snapshot, group, members);
	return record;
}

static void wait_in(struct diagnose_snapshot *snapshot, int r, struct diagnose_thread *thread,
		    uint32_t group, uint64_t members, uint64_t peers)
{
	in_group(snapshot, r, group, members);
	test_wait_on(snapshot, r, thread, peers);
	thread->wait.group = group;
}

static void member_of(struct diagnose_snapshot *snapshot, int r, uint32_t id, uint32_t state,
		      const uint16_t *members, uint32_t size)
{
	struct diagnose_group *group = &snapshot->ranks[r].groups[snapshot->ranks[r].group_count++];
	*group = (struct diagnose_group){
		.id = id, .size = size, .state = state, .closed = state == TRACE_GROUP_CLOSED};
	group->first = members[0];
	test_members(snapshot, id, test_bit(members[0]) | test_bit(members[1]));
}

static struct diagnose_verdict ask(const struct diagnose_snapshot *snapshot, uint32_t group)
{
	struct diagnose_hint hint = {.status = LS_OK, .group = group};
	return test_judge(snapshot, &hint);
}

/* Ranks 0 and 1 have called different things in one group, which has failed for that. By now rank 0
 * waits in another for rank 2. */
static void an_old_mismatch_hides_nothing(void **state)
{
	(void)state;
	static const uint16_t members[] = {0, 1};
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	for (int r = 0; r < 2; r++) {
		test_done(snapshot, r, r ? test_barrier(3) : test_allreduce(3), 9, "old.c:1");
		in_group(snapshot, r, FIRST, 3)->record.state = TRACE_FAILED;
		member_of(snapshot, r, FIRST, TRACE_GROUP_FAILED, members, 2);
	}
	test_call(snapshot, 0, test_barrier(8), 2, "new.c:2");
	wait_in(snapshot, 0, &snapshot->ranks[0].threads[0], SECOND, 5, test_bit(2));
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_ELSEWHERE);
	assert_int_equal(got.culprit, 2);
	assert_int_equal(got.group, SECOND);
	assert_int_equal(ask(snapshot, SECOND).cause, DIAGNOSE_ELSEWHERE);
	diagnose_headline(snapshot, &got, text, sizeof text);
	assert_non_null(strstr(text, "while rank 0 waits in barrier #8 of group 9 (ranks 0 and 2)"));
	got = ask(snapshot, FIRST);
	assert_int_equal(got.cause, DIAGNOSE_MISMATCH);
	assert_int_equal(test_bits(got.culprits), 3);
	diagnose_headline(snapshot, &got, text, sizeof text);
	assert_non_null(strstr(text, "as #3 of group 5 (ranks 0 and 1): rank 0 all-reduce"));
	/* When no rank waits any more, the mismatch is what there is to report. */
	snapshot->ranks[0].threads[0].wait.state = WAIT_OUTSIDE;
	assert_int_equal(test_judge(snapshot, NULL).cause, DIAGNOSE_MISMATCH);
	/* Once a rank has closed the group it is history, unless that rank has left the job. */
	snapshot->ranks[0].groups[0].state = TRACE_GROUP_CLOSED;
	assert_int_equal(test_judge(snapshot, NULL).cause, DIAGNOSE_HEALTHY);
	snapshot->ranks[0].left = true;
	assert_int_equal(test_judge(snapshot, NULL).cause, DIAGNOSE_MISMATCH);
	free(snapshot);
}

/* A group that all have closed, and whose place rank 0 has used again: it cannot tell any more who
 * was its root. */
static void a_place_that_is_used_again(void **state)
{
	(void)state;
	static const uint16_t members[] = {0, 1};
	struct diagnose_snapshot *snapshot = test_snapshot(2);
	for (int r = 0; r < 2; r++) {
		test_done(snapshot, r, test_broadcast(1, r ? 1 : -1), 9, "old.c:1");
		in_group(snapshot, r, FIRST, r ? 3 : 0);
	}
	assert_int_equal(test_judge(snapshot, NULL).cause, DIAGNOSE_HEALTHY);
	member_of(snapshot, 1, FIRST, TRACE_GROUP_CLOSED, members, 2);
	assert_int_equal(test_judge(snapshot, NULL).cause, DIAGNOSE_HEALTHY);
	assert_int_equal(ask(snapshot, FIRST).cause, DIAGNOSE_HEALTHY);
	snapshot->ranks[0].records[0].record.peer = 0;
	assert_int_equal(ask(snapshot, FIRST).cause, DIAGNOSE_MISMATCH);
	assert_int_equal(test_judge(snapshot, NULL).cause, DIAGNOSE_HEALTHY);
	free(snapshot);
}

/* A rank that has closed one group is gone from that one only. */
static void one_group_is_left(void **state)
{
	(void)state;
	static const uint16_t members[] = {2, 0};
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	test_done(snapshot, 2, test_barrier(1), 4, "a.c:1");
	in_group(snapshot, 2, FIRST, 5);
	member_of(snapshot, 2, FIRST, TRACE_GROUP_CLOSED, members, 2);
	member_of(snapshot, 2, SECOND, TRACE_GROUP_OPEN, members, 2);
	test_call(snapshot, 0, test_barrier(2), 2, "a.c:1");
	wait_in(snapshot, 0, &snapshot->ranks[0].threads[0], FIRST, 5, test_bit(2));
	struct diagnose_verdict got = test_judge(snapshot, NULL);
	assert_int_equal(got.cause, DIAGNOSE_LEFT);
	assert_int_equal(got.culprit, 2);
	diagnose_headline(snapshot, &got, text, sizeof text);
	assert_string_equal(text,
			    "rank 2 closed the group after barrier #1 of group 5 (ranks 0 and 2) "
			    "while rank 0 waits in barrier #2 of group 5 (ranks 0 and 2), called "
			    "from a.c:1");
	wait_in(snapshot, 0, &snapshot->ranks[0].threads[0], SECOND, 5, test_bit(2));
	assert_int_equal(test_judge(snapshot, NULL).cause, DIAGNOSE_ELSEWHERE);
	free(snapshot);
}

/* Rank 2 has closed the group without the broadcast for which rank 0 needed nobody. By now rank 0
 * waits for a message of any rank, in the group of all or in that one. */
static void one_group_is_left_by_whom_nobody_waits_for(void **state)
{
	(void)state;
	static const uint16_t members[] = {2, 0};
	char text[DIAGNOSE_TEXT_BYTES];
	for (int same = 0; same < 2; same++) {
		struct diagnose_snapshot *snapshot = test_snapshot(3);
		test_done(snapshot, 2, test_barrier(1), 4, "a.c:1");
		in_group(snapshot, 2, FIRST, 5);
		member_of(snapshot, 2, FIRST, TRACE_GROUP_CLOSED, members, 2);
		test_call(snapshot, 0, test_point(TRACE_RECV, -1, 7), 3, "b.c:2");
		if (same)
			wait_in(snapshot, 0, &snapshot->ranks[0].threads[0], FIRST, 5, test_bit(2));
		else
			test_wait_on(snapshot, 0, &snapshot->ranks[0].threads[0],
				     test_bit(1) | test_bit(2));
		test_done(snapshot, 0, test_broadcast(2, 0), 2, "a.c:1");
		in_group(snapshot, 0, FIRST, 5);
		struct diagnose_hint hint = {LS_PEER_LEFT, .peer = 2, .group = FIRST, .seq = 2,
					     .seq_is_collective = true};
		struct diagnose_verdict got = test_judge(snapshot, &hint);
		diagnose_headline(snapshot, &got, text, sizeof text);
		assert_string_equal(
			text,
			"rank 2 closed the group after barrier #1 of group 5 (ranks 0 and 2) "
			"but rank 0 called broadcast #2 of group 5 (ranks 0 and 2), called from "
			"a.c:1");
		free(snapshot);
	}
}

/* Rank 0 waits for rank 1 in one group, and rank 1 for rank 0 in the other; rank 2 waits for rank 0
 * in a third, but another of its threads may do something. */
static void a_cycle_through_two(void **state)
{
	(void)state;
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	test_call(snapshot, 0, test_barrier(1), 2, "a.c:1");
	wait_in(snapshot, 0, &snapshot->ranks[0].threads[0], FIRST, 3, test_bit(1));
	test_call(snapshot, 1, test_allreduce(1), 2, "b.c:1");
	wait_in(snapshot, 1, &snapshot->ranks[1].threads[0], SECOND, 3, test_bit(0));
	test_call(snapshot, 2, test_barrier(1), 2, "c.c:1");
	wait_in(snapshot, 2, &snapshot->ranks[2].threads[0], 33, 5, test_bit(0));
	test_thread(snapshot, 2, 77);
	uint32_t groups[] = {0, FIRST, SECOND};
	for (int i = 0; i < 3; i++) {
		struct diagnose_verdict got = ask(snapshot, groups[i]);
		assert_int_equal(got.cause, DIAGNOSE_DEADLOCK);
		assert_int_equal(test_bits(got.culprits), 3);
		diagnose_headline(snapshot, &got, text, sizeof text);
		assert_string_equal(
			text,
			"ranks 0 and 1 wait for each other and can never go on: rank 0 waits "
			"for rank 1 (barrier #1 of group 5 (ranks 0 and 1), called from a.c:1), "
			"rank 1 waits for rank 0 (all-reduce #1 of group 9 (ranks 0 and 1), "
			"called from b.c:1)");
	}
	assert_int_not_equal(ask(snapshot, 33).cause, DIAGNOSE_DEADLOCK);
	/* Without the other thread it cannot go on either. */
	snapshot->ranks[2].thread_count = 1;
	assert_int_equal(ask(snapshot, 33).cause, DIAGNOSE_DEADLOCK);
	free(snapshot);
}

/* Ranks 0 and 1 wait for each other in one group, each beside a thread that called last and is
 * away; rank 2 waits for rank 0 in another. */
static void those_that_wait_are_blamed(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	for (int r = 0; r < 2; r++) {
		test_call(snapshot, r, test_point(TRACE_RECV, 1 - r, 7), 2 + (unsigned)r, "a.c:1");
		wait_in(snapshot, r, &snapshot->ranks[r].threads[0], FIRST, 3, test_bit(1 - r));
		test_done(snapshot, r, test_point(TRACE_SEND, 1 - r, 8), 1, "a.c:2");
		in_group(snapshot, r, FIRST, 3)->record.tid = test_thread(snapshot, r, 77)->wait.tid;
	}
	test_call(snapshot, 2, test_barrier(1), 5, "b.c:1");
	wait_in(snapshot, 2, &snapshot->ranks[2].threads[0], SECOND, 5, test_bit(0));
	struct diagnose_verdict got = ask(snapshot, FIRST);
	assert_int_equal(got.cause, DIAGNOSE_ELSEWHERE);
	assert_int_equal(test_bits(got.culprits), 3);
	assert_int_equal(test_bits(got.waiting), test_bit(2));
	assert_int_equal(got.since_ns, test_now - 3 * test_second);
	assert_int_equal(got.witness, 1);
	free(snapshot);
}

/* Ranks 0 and 1 seem to be stuck. In the second group only a dead rank has waited for one. */
static void the_dead_wait_for_nobody(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	for (int r = 0; r < 3; r++) {
		test_call(snapshot, r, test_point(TRACE_RECV, r == 0, 7), 2, "a.c:1");
		wait_in(snapshot, r, &snapshot->ranks[r].threads[0], r < 2 ? FIRST : SECOND, 7,
			test_bit(r == 0));
		snapshot->ranks[r].awake = true;
	}
	assert_int_equal(ask(snapshot, SECOND).cause, DIAGNOSE_ELSEWHERE);
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_DEAD;
	assert_int_equal(ask(snapshot, SECOND).cause, DIAGNOSE_HEALTHY);
	assert_int_equal(ask(snapshot, FIRST).cause, DIAGNOSE_ELSEWHERE);
	free(snapshot);
}

/* A living rank is about to close one group of a cycle: ranks that wait there will continue. */
static void a_wait_about_to_end(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	test_call(snapshot, 0, test_barrier(1), 2, "a.c:1");
	wait_in(snapshot, 0, &snapshot->ranks[0].threads[0], FIRST, 3, test_bit(1));
	test_call(snapshot, 1, test_allreduce(1), 2, "b.c:1");
	wait_in(snapshot, 1, &snapshot->ranks[1].threads[0], SECOND, 3, test_bit(0));
	snapshot->ranks[1].threads[0].closing_rank = 1 + 2;
	assert_int_not_equal(test_judge(snapshot, NULL).cause, DIAGNOSE_DEADLOCK);
	/* A rank that has died, or is stopped, ends no wait. */
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_STOPPED;
	assert_int_equal(test_judge(snapshot, NULL).cause, DIAGNOSE_DEADLOCK);
	snapshot->ranks[2].process = DIAGNOSE_PROCESS_DEAD;
	assert_int_equal(test_judge(snapshot, NULL).cause, DIAGNOSE_DEADLOCK);
	snapshot->ranks[1].threads[0].closing_rank = 99; /* nonsense */
	assert_int_equal(test_judge(snapshot, NULL).cause, DIAGNOSE_DEADLOCK);
	free(snapshot);
}

/* A trace tells which ranks an operation had that was given up: only members are missing. */
static void only_members_are_missing(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = test_snapshot(4);
	struct diagnose_hint hint = {
		.status = LS_TIMED_OUT, .rank = 0, .peer = -1, .group = FIRST, .seq = 2};
	for (int r = 0; r < 4; r++) {
		test_done(snapshot, r, test_barrier(r == 2 ? 1 : 2), 3, "a.c:1");
		in_group(snapshot, r, FIRST, 7);
	}
	snapshot->ranks[3].record_count = 0;
	snapshot->ranks[0].records[0].record.state = TRACE_RUNNING;
	struct diagnose_verdict got = test_judge(snapshot, &hint);
	assert_int_equal(got.cause, DIAGNOSE_ELSEWHERE);
	assert_int_equal(test_bits(got.culprits), test_bit(2));
	free(snapshot);
}

/* ---- from traces ---- */

/* A snapshot knows the groups that are waited in, however many there are, and names world ranks. */
static void peers_are_translated(void **state)
{
	struct collect_fixture *fixture = *state;
	struct trace *trace = &fixture->traces[0];
	static const uint16_t members[] = {2, 0};
	struct trace_membership membership = {
		.size = 2, .rank = 1, .first_area = 6, .members = members};
	for (uint32_t i = 1; i < 100; i++) {
		membership.id = 1000 + i;
		trace_group_fill(trace, (int)i, &membership);
	}
	struct trace_begin begin = {.group = 1080, .kind = TRACE_RECV, .peer = 0, .seq = 1};
	trace_begin(trace, &begin);
	begin.peer = 7; /* nonsense */
	trace_begin(trace, &begin);
	begin.group = 55; /* of which nothing is known */
	begin.peer = 0;
	trace_begin(trace, &begin);
	struct wait_slot_body body = wait_for(1, 2);
	body.group = 1077; /* of another rank */
	publish(fixture, 1, 0, &body);
	struct diagnose_rank *rank = collect(fixture, 0);
	assert_int_equal(rank->record_count, 3);
	assert_null(diagnose_members(fixture->snapshot, rank->records[0].record.group));
	for (int i = 0; i < 3; i++)
		assert_int_equal(rank->records[i].record.peer, i == 2 ? 2 : -1);
	assert_int_equal(
		test_bits(*diagnose_members(fixture->snapshot, rank->records[2].record.group)), 5);
	assert_int_equal(rank->group_count, DIAGNOSE_GROUP_MAX);
	const struct diagnose_group *group = diagnose_find_group(fixture->snapshot, 1077);
	assert_non_null(group);
	assert_int_equal(group->size, 2);
	assert_int_equal(group->first_area, 6);
	assert_int_equal(group->first, 2);
	assert_int_equal(test_bits(*diagnose_members(fixture->snapshot, 1077)), 5);
	assert_non_null(diagnose_find_group(fixture->snapshot, 1080));
	assert_null(diagnose_find_group(fixture->snapshot, 55));
	/* Members that cannot be are none. */
	membership.id = 1077;
	membership.members = (const uint16_t[]){SIZE, 0};
	trace_group_fill(trace, 77, &membership);
	collect(fixture, 0);
	assert_null(diagnose_find_group(fixture->snapshot, 1077));
	assert_null(diagnose_members(fixture->snapshot, 1077));
}

/* All groups that are waited in are looked at; of a rank that is in more of them than there is room
 * for nothing is proved. */
static void many_groups_are_waited_in(void **state)
{
	struct collect_fixture *fixture = *state;
	static const uint16_t members[] = {2, 0};
	for (int i = 0; i < DIAGNOSE_GROUP_MAX + 1; i++) {
		struct trace_membership membership = {
			.id = 1000 + (uint32_t)i, .size = 2, .members = members};
		struct wait_slot_body body = wait_for(1, 2);
		trace_group_fill(&fixture->traces[0], 1 + i, &membership);
		body.group = membership.id;
		assert_false(collect(fixture, 0)->incomplete);
		publish(fixture, i / WAIT_SLOT_MAX, i % WAIT_SLOT_MAX, &body);
	}
	assert_true(collect(fixture, 0)->incomplete);
	assert_false(fixture->snapshot->ranks[1].incomplete);
}

/* Whether a group has failed, or is being explained, is read where its members say. */
static void how_a_wait_ends(void **state)
{
	struct collect_fixture *fixture = *state;
	static const uint16_t members[] = {2, 0};
	struct trace_membership membership = {.id = 55,
					      .size = 2,
					      .rank = 1,
					      .claim_offset = 8 * 8,
					      .cause_offset = 9 * 8,
					      .members = members};
	struct trace_group *entry = trace_group_fill(&fixture->traces[0], 3, &membership);
	struct wait_slot_body body = wait_for(0, 2);
	body.group = 55;
	publish(fixture, 0, 0, &body);
	_Atomic uint64_t *claim = &fixture->segments[2][8], *cause = &fixture->segments[2][9];
	uint64_t id = UINT64_C(55) << 32;
	atomic_store(claim, id);
	atomic_store(cause, id);
	const struct diagnose_thread *thread = &collect(fixture, 0)->threads[0];
	assert_true(thread->stable);
	assert_int_equal(thread->closing_rank, 0);
	atomic_store(claim, id + 2);
	collect(fixture, 0);
	assert_true(thread->stable);
	assert_int_equal(thread->closing_rank, 2);
	/* The rank that closes it asks what would be if it stayed open; others do not. */
	struct diagnose_closing closing = {2, (const uint32_t[]){GROUP, 55}};
	diagnose_collect(fixture->sources, SIZE, &closing, fixture->snapshot);
	assert_int_equal(thread->closing_rank, 0);
	closing.count = 1;
	diagnose_collect(fixture->sources, SIZE, &closing, fixture->snapshot);
	assert_int_equal(thread->closing_rank, 2);
	atomic_store(cause, id + 2);
	collect(fixture, 0);
	assert_false(thread->stable);
	atomic_store(cause, id);
	/* The snapshot shows that the rank has closed it. */
	atomic_store(&entry->state, TRACE_GROUP_CLOSED);
	assert_true(diagnose_has_left(collect(fixture, 0), 55));
	assert_false(diagnose_has_left(collect(fixture, 0), 1));
	/* Offsets out of the segment are no words. */
	membership.cause_offset = 8 * WORDS;
	trace_group_fill(&fixture->traces[0], 3, &membership);
	collect(fixture, 0);
	assert_true(thread->stable);
	assert_int_equal(thread->closing_rank, 0);
}

/* Nobody waited in it when the look began: that it closes later proves nothing of the meantime. */
static void what_is_closed_late(void **state)
{
	struct collect_fixture *fixture = *state;
	static const uint16_t members[] = {0, 1};
	struct trace_membership membership = {.id = 56, .size = 2, .members = members};
	atomic_store(&trace_group_fill(&fixture->traces[0], 3, &membership)->state,
		     TRACE_GROUP_CLOSED);
	struct diagnose_rank *rank = collect(fixture, 0);
	assert_non_null(diagnose_group_of(rank, 56));
	assert_int_equal(diagnose_group_of(rank, 56)->state, TRACE_GROUP_CLOSED);
	assert_false(diagnose_has_left(rank, 56));
}

/* ---- an entry that is used again meanwhile ---- */

struct filling {
	struct trace *trace;
	_Atomic int looks; /* -1: no more */
};

static void *fill_again(void *argument)
{
	struct filling *filling = argument;
	int looks = 0;
	for (uint32_t id = 2; looks >= 0; id++) {
		uint16_t number = id & 63, members[SIZE] = {number, number};
		trace_group_fill(filling->trace, 3,
				 &(struct trace_membership){.id = id,
							    .parent = id,
							    .size = 2,
							    .first_area = id,
							    .rank = (int32_t)id,
							    .claim_offset = id,
							    .cause_offset = id,
							    .members = members});
		/* The next one while somebody looks. */
		while (atomic_load(&filling->looks) == looks)
			sched_yield();
		looks = atomic_load(&filling->looks);
	}
	return NULL;
}

static void is_one(const struct diagnose_group *group)
{
	assert_int_equal(group->parent, group->id);
	assert_int_equal(group->first_area, group->id);
	assert_int_equal(group->rank, group->id);
	assert_int_equal(group->claim_offset, group->id);
	assert_int_equal(group->cause_offset, group->id);
	assert_int_equal(group->first, group->id & 63);
}

/* A group's place is reused while it is copied: the copy is that of one group, not a mixture. */
static void one_after_the_other(void **state)
{
	enum { DIFFERENT = 1000 };
	struct collect_fixture *fixture = *state;
	struct diagnose_rank *rank = &fixture->snapshot->ranks[0];
	struct filling filling = {.trace = &fixture->traces[0]};
	struct trace_header *header = filling.trace->header;
	/* where the writer has it, as the thread sanitizer goes by addresses */
	struct trace_view view;
	const char *why;
	pthread_t writer;
	uint32_t last = 0;
	assert_true(trace_check(header, header->total_bytes, &view, &why));
	assert_int_equal(pthread_create(&writer, NULL, fill_again, &filling), 0);
	for (int seen = 0; seen < DIFFERENT;) {
		memset(rank, 0, sizeof *rank);
		atomic_fetch_add(&filling.looks, 1);
		diagnose_copy_groups_last(&view, fixture->snapshot, rank);
		for (uint32_t i = 0; i < rank->group_count; i++) {
			if (rank->groups[i].id == TRACE_GROUP_WORLD)
				continue;
			seen += rank->groups[i].id != last;
			last = rank->groups[i].id;
			is_one(&rank->groups[i]);
		}
	}
	atomic_store(&filling.looks, -1);
	pthread_join(writer, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_old_mismatch_hides_nothing),
		cmocka_unit_test(a_place_that_is_used_again),
		cmocka_unit_test(one_group_is_left),
		cmocka_unit_test(one_group_is_left_by_whom_nobody_waits_for),
		cmocka_unit_test(a_cycle_through_two),
		cmocka_unit_test(a_wait_about_to_end),
		cmocka_unit_test(those_that_wait_are_blamed),
		cmocka_unit_test(the_dead_wait_for_nobody),
		cmocka_unit_test(only_members_are_missing),
		cmocka_unit_test_setup_teardown(how_a_wait_ends, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_closed_late, set_up, tear_down),
		cmocka_unit_test_setup_teardown(one_after_the_other, set_up, tear_down),
		cmocka_unit_test_setup_teardown(peers_are_translated, set_up, tear_down),
		cmocka_unit_test_setup_teardown(many_groups_are_waited_in, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
