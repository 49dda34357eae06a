/* SPDX-License-Identifier: BSD-3-Clause
 * Operations that stand behind others on a stream, on live memory. */
#include "diagnose/behind_fixture.h"

static void a_cycle(void **state)
{
	struct stream_fixture *fixture = *state;
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_verdict verdict;
	assert_true(is_deadlock(fixture));
	diagnose_judge(fixture->collect->snapshot, NULL, &verdict);
	diagnose_text(fixture->collect->snapshot, &verdict, text, sizeof text);
	assert_non_null(strstr(text, "\nA stream does its work in order: on rank 0 "));
	/* The thread that waits for the device alone shows no rank of its own. */
	const struct diagnose_thread *thread = &fixture->collect->snapshot->ranks[0].threads[1];
	assert_int_equal(thread->wait.edge_count, 1);
	assert_int_equal(thread->wait.edges[0].peer, 1);
	assert_int_equal(thread->wait.edges[0].record, fixture->front[0]);
	assert_int_equal(thread->behind, 1);
}

/* The thread that has put an operation there waits until the stream has passed that one, because
 * the queue has no room. */
static void a_launch(void **state)
{
	struct stream_fixture *fixture = *state;
	struct wait_slot_body launch = wait_for_device(fixture, 0);
	launch.group = ONE;
	launch.record = launch.edges[0].offset = fixture->front[0];
	publish(fixture->collect, 0, 1, &launch);
	assert_true(is_deadlock(fixture));
	atomic_store(&fixture->collect->segments[0][0], 5);
	assert_false(is_deadlock(fixture));
}

/* The stream waits for an operation on another stream, too, whichever of the two holds it up. */
static void a_stream_that_follows(void **state)
{
	struct stream_fixture *fixture = *state;
	struct trace *trace = &fixture->collect->traces[0];
	struct trace_begin begin = {
		.kind = TRACE_SEND, .group = GROUP, .seq = 1, .peer = 1, .stream = TRACE_ON_STREAM};
	uint64_t sent = trace_begin(trace, &begin), busy = trace_begin(trace, &begin);
	trace_stream(trace, sent, TRACE_REACHED);
	trace_behind(trace, fixture->behind[0], fixture->front[0], sent);
	assert_true(is_deadlock(fixture));
	trace_behind(trace, fixture->behind[0], sent, fixture->front[0]);
	assert_true(is_deadlock(fixture));
	trace_behind(trace, fixture->behind[0], busy, fixture->front[0]);
	assert_true(is_deadlock(fixture));
	trace_behind(trace, fixture->behind[0], sent, busy);
	assert_false(is_deadlock(fixture));
}

/* A third operation on that stream, which nobody waits for, is not the one that is told. */
static void the_pair_that_matters(void **state)
{
	struct stream_fixture *fixture = *state;
	char text[DIAGNOSE_TEXT_BYTES];
	struct diagnose_verdict verdict;
	uint64_t last = add_collective(fixture->collect, 0, GROUP, LAUNCHED);
	trace_behind(&fixture->collect->traces[0], last, fixture->behind[0], 0);
	assert_true(is_deadlock(fixture));
	diagnose_judge(fixture->collect->snapshot, NULL, &verdict);
	diagnose_text(fixture->collect->snapshot, &verdict, text, sizeof text);
	assert_non_null(strstr(text, "on rank 0 all-reduce #1 of group 6"));
	assert_non_null(strstr(text, "\nstands behind all-reduce #1 of group 5"));
}

/* ---- what the device may still do ---- */

static void nothing_is_in_front(void **state)
{
	struct stream_fixture *fixture = *state;
	trace_behind(&fixture->collect->traces[0], fixture->behind[0], 0, 0);
	assert_false(is_deadlock(fixture));
	/* Its device holds up that rank, and it is told. */
	struct diagnose_verdict verdict;
	diagnose_judge(fixture->collect->snapshot, NULL, &verdict);
	assert_int_equal(verdict.cause, DIAGNOSE_ELSEWHERE);
	assert_int_equal(test_bits(verdict.culprits), 1);
}

/* The trace had no room for the operation. */
static void no_record(void **state)
{
	struct stream_fixture *fixture = *state;
	struct wait_slot_body behind = wait_for_device(fixture, 0);
	behind.record = behind.edges[0].offset = 0;
	publish(fixture->collect, 0, 1, &behind);
	assert_false(is_deadlock(fixture));
}

static void what_is_in_front_is_done(void **state)
{
	struct stream_fixture *fixture = *state;
	trace_end(&fixture->collect->traces[0], fixture->front[0], LS_OK);
	assert_false(is_deadlock(fixture));
}

/* The stream goes on, although the record still runs. */
static void what_is_in_front_has_ended_on_the_stream(void **state)
{
	struct stream_fixture *fixture = *state;
	struct trace *trace = &fixture->collect->traces[0];
	trace_stream(trace, fixture->front[0], TRACE_ARRIVED);
	assert_false(is_deadlock(fixture));
}

static void what_is_in_front_is_given_up(void **state)
{
	struct stream_fixture *fixture = *state;
	struct trace *trace = &fixture->collect->traces[0];
	trace_stream(trace, fixture->front[0], TRACE_LET_GO);
	assert_false(is_deadlock(fixture));
}

/* A word has come, and the thread has not seen it. */
static void what_is_in_front_has_its_word(void **state)
{
	struct stream_fixture *fixture = *state;
	atomic_store(&fixture->collect->segments[0][0], 5);
	assert_false(is_deadlock(fixture));
}

/* ---- messages ---- */

/* On rank 0 a receive of a third group is in front, which no thread shows. Returns its record. */
static uint64_t put_receive_from(struct stream_fixture *fixture, int peer, uint32_t wildcards,
				 uint32_t steps)
{
	struct trace *trace = &fixture->collect->traces[0];
	struct trace_begin begin = {.kind = TRACE_RECV,
				    .group = GROUP,
				    .seq = 1,
				    .peer = peer,
				    .tag = 7,
				    .wildcards = wildcards,
				    .stream = TRACE_ON_STREAM};
	uint64_t receive = trace_begin(trace, &begin);
	trace_stream(trace, receive, (enum trace_stream)steps);
	trace_behind(trace, fixture->behind[0], receive, 0);
	return receive;
}

static void put_receive_in_front(struct stream_fixture *fixture, uint32_t steps)
{
	put_receive_from(fixture, 1, 0, steps);
}

static void a_receive(void **state)
{
	struct stream_fixture *fixture = *state;
	put_receive_in_front(fixture, LAUNCHED);
	assert_true(is_deadlock(fixture));
	put_receive_in_front(fixture, ARRIVED);
	assert_false(is_deadlock(fixture));
}

/* Rank 2 may still send what the receive takes, until it waits for the others itself, or is gone
 * from the group of the receive. */
static void a_receive_of_any_source(void **state)
{
	struct stream_fixture *fixture = *state;
	struct collect_fixture *collect = fixture->collect;
	struct wait_slot_body body = wait_for(2, 0);
	uint64_t receive = put_receive_from(fixture, -1, TRACE_ANY_SOURCE, LAUNCHED);
	assert_false(is_deadlock(fixture));
	/* It has a message, which rank 1 has to complete. */
	trace_matched(&collect->traces[0], receive, 1, 7);
	assert_true(is_deadlock(fixture));
	receive = put_receive_from(fixture, -1, TRACE_ANY_SOURCE, LAUNCHED);
	assert_false(is_deadlock(fixture));
	publish(collect, 2, 0, &body);
	assert_int_equal(deadlocked(fixture), 7);
	body.has_own_limit = 1;
	publish(collect, 2, 0, &body);
	assert_int_equal(deadlocked(fixture), 0);
	atomic_store(&collect->traces[2].groups[0].state, TRACE_GROUP_CLOSED);
	assert_int_equal(deadlocked(fixture), 3);
	collect->sources[1].process = DIAGNOSE_PROCESS_DEAD;
	assert_int_equal(deadlocked(fixture), 0);
}

/* In front is a receive that only this rank itself could serve, because all others have closed the
 * group. */
static void a_receive_that_only_this_rank_can_serve(void **state)
{
	struct stream_fixture *fixture = *state;
	struct collect_fixture *collect = fixture->collect;
	put_receive_from(fixture, -1, TRACE_ANY_SOURCE, LAUNCHED);
	for (int r = 1; r < SIZE; r++)
		atomic_store(&collect->traces[r].groups[0].state, TRACE_GROUP_CLOSED);
	assert_int_equal(deadlocked(fixture), 3);
}

/* A send is over for the stream once it has been copied. Until then what is in front of the send is
 * in front of all. */
static void a_send(void **state)
{
	struct stream_fixture *fixture = *state;
	struct trace *trace = &fixture->collect->traces[0];
	struct trace_begin begin = {
		.kind = TRACE_SEND, .group = ONE, .seq = 1, .peer = 1, .stream = TRACE_ON_STREAM};
	uint64_t send = trace_begin(trace, &begin);
	trace_stream(trace, send, TRACE_LAUNCHED);
	trace_behind(trace, send, fixture->front[0], 0);
	trace_behind(trace, fixture->behind[0], send, 0);
	assert_true(is_deadlock(fixture));
	trace_stream(trace, send, TRACE_REACHED);
	assert_false(is_deadlock(fixture));
}

/* A thread that waits until the stream has copied a send goes on when that has been done, although
 * the receiver has not come. */
static void a_send_that_is_copied_meanwhile(void **state)
{
	struct stream_fixture *fixture = *state;
	struct trace *trace = &fixture->collect->traces[0];
	struct trace_begin begin = {
		.kind = TRACE_SEND, .group = ONE, .seq = 1, .peer = 1, .stream = TRACE_ON_STREAM};
	uint64_t send = trace_begin(trace, &begin);
	struct wait_slot_body copies = wait_for_device(fixture, 0);
	trace_stream(trace, send, TRACE_LAUNCHED);
	trace_behind(trace, send, fixture->front[0], 0);
	copies.group = ONE;
	copies.record = copies.edges[0].offset = send;
	publish(fixture->collect, 0, 1, &copies);
	assert_true(is_deadlock(fixture));
	trace_stream(trace, send, TRACE_REACHED);
	assert_false(is_deadlock(fixture));
}

/* ---- the group of what is in front ends ---- */

static void a_group_that_has_failed(void **state)
{
	struct stream_fixture *fixture = *state;
	put_receive_in_front(fixture, LAUNCHED);
	atomic_store(&fixture->collect->segments[0][CAUSE], 1);
	assert_false(is_deadlock(fixture));
}

/* The group of the operation in the middle has failed. So that operation ends, whatever the group
 * in front of it does. */
static void a_group_in_the_middle_that_has_failed(void **state)
{
	struct stream_fixture *fixture = *state;
	struct trace *trace = &fixture->collect->traces[0];
	struct trace_begin begin = {.kind = TRACE_ALLREDUCE,
				    .group = GROUP,
				    .seq = 1,
				    .peer = -1,
				    .stream = TRACE_ON_STREAM};
	uint64_t first = trace_begin(trace, &begin);
	begin.seq = 2;
	uint64_t second = trace_begin(trace, &begin);
	trace_behind(trace, first, fixture->front[0], 0);
	trace_behind(trace, fixture->behind[0], second, 0);
	assert_true(is_deadlock(fixture));
	atomic_store(&fixture->collect->segments[0][CAUSE], 1);
	assert_false(is_deadlock(fixture));
}

static void a_time_limit_of_its_own(void **state)
{
	struct stream_fixture *fixture = *state;
	put_receive_in_front(fixture, LAUNCHED);
	atomic_store(&fixture->collect->traces[0].groups[0].limits, 1);
	assert_false(is_deadlock(fixture));
}

static void a_member_that_has_left(void **state)
{
	struct stream_fixture *fixture = *state;
	put_receive_in_front(fixture, LAUNCHED);
	atomic_store(&fixture->collect->traces[1].groups[0].state, TRACE_GROUP_CLOSED);
	assert_false(is_deadlock(fixture));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_STREAMS(a_cycle),
		ON_STREAMS(the_pair_that_matters),
		ON_STREAMS(a_launch),
		ON_STREAMS(a_stream_that_follows),
		ON_STREAMS(nothing_is_in_front),
		ON_STREAMS(no_record),
		ON_STREAMS(what_is_in_front_is_done),
		ON_STREAMS(what_is_in_front_has_ended_on_the_stream),
		ON_STREAMS(what_is_in_front_is_given_up),
		ON_STREAMS(what_is_in_front_has_its_word),
		ON_STREAMS(a_group_that_has_failed),
		ON_STREAMS(a_group_in_the_middle_that_has_failed),
		ON_STREAMS(a_time_limit_of_its_own),
		ON_STREAMS(a_member_that_has_left),
		ON_STREAMS(a_receive),
		ON_STREAMS(a_receive_of_any_source),
		ON_STREAMS(a_receive_that_only_this_rank_can_serve),
		ON_STREAMS(a_send),
		ON_STREAMS(a_send_that_is_copied_meanwhile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
