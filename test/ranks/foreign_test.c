/* SPDX-License-Identifier: BSD-3-Clause
 * Foreign calls, such as those of a device's driver, as other ranks see them. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "caught.h"
#include "runner.h"

enum { LIMIT_MS = 300 };

static void says_call(const char *text, int rank)
{
	char who[64];
	snprintf(who, sizeof who, "rank %d is elsewhere (", rank);
	SAYS(text, who);
	SAYS(text, " has been in the foreign call cuMemFree for ");
}

/* Rank 0 stays in the call until the others have given up. */
static void a_late_rank_is_in_a_foreign_call(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct ls_call_options soon = {.size = sizeof soon, .timeout_ms = LIMIT_MS};
	runner_ready(self, group);
	if (self->rank == 0)
		OK(ls_foreign_begin(group, "cuMemFree"));
	runner_meet(self);
	if (self->rank != 0)
		GIVES(LS_TIMED_OUT, ls_barrier(group, &soon));
	runner_meet(self);
	if (self->rank == 0)
		OK(ls_foreign_end(group));
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	says_call(failure.text, 0);
	SAYS(failure.text, " timed out in barrier #");
	runner_meet(self);
	ls_group_close(group);
}

/* ---- beside threads that wait ---- */

enum { TOLD, ENDED }; /* words that all ranks share */

struct beside {
	struct runner_rank *self;
	ls_group *group;
	struct caught caught;
};

/* Looks at what the rank prints, until some rank has printed what is awaited. */
static void *watch_reports(void *argument)
{
	struct beside *beside = argument;
	_Atomic uint64_t *words = beside->self->shared->words;
	while (!words[TOLD]) {
		if (strstr(caught_read(&beside->caught), "LS-WAITING"))
			words[TOLD] = 1;
		sched_yield();
	}
	return NULL;
}

/* Waits for the report in a foreign call, and then sends what rank 1 waits for. */
static void *free_and_send(void *argument)
{
	struct beside *beside = argument;
	int32_t value = 7;
	OK(ls_foreign_begin(beside->group, "cuMemFree"));
	watch_reports(beside);
	OK(ls_foreign_end(beside->group));
	OK(ls_send(beside->group, &value, 1, LS_INT32, 1, NULL));
	return NULL;
}

/* Ranks 0 and 1 wait for each other, but a thread of rank 0 is in a foreign call. So nothing is
 * proved, in however many looks; and what they wait for is told. */
static void no_deadlock_beside_a_foreign_call(struct runner_rank *self)
{
	struct beside beside = {.self = self, .group = runner_open(self)};
	pthread_t thread;
	int32_t value = 0;
	runner_ready(self, beside.group);
	caught_begin(&beside.caught);
	CHECK(pthread_create(&thread, NULL, self->rank == 0 ? free_and_send : watch_reports,
			     &beside) == 0);
	OK(ls_recv(beside.group, &value, 1, LS_INT32, !self->rank, NULL));
	CHECK(value == 7);
	if (self->rank == 1)
		OK(ls_send(beside.group, &value, 1, LS_INT32, 0, NULL));
	CHECK(pthread_join(thread, NULL) == 0);
	runner_meet(self); /* both have printed what they print */
	const char *text = caught_end(&beside.caught);
	if (strstr(text, "LS-WAITING")) {
		says_call(text, 0);
		self->shared->words[ENDED] = 1;
	}
	runner_meet(self);
	CHECK(self->shared->words[ENDED] == 1);
	ls_group_close(beside.group);
}

#define R RUNNER_RANKS
const struct runner_test runner_tests[] = {
	{.name = "a_late_rank_is_in_a_foreign_call",
	 .run = a_late_rank_is_in_a_foreign_call,
	 .ranks = R(2) | R(4)},
	{.name = "no_deadlock_beside_a_foreign_call",
	 .run = no_deadlock_beside_a_foreign_call,
	 .ranks = R(2),
	 .setting = "LOCKSTEP_LOOK_MS=10 LOCKSTEP_PATIENCE_MS=100",
	 .processes_only = true},
};
const size_t runner_test_count = sizeof runner_tests / sizeof *runner_tests;
