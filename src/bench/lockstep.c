/* SPDX-License-Identifier: BSD-3-Clause
 * Lockstep itself as a runtime to be timed. Public calls only, as a user's program makes them. */
#include <lockstep/lockstep.h>

#include "bench/lockstep.h"

static ls_group *group_of(void *state)
{
	return ((const struct bench_lockstep *)state)->group;
}

static bool run_collective(void *state, enum bench_op op, float *send, float *recv, size_t count)
{
	ls_group *group = group_of(state);
	const ls_dtype dtype = LS_FLOAT32;

	switch (op) {
	case BENCH_ALLREDUCE:
		return ls_allreduce(group, send, recv, count, dtype, LS_SUM, NULL) == LS_OK;
	case BENCH_REDUCE:
		return ls_reduce(group, send, recv, count, dtype, LS_SUM, 0, NULL) == LS_OK;
	case BENCH_BROADCAST:
		return ls_broadcast(group, send, recv, count, dtype, 0, NULL) == LS_OK;
	case BENCH_ALLGATHER:
		return ls_allgather(group, send, recv, count, dtype, NULL) == LS_OK;
	case BENCH_GATHER:
		return ls_gather(group, send, recv, count, dtype, 0, NULL) == LS_OK;
	case BENCH_SCATTER:
		return ls_scatter(group, send, recv, count, dtype, 0, NULL) == LS_OK;
	case BENCH_REDUCE_SCATTER:
		return ls_reduce_scatter(group, send, recv, count, dtype, LS_SUM, NULL) == LS_OK;
	case BENCH_ALLTOALL:
		return ls_alltoall(group, send, recv, count, dtype, NULL) == LS_OK;
	case BENCH_BARRIER:
		return ls_barrier(group, NULL) == LS_OK;
	case BENCH_PING_PONG:
	case BENCH_BANDWIDTH:
	case BENCH_MESSAGE_RATE:
	case BENCH_MATCH:
	case BENCH_GROUP:
	case BENCH_OP_COUNT:
		break;
	}
	return false;
}

static bool combine_value(void *state, enum bench_combine how, double *value)
{
	return ls_allreduce(group_of(state), value, value, 1, LS_FLOAT64,
			    how == BENCH_MAX ? LS_MAX : LS_SUM, NULL) == LS_OK;
}

static bool send(void *state, const float *buffer, size_t count, int peer, int tag)
{
	const struct ls_call_options options = {.size = sizeof options, .tag = tag};

	return ls_send(group_of(state), buffer, count, LS_FLOAT32, peer, &options) == LS_OK;
}

static bool recv(void *state, float *buffer, size_t count, int peer, int tag)
{
	const struct ls_call_options options = {.size = sizeof options, .tag = tag};

	return ls_recv(group_of(state), buffer, count, LS_FLOAT32, peer, &options) == LS_OK;
}

static bool isend(void *state, int number, const float *buffer, size_t count, int peer, int tag)
{
	struct bench_lockstep *mine = state;
	const struct ls_call_options options = {.size = sizeof options, .tag = tag};

	return ls_isend(mine->group, buffer, count, LS_FLOAT32, peer, &options,
			&mine->requests[number]) == LS_OK;
}

static bool irecv(void *state, int number, float *buffer, size_t count, int peer, int tag)
{
	struct bench_lockstep *mine = state;
	const struct ls_call_options options = {.size = sizeof options, .tag = tag};

	return ls_irecv(mine->group, buffer, count, LS_FLOAT32, peer, &options,
			&mine->requests[number]) == LS_OK;
}

static bool finish_messages(void *state, int count)
{
	struct bench_lockstep *mine = state;
	bool good = true;

	for (int i = 0; i < count; i++) {
		good &= ls_wait(mine->requests[i], 0) == LS_OK;
		ls_request_free(mine->requests[i]);
	}
	return good;
}

static bool regroup(void *state)
{
	ls_group *all;

	if (ls_group_split(group_of(state), 0, 0, &all) != LS_OK)
		return false;
	ls_group_close(all);
	return true;
}

struct bench_runtime bench_lockstep(ls_group *group, struct bench_lockstep *out)
{
	static const struct bench_messages messages = {send,   recv, isend, irecv, finish_messages,
						       regroup};

	*out = (struct bench_lockstep){.group = group};
	return (struct bench_runtime){.rank = ls_group_rank(group),
				      .size = ls_group_size(group),
				      .state = out,
				      .run = run_collective,
				      .combine = combine_value,
				      .messages = &messages};
}
