/* SPDX-License-Identifier: BSD-3-Clause
 * The check must see every wrong element, and the clock must give the slowest rank's time. The
 * runtime is one rank of a made-up job: what peers would send follows from this rank's own data. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "bench/bench.h"

enum { SIZE = 3, BYTES = 4096, STEP = 3 /* between the data of two ranks */ };
static const double spin_s = 50e-6;

struct fake {
	int rank;
	long calls, fail_at; /* the call that fails, 0: none */
	bool spoil;          /* add 1 to an element of the result */
	size_t spoiled;      /* which */
	bool spin;           /* operations take spin_s */
	double slower;       /* another rank's time is this many times ours */
};

/* Element i of rank q's send buffer. */
static float of(const struct fake *fake, const float *send, size_t i, int q)
{
	return send[i] + STEP * (float)(q - fake->rank);
}

static float sum(const struct fake *fake, const float *send, size_t i)
{
	float total = 0;
	for (int q = 0; q < SIZE; q++)
		total += of(fake, send, i, q);
	return total;
}

/* Element i of the result. */
static float result_of(const struct fake *fake, const struct coll *coll, const float *send,
		       size_t n, size_t i)
{
	size_t from = coll->input == COLL_PARTS ? (size_t)fake->rank * n : 0;
	if (coll->reduces == COLL_REDUCES_ALL)
		return sum(fake, send, from + i);
	if (coll->root == COLL_ROOT_SENDS)
		return of(fake, send, from + i, 0);
	return of(fake, send, from + i % n, (int)(i / n));
}

/* The runtime played here cannot compute operations whose result the table does not determine. */
static bool is_played(int op)
{
	return coll_table[op].reduces != COLL_REDUCES_SOME;
}

static size_t elements_of(int op, int rank, size_t n)
{
	if (coll_table[op].root == COLL_ROOT_RECEIVES && rank != 0)
		return 0;
	return coll_table[op].output == COLL_PARTS ? n * SIZE : n;
}

/* Returns how many elements of the result there are. */
static size_t work(const struct fake *fake, enum bench_op op, const float *send, float *recv,
		   size_t n)
{
	size_t elements = elements_of((int)op, fake->rank, n);
	for (size_t i = 0; i < elements; i++)
		recv[i] = result_of(fake, &coll_table[op], send, n, i);
	return elements;
}

static double now(void)
{
	struct timespec time;
	assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &time), 0);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static bool run(void *state, enum bench_op op, float *send, float *recv, size_t count)
{
	struct fake *fake = state;
	if (++fake->calls == fake->fail_at)
		return false;
	if (op == BENCH_BARRIER)
		return true;
	size_t elements = work(fake, op, send, recv, count);
	if (fake->spoil && fake->spoiled < elements)
		recv[fake->spoiled] += 1;
	for (double end = now() + (fake->spin ? spin_s : 0); now() < end;)
		;
	return true;
}

static bool combine(void *state, enum bench_combine how, double *value)
{
	struct fake *fake = state;
	if (++fake->calls == fake->fail_at)
		return false;
	*value *= how == BENCH_SUM ? SIZE : fake->slower;
	return true;
}

struct setup {
	struct fake fake;
	struct bench_runtime runtime;
	struct bench_case what;
	float send[BYTES / 4 + SIZE], recv[BYTES / 4 + SIZE];
};

static struct setup *new_setup(enum bench_op op, int rank, size_t bytes)
{
	struct setup *setup = calloc(1, sizeof *setup);
	assert_non_null(setup);
	setup->fake = (struct fake){.rank = rank, .slower = 1};
	setup->runtime = (struct bench_runtime){rank, SIZE, &setup->fake, run, combine, NULL};
	setup->what = (struct bench_case){op, bytes, false, setup->send, setup->recv};
	return setup;
}

static void test_check_accepts_what_is_right(void **state)
{
	char text[128];
	(void)state;
	for (int op = 0; op < BENCH_COLLECTIVE_COUNT; op++)
		for (int rank = 0; rank < SIZE && is_played(op); rank++)
			for (size_t bytes = 0; bytes <= BYTES; bytes = bytes * 8 + 4) {
				struct setup *s = new_setup((enum bench_op)op, rank, bytes);
				assert_true(bench_check(&s->runtime, &s->what, text, sizeof text));
				assert_string_equal(text, "");
				free(s);
			}
}

static void test_check_sees_every_element(void **state)
{
	char text[128];
	(void)state;
	for (int op = 0; op < BENCH_COLLECTIVE_COUNT; op++)
		for (int rank = 0; rank < SIZE && is_played(op); rank++) {
			struct setup *s = new_setup((enum bench_op)op, rank, 256);
			size_t count = bench_count((enum bench_op)op, 256, SIZE);
			size_t elements = elements_of(op, rank, count);
			s->fake.spoil = true;
			for (size_t i = 0; i < elements; i++) {
				s->fake.spoiled = i;
				assert_false(bench_check(&s->runtime, &s->what, text, sizeof text));
				assert_non_null(strstr(text, bench_op_name((enum bench_op)op)));
			}
			s->fake.spoiled = elements; /* nobody looks there */
			assert_true(bench_check(&s->runtime, &s->what, text, sizeof text));
			free(s);
		}
}

static void test_check_sees_a_barrier_that_is_none(void **state)
{
	char text[128];
	struct setup *s = new_setup(BENCH_BARRIER, 0, 0);
	(void)state;
	assert_true(bench_check(&s->runtime, &s->what, text, sizeof text));
	s->fake.slower = 2; /* another rank comes when this one has left */
	assert_false(bench_check(&s->runtime, &s->what, text, sizeof text));
	assert_non_null(strstr(text, "barrier"));
	free(s);
}

static void test_time(void **state)
{
	const struct bench_effort effort = {.repeat_s = 1e-3, .limit_s = 1, .repeats = 5};
	(void)state;
	for (int fresh = 0; fresh < 2; fresh++) {
		struct setup *s = new_setup(BENCH_ALLGATHER, 1, 256);
		struct bench_time taken;
		s->what.fresh = fresh;
		s->fake.spin = true;
		assert_true(bench_time(&s->runtime, &s->what, &effort, &taken));
		assert_true(taken.seconds >= spin_s);
		double alone = taken.seconds;
		/* Spinning is processor time, that of all ranks. */
		assert_true(fresh ? taken.cpu_seconds < 0 : taken.cpu_seconds >= spin_s);
		s->fake.slower = 1e6;
		assert_true(bench_time(&s->runtime, &s->what, &effort, &taken));
		assert_true(taken.seconds > 1000 * alone);
		free(s);
	}
}

/* However often a failure comes, it ends the measurement. */
static void test_time_ends_with_a_failure(void **state)
{
	const struct bench_effort effort = {.repeat_s = 1e-4, .limit_s = 1, .repeats = 3};
	struct bench_time taken;
	(void)state;
	for (long at = 1; at < 50; at++) {
		struct setup *s = new_setup(BENCH_ALLREDUCE, 0, 256);
		s->fake.fail_at = at;
		bool good = bench_time(&s->runtime, &s->what, &effort, &taken);
		assert_int_equal(good, s->fake.calls < at);
		if (!good)
			assert_int_equal(s->fake.calls, at);
		free(s);
	}
}

static void test_limit_ends_a_slow_measurement(void **state)
{
	const struct bench_effort effort = {.repeat_s = 1e-3, .limit_s = 0, .repeats = 99};
	struct setup *s = new_setup(BENCH_ALLREDUCE, 0, 8);
	struct bench_time taken;
	(void)state;
	s->fake.slower = 1e6; /* some rank needs very long */
	assert_true(bench_time(&s->runtime, &s->what, &effort, &taken));
	assert_true(s->fake.calls < 20);
	free(s);
}

static void test_names_and_sizes(void **state)
{
	(void)state;
	for (int op = 0; op < BENCH_OP_COUNT; op++)
		assert_int_equal(bench_op_from(bench_op_name((enum bench_op)op)), op);
	assert_int_equal(bench_op_from("allreduce"), BENCH_ALLREDUCE);
	assert_int_equal(bench_op_from("reduce_scatter"), BENCH_REDUCE_SCATTER);
	assert_int_equal(bench_op_from("all-reducer"), -1);
	assert_int_equal(bench_op_from("all"), -1);
	assert_int_equal(bench_op_from(""), -1);
	assert_int_equal(bench_count(BENCH_ALLREDUCE, 1024, 4), 256);
	assert_int_equal(bench_count(BENCH_ALLGATHER, 1024, 4), 64);
	assert_int_equal(bench_count(BENCH_ALLGATHER, 8, 4), 1);
	assert_int_equal(bench_elements(BENCH_ALLGATHER, 1000, 3), 249);
	assert_int_equal(bench_elements(BENCH_BARRIER, 1000, 3), 0);
	assert_true(bench_bus_factor(BENCH_ALLREDUCE, 4) == 1.5);
	assert_true(bench_bus_factor(BENCH_ALLTOALL, 4) == 0.75);
	assert_true(bench_bus_factor(BENCH_REDUCE, 4) == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check_accepts_what_is_right),
		cmocka_unit_test(test_check_sees_every_element),
		cmocka_unit_test(test_check_sees_a_barrier_that_is_none),
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_time_ends_with_a_failure),
		cmocka_unit_test(test_limit_ends_a_slow_measurement),
		cmocka_unit_test(test_names_and_sizes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
