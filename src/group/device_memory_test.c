/* SPDX-License-Identifier: BSD-3-Clause
 * Collectives and messages on memory of a device that is late, and that the processor cannot touch:
 * results have the same bits as on the host. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/seqlock.h"
#include "group/device_fixture.h"

enum { MOST = 200000 };

enum call {
	ALLREDUCE,
	REDUCE,
	BROADCAST,
	ALLGATHER,
	GATHER,
	SCATTER,
	REDUCE_SCATTER,
	ALLTOALL,
	CALLS
};

static ls_status make(enum call call, ls_group *group, const void *send, void *recv, uint64_t count,
		      const struct ls_call_options *options)
{
	switch (call) {
	case ALLREDUCE:
		return ls_allreduce(group, send, recv, count, LS_FLOAT32, LS_AVERAGE, options);
	case REDUCE:
		return ls_reduce(group, send, recv, count, LS_FLOAT32, LS_SUM, 1, options);
	case BROADCAST:
		return ls_broadcast(group, send, recv, count, LS_FLOAT32, 2, options);
	case ALLGATHER:
		return ls_allgather(group, send, recv, count, LS_FLOAT32, options);
	case GATHER:
		return ls_gather(group, send, recv, count, LS_FLOAT32, 0, options);
	case SCATTER:
		return ls_scatter(group, send, recv, count, LS_FLOAT32, 0, options);
	case REDUCE_SCATTER:
		return ls_reduce_scatter(group, send, recv, count, LS_FLOAT32, LS_SUM, options);
	default:
		return ls_alltoall(group, send, recv, count, LS_FLOAT32, options);
	}
}

/* Makes a call with buffers of the host, then with buffers of the device, and compares the results;
 * also with a handle. */
static void compare(struct rank *rank, enum call call, uint64_t count, bool in_place, bool beside)
{
	size_t bytes = RANKS * count * sizeof(float);
	float *send = malloc(bytes), *recv = calloc(1, bytes);
	struct late *late = rank->late;
	MUST(send && recv && 2 * bytes <= LATE_BYTES);
	for (size_t i = 0; i < RANKS * count; i++)
		send[i] = 0.1f * (float)(i % 1013) + (float)rank->rank * 1.7f;
	unsigned char *to = in_place ? late->device : late->device + bytes;
	memcpy(late->memory, send, bytes);
	memset(late->memory + bytes, 0, bytes);
	if (in_place)
		memcpy(recv, send, bytes);
	ls_request *op = NULL;
	struct ls_call_options options = {.size = sizeof options, .request = beside ? &op : NULL};
	MUST(make(call, rank->group, in_place ? recv : send, recv, count, NULL) == LS_OK);
	MUST(make(call, rank->group, late->device, to, count, &options) == LS_OK);
	if (beside) {
		MUST(ls_wait(op, 0) == LS_OK);
		ls_request_free(op);
	}
	MUST(memcmp(late_where(late, to), recv, bytes) == 0);
	free(send);
	free(recv);
}

static void all_calls(struct rank *rank)
{
	static const uint64_t counts[] = {0, 1, 70, 3000, MOST};
	for (int c = 0; c < CALLS; c++)
		for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
			compare(rank, (enum call)c, counts[i], false, i % 2);
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		compare(rank, ALLREDUCE, counts[i], true, i % 2 == 0);
}

static void collectives_give_the_hosts_bits(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++)
		run(all_calls, seed);
}

/* A call that the host has taught the group to be short, twice on the device, which the processor
 * must not touch; and on the host again. Both buffers are the device's, or one of them. */
static void short_call(struct rank *rank, enum call call, uint64_t count, int which)
{
	enum { MOST_SHORT = 8, ROUNDS = 6 };
	struct late *late = rank->late;
	float host[2][RANKS * MOST_SHORT], expected[RANKS * MOST_SHORT];
	size_t bytes = sizeof host[0];
	MUST(count <= MOST_SHORT);
	for (int round = 0; round < ROUNDS; round++) {
		bool on_device = round == 2 || round == 3;
		const void *send = on_device && which != 2 ? late->device : (void *)host[0];
		void *recv = on_device && which != 1 ? late->device + bytes : (void *)host[1];
		float *got = late_where(late, recv);
		for (size_t i = 0; i < RANKS * count; i++)
			host[0][i] = (float)(i + 1) * 0.3f + (float)(rank->rank * 10 + round);
		memcpy(late->memory, host[0], bytes);
		memset(expected, 0, bytes);
		memset(got, 0, bytes);
		/* With options a call is never short. */
		struct ls_call_options options = {.size = sizeof options};
		MUST(make(call, rank->group, host[0], expected, count, &options) == LS_OK);
		MUST(make(call, rank->group, send, recv, count, NULL) == LS_OK);
		MUST(memcmp(got, expected, bytes) == 0);
	}
}

static void short_calls(struct rank *rank)
{
	for (int c = 0; c < CALLS; c++)
		for (uint64_t count = 1; count <= 8; count *= 2)
			for (int which = 0; which < 3; which++)
				short_call(rank, (enum call)c, count, which);
}

static void short_calls_go_by_the_device(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++)
		run(short_calls, seed);
}

/* A payload goes from rank to rank, and back to the first one. */
static void pass_on(struct rank *rank)
{
	static const uint64_t sizes[] = {1, 8, 500, 70000, 6 << 20};
	struct late *late = rank->late;
	struct ls_call_options options = {.size = sizeof options, .tag = 3};
	int to = (rank->rank + 1) % RANKS, from = (rank->rank + RANKS - 1) % RANKS;
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		uint64_t bytes = sizes[i];
		memset(late->memory, rank->rank ? 0 : (int)i + 1, bytes);
		if (rank->rank == 0)
			MUST(ls_send(rank->group, late->device, bytes, LS_UINT8, to, &options) ==
			     LS_OK);
		MUST(ls_recv(rank->group, late->device, bytes, LS_UINT8, from, &options) == LS_OK);
		for (uint64_t at = 0; at < bytes; at++)
			MUST(late->memory[at] == i + 1);
		if (rank->rank != 0)
			MUST(ls_send(rank->group, late->device, bytes, LS_UINT8, to, &options) ==
			     LS_OK);
	}
}

static void messages_give_the_hosts_bits(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++)
		run(pass_on, seed);
}

static void note(void *data, ls_status status)
{
	(void)data;
	(void)status;
}

/* Nobody would wait for the device. What is refused has no part in the order of messages. */
static void outlive(struct rank *rank)
{
	struct late *late = rank->late;
	ls_group *group = rank->group;
	int to = (rank->rank + 1) % RANKS, from = (rank->rank + RANKS - 1) % RANKS;
	struct ls_call_options tells = {.size = sizeof tells, .callback = note};
	for (uint64_t bytes = 8; bytes <= 80000; bytes *= 100) {
		ls_request *op = NULL;
		MUST(ls_isend(group, late->device, bytes, LS_UINT8, to, NULL, &op) ==
		     LS_BAD_ARGUMENT);
		MUST(!op && has_said("only ls_send and ls_recv"));
		MUST(ls_irecv(group, late->device, bytes, LS_UINT8, from, NULL, &op) ==
		     LS_BAD_ARGUMENT);
		MUST(ls_send(group, late->device, bytes, LS_UINT8, to, &tells) == LS_BAD_ARGUMENT);
		MUST(ls_batch_begin(group) == LS_OK);
		MUST(ls_recv(group, late->device, bytes, LS_UINT8, from, NULL) == LS_BAD_ARGUMENT);
		MUST(ls_batch_end(group, NULL) == LS_OK);
	}
	/* The bytes of an empty message lie nowhere, and memory of the host is as good as ever. */
	int out = rank->rank, in = -1;
	ls_request *sent, *empty;
	MUST(ls_isend(group, late->device, 0, LS_UINT8, to, NULL, &empty) == LS_OK);
	MUST(ls_isend(group, &out, 1, LS_INT32, to, NULL, &sent) == LS_OK);
	MUST(ls_recv(group, late->device, 0, LS_UINT8, from, NULL) == LS_OK);
	MUST(ls_recv(group, &in, 1, LS_INT32, from, NULL) == LS_OK && in == from);
	MUST(ls_wait(sent, 0) == LS_OK && ls_wait(empty, 0) == LS_OK);
	ls_request_free(sent);
	ls_request_free(empty);
}

static void messages_that_outlive_their_call_are_refused(void **state)
{
	(void)state;
	run(outlive, 1);
}

/* A message that is sent by itself comes to the buffer of a thread that waits for it. */
static void send_serially(struct rank *rank)
{
	struct late *late = rank->late;
	int to = (rank->rank + 1) % RANKS, from = (rank->rank + RANKS - 1) % RANKS;
	int out = rank->rank;
	ls_request *sent;
	MUST(ls_send(rank->group, late->device, 8, LS_UINT8, to, NULL) == LS_BAD_ARGUMENT);
	MUST(has_said("LOCKSTEP_P2P=serial"));
	MUST(ls_isend(rank->group, &out, 1, LS_INT32, to, NULL, &sent) == LS_OK);
	MUST(ls_recv(rank->group, late->device, 1, LS_INT32, from, NULL) == LS_OK);
	MUST(memcmp(late->memory, &from, sizeof from) == 0);
	MUST(ls_wait(sent, 0) == LS_OK);
	ls_request_free(sent);
}

static void sends_in_turn_are_refused(void **state)
{
	(void)state;
	setenv("LOCKSTEP_P2P", "serial", 1);
	run(send_serially, 1);
	unsetenv("LOCKSTEP_P2P");
}

/* Two threads of each rank, on one device: one passes messages on, the other reduces. The progress
 * thread may begin both of its reductions, and still look at the device when it has ended them. */
static void *reduce_beside(void *argument)
{
	struct rank *rank = argument;
	struct late *late = rank->late;
	enum { ROUNDS = 40, COUNT = 500, AT = LATE_BYTES / 2, BYTES = COUNT * 4 };
	for (int round = 0; round < ROUNDS; round++) {
		int32_t *values = (int32_t *)(void *)(late->memory + AT);
		unsigned char *at = late->device + AT;
		ls_request *op;
		struct ls_call_options options = {.size = sizeof options, .request = &op};
		for (int i = 0; i < 2 * COUNT; i++)
			values[i] = rank->rank + i + round;
		MUST(ls_allreduce(rank->group, at, at, COUNT, LS_INT32, LS_SUM, &options) == LS_OK);
		MUST(ls_allreduce(rank->group, at + BYTES, at + BYTES, COUNT, LS_INT32, LS_SUM,
				  NULL) == LS_OK);
		MUST(ls_wait(op, 0) == LS_OK);
		ls_request_free(op);
		for (int i = 0; i < 2 * COUNT; i++)
			MUST(values[i] == RANKS * (i + round) + RANKS * (RANKS - 1) / 2);
	}
	return NULL;
}

static void two_at_once(struct rank *rank)
{
	struct late *late = rank->late;
	pthread_t other;
	int to = (rank->rank + 1) % RANKS, from = (rank->rank + RANKS - 1) % RANKS;
	MUST(pthread_create(&other, NULL, reduce_beside, rank) == 0);
	for (uint64_t round = 1; round <= 40; round++) {
		uint64_t bytes = round % 2 ? 8 : 50000;
		memset(late->memory, (int)round, bytes);
		if (rank->rank == 0)
			MUST(ls_send(rank->group, late->device, bytes, LS_UINT8, to, NULL) == LS_OK);
		MUST(ls_recv(rank->group, late->device + bytes, bytes, LS_UINT8, from, NULL) ==
		     LS_OK);
		MUST(late->memory[bytes] == round && late->memory[2 * bytes - 1] == round);
		if (rank->rank != 0)
			MUST(ls_send(rank->group, late->device, bytes, LS_UINT8, to, NULL) == LS_OK);
	}
	MUST(pthread_join(other, NULL) == 0);
}

static void two_threads_share_a_device(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++)
		run(two_at_once, seed);
}

/* ---- calls of the driver that block ---- */

enum { FETCH = 1, FETCH_STORE, DELIVERY, DELIVERY_STORE, STAYS };
static _Atomic int stays_at;

/* Whether a thread of the rank is in a foreign call of this name. */
static bool sees_call(const struct rank *rank, const char *name)
{
	struct wait_slot_body body;
	uint32_t epoch;
	bool found = false;
	for (int i = 0; i < WAIT_SLOT_MAX && !found; i++) {
		const struct wait_slot *slot = &rank->group->world->trace.wait_table->slots[i];
		found = seqlock_read(&slot->epoch, &body, &slot->body, sizeof body, &epoch) &&
			body.state == WAIT_FOREIGN && strcmp(body.foreign, name) == 0;
	}
	return found;
}

static void *look_for_call(void *argument)
{
	struct rank *rank = argument;
	bool is_store = stays_at == FETCH_STORE || stays_at == DELIVERY_STORE;
	uint64_t limit_ns = clock_deadline_ns(LIMIT_MS / 2);
	const char *name = is_store ? "the driver, behind a stream" : "the driver, to copy a buffer";
	while (!sees_call(rank, name)) {
		MUST(clock_now_ns() < limit_ns);
		sched_yield();
	}
	late_stay(rank->late, 0);
	return NULL;
}

static void sum_while_one_stays(struct rank *rank)
{
	struct late *late = rank->late;
	int32_t *value = (int32_t *)(void *)late->memory;
	pthread_t looker;
	*value = 1;
	if (rank->rank == 0) {
		late_stay(late, (uint64_t)stays_at);
		MUST(pthread_create(&looker, NULL, look_for_call, rank) == 0);
	}
	MUST(ls_allreduce(rank->group, late->device, late->device, 1, LS_INT32, LS_SUM, NULL) ==
	     LS_OK);
	MUST(*value == RANKS);
	if (rank->rank == 0)
		pthread_join(looker, NULL);
	MUST(!sees_call(rank, "the driver, to copy a buffer"));
}

static void calls_that_block_show_themselves(void **state)
{
	(void)state;
	for (int at = FETCH; at < STAYS; at++) {
		atomic_store(&stays_at, at);
		run(sum_while_one_stays, 1);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(collectives_give_the_hosts_bits),
		cmocka_unit_test(short_calls_go_by_the_device),
		cmocka_unit_test(messages_give_the_hosts_bits),
		cmocka_unit_test(messages_that_outlive_their_call_are_refused),
		cmocka_unit_test(sends_in_turn_are_refused),
		cmocka_unit_test(two_threads_share_a_device),
		cmocka_unit_test(calls_that_block_show_themselves),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
