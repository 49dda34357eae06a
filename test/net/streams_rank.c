/* SPDX-License-Identifier: BSD-3-Clause
 * One rank of a job on several hosts, with a simulated device: collectives and receives on a
 * stream, and what is refused. Prints what it has done; ends with 1 if something is not right. */
#include <stdio.h>
#include <stdlib.h>

#include <lockstep/lockstep.h>

#include "sim.h"
#include "sim_driver.h"

enum { ROUNDS = 20, SIZES = 3 };

#define MUST(condition)                                                                     \
	do {                                                                                \
		if (!(condition)) {                                                         \
			fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                            \
		}                                                                           \
	} while (0)

static ls_group *group;
static struct sim_stream *stream;
static int rank, size;
static float *host, *got; /* of the host */
static float *block;      /* of the device */

static void fill(int count)
{
	for (int i = 0; i < count; i++)
		host[i] = (float)(rank + i);
	MUST(sim_copy(stream, block, host, sizeof(float) * (size_t)count) == SIM_OK);
}

/* What the device has, when the stream has come so far. */
static void fetch(int count)
{
	MUST(sim_copy(stream, got, block, sizeof(float) * (size_t)count) == SIM_OK);
	MUST(sim_stream_sync(stream) == SIM_OK);
}

static void all_reduce(int count, const struct ls_call_options *on)
{
	fill(count);
	MUST(ls_allreduce(group, block, block, (uint64_t)count, LS_FLOAT32, LS_SUM, on) == LS_OK);
	fetch(count);
	for (int i = 0; i < count; i++)
		MUST(got[i] == (float)(size * i + size * (size - 1) / 2));
}

/* From the rank before, which is on another host: messages of all lengths. */
static void receive(int count, const struct ls_call_options *on)
{
	int from = (rank + size - 1) % size;
	ls_request *op;
	fill(count);
	MUST(ls_isend(group, host, (uint64_t)count, LS_FLOAT32, (rank + 1) % size, NULL, &op) ==
	     LS_OK);
	MUST(ls_recv(group, block, (uint64_t)count, LS_FLOAT32, from, on) == LS_OK);
	fetch(count);
	for (int i = 0; i < count; i++)
		MUST(got[i] == (float)(from + i));
	MUST(ls_wait(op, 0) == LS_OK);
	ls_request_free(op);
}

/* It says so, and does nothing: the receiver has nothing to take. */
static void send(const struct ls_call_options *on)
{
	char said[512];
	MUST(ls_send(group, block, 1, LS_FLOAT32, (rank + 1) % size, on) == LS_UNSUPPORTED);
	MUST(ls_last_error(said, sizeof said) > 0);
	printf("refused: %s\n", said);
}

int main(void)
{
	static const int counts[SIZES] = {1, 800, 100000};
	struct ls_group_options options = {.size = sizeof options, .device = "sim:0,devices=1"};
	MUST(ls_group_open(&options, &group) == LS_OK);
	rank = ls_group_rank(group);
	size = ls_group_size(group);
	MUST(sim_stream_open(lockstep_sim(), 0, &stream) == SIM_OK);
	size_t bytes = sizeof(float) * (size_t)counts[SIZES - 1];
	void *memory;
	MUST(ls_device_alloc(group, bytes, stream, &memory) == LS_OK);
	block = memory;
	host = malloc(bytes);
	got = malloc(bytes);
	MUST(host && got);
	struct ls_call_options on = {.size = sizeof on, .stream = stream};
	for (int round = 0; round < ROUNDS; round++) {
		all_reduce(counts[round % SIZES], &on);
		receive(counts[round % SIZES], &on);
	}
	send(&on);
	MUST(ls_barrier(group, &on) == LS_OK && sim_stream_sync(stream) == SIM_OK);
	MUST(ls_device_free(group, memory) == LS_OK && ls_device_forget(group, stream) == LS_OK);
	MUST(sim_stream_close(stream) == SIM_OK);
	ls_group_close(group);
	free(host);
	free(got);
	printf("rank %d of %d is through\n", rank, size);
	return 0;
}
