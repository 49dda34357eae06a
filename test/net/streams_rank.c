/* SPDX-License-Identifier: BSD-3-Clause
 * One rank of a job on several hosts, with a simulated device: collectives and messages on a
 * stream. Prints what it has done; ends with 1 if something is not right. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <lockstep/lockstep.h>

#include "sim.h"
#include "sim_driver.h"

enum { ROUNDS = 20, SIZES = 4 };

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
static float *host, *got;    /* of the host */
static float *block, *spare; /* of the device */

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

static int before(void)
{
	return (rank + size - 1) % size;
}

static int after(void)
{
	return (rank + 1) % size;
}

static struct ls_call_options with_tag(int tag, void *on)
{
	return (struct ls_call_options){
		.size = sizeof(struct ls_call_options), .tag = tag, .stream = on};
}

static ls_request *start_send(const float *from, int count, int tag, void *on)
{
	struct ls_call_options options = with_tag(tag, on);
	ls_request *request;
	MUST(ls_isend(group, from, (uint64_t)count, LS_FLOAT32, after(), &options, &request) ==
	     LS_OK);
	return request;
}

static ls_request *start_receive(float *to, int count, int tag, void *on)
{
	struct ls_call_options options = with_tag(tag, on);
	ls_request *request;
	MUST(ls_irecv(group, to, (uint64_t)count, LS_FLOAT32, before(), &options, &request) == LS_OK);
	return request;
}

static void finish(ls_request *request)
{
	MUST(ls_wait(request, 0) == LS_OK);
	ls_request_free(request);
}

static void check(const float *values, int count)
{
	for (int i = 0; i < count; i++)
		MUST(values[i] == (float)(before() + i));
}

/* From the rank before, which is on another host: messages of all lengths. */
static void receive(int count)
{
	fill(count);
	ls_request *request = start_send(host, count, 0, NULL);
	finish(start_receive(block, count, 0, stream));
	fetch(count);
	check(got, count);
	finish(request);
}

/* To the rank after. `other` is not used by the stream. */
static void send_there_and_back(int count)
{
	fill(count);
	ls_request *request = start_send(block, count, 0, stream);
	finish(start_receive(got, count, 0, NULL));
	check(got, count);
	finish(request);
	request = start_send(block, count, 0, stream);
	finish(start_receive(block, count, 0, stream));
	fetch(count);
	check(got, count);
	finish(request);
}

enum { HOLD = 1, DATA, FREE };

/* The stream cannot copy what it sends until the rank before sends HOLD. What does not need that
 * goes on: a message with another tag, and the next one with the same tag, which matches the second
 * receive. matched: the receive is posted before the payload comes. */
static void send_behind_a_receive(int count, bool matched)
{
	float one = 7, hold, next, other;
	fill(count);
	MUST(sim_stream_sync(stream) == SIM_OK);
	ls_request *held = start_receive(spare, 1, HOLD, stream);
	ls_request *sends[] = {start_send(block, count, DATA, stream),
			       start_send(&one, 1, DATA, NULL), start_send(&one, 1, FREE, NULL)};
	ls_request *first = matched ? start_receive(got, count, DATA, NULL) : NULL;
	ls_request *second = matched ? start_receive(&next, 1, DATA, NULL) : NULL;
	finish(start_receive(&other, 1, FREE, NULL));
	MUST(other == 7);
	if (matched) {
		finish(second);
		MUST(next == 7 && ls_test(first) == LS_PENDING);
	}
	hold = 1;
	finish(start_send(&hold, 1, HOLD, NULL));
	if (!matched) {
		MUST(sim_stream_sync(stream) == SIM_OK);
		first = start_receive(got, count, DATA, NULL);
		second = start_receive(&next, 1, DATA, NULL);
		finish(second);
	}
	finish(first);
	MUST(next == 7);
	check(got, count);
	finish(held);
	for (int i = 0; i < 3; i++)
		finish(sends[i]);
}

/* Computes for longer than some looks take. */
static void take_long(void *unused)
{
	struct timespec now, begin;
	(void)unused;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while (now.tv_sec <= begin.tv_sec + 1);
}

/* Both ranks wait for what a stream of the other one sends later: nobody is told that it is a
 * deadlock. */
static void send_behind_a_function(int count)
{
	fill(count);
	MUST(sim_host(stream, take_long, NULL) == SIM_OK);
	ls_request *request = start_send(block, count, DATA, stream);
	finish(start_receive(got, count, DATA, NULL));
	check(got, count);
	finish(request);
}

/* Each stream sends behind a receive that nothing is sent to. */
static void wait_in_a_cycle(int count)
{
	ls_group *world = group;
	MUST(ls_group_split(world, 0, rank, &group) == LS_OK);
	ls_request *held = start_receive(spare, 1, HOLD, stream);
	ls_request *send = start_send(block, count, DATA, stream);
	ls_request *receive = start_receive(got, count, DATA, NULL);
	MUST(ls_wait(receive, 0) == LS_DEADLOCK);
	MUST(ls_wait(held, 0) == LS_DEADLOCK && ls_wait(send, 0) == LS_DEADLOCK);
	ls_request_free(receive);
	ls_request_free(held);
	ls_request_free(send);
	MUST(sim_stream_sync(stream) == SIM_OK);
	ls_group_close(group);
	group = world;
}

/* The group fails while the receiver waits for a payload that the stream never copies. */
static void fail_behind_a_receive(int count)
{
	float other = 0;
	ls_group *world = group;
	MUST(ls_group_split(world, 0, rank, &group) == LS_OK);
	ls_request *held = start_receive(spare, 1, HOLD, stream);
	ls_request *sends[] = {start_send(block, count, DATA, stream),
			       start_send(&other, 1, FREE, NULL)};
	ls_request *receive = start_receive(got, count, DATA, NULL);
	finish(start_receive(&other, 1, FREE, NULL)); /* so the one before was matched */
	MUST(ls_barrier(world, NULL) == LS_OK);
	if (rank == 0)
		MUST(ls_group_abort(group, "on purpose") == LS_OK);
	MUST(ls_wait(receive, 0) == LS_ABORTED && ls_wait(held, 0) == LS_ABORTED);
	MUST(ls_wait(sends[0], 0) == LS_ABORTED);
	ls_status last = ls_wait(sends[1], 0);
	MUST(last == LS_OK || last == LS_ABORTED);
	ls_request_free(receive);
	ls_request_free(held);
	ls_request_free(sends[0]);
	ls_request_free(sends[1]);
	MUST(sim_stream_sync(stream) == SIM_OK);
	ls_group_close(group);
	group = world;
}

int main(void)
{
	static const int counts[SIZES] = {1, 0, 800, 100000};
	struct ls_group_options options = {.size = sizeof options, .device = "sim:0,devices=1"};
	MUST(ls_group_open(&options, &group) == LS_OK);
	rank = ls_group_rank(group);
	size = ls_group_size(group);
	MUST(sim_stream_open(lockstep_sim(), 0, &stream) == SIM_OK);
	size_t bytes = sizeof(float) * (size_t)counts[SIZES - 1];
	void *memory, *more;
	MUST(ls_device_alloc(group, bytes, stream, &memory) == LS_OK);
	MUST(ls_device_alloc(group, sizeof *spare, stream, &more) == LS_OK);
	block = memory;
	spare = more;
	host = malloc(bytes);
	got = malloc(bytes);
	MUST(host && got);
	struct ls_call_options on = {.size = sizeof on, .stream = stream};
	for (int round = 0; round < ROUNDS; round++) {
		all_reduce(counts[round % SIZES], &on);
		receive(counts[round % SIZES]);
		send_there_and_back(counts[round % SIZES]);
		send_behind_a_receive(counts[round % SIZES], round / SIZES % 2);
	}
	for (int i = 0; i < SIZES; i++) {
		send_behind_a_function(counts[i]);
		fail_behind_a_receive(counts[i]);
		wait_in_a_cycle(counts[i]);
	}
	MUST(ls_barrier(group, &on) == LS_OK && sim_stream_sync(stream) == SIM_OK);
	MUST(ls_device_free(group, memory) == LS_OK && ls_device_free(group, more) == LS_OK);
	MUST(ls_device_forget(group, stream) == LS_OK);
	MUST(sim_stream_close(stream) == SIM_OK);
	ls_group_close(group);
	free(host);
	free(got);
	printf("rank %d of %d is through\n", rank, size);
	return 0;
}
