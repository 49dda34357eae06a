/* SPDX-License-Identifier: BSD-3-Clause
 * Lockstep itself as a runtime to be timed. Public calls only, as a user's program makes them. */
#include <lockstep/lockstep.h>

#include "cli/bench_group.h"

static bool run(void *state, enum bench_op op, float *send, float *recv, size_t count)
{
	ls_group *group = (ls_group *)state;
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
	case BENCH_OP_COUNT:
		break;
	}
	return false;
}

static bool combine(void *state, enum bench_combine how, double *value)
{
	return ls_allreduce((ls_group *)state, value, value, 1, LS_FLOAT64,
			    how == BENCH_MAX ? LS_MAX : LS_SUM, NULL) == LS_OK;
}

struct bench_runtime cli_bench_group(ls_group *group)
{
	return (struct bench_runtime){.rank = ls_group_rank(group),
				      .size = ls_group_size(group),
				      .state = group,
				      .run = run,
				      .combine = combine};
}
