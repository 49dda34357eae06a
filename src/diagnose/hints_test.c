/* SPDX-License-Identifier: BSD-3-Clause
 * The lines on messages that match nothing, and the advice that fits the calls which wait. */
#include "diagnose/snapshot_fixture.h"

/* Whether the report says this, and only if it is wanted. */
static void check_says(struct diagnose_snapshot *snapshot, const char *part, bool wanted)
{
	char report[DIAGNOSE_TEXT_BYTES];
	struct diagnose_verdict verdict = test_judge(snapshot, NULL);
	diagnose_text(snapshot, &verdict, report, sizeof report);
	if (!strstr(report, part) == wanted)
		fail_msg("'%s' is %s in\n%s", part, wanted ? "not" : "also", report);
}

static void check(struct diagnose_snapshot *snapshot, const char *part)
{
	check_says(snapshot, part, true);
	free(snapshot);
}

static void check_not(struct diagnose_snapshot *snapshot, const char *part)
{
	check_says(snapshot, part, false);
	free(snapshot);
}

/* Rank 1 asks rank 0, which has left, for tag 7. */
static struct diagnose_snapshot *asked_in_vain(int peer, int tag)
{
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	struct trace_record op = test_point(TRACE_RECV, peer, tag);
	op.wildcards = (peer < 0 ? TRACE_ANY_SOURCE : 0u) | (tag < 0 ? TRACE_ANY_TAG : 0u);
	test_call(snapshot, 1, op, 2, "recv.c:5");
	test_wait(snapshot, 1, 1);
	snapshot->ranks[0].left = true;
	return snapshot;
}

static struct diagnose_message *lies_there(struct diagnose_snapshot *snapshot, int from, int tag)
{
	struct diagnose_message *message = &snapshot->messages[snapshot->message_count++];
	*message = (struct diagnose_message){.group = TEST_GROUP,
					     .from = from,
					     .to = 1,
					     .tag = tag,
					     .total = 1,
					     .count = 10,
					     .seq = 3,
					     .dtype = LS_FLOAT32,
					     .site = "send.c:9"};
	return message;
}

static struct diagnose_group *add_group(struct diagnose_snapshot *snapshot, int rank, uint32_t id)
{
	struct diagnose_group *group =
		&snapshot->ranks[rank].groups[snapshot->ranks[rank].group_count++];
	*group = (struct diagnose_group){.id = id, .size = 2};
	test_members(snapshot, id, 3);
	return group;
}

static void of_another_tag(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = asked_in_vain(0, 7);
	lies_there(snapshot, 0, 8);
	check(snapshot,
	      "\n  not received: send #3 of 10 float32 from rank 0 to rank 1 (tag 8), called from "
	      "send.c:9; rank 1 asks it for tag 7\n");
	snapshot = asked_in_vain(0, 7);
	lies_there(snapshot, 0, 8)->total = 5;
	check(snapshot, "; rank 1 asks it for tag 7 (5 messages of rank 0 to rank 1 wait)\n");
	snapshot = asked_in_vain(-1, 7);
	lies_there(snapshot, 0, 8);
	check(snapshot, "; rank 1 asks any rank for tag 7\n");
	/* What fits in nothing, or in all, explains nothing. */
	snapshot = asked_in_vain(0, 7);
	lies_there(snapshot, 2, 8);
	check_not(snapshot, "not received");
	snapshot = asked_in_vain(0, 7);
	lies_there(snapshot, 0, 7);
	check_not(snapshot, "not received");
}

static void of_another_source(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = asked_in_vain(0, 7);
	lies_there(snapshot, 2, 7);
	check(snapshot,
	      "from rank 2 to rank 1 (tag 7), called from send.c:9; rank 1 asks rank 0 for tag 7\n");
	snapshot = asked_in_vain(0, -1);
	lies_there(snapshot, 2, 8);
	check(snapshot, "; rank 1 asks rank 0 for any tag\n");
	/* Another tag is the likelier slip. */
	snapshot = asked_in_vain(0, 7);
	lies_there(snapshot, 2, 7);
	lies_there(snapshot, 0, 8);
	check(snapshot, "; rank 1 asks it for tag 7\n");
}

static void of_another_group(void **state)
{
	(void)state;
	struct diagnose_snapshot *snapshot = asked_in_vain(0, 7);
	lies_there(snapshot, 0, 7)->group = 5;
	add_group(snapshot, 1, 5);
	check(snapshot,
	      "\n  not received: send #3 of group 5 (ranks 0 and 1) of 10 float32 from rank 0 to rank "
	      "1 (tag 7), called from send.c:9; rank 1 asks for a message of the world group\n");
	snapshot = asked_in_vain(0, 7);
	lies_there(snapshot, 0, 7);
	snapshot->ranks[1].records[0].record.group = snapshot->ranks[1].threads[0].wait.group = 5;
	add_group(snapshot, 0, 5)->closed = 1;
	check(snapshot, "; rank 1 asks for a message of group 5 (ranks 0 and 1)\n");
}

static struct diagnose_snapshot *taken(uint32_t wildcards, int peer, int tag)
{
	struct diagnose_snapshot *snapshot = test_snapshot(3);
	struct diagnose_record *took =
		test_done(snapshot, 1, test_point(TRACE_RECV, peer, tag), 3, "any.c:4");
	took->record.wildcards = wildcards;
	test_call(snapshot, 1, test_point(TRACE_RECV, 0, 7), 2, "recv.c:5");
	test_wait(snapshot, 1, 1);
	snapshot->ranks[0].left = true;
	return snapshot;
}

static void what_another_receive_took(void **state)
{
	(void)state;
	check(taken(TRACE_ANY_SOURCE, 0, 7),
	      "\n  taken before: receive #1 of rank 1 from any rank, called from any.c:4, took a "
	      "message of rank 0 (tag 7)\n");
	check(taken(TRACE_ANY_TAG, 0, 7),
	      "receive #1 of rank 1 from rank 0 with any tag, called from any.c:4, took");
	check(taken(TRACE_ANY_SOURCE | TRACE_ANY_TAG, 0, 7), " from any rank with any tag, called");
	check_not(taken(0, 0, 7), "taken before");
	check_not(taken(TRACE_ANY_SOURCE, 2, 7), "taken before");
	check_not(taken(TRACE_ANY_SOURCE, 0, 8), "taken before");
	/* One that lies there says more. */
	struct diagnose_snapshot *snapshot = taken(TRACE_ANY_SOURCE, 0, 7);
	lies_there(snapshot, 0, 8);
	check_not(snapshot, "taken before");
}

static void advice_on_who_has_left(void **state)
{
	(void)state;
	check(asked_in_vain(0, 7), "\nLet each receive meet a send: compare group, source and tag");
	struct diagnose_snapshot *snapshot = test_snapshot(2);
	test_call(snapshot, 1, test_point(TRACE_SEND, 0, 7), 2, "send.c:5");
	test_wait(snapshot, 1, 1);
	snapshot->ranks[0].left = true;
	check(snapshot,
	      "\nLet the rank that it is sent to receive it before that one closes its group.");
	snapshot = test_absent(2, 1);
	snapshot->ranks[0].left = true;
	check(snapshot, "\nLet all ranks make the same calls: give each the same number of batches");
}

/* Each rank waits for the other in what is called there. */
static struct diagnose_snapshot *two(struct trace_record first, struct trace_record second)
{
	struct diagnose_snapshot *snapshot = test_snapshot(2);
	test_call(snapshot, 0, first, 2, "a.c:1");
	test_wait(snapshot, 0, 2);
	test_call(snapshot, 1, second, 2, "b.c:2");
	test_wait(snapshot, 1, 1);
	snapshot->ranks[1].records[0].record.group = 5;
	snapshot->ranks[1].threads[0].wait.group = 5;
	return snapshot;
}

static struct diagnose_snapshot *to_itself(uint16_t kind)
{
	struct diagnose_snapshot *snapshot = test_snapshot(2);
	test_call(snapshot, 1, test_point(kind, 1, 7), 2, "self.c:5");
	test_wait(snapshot, 1, 2);
	return snapshot;
}

static void advice_on_deadlocks(void **state)
{
	(void)state;
	check(two(test_barrier(1), test_barrier(1)),
	      "\nLet ranks that are in several of these groups make their calls in the same order.");
	check(two(test_point(TRACE_SEND, 1, 7), test_point(TRACE_SEND, 0, 7)),
	      "\nLet one of these ranks receive before it sends, or begin the sends with isend.");
	check(two(test_point(TRACE_RECV, 1, 7), test_point(TRACE_RECV, 0, 7)),
	      "\nChange the order of these calls on one of the ranks, for instance let it send");
	check(two(test_point(TRACE_SEND, 1, 7), test_barrier(1)),
	      "\nChange the order of these calls on one of the ranks");
	check(to_itself(TRACE_RECV), "\nA rank that receives from itself must have begun the send");
	check(to_itself(TRACE_SEND), "\nA rank that sends to itself must not block in the send");
}

/* Where a message nearly fits, is gone to another, or lies in the way, the order of the calls is
 * right. */
static void advice_on_messages_in_deadlocks(void **state)
{
	(void)state;
	struct trace_record send = test_point(TRACE_SEND, 1, 7),
			    receive = test_point(TRACE_RECV, 0, 7);
	struct diagnose_snapshot *snapshot = two(test_point(TRACE_RECV, 1, 7), receive);
	snapshot->ranks[1].records[0].record.group = TEST_GROUP;
	lies_there(snapshot, 0, 8);
	check(snapshot,
	      "\nLet each receive ask for what was sent: compare its group, source and tag");
	snapshot = test_snapshot(2);
	test_done(snapshot, 1, test_point(TRACE_RECV, 0, 7), 3, "any.c:4")->record.wildcards =
		TRACE_ANY_SOURCE;
	test_call(snapshot, 0, test_point(TRACE_RECV, 1, 7), 2, "a.c:1");
	test_wait(snapshot, 0, 2);
	test_call(snapshot, 1, receive, 2, "b.c:2");
	test_wait(snapshot, 1, 1);
	check(snapshot, "\nLet each receive meet a send of its own");
	snapshot = two(send, test_point(TRACE_SEND, 0, 7));
	lies_there(snapshot, 0, 8);
	check(snapshot,
	      "\nLet the rank that they are sent to receive the messages that are in the way.");
}

/* The advice on a rank that is elsewhere: while it may still come, and after the time limit. */
static void advice_on_who_is_late(void **state)
{
	(void)state;
	static const enum diagnose_process processes[] = {DIAGNOSE_PROCESS_STOPPED,
							  DIAGNOSE_PROCESS_SLEEPING};
	static const char *const before[] = {
		"\nLet it go on with `kill -CONT 102`",
		"\nNothing has failed yet. If the rank is only slow, wait."};
	static const char *const after[] = {"\nFind out who stopped it",
					    "\nIf the operation may take so long, raise"};
	for (int i = 0; i < 2; i++) {
		char report[DIAGNOSE_TEXT_BYTES];
		struct diagnose_snapshot *snapshot = test_absent(3, test_bit(2));
		snapshot->ranks[2].process = processes[i];
		check_says(snapshot, before[i], true);
		check_says(snapshot, after[i], false);
		struct diagnose_hint hint = {.status = LS_TIMED_OUT,
					     .rank = 0,
					     .peer = -1,
					     .group = TEST_GROUP,
					     .seq = 58};
		struct diagnose_verdict verdict = test_judge(snapshot, &hint);
		diagnose_text(snapshot, &verdict, report, sizeof report);
		if (!strstr(report, after[i]) || strstr(report, before[i]))
			fail_msg("not '%s' in\n%s", after[i], report);
		free(snapshot);
	}
}

/* The names of calls: a receive from any source, or with any tag, has no number for it. */
static void names_of_calls(void **state)
{
	(void)state;
	static const struct {
		struct trace_record op;
		const char *want;
	} cases[] = {
		{{.kind = TRACE_RECV, .seq = 2, .peer = 1, .tag = 7},
		 "receive #2 from rank 1 (tag 7)"},
		{{.kind = TRACE_RECV, .seq = 2, .peer = -1, .tag = -1},
		 "receive #2 from any rank (any tag)"},
		{{.kind = TRACE_PROBE, .peer = -1, .tag = 3}, "probe from any rank (tag 3)"},
		{{.kind = TRACE_SEND, .seq = 1, .peer = -1, .tag = 3},
		 "send #1 to an unknown rank (tag 3)"},
		{{.kind = TRACE_BARRIER, .seq = 9, .peer = -1, .tag = -1}, "barrier #9"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char text[64];
		struct diagnose_record record = {.record = cases[i].op};
		struct diagnose_writer writer;
		diagnose_writer_init(&writer, NULL, text, sizeof text);
		diagnose_write_operation(&writer, &record);
		assert_string_equal(text, cases[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_another_tag),
		cmocka_unit_test(of_another_source),
		cmocka_unit_test(of_another_group),
		cmocka_unit_test(what_another_receive_took),
		cmocka_unit_test(advice_on_who_has_left),
		cmocka_unit_test(advice_on_deadlocks),
		cmocka_unit_test(advice_on_messages_in_deadlocks),
		cmocka_unit_test(advice_on_who_is_late),
		cmocka_unit_test(names_of_calls),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
