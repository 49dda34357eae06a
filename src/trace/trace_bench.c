/* SPDX-License-Identifier: BSD-3-Clause
 * What recording an operation costs: trace_begin + trace_end beside the least that any recorder
 * could do, one 128-byte write into a ring with one time stamp. Interleaved, medians. The goal is
 * at most 25 ns and 2.5 times the plain write; two time stamps alone are already twice the plain
 * write. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/trace.h"

enum { RECORDS = 1024, ROUNDS = 301, OPERATIONS = 10000 };

struct plain {
	_Alignas(64) uint64_t words[16];
};

static double ns_since(uint64_t start_ns)
{
	return (double)(clock_now_ns() - start_ns) / OPERATIONS;
}

static double measure_plain(struct plain *ring, uint64_t *at)
{
	uint64_t start_ns = clock_now_ns();
	for (uint64_t i = 0; i < OPERATIONS; i++) {
		struct plain *record = &ring[*at % RECORDS];
		record->words[0] = clock_ticks();
		record->words[1] = (*at)++;
		for (int word = 2; word < 16; word++)
			record->words[word] = i;
		__asm__ volatile("" : : "r"(record) : "memory");
	}
	return ns_since(start_ns);
}

static double measure_trace(struct trace *trace)
{
	uint64_t start_ns = clock_now_ns();
	struct trace_begin begin = {.count = 1000,
				    .site = (uint64_t)&measure_trace,
				    .group = 1,
				    .peer = -1,
				    .kind = TRACE_ALLREDUCE,
				    .dtype = LS_FLOAT32};
	for (uint64_t i = 0; i < OPERATIONS; i++) {
		begin.seq = i;
		trace_end(trace, trace_begin(trace, &begin), LS_OK);
	}
	return ns_since(start_ns);
}

/* A phase inside of a phase, so that both clocks change hands. */
static double measure_phase(struct trace *trace)
{
	const char *inside;
	uint64_t start_ns = clock_now_ns();
	for (uint64_t i = 0; i < OPERATIONS / 2; i++) {
		trace_phase_begin(trace, "data", &inside);
		trace_phase_begin(trace, "data/image", &inside);
		trace_phase_end(trace, "data/image", &inside);
		trace_phase_end(trace, "data", &inside);
	}
	return ns_since(start_ns);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(void)
{
	static struct plain ring[RECORDS];
	static double plain_ns[ROUNDS], trace_ns[ROUNDS], phase_ns[ROUNDS];
	struct trace trace;
	struct trace_options options = {.job = 1, .rank = 0, .world_size = 1, .records = RECORDS};
	if (trace_init(&trace, &options) != LS_OK)
		return 1;
	memset(ring, 1, sizeof ring);
	uint64_t at = 0;
	for (int i = 0; i < ROUNDS; i++) {
		plain_ns[i] = measure_plain(ring, &at);
		trace_ns[i] = measure_trace(&trace);
		phase_ns[i] = measure_phase(&trace);
	}
	trace_fini(&trace);
	qsort(plain_ns, ROUNDS, sizeof(double), compare);
	qsort(trace_ns, ROUNDS, sizeof(double), compare);
	qsort(phase_ns, ROUNDS, sizeof(double), compare);
	double plain = plain_ns[ROUNDS / 2], both = trace_ns[ROUNDS / 2];
	printf("plain ring write  %6.2f ns\n", plain);
	printf("begin + end       %6.2f ns\n", both);
	printf("ratio             %6.2f\n", both / plain);
	printf("phase begin + end %6.2f ns\n", phase_ns[ROUNDS / 2]);
	return 0;
}
