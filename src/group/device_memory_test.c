/* SPDX-License-Identifier: BSD-3-Clause
 * Collectives on memory of a device that is late, and that the processor cannot touch:
 * results are the host's, bit by bit. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "device_fixture.h"

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
		      const struct ls_op_options *options)
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

/* Once on the host, once on the device; with a handle, too. */
static void compare(struct rank *rank, enum call call, uint64_t count, bool in_place, bool beside)
{
	size_t bytes = RANKS * count * sizeof(float);
	float *send = malloc(bytes), *recv = calloc(1, bytes);
	struct late *late = rank->late;
	LATE_MUST(send && recv && 2 * bytes <= LATE_BYTES);
	for (size_t i = 0; i < RANKS * count; i++)
		send[i] = 0.1f * (float)(i % 1013) + (float)rank->rank * 1.7f;
	unsigned char *to = in_place ? late->device : late->device + bytes;
	memcpy(late->memory, send, bytes);
	memset(late->memory + bytes, 0, bytes);
	if (in_place)
		memcpy(recv, send, bytes);
	ls_op *op = NULL;
	struct ls_op_options options = {.size = sizeof options, .op = beside ? &op : NULL};
	LATE_MUST(make(call, rank->group, in_place ? recv : send, recv, count, NULL) == LS_OK);
	LATE_MUST(make(call, rank->group, late->device, to, count, &options) == LS_OK);
	if (beside) {
		LATE_MUST(ls_wait(op, 0) == LS_OK);
		ls_op_free(op);
	}
	LATE_MUST(memcmp(late_where(late, to), recv, bytes) == 0);
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
	LATE_MUST(count <= MOST_SHORT);
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
		struct ls_op_options options = {.size = sizeof options};
		LATE_MUST(make(call, rank->group, host[0], expected, count, &options) == LS_OK);
		LATE_MUST(make(call, rank->group, send, recv, count, NULL) == LS_OK);
		LATE_MUST(memcmp(got, expected, bytes) == 0);
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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(collectives_give_the_hosts_bits),
		cmocka_unit_test(short_calls_go_by_the_device),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
