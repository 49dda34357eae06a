/* SPDX-License-Identifier: BSD-3-Clause
 * Times one operation, and checks it first. Knows no runtime: see bench.h. All ranks decide the
 * same, because each decision follows from numbers that the ranks have combined. */
#include "bench/bench.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS_MAX = 99, ROUNDS_MAX = 200000, PATTERN = 251 };

void bench_bind(int rank)
{
	cpu_set_t all, one;

	if (rank < 0 || sched_getaffinity(0, sizeof all, &all) != 0)
		return;
	int skip = rank % CPU_COUNT(&all);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all) || skip-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof one, &one) != 0)
			perror("bench: sched_setaffinity");
		return;
	}
}

/* ---- checking ---- */

/* Element i of rank r's send buffer. Small whole numbers, so that sums are exact in any order. */
static float element(size_t i, int rank)
{
	return (float)(i % PATTERN) + 3 * (float)rank;
}

static float element_sum(size_t i, int size)
{
	return (float)size * (float)(i % PATTERN) + 3 * (float)(size * (size - 1) / 2);
}

/* Element i of the result on rank r. */
static float wanted_element(const struct bench_runtime *runtime, enum bench_op op, size_t count,
			    size_t i)
{
	size_t mine = (size_t)runtime->rank * count;

	switch (op) {
	case BENCH_ALLREDUCE:
	case BENCH_REDUCE:
		return element_sum(i, runtime->size);
	case BENCH_BROADCAST:
		return element(i, 0);
	case BENCH_ALLGATHER:
	case BENCH_GATHER:
		return element(i % count, (int)(i / count));
	case BENCH_SCATTER:
		return element(mine + i, 0);
	case BENCH_REDUCE_SCATTER:
		return element_sum(mine + i, runtime->size);
	case BENCH_ALLTOALL:
		return element(mine + i % count, (int)(i / count));
	case BENCH_PING_PONG:
	case BENCH_BANDWIDTH:
	case BENCH_MESSAGE_RATE:
	case BENCH_MATCH:
		return element(i, bench_round_source(runtime, op));
	case BENCH_BARRIER:
	case BENCH_GROUP:
	case BENCH_OP_COUNT:
		break;
	}
	return 0;
}

/* How many elements of the result this rank gets. */
static size_t result_elements(const struct bench_runtime *runtime, const struct bench_case *what)
{
	enum bench_op op = what->op;

	if (bench_coll(op)->root == COLL_ROOT_RECEIVES && runtime->rank != 0)
		return 0;
	if (op >= BENCH_COLLECTIVE_COUNT && bench_round_source(runtime, op) < 0)
		return 0;
	if (bench_coll(op)->output == COLL_PART)
		return bench_count(op, what->bytes, runtime->size);
	return bench_elements(op, what->bytes, runtime->size);
}

static double read_clock(clockid_t clock)
{
	struct timespec time;

	/* Cannot fail for the two clocks that are read here. */
	if (clock_gettime(clock, &time) != 0)
		abort();
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static bool is_in_place(enum bench_op op)
{
	return bench_coll(op)->output == COLL_WHOLE;
}

static bool run_once(const struct bench_runtime *runtime, const struct bench_case *what)
{
	float *recv = is_in_place(what->op) ? what->send : what->recv;

	if (what->op >= BENCH_COLLECTIVE_COUNT)
		return bench_round(runtime, what);
	return runtime->run(runtime->state, what->op, what->send, recv,
			    bench_count(what->op, what->bytes, runtime->size));
}

static bool barrier(const struct bench_runtime *runtime)
{
	return runtime->run(runtime->state, BENCH_BARRIER, NULL, NULL, 0);
}

/* No rank may leave before the last one has come. The clock is the same for all processes. */
static bool check_barrier(const struct bench_runtime *runtime, char *text, size_t text_bytes)
{
	double entered = read_clock(CLOCK_MONOTONIC);
	if (!barrier(runtime))
		return false;
	double left = read_clock(CLOCK_MONOTONIC);
	if (!runtime->combine(runtime->state, BENCH_MAX, &entered))
		return false;
	if (left < entered)
		snprintf(text, text_bytes, "rank %d left a barrier before the last rank came",
			 runtime->rank);
	return left >= entered;
}

bool bench_check(const struct bench_runtime *runtime, const struct bench_case *what, char *text,
		 size_t text_bytes)
{
	size_t count = bench_count(what->op, what->bytes, runtime->size);
	size_t elements = bench_elements(what->op, what->bytes, runtime->size);
	const float *result = is_in_place(what->op) ? what->send : what->recv;

	text[0] = '\0';
	if (what->op == BENCH_BARRIER)
		return check_barrier(runtime, text, text_bytes);
	if (what->op >= BENCH_COLLECTIVE_COUNT && !runtime->messages) {
		snprintf(text, text_bytes, "this runtime has no %s", bench_op_name(what->op));
		return false;
	}
	for (size_t i = 0; i < elements; i++) {
		what->send[i] = element(i, runtime->rank);
		if (!is_in_place(what->op))
			what->recv[i] = -1;
	}
	if (!barrier(runtime) || !run_once(runtime, what))
		return false;
	for (size_t i = 0, end = result_elements(runtime, what); i < end; i++) {
		float want = wanted_element(runtime, what->op, count, i);
		if (result[i] == want)
			continue;
		snprintf(text, text_bytes, "element %zu of %s on rank %d is %g instead of %g", i,
			 bench_op_name(what->op), runtime->rank, (double)result[i], (double)want);
		return false;
	}
	return true;
}

/* ---- timing ---- */

/* One loop; all numbers are the same on all ranks. */
struct loop {
	double seconds; /* of one round: an operation, or several messages */
	double cpu_seconds;
	double elapsed; /* of the loop, rewriting included */
};

static void rewrite_send(const struct bench_runtime *runtime, const struct bench_case *what)
{
	size_t elements = bench_elements(what->op, what->bytes, runtime->size);
	float value = (float)runtime->rank;

	for (size_t i = 0; i < elements; i++)
		what->send[i] = value;
}

static bool loop_fresh(const struct bench_runtime *runtime, const struct bench_case *what,
		       long rounds, double *total)
{
	*total = 0;
	for (long i = 0; i < rounds; i++) {
		rewrite_send(runtime, what);
		if (!barrier(runtime))
			return false;
		double start = read_clock(CLOCK_MONOTONIC);
		if (!run_once(runtime, what))
			return false;
		*total += read_clock(CLOCK_MONOTONIC) - start;
	}
	return true;
}

static bool loop_hot(const struct bench_runtime *runtime, const struct bench_case *what,
		     long rounds, double *total, double *cpu)
{
	double cpu_start = read_clock(CLOCK_PROCESS_CPUTIME_ID), start = read_clock(CLOCK_MONOTONIC);

	for (long i = 0; i < rounds; i++)
		if (!run_once(runtime, what))
			return false;
	*total = read_clock(CLOCK_MONOTONIC) - start;
	*cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu_start;
	return true;
}

static bool time_loop(const struct bench_runtime *runtime, const struct bench_case *what,
		      long rounds, struct loop *out)
{
	double start = read_clock(CLOCK_MONOTONIC), total = 0, cpu = 0;

	if (!barrier(runtime))
		return false;
	if (!(what->fresh ? loop_fresh(runtime, what, rounds, &total)
			  : loop_hot(runtime, what, rounds, &total, &cpu)))
		return false;
	*out = (struct loop){total / (double)rounds, cpu / (double)rounds,
			     read_clock(CLOCK_MONOTONIC) - start};
	return runtime->combine(runtime->state, BENCH_MAX, &out->seconds) &&
	       runtime->combine(runtime->state, BENCH_SUM, &out->cpu_seconds) &&
	       runtime->combine(runtime->state, BENCH_MAX, &out->elapsed);
}

/* Chooses how many rounds fill repeat_s. The first rounds also touch new memory. */
static bool choose_rounds(const struct bench_runtime *runtime, const struct bench_case *what,
			  const struct bench_effort *effort, long *rounds)
{
	struct loop first;

	*rounds = 1;
	for (int tries = 0; tries < 3; tries++) {
		if (!time_loop(runtime, what, *rounds, &first))
			return false;
		double one = first.elapsed / (double)*rounds;
		double fill = effort->repeat_s / (one > 1e-9 ? one : 1e-9);
		*rounds = fill < 1 ? 1 : fill > ROUNDS_MAX ? ROUNDS_MAX : (long)fill;
		/* Anything may have held up a single first round. */
		if (*rounds == 1 && tries > 0)
			break;
		/* The first tries are short and so say little: go up in steps. */
		if (tries < 2 && *rounds > 30)
			*rounds = tries == 0 ? 3 : 30;
	}
	return true;
}

static int compare_times(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_median(double *values, int count)
{
	qsort(values, (size_t)count, sizeof *values, compare_times);
	return values[count / 2];
}

bool bench_time(const struct bench_runtime *runtime, const struct bench_case *what,
		const struct bench_effort *effort, struct bench_time *out)
{
	double seconds[REPEATS_MAX], cpu[REPEATS_MAX], spent = 0;
	int repeats = effort->repeats > REPEATS_MAX ? REPEATS_MAX : effort->repeats;
	int done = 0;
	long rounds;

	/* Sums of zeros stay zeros, however often they are summed in place. */
	size_t bytes = bench_elements(what->op, what->bytes, runtime->size) * sizeof(float);
	if (bytes > 0)
		memset(what->send, 0, bytes);
	if (!choose_rounds(runtime, what, effort, &rounds))
		return false;
	do {
		struct loop one;
		if (!time_loop(runtime, what, rounds, &one))
			return false;
		seconds[done] = one.seconds;
		cpu[done] = one.cpu_seconds;
		spent += one.elapsed;
		done++;
	} while (done < repeats && spent < effort->limit_s);
	int messages =
		what->op < BENCH_COLLECTIVE_COUNT ? 1 : bench_round_messages(what->op, what->bytes);
	out->seconds = bench_median(seconds, done) / messages;
	out->cpu_seconds = what->fresh ? -1 : bench_median(cpu, done) / messages;
	return true;
}
