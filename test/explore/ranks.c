/* SPDX-License-Identifier: BSD-3-Clause
 * The tests of test/ranks as programs: each runs as if its ranks were processes, under drawn
 * schedules, from opening to closing. This file takes the place of their runner. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ranks/runner.h"
#include "scheduler.h"
#include "subjects.h"

enum { RANKS_MAX = 4, TICK_NS = 320 };
#define NS_PER_S UINT64_C(1000000000)

static struct {
	const struct runner_test *test;
	int ranks, met, ended;
	char name[96], rendezvous[64];
	struct runner_shared shared;
	struct runner_rank selves[RANKS_MAX];
} drawn;

/* Tests that take too long one point at a time (many sizes, many messages, time limits), or that
 * read or await what /proc says of the test itself. */
static const char *const left_out[] = {
	"shapes",
	"many",
	"large",
	"huge",
	"long_",
	"idle",
	"thousand",
	"random",
	"measure",
	"signal",
	"handler",
	"change_of_group", /* setgid sends each thread a signal, and waits for it */
	"interrupt",
	"slow",
	"all_at_once",
	"timeout",
	"posted_ones_time_out",
	"posted_ones_are_freed",
	"self_only_",
	"timelines",
	"_limit",
	"unanswered",
	"left_calls",
	"ddp_ready",
	"of_every_kind",
	"more_buffers",
	"looked_for_early",
	"aborts_in_any_order",
};

static bool is_wanted(const struct runner_test *test)
{
	if (test->processes_only || test->killed || test->nightly || test->random ||
	    test->ends != RUNNER_PASS)
		return false;
	for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
		if (strstr(test->name, left_out[i]))
			return false;
	return (test->ranks & (RUNNER_RANKS(2) | RUNNER_RANKS(3) | RUNNER_RANKS(4))) != 0;
}

static uint64_t next(uint64_t *random, uint64_t limit)
{
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*random >> 33) % limit;
}

static void draw(uint64_t seed, struct subject_plan *plan)
{
	const char *only = getenv("EXPLORE_TEST"); /* a part of the names of the tests to run */
	do {
		drawn.test = &runner_tests[next(&seed, runner_test_count)];
	} while (!is_wanted(drawn.test) || (only && !strstr(drawn.test->name, only)));
	do {
		drawn.ranks = 2 + (int)next(&seed, RANKS_MAX - 1);
	} while (!(drawn.test->ranks >> drawn.ranks & 1));
	plan->ranks = drawn.ranks;
	plan->opens_itself = true;
	snprintf(plan->settings, sizeof plan->settings,
		 "LOCKSTEP_LOOK_MS=1000 LOCKSTEP_ALGORITHM=auto %s",
		 drawn.test->setting ? drawn.test->setting : "");
	snprintf(drawn.name, sizeof drawn.name, "%s/%d", drawn.test->name, drawn.ranks);
	memcpy(plan->name, drawn.name, sizeof plan->name);
	for (int r = 0; r < drawn.ranks; r++)
		drawn.selves[r] = (struct runner_rank){.rank = r,
						       .size = drawn.ranks,
						       .threads = true,
						       .drawn = true,
						       .seed = seed,
						       .name = drawn.name,
						       .shared = &drawn.shared};
}

static void run(int rank, ls_group *world)
{
	(void)world;
	drawn.selves[rank].rendezvous = subject_rendezvous();
	scheduler_patience(60 * NS_PER_S); /* tests with time limits wait for them */
	/* In this test a wait returns every 50 ms. Only looks that are shorter prove that it is in
	 * vain, because meanwhile all ranks are outside. */
	if (strstr(drawn.test->name, "a_resumed"))
		scheduler_slow_time(TICK_NS);
	drawn.test->run(&drawn.selves[rank]);
	drawn.ended++;
}

static void judge(void)
{
	if (drawn.ended != drawn.ranks)
		scheduler_fail("only %d ranks of %s have ended", drawn.ended, drawn.name);
}

static void show(FILE *file)
{
	fprintf(file, "%s, with %s\n", drawn.name,
		drawn.test->setting ? drawn.test->setting : "no settings");
}

const struct subject subject_ranks = {
	.name = "ranks", .weight = 1, .draw = draw, .run = run, .judge = judge, .show = show};

/* ---- in place of runner.c ---- */

void runner_meet(const struct runner_rank *self)
{
	int round = drawn.met / self->size + 1;
	scheduler_store(&drawn.met, drawn.met + 1);
	scheduler_await(&drawn.met, round * self->size, UINT64_MAX);
	scheduler_progress();
}

void runner_ready(const struct runner_rank *self, ls_group *group)
{
	OK(ls_barrier(group, NULL));
	runner_meet(self);
}

void runner_note(const struct runner_rank *self, const char *format, ...)
{
	(void)self, (void)format;
}

void runner_fail(const char *file, int line, const char *format, ...)
{
	char text[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	scheduler_fail("%s: %s:%d: %s", drawn.name, file, line, text);
}

void runner_expect(const char *file, int line, const char *call, ls_status status,
		   ls_status expected)
{
	scheduler_progress();
	if (status != expected)
		runner_fail(file, line, "%s is %s, not %s", call, ls_status_name(status),
			    ls_status_name(expected));
}
