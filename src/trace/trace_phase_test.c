/* SPDX-License-Identifier: BSD-3-Clause
 * Phases: which time counts for which phase, what is refused, and what a reader finds of a rank
 * that runs, has died in the middle, or has false values. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trace/trace.h"

static struct trace trace;
static struct trace_view view;

static int open_trace(void **state)
{
	(void)state;
	const char *why;
	struct trace_options options = {.job = 1, .rank = 0, .world_size = 1, .records = 16};
	assert_int_equal(trace_init(&trace, &options), LS_OK);
	assert_true(trace_check(trace.header, trace.bytes, &view, &why));
	return 0;
}

static int close_trace(void **state)
{
	(void)state;
	trace_fini(&trace);
	return 0;
}

static enum trace_phase_answer begin(const char *name)
{
	const char *inside;
	return trace_phase_begin(&trace, name, &inside);
}

static enum trace_phase_answer end(const char *name)
{
	const char *inside;
	return trace_phase_end(&trace, name, &inside);
}

static uint64_t to_ns(uint64_t ticks)
{
	return (uint64_t)((double)ticks * trace.header->rate.ns_per_tick);
}

/* Computes for this many ticks at least; returns how many it were. */
static uint64_t work(uint64_t ticks)
{
	uint64_t start = clock_ticks(), now = start;
	while (now - start < ticks)
		now = clock_ticks();
	return now - start;
}

static int position(const struct trace_phases *phases, const char *name)
{
	for (uint32_t i = 0; i < phases->count; i++)
		if (strcmp(phases->phases[i].name, name) == 0)
			return (int)i;
	return -1;
}

static void time_belongs_to_the_innermost(void **state)
{
	(void)state;
	struct trace_phases phases;
	trace_read_phases(&view, clock_now_ns(), &phases);
	assert_int_equal(phases.count, 0);
	assert_int_equal(phases.span_ns, 0);

	uint64_t start = clock_ticks(), outer = 0, inner = 0;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(begin("data"), TRACE_PHASE_DONE);
		outer += work(20000);
		assert_int_equal(begin("data/image"), TRACE_PHASE_DONE);
		inner += work(100000);
		assert_int_equal(end("data/image"), TRACE_PHASE_DONE);
		outer += work(20000);
		assert_int_equal(end("data"), TRACE_PHASE_DONE);
	}
	uint64_t all = clock_ticks() - start;
	trace_read_phases(&view, clock_now_ns(), &phases);
	assert_int_equal(phases.count, 2);
	int data = position(&phases, "data"), image = position(&phases, "data/image");
	assert_true(data >= 0 && image >= 0);
	assert_int_equal(phases.phases[data].count, 3);
	assert_int_equal(phases.phases[image].count, 3);
	assert_int_equal(phases.phases[image].running, 0);
	uint64_t data_ns = phases.phases[data].ns, image_ns = phases.phases[image].ns;
	assert_true(data_ns >= to_ns(outer) && image_ns >= to_ns(inner));
	assert_true(data_ns + image_ns <= to_ns(all));
	/* The span is made of two time stamps, each of which is rounded on its way to
	 * nanoseconds. */
	assert_true(phases.span_ns + 1000 >= data_ns + image_ns);
	assert_true(phases.span_ns <= to_ns(all) + 1000);
	assert_int_equal(phases.phases[data].waited_ns + phases.phases[image].waited_ns, 0);
}

static void wrong_nesting_is_refused(void **state)
{
	(void)state;
	const char *inside;
	assert_int_equal(end("data"), TRACE_PHASE_NOT_INSIDE);
	assert_int_equal(trace_phase_begin(&trace, "data", &inside), TRACE_PHASE_DONE);
	assert_null(inside);
	static const char *const others[] = {"data", "forward", "dat/a", "data2/x", "d"};
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		assert_int_equal(trace_phase_begin(&trace, others[i], &inside), TRACE_PHASE_OUTSIDE);
		assert_string_equal(inside, "data");
	}
	assert_int_equal(begin("data/a/b"), TRACE_PHASE_DONE); /* levels may be left out */
	assert_int_equal(begin("data/a"), TRACE_PHASE_OUTSIDE);
	assert_int_equal(trace_phase_end(&trace, "data", &inside), TRACE_PHASE_NOT_INSIDE);
	assert_string_equal(inside, "data/a/b");
	assert_int_equal(end("data/a/b"), TRACE_PHASE_DONE);
	assert_int_equal(end("data/a/b"), TRACE_PHASE_NOT_INSIDE);
	assert_int_equal(end("data"), TRACE_PHASE_DONE);
	assert_int_equal(trace_phase_end(&trace, "data", &inside), TRACE_PHASE_NOT_INSIDE);
	assert_null(inside);
	struct trace_phases phases;
	trace_read_phases(&view, clock_now_ns(), &phases);
	assert_int_equal(phases.count, 2); /* what was refused left no name */
}

static void names_are_checked(void **state)
{
	(void)state;
	char name[TRACE_PHASE_BYTES + 1];
	static const char *const bad[] = {"",    "/",   "/a",   "a/",     "a//b",
					  "a b", "a\n", "\x7f", "\x1b[2J"};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(begin(bad[i]), TRACE_PHASE_BAD_NAME);
	memset(name, 'x', sizeof name);
	name[TRACE_PHASE_BYTES] = 0;
	assert_int_equal(begin(name), TRACE_PHASE_BAD_NAME);
	name[TRACE_PHASE_BYTES - 1] = 0;
	assert_int_equal(begin(name), TRACE_PHASE_DONE);
	assert_int_equal(end(name), TRACE_PHASE_DONE);
	assert_int_equal(begin("\xc3\xa4"), TRACE_PHASE_DONE);
	assert_int_equal(end("\xc3\xa4"), TRACE_PHASE_DONE);
	for (int i = 2; i < TRACE_PHASE_MAX; i++) {
		snprintf(name, sizeof name, "n%d", i);
		assert_int_equal(begin(name), TRACE_PHASE_DONE);
		assert_int_equal(end(name), TRACE_PHASE_DONE);
	}
	assert_int_equal(begin("one-more"), TRACE_PHASE_MANY_NAMES);
	assert_int_equal(begin("n7"), TRACE_PHASE_DONE);
	struct trace_phases phases;
	trace_read_phases(&view, clock_now_ns(), &phases);
	assert_int_equal(phases.count, TRACE_PHASE_MAX);
	assert_int_equal(phases.phases[position(&phases, "n7")].running, 1);
}

static void depth_is_limited(void **state)
{
	(void)state;
	char name[2 * TRACE_PHASE_DEPTH + 4] = "a";
	for (int i = 0; i < TRACE_PHASE_DEPTH; i++) {
		assert_int_equal(begin(name), TRACE_PHASE_DONE);
		memcpy(name + strlen(name), "/a", 3);
	}
	assert_int_equal(begin(name), TRACE_PHASE_DEEP);
	for (int i = 0; i < TRACE_PHASE_DEPTH; i++) {
		name[strlen(name) - 2] = 0;
		assert_int_equal(end(name), TRACE_PHASE_DONE);
	}
	assert_int_equal(end("a"), TRACE_PHASE_NOT_INSIDE);
}

static void waiting_is_told_apart(void **state)
{
	(void)state;
	struct trace_phases phases;
	trace_waited(&trace, 1000); /* before the first phase: of no phase's span */
	assert_int_equal(begin("forward"), TRACE_PHASE_DONE);
	work(100000);
	trace_waited(&trace, 30000);
	assert_int_equal(end("forward"), TRACE_PHASE_DONE);
	trace_waited(&trace, 500);
	trace_waited(&trace, 200);
	trace_read_phases(&view, clock_now_ns(), &phases);
	assert_int_equal(phases.outside_ns, 0); /* it is behind the span's end so far */
	assert_int_equal(phases.phases[0].waited_ns, to_ns(30000));
	assert_true(phases.phases[0].ns >= to_ns(100000));
	/* More than there is: a reader does not give it on. */
	assert_int_equal(begin("backward"), TRACE_PHASE_DONE);
	trace_waited(&trace, UINT64_C(1) << 50);
	assert_int_equal(end("backward"), TRACE_PHASE_DONE);
	trace_read_phases(&view, clock_now_ns(), &phases);
	int backward = position(&phases, "backward");
	assert_int_equal(phases.outside_ns, to_ns(700));
	assert_int_equal(phases.phases[backward].waited_ns, phases.phases[backward].ns);
}

/* Of a thread that is in a phase, blocked or not; also when nobody knows the time of its end. */
static void running_ones_are_counted(void **state)
{
	(void)state;
	struct trace_phases phases;
	assert_int_equal(begin("data"), TRACE_PHASE_DONE);
	work(100000);
	uint64_t now_ns = clock_now_ns();
	trace_read_phases(&view, now_ns, &phases);
	assert_int_equal(phases.phases[0].running, 1);
	assert_int_equal(phases.phases[0].count, 0);
	assert_true(phases.phases[0].ns + 1000 >= to_ns(100000));
	assert_int_equal(phases.phases[0].ns, phases.span_ns);
	uint64_t ns = phases.phases[0].ns;
	trace_read_phases(&view, now_ns + 5000, &phases);
	assert_int_equal(phases.phases[0].ns, ns + 5000);
	trace_waited(&trace, 5000);
	trace_read_phases(&view, now_ns, &phases);
	uint64_t waited_ns = phases.phases[0].waited_ns;
	assert_int_equal(waited_ns, to_ns(5000));
	/* What has no length has not been waited in either. */
	trace_read_phases(&view, 0, &phases);
	assert_int_equal(phases.phases[0].ns, 0);
	assert_int_equal(phases.phases[0].waited_ns, 0);
	assert_int_equal(phases.phases[0].running, 1);
	assert_int_equal(phases.span_ns, 0);

	struct wait_slot *slot = &trace.wait_table->slots[3];
	slot->body.tid = (uint32_t)gettid();
	slot->body.state = WAIT_WORDS;
	slot->body.since_ns = now_ns - ns / 2;
	atomic_store(&slot->taken, 1);
	trace_read_phases(&view, now_ns, &phases);
	assert_int_equal(phases.phases[0].waited_ns, waited_ns + ns / 2);
	slot->body.since_ns = 1; /* cannot be: it began before the phase */
	trace_read_phases(&view, now_ns, &phases);
	assert_int_equal(phases.phases[0].waited_ns, ns);
	slot->body.state = WAIT_OUTSIDE;
	trace_read_phases(&view, now_ns, &phases);
	assert_int_equal(phases.phases[0].waited_ns, waited_ns);
	slot->body.state = WAIT_WORDS;
	slot->body.tid++;
	trace_read_phases(&view, now_ns, &phases);
	assert_int_equal(phases.phases[0].waited_ns, waited_ns);
}

/* However long a running phase says that it was blocked, also if its begin is unknown. */
static void what_is_over_stays(void **state)
{
	(void)state;
	struct trace_phases phases;
	assert_int_equal(begin("data"), TRACE_PHASE_DONE);
	work(100000);
	assert_int_equal(end("data"), TRACE_PHASE_DONE);
	trace_read_phases(&view, clock_now_ns(), &phases);
	uint64_t over_ns = phases.phases[0].ns, span_ns = phases.span_ns;
	assert_int_equal(begin("data"), TRACE_PHASE_DONE);
	trace_waited(&trace, UINT64_C(1) << 50);
	uint64_t now_ns = clock_now_ns();
	trace_read_phases(&view, now_ns, &phases);
	assert_true(phases.phases[0].ns > over_ns);
	assert_int_equal(phases.phases[0].ns - phases.phases[0].waited_ns, over_ns);
	/* Now it says that it has been blocked since the beginning of time. */
	struct wait_slot *slot = &trace.wait_table->slots[0];
	slot->body.tid = (uint32_t)gettid();
	slot->body.state = WAIT_WORDS;
	slot->body.since_ns = 1;
	atomic_store(&slot->taken, 1);
	trace_read_phases(&view, now_ns, &phases);
	assert_int_equal(phases.phases[0].ns - phases.phases[0].waited_ns, over_ns);
	trace_read_phases(&view, 0, &phases);
	assert_int_equal(phases.phases[0].running, 1);
	assert_int_equal(phases.phases[0].ns, over_ns);
	assert_int_equal(phases.phases[0].waited_ns, 0);
	assert_int_equal(phases.span_ns, span_ns);
}

static void child_is_refused(void **state)
{
	(void)state;
	assert_int_equal(begin("data"), TRACE_PHASE_DONE);
	pid_t child = fork();
	if (child == 0)
		_exit(begin("data/x") == TRACE_PHASE_FORKED && end("data") == TRACE_PHASE_FORKED
			      ? 0
			      : 1);
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(end("data"), TRACE_PHASE_DONE);
}

/* ---- many threads ---- */

static void *wait_only(void *context)
{
	(void)context;
	trace_waited(&trace, 1000);
	return NULL;
}

/* Such as one that runs operations beside the one that trains. */
static void threads_without_phases_do_not_count(void **state)
{
	(void)state;
	struct trace_phases phases;
	pthread_t thread;
	assert_int_equal(begin("data"), TRACE_PHASE_DONE);
	assert_int_equal(pthread_create(&thread, NULL, wait_only, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(end("data"), TRACE_PHASE_DONE);
	trace_read_phases(&view, clock_now_ns(), &phases);
	assert_int_equal(phases.outside_ns, 0);
	assert_int_equal(phases.phases[0].waited_ns, 0);
}

enum { ROUNDS = 2000, THREADS = 8 };

static void *go_through_phases(void *context)
{
	_Atomic int *failures = context;
	for (int i = 0; i < ROUNDS; i++) {
		bool good = begin("data") == TRACE_PHASE_DONE &&
			    begin("data/image") == TRACE_PHASE_DONE;
		trace_waited(&trace, 1);
		good &= end("data/image") == TRACE_PHASE_DONE && end("data") == TRACE_PHASE_DONE;
		if (!good)
			(*failures)++;
	}
	return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
	(void)state;
	_Atomic int failures = 0;
	pthread_t threads[THREADS];
	struct trace_phases phases;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, go_through_phases, &failures), 0);
	for (int i = 0; i < 200; i++) { /* a reader beside them */
		trace_read_phases(&view, clock_now_ns(), &phases);
		assert_true(phases.count <= 2);
		for (uint32_t p = 0; p < phases.count; p++)
			assert_true(phases.phases[p].running <= THREADS);
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(failures, 0);
	trace_read_phases(&view, clock_now_ns(), &phases);
	assert_int_equal(phases.count, 2);
	for (int p = 0; p < 2; p++) {
		assert_int_equal(phases.phases[p].count, THREADS * ROUNDS);
		assert_int_equal(phases.phases[p].running, 0);
	}
	assert_int_equal(phases.phases[position(&phases, "data/image")].waited_ns,
			 to_ns(THREADS * ROUNDS));
}

static void *begin_once(void *answer)
{
	*(enum trace_phase_answer *)answer = begin("data");
	return NULL;
}

static void *begin_and_end(void *answer)
{
	*(enum trace_phase_answer *)answer = begin("data");
	if (end("data") != TRACE_PHASE_DONE)
		*(enum trace_phase_answer *)answer = TRACE_PHASE_NOT_INSIDE;
	return NULL;
}

static enum trace_phase_answer in_a_thread(void *(*what)(void *))
{
	pthread_t thread;
	enum trace_phase_answer answer = TRACE_PHASE_DEEP;
	assert_int_equal(pthread_create(&thread, NULL, what, &answer), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	return answer;
}

/* Threads that have ended give their places to others; those that ended inside of a phase do
 * not. */
static void places_are_used_again(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * TRACE_PHASE_THREAD_MAX; i++)
		assert_int_equal(in_a_thread(begin_and_end), TRACE_PHASE_DONE);
	for (int i = 0; i < TRACE_PHASE_THREAD_MAX; i++)
		assert_int_equal(in_a_thread(begin_once), TRACE_PHASE_DONE);
	assert_int_equal(in_a_thread(begin_once), TRACE_PHASE_MANY_THREADS);
	struct trace_phases phases;
	trace_read_phases(&view, clock_now_ns(), &phases);
	assert_int_equal(phases.phases[0].count, 2 * TRACE_PHASE_THREAD_MAX);
	assert_int_equal(phases.phases[0].running, TRACE_PHASE_THREAD_MAX);
}

/* ---- readers ---- */

static void nonsense_is_survived(void **state)
{
	(void)state;
	struct trace_phases phases;
	uint64_t random = 88172645463325252;
	struct clock_rate rates[] = {trace.header->rate,
				     {0, 0, -1},
				     {0, 0, 1e300},
				     {0, 0, __builtin_nan("")},
				     {~0u, ~0u, 1e-300}};
	assert_int_equal(begin("data"), TRACE_PHASE_DONE);
	for (int round = 0; round < 200; round++) {
		_Atomic uint64_t *words = (_Atomic uint64_t *)trace.phases;
		for (size_t i = 0; i < sizeof *trace.phases / 8; i++) {
			random ^= random << 13, random ^= random >> 7, random ^= random << 17;
			atomic_store(&words[i], round & 1 ? random : random & random >> 20);
		}
		trace.header->rate = rates[round % 5];
		trace_read_phases(&view, clock_now_ns(), &phases);
		assert_true(phases.count <= TRACE_PHASE_MAX);
		for (uint32_t i = 0; i < phases.count; i++) {
			assert_true(strlen(phases.phases[i].name) < TRACE_PHASE_BYTES);
			assert_true(phases.phases[i].waited_ns <= phases.phases[i].ns);
		}
	}
}

/* A writer that died between the two halves of a change: the odd epoch stays. */
static void torn_table_is_read_all_the_same(void **state)
{
	(void)state;
	struct trace_phases phases;
	assert_int_equal(begin("data"), TRACE_PHASE_DONE);
	uint32_t place = (uint32_t)gettid() % TRACE_PHASE_THREAD_MAX;
	atomic_fetch_or(&trace.phases->threads[place].epoch, 1);
	trace_read_phases(&view, clock_now_ns(), &phases);
	assert_int_equal(phases.count, 1);
	assert_int_equal(phases.phases[0].running, 1);
}

int main(void)
{
#define WITH_TRACE(test) cmocka_unit_test_setup_teardown(test, open_trace, close_trace)
	const struct CMUnitTest tests[] = {
		WITH_TRACE(time_belongs_to_the_innermost),
		WITH_TRACE(wrong_nesting_is_refused),
		WITH_TRACE(names_are_checked),
		WITH_TRACE(depth_is_limited),
		WITH_TRACE(waiting_is_told_apart),
		WITH_TRACE(running_ones_are_counted),
		WITH_TRACE(what_is_over_stays),
		WITH_TRACE(child_is_refused),
		WITH_TRACE(threads_without_phases_do_not_count),
		WITH_TRACE(threads_do_not_disturb_each_other),
		WITH_TRACE(places_are_used_again),
		WITH_TRACE(nonsense_is_survived),
		WITH_TRACE(torn_table_is_read_all_the_same),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
