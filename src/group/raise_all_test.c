/* SPDX-License-Identifier: BSD-3-Clause
 * Groups that fail together because of a cycle, in a job of one rank whose threads wait for the
 * rank itself. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "failure/failure.h"

enum { IN_WORLD = 7, IN_OTHER = 3 }; /* numbers of the operations that wait */

struct cycle {
	ls_group *world, *other;
	struct diagnose_snapshot *snapshot;
	struct diagnose_verdict verdict;
};

/* A thread waits for the rank itself in receive `number` of the group. */
static void add_wait(struct diagnose_rank *rank, uint32_t group, uint64_t number)
{
	uint32_t at = rank->thread_count++;
	rank->records[at] = (struct diagnose_record){.record = {.kind = TRACE_RECV,
								.index = at + 1,
								.group = group,
								.seq = number,
								.state = TRACE_RUNNING}};
	rank->record_count++;
	rank->threads[at] = (struct diagnose_thread){
		.stable = true,
		.wait = {.state = WAIT_WORDS,
			 .group = group,
			 .record = at + 1,
			 .since_ns = at + 1,
			 .edge_count = 1,
			 .edges = {{.value = 1, .segment = WAIT_SEGMENT_MAPPED}}}};
}

static struct cycle open_cycle(void)
{
	struct ls_group_options options = {.size = sizeof options, .world_size = 1};
	struct cycle cycle = {.snapshot = diagnose_snapshot_new(1)};
	assert_non_null(cycle.snapshot);
	assert_int_equal(ls_group_open(&options, &cycle.world), LS_OK);
	assert_int_equal(ls_group_split(cycle.world, 0, 0, &cycle.other), LS_OK);
	cycle.snapshot->ranks[0].known = true;
	add_wait(&cycle.snapshot->ranks[0], cycle.other->id, IN_OTHER);
	add_wait(&cycle.snapshot->ranks[0], cycle.world->id, IN_WORLD);
	diagnose_judge(cycle.snapshot, NULL, &cycle.verdict);
	assert_int_equal(cycle.verdict.status, LS_DEADLOCK);
	return cycle;
}

static void close_cycle(struct cycle *cycle)
{
	ls_group_close(cycle->other);
	ls_group_close(cycle->world);
	free(cycle->snapshot);
}

/* As the watch does after a look at `group`. */
static void raise_in(const struct cycle *cycle, ls_group *group)
{
	const struct diagnose_verdict *verdict = &cycle->verdict;
	struct diagnose_hint hint = {.status = verdict->status,
				     .peer = verdict->culprit,
				     .group = group->id,
				     .seq = verdict->group == group->id ? verdict->seq : 0};
	failure_raise_deadlock(group, cycle->snapshot, verdict, &hint);
}

static void fails_with(const ls_group *group, ls_status status, uint64_t operation)
{
	struct ls_failure failure = {.size = sizeof failure};
	failure_read(group, &failure);
	assert_int_equal(failure.status, status);
	assert_int_equal(failure.operation, operation);
}

/* Whichever group the look was about. */
static void each_group_tells_its_own_operation(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct cycle cycle = open_cycle();
		raise_in(&cycle, i ? cycle.world : cycle.other);
		fails_with(cycle.other, LS_DEADLOCK, IN_OTHER);
		fails_with(cycle.world, LS_DEADLOCK, IN_WORLD);
		close_cycle(&cycle);
	}
}

/* Another host tells of one group, and names the other. */
static void an_operation_is_one_of_the_group_that_is_told(void **state)
{
	(void)state;
	struct cycle cycle = open_cycle();
	struct hosts_failure failure = {.group = cycle.other->id,
					.status = LS_DEADLOCK,
					.culprit = -1,
					.operation = IN_OTHER,
					.groups = {cycle.world->id, cycle.other->id},
					.text = "a cycle"};
	failure_raise_told(cycle.world->world, &failure);
	fails_with(cycle.other, LS_DEADLOCK, IN_OTHER);
	fails_with(cycle.world, LS_DEADLOCK, 0);
	close_cycle(&cycle);
}

/* One of the groups has failed between the snapshot and the verdict. */
static void a_cycle_that_is_broken_fails_nothing(void **state)
{
	(void)state;
	struct cycle cycle = open_cycle();
	assert_int_equal(ls_group_abort(cycle.other, "enough"), LS_OK);
	raise_in(&cycle, cycle.world);
	assert_int_equal(failure_status(cycle.other), LS_ABORTED);
	assert_int_equal(failure_status(cycle.world), LS_OK);
	assert_int_equal(ls_barrier(cycle.world, NULL), LS_OK);
	close_cycle(&cycle);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_group_tells_its_own_operation),
		cmocka_unit_test(an_operation_is_one_of_the_group_that_is_told),
		cmocka_unit_test(a_cycle_that_is_broken_fails_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
