/* SPDX-License-Identifier: BSD-3-Clause
 * Snapshots of real traces: what is copied, and when a word counts as satisfied. */
#include "diagnose/collect_fixture.h"

#include <limits.h>

static uint64_t call(struct collect_fixture *fixture, int r, uint16_t kind, uint64_t seq)
{
	struct trace_begin begin = {.seq = seq,
				    .count = 10,
				    .group = GROUP,
				    .peer = 1,
				    .tag = 3,
				    .kind = kind,
				    .dtype = LS_FLOAT64,
				    .reduce_op = LS_MAX,
				    .label = trace_label(&fixture->traces[r], "train.py:42")};
	return trace_begin(&fixture->traces[r], &begin);
}

static void header_and_process(void **state)
{
	struct collect_fixture *fixture = *state;
	fixture->sources[1].pid = 0; /* then the trace knows it */
	fixture->sources[2].process = DIAGNOSE_PROCESS_DEAD;
	fixture->sources[2].signal = 11;
	fixture->sources[0].process = DIAGNOSE_PROCESS_UNKNOWN;
	uint64_t before = clock_now_ns();
	struct diagnose_rank *ranks = collect(fixture, 0);
	assert_int_equal(fixture->snapshot->job, 4711);
	assert_int_equal(fixture->snapshot->size, SIZE);
	assert_in_range(fixture->snapshot->now_ns, before, clock_now_ns());
	for (int r = 0; r < SIZE; r++) {
		assert_true(ranks[r].known);
		assert_int_equal(ranks[r].rank, r);
		assert_int_equal(ranks[r].pid, getpid());
		assert_false(ranks[r].left);
		assert_int_equal(ranks[r].thread_count, 0);
		assert_int_equal(ranks[r].record_count, 0);
		assert_true(strstr(ranks[r].program, "collect_test") != NULL);
		assert_in_range(ranks[r].start_ns, 1, before);
	}
	assert_int_equal(ranks[0].process, DIAGNOSE_PROCESS_RUNNING);  /* looked up */
	assert_int_equal(ranks[1].process, DIAGNOSE_PROCESS_SLEEPING); /* as the source says */
	assert_int_equal(ranks[2].process, DIAGNOSE_PROCESS_DEAD);
	assert_int_equal(ranks[2].signal, 11);
}

static void sources_that_are_missing(void **state)
{
	struct collect_fixture *fixture = *state;
	fixture->sources[1].trace = NULL;
	fixture->sources[2].rank = 77;
	struct diagnose_rank *ranks = collect(fixture, 0);
	assert_true(ranks[0].known);
	assert_false(ranks[1].known);
	assert_int_equal(ranks[1].pid, getpid());
	assert_false(ranks[2].known);
	assert_int_equal(ranks[2].rank, 2);
	assert_int_equal(ranks[2].pid, 0);
	assert_int_equal(ranks[2].process, DIAGNOSE_PROCESS_UNKNOWN);
}

static void groups_and_leaving(void **state)
{
	struct collect_fixture *fixture = *state;
	uint16_t members[SIZE];
	for (int r = 0; r < SIZE; r++)
		members[r] = (uint16_t)r;
	for (uint32_t id = 1; id <= DIAGNOSE_GROUP_MAX + 1; id++) {
		struct trace_membership membership = {.id = id, .size = SIZE, .members = members};
		struct trace_group *group =
			trace_group_fill(&fixture->traces[0], (int)id, &membership);
		atomic_store(&group->entered, 8 + id);
		atomic_store(&group->finished, 7 + id);
	}
	atomic_store(&fixture->traces[0].header->left_ns, 99);
	struct diagnose_rank *rank = collect(fixture, 0);
	assert_int_equal(rank->group_count, DIAGNOSE_GROUP_MAX);
	assert_int_equal(rank->groups[1].id, 2);
	assert_int_equal(rank->groups[1].size, SIZE);
	assert_int_equal(rank->groups[1].state, TRACE_GROUP_OPEN);
	assert_int_equal(rank->groups[1].entered, 10);
	assert_int_equal(rank->groups[1].finished, 9);
	assert_true(rank->left);
	assert_int_equal(rank->left_ns, 99);
	assert_false(fixture->snapshot->ranks[1].left);
}

static void records(void **state)
{
	struct collect_fixture *fixture = *state;
	uint64_t before = clock_now_ns();
	uint64_t first = call(fixture, 1, TRACE_ALLREDUCE, 1);
	uint64_t second = call(fixture, 1, TRACE_RECV, 9);
	trace_plan(&fixture->traces[1], first, 2, 6);
	trace_step(&fixture->traces[1], first, 4);
	trace_end(&fixture->traces[1], second, LS_TRUNCATED);
	struct diagnose_rank *rank = collect(fixture, 1);
	assert_int_equal(rank->record_count, 2);
	const struct diagnose_record *newest = &rank->records[0], *oldest = &rank->records[1];
	assert_int_equal(newest->record.kind, TRACE_RECV);
	assert_int_equal(newest->record.seq, 9);
	assert_int_equal(newest->record.tag, 3);
	assert_int_equal(newest->record.state, TRACE_FAILED);
	assert_int_equal(newest->record.status, LS_TRUNCATED);
	assert_int_equal(oldest->record.index, first);
	assert_int_equal(oldest->record.reduce_op, LS_MAX);
	assert_int_equal(oldest->record.state, TRACE_RUNNING);
	assert_int_equal(oldest->record.step_count, 6);
	assert_int_equal(oldest->step, 4);
	assert_int_equal(oldest->end_ns, 0);
	/* Ticks and clock agree to a few milliseconds here. */
	assert_in_range(oldest->begin_ns, before - 50000000, fixture->snapshot->now_ns + 50000000);
	assert_in_range(newest->end_ns, oldest->begin_ns, fixture->snapshot->now_ns + 50000000);
	assert_string_equal(newest->site, "");
	diagnose_add_sites(fixture->sources, SIZE, fixture->snapshot);
	assert_string_equal(rank->records[0].site, "train.py:42");
	assert_string_equal(rank->records[1].site, "train.py:42");
}

/* Messages beside the caller, however many, leave room for the newest collectives. */
static void which_of_many_that_run(void **state)
{
	struct collect_fixture *fixture = *state;
	uint64_t collective = call(fixture, 0, TRACE_BARRIER, 1);
	trace_end(&fixture->traces[0], collective, LS_OK);
	for (uint64_t i = 1; i <= DIAGNOSE_RECORD_MAX + 8; i++)
		call(fixture, 0, TRACE_SEND, i);
	struct diagnose_rank *rank = collect(fixture, 0);
	assert_int_equal(rank->record_count, DIAGNOSE_RECORD_MAX);
	assert_non_null(diagnose_record_at(rank, collective));
}

/* A snapshot keeps the running operations however old they are, the newest collectives, and the
 * newest records. */
static void which_records(void **state)
{
	struct collect_fixture *fixture = *state;
	struct trace *trace = &fixture->traces[0];
	uint64_t running = call(fixture, 0, TRACE_RECV, 1);
	for (uint64_t i = 1; i <= 20; i++)
		trace_end(trace, call(fixture, 0, TRACE_BARRIER, i), LS_OK);
	for (uint64_t i = 1; i <= 40; i++)
		trace_end(trace, call(fixture, 0, TRACE_SEND, i), LS_OK);
	struct diagnose_rank *rank = collect(fixture, 0);
	assert_int_equal(rank->record_count, DIAGNOSE_RECORD_MAX);
	for (uint32_t i = 1; i < rank->record_count; i++)
		assert_true(rank->records[i - 1].record.index > rank->records[i].record.index);
	assert_int_equal(rank->records[0].record.seq, 40);
	assert_non_null(diagnose_record_at(rank, running));
	for (uint64_t seq = 9; seq <= 20; seq++)
		assert_non_null(diagnose_collective_at(rank, GROUP, seq));
	assert_null(diagnose_collective_at(rank, GROUP, 8));
	/* The ring goes round the running one: it is found all the same. */
	for (uint64_t i = 1; i <= 3 * RECORDS; i++)
		trace_end(trace, call(fixture, 0, TRACE_SEND, i), LS_OK);
	rank = collect(fixture, 0);
	assert_int_equal(rank->record_count, DIAGNOSE_RECORD_MAX);
	assert_int_equal(rank->records[DIAGNOSE_RECORD_MAX - 1].record.index, running);
}

/* One that nobody would look at otherwise: it takes its place in the order, and another's if there
 * is no room. */
static void a_certain_record(void **state)
{
	struct collect_fixture *fixture = *state;
	struct diagnose_source *source = &fixture->sources[0];
	struct trace *trace = &fixture->traces[0];
	uint64_t running = call(fixture, 0, TRACE_RECV, 1), wanted = call(fixture, 0, TRACE_SEND, 2);
	trace_end(trace, wanted, LS_OK);
	struct diagnose_rank *rank = collect(fixture, 0);
	assert_int_equal(diagnose_add_record(source, (uint32_t)wanted, fixture->snapshot), wanted);
	assert_int_equal(rank->record_count, 2); /* it was there */
	for (uint64_t i = 1; i <= RECORDS - 2; i++)
		trace_end(trace, call(fixture, 0, TRACE_SEND, i), LS_OK);
	rank = collect(fixture, 0);
	assert_null(diagnose_record_at(rank, wanted));
	assert_int_equal(diagnose_add_record(source, (uint32_t)wanted, fixture->snapshot), wanted);
	assert_int_equal(rank->record_count, DIAGNOSE_RECORD_MAX);
	assert_int_equal(diagnose_record_at(rank, wanted)->record.seq, 2);
	assert_non_null(diagnose_record_at(rank, running));
	for (uint32_t i = 1; i < rank->record_count; i++)
		assert_true(rank->records[i - 1].record.index > rank->records[i].record.index);
	assert_true(diagnose_snapshot_is_valid(fixture->snapshot, diagnose_snapshot_bytes(SIZE)));
	/* Not yet, no longer, of nobody, of a rank that is not. */
	assert_int_equal(diagnose_add_record(source, RECORDS + 1, fixture->snapshot), 0);
	assert_int_equal(diagnose_add_record(source, UINT32_MAX, fixture->snapshot), 0);
	trace_end(trace, call(fixture, 0, TRACE_SEND, 1), LS_OK);
	trace_end(trace, call(fixture, 0, TRACE_SEND, 1), LS_OK);
	rank = collect(fixture, 0);
	assert_int_equal(diagnose_add_record(source, (uint32_t)wanted, fixture->snapshot), 0);
	source->rank = SIZE;
	assert_int_equal(diagnose_add_record(source, (uint32_t)running, fixture->snapshot), 0);
	source->rank = 0;
	source->trace = NULL;
	assert_int_equal(diagnose_add_record(source, (uint32_t)running, fixture->snapshot), 0);
}

/* Where all that a rank is shown with runs, it takes the place of a message that no thread waits
 * in. */
static void a_record_among_many_that_run(void **state)
{
	struct collect_fixture *fixture = *state;
	struct wait_slot_body body = wait_for(0, 1);
	uint64_t wanted = call(fixture, 0, TRACE_RECV, 1), first = call(fixture, 0, TRACE_RECV, 2);
	for (uint64_t i = 3; i <= DIAGNOSE_RECORD_MAX + 1; i++)
		call(fixture, 0, TRACE_RECV, i);
	body.record = first;
	publish(fixture, 0, 0, &body);
	struct diagnose_rank *rank = collect(fixture, 0);
	assert_null(diagnose_record_at(rank, wanted));
	assert_int_equal(
		diagnose_add_record(&fixture->sources[0], (uint32_t)wanted, fixture->snapshot),
		wanted);
	assert_int_equal(rank->record_count, DIAGNOSE_RECORD_MAX);
	assert_non_null(diagnose_record_at(rank, wanted));
	assert_non_null(diagnose_record_at(rank, first));
	assert_null(diagnose_record_at(rank, first + 1));
}

/* Where all are of collectives nothing is dropped. */
static void a_record_without_room(void **state)
{
	struct collect_fixture *fixture = *state;
	uint64_t wanted = call(fixture, 0, TRACE_SEND, 1);
	trace_end(&fixture->traces[0], wanted, LS_OK);
	for (uint64_t i = 1; i <= DIAGNOSE_RECORD_MAX; i++)
		call(fixture, 0, TRACE_BARRIER, i);
	struct diagnose_rank *rank = collect(fixture, 0);
	assert_int_equal(
		diagnose_add_record(&fixture->sources[0], (uint32_t)wanted, fixture->snapshot), 0);
	assert_int_equal(rank->record_count, DIAGNOSE_RECORD_MAX);
}

/* Whether an edge counts as satisfied when all else is as in wait_for(0, 1). */
static bool is_satisfied(struct collect_fixture *fixture, struct wait_edge edge)
{
	struct wait_slot_body body = wait_for(0, 1);
	body.edges[0] = edge;
	publish(fixture, 0, 0, &body);
	struct diagnose_rank *rank = collect(fixture, 0);
	assert_int_equal(rank->thread_count, 1);
	assert_true(rank->threads[0].stable);
	bool satisfied = rank->threads[0].satisfied & 1;
	assert_int_equal(test_bits(diagnose_rank_needs(fixture->snapshot, 0)),
			 satisfied ? 0 : test_bit(1));
	return satisfied;
}

static void words(void **state)
{
	struct collect_fixture *fixture = *state;
	struct wait_edge edge = wait_for(0, 1).edges[0], odd;
	_Atomic uint64_t *word = &fixture->segments[0][0];
	static const struct {
		uint64_t word, value;
		bool satisfied;
	} table[] = {
		{4, 5, false}, {5, 5, true},           {6, 5, true},
		{0, 0, true},  {UINT64_MAX, 1, false}, {1, UINT64_MAX, true}, /* across zero */
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		atomic_store(word, table[i].word);
		odd = edge;
		odd.value = table[i].value;
		assert_int_equal(is_satisfied(fixture, odd), table[i].satisfied);
	}
	/* The last word of the segment is inside; what cannot be evaluated proves nothing. */
	atomic_store(word, 4);
	odd = edge;
	odd.offset = (WORDS - 1) * 8;
	assert_false(is_satisfied(fixture, odd));
	odd.offset = WORDS * 8;
	assert_true(is_satisfied(fixture, odd));
	odd.offset = UINT64_MAX - 7;
	assert_true(is_satisfied(fixture, odd));
	odd.offset = 4;
	assert_true(is_satisfied(fixture, odd));
	odd = edge;
	odd.owner = SIZE;
	assert_true(is_satisfied(fixture, odd));
	odd.owner = -1;
	assert_true(is_satisfied(fixture, odd));
	odd = edge;
	odd.segment = WAIT_SEGMENT_NONE;
	assert_true(is_satisfied(fixture, odd));
	fixture->sources[0].segment_bytes = 7;
	assert_true(is_satisfied(fixture, edge));
	fixture->sources[0].segment_bytes = 8;
	assert_false(is_satisfied(fixture, edge));
	fixture->sources[0].segment = NULL;
	assert_true(is_satisfied(fixture, edge));
}

/* A thread that waits for another of its own rank waits for no peer, but its word is looked at,
 * too. */
static void word_of_no_peer(void **state)
{
	struct collect_fixture *fixture = *state;
	struct wait_slot_body body = wait_for(0, 1);
	body.edges[0].peer = -1;
	for (int over = 0; over < 2; over++) {
		atomic_store(&fixture->segments[0][0], body.edges[0].value - !over);
		publish(fixture, 0, 0, &body);
		struct diagnose_rank *rank = collect(fixture, 0);
		assert_true(rank->threads[0].stable);
		assert_int_equal(rank->threads[0].satisfied & 1, over);
		assert_int_equal(test_bits(diagnose_rank_needs(fixture->snapshot, 0)), 0);
	}
}

static void slots(void **state)
{
	struct collect_fixture *fixture = *state;
	struct wait_table *wait_table = fixture->traces[0].wait_table;
	struct wait_slot_body body = wait_for(0, 1);
	publish(fixture, 0, 3, &body);
	publish(fixture, 0, 7, &body);
	seqlock_begin(&wait_table->slots[7].epoch);   /* its thread died in the middle of writing */
	atomic_store(&wait_table->slots[9].taken, 1); /* and this one before it wrote anything */
	body.edge_count = UINT32_MAX;
	publish(fixture, 0, 11, &body);
	struct diagnose_rank *rank = collect(fixture, 0);
	assert_int_equal(rank->thread_count, 4);
	assert_false(rank->incomplete);
	assert_int_equal(rank->threads[0].slot, 3);
	assert_int_equal(rank->threads[0].wait.state, WAIT_WORDS);
	assert_true(rank->threads[0].stable);
	assert_int_equal(rank->threads[1].wait.state, WAIT_OUTSIDE);
	assert_false(rank->threads[1].stable);
	assert_int_equal(rank->threads[2].wait.state, WAIT_OUTSIDE);
	assert_true(rank->threads[3].wait.edge_count <= WAIT_EDGE_MAX);
	atomic_store(&wait_table->unpublished, 1);
	assert_true(collect(fixture, 0)->incomplete);
}

/* Every word of trace and segment may be anything: no crash (see the sanitizers), nothing
 * invalid. */
static void random_bytes(void **state)
{
	struct collect_fixture *fixture = *state;
	uint64_t random = 88172645463325252u;
	publish_ring(fixture);
	for (uint64_t i = 1; i < 50; i++)
		call(fixture, 0, (uint16_t)(1 + i % 5), i);
	for (int i = 0; i < 5000; i++) {
		struct diagnose_verdict verdict;
		char text[DIAGNOSE_TEXT_BYTES];
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		uint64_t *words = (uint64_t *)(void *)fixture->traces[0].header;
		uint64_t at = (random >> 8) % (fixture->traces[0].bytes / 8);
		uint64_t before = words[at];
		words[at] = random & 1 ? random : UINT64_MAX >> (random >> 2 & 63);
		collect(fixture, 0);
		diagnose_judge(fixture->snapshot, NULL, &verdict);
		diagnose_text(fixture->snapshot, &verdict, text, sizeof text);
		assert_true(strlen(text) > 10);
		if (random & 2)
			words[at] = before;
	}
}

/* A rank of another PID namespace: the process that has its number here is another one, and here
 * there is none. */
static void rank_of_another_namespace(void **state)
{
	struct collect_fixture *fixture = *state;
	fixture->sources[1].process = DIAGNOSE_PROCESS_UNKNOWN;
	fixture->sources[1].pid = INT_MAX;
	assert_int_equal(collect(fixture, 1)->process, DIAGNOSE_PROCESS_DEAD);
	fixture->traces[1].header->pid_space ^= 1;
	assert_int_equal(collect(fixture, 1)->process, DIAGNOSE_PROCESS_UNKNOWN);
	assert_int_equal(collect(fixture, 1)->signal, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(header_and_process),    TEST(sources_that_are_missing),
		TEST(groups_and_leaving),    TEST(records),
		TEST(which_records),         TEST(which_of_many_that_run),
		TEST(a_certain_record),      TEST(a_record_among_many_that_run),
		TEST(a_record_without_room), TEST(words),
		TEST(word_of_no_peer),       TEST(slots),
		TEST(random_bytes),          TEST(rank_of_another_namespace),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
