/* SPDX-License-Identifier: BSD-3-Clause
 * How a collective is timed, the same for every runtime: `lockstep bench` times Lockstep, and the
 * programs of test/bench time it and its peers. bench_measure.c needs nothing but this header, so that
 * it can be built into programs that know no Lockstep. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum bench_op {
	BENCH_ALLREDUCE,
	BENCH_REDUCE,
	BENCH_BROADCAST,
	BENCH_ALLGATHER,
	BENCH_GATHER,
	BENCH_SCATTER,
	BENCH_REDUCE_SCATTER,
	BENCH_ALLTOALL,
	BENCH_BARRIER,
	BENCH_OP_COUNT,
};

enum bench_combine {
	BENCH_MAX,
	BENCH_SUM,
};

/* One rank's view of a runtime. Its functions return false when the runtime has failed and said so;
 * the benchmark is then over. Elements are float32, reductions are sums, the root is rank 0. */
struct bench_runtime {
	int rank, size;
	void *state;
	/* count is in elements; of operations with a part for each rank, that of one part. all-reduce, reduce
	 * and broadcast are in place: send == recv. */
	bool (*run)(void *state, enum bench_op op, float *send, float *recv, size_t count);
	/* *value = that of all ranks together. */
	bool (*combine)(void *state, enum bench_combine how, double *value);
};

/* Two buffers of cli_bench_elements() each; recv is not used by operations in place. */
struct bench_case {
	enum bench_op op;
	size_t bytes; /* of the larger buffer of a rank */
	bool fresh;   /* every rank rewrites its send buffer before each operation */
	float *send, *recv;
};

/* How long to measure: the median of `repeats` loops of about repeat_s each, and no new loop after limit_s. */
struct bench_effort {
	double repeat_s, limit_s;
	int repeats;
};

struct bench_time {
	double seconds;     /* for one operation: the slowest rank's mean */
	double cpu_seconds; /* processor time of one operation, all ranks together; negative if fresh */
};

/* "all-reduce"; and the operation of that name, with or without dashes, -1 if there is none. */
const char *cli_bench_op_name(enum bench_op op);
int cli_bench_op_from(const char *name);

/* Elements of one part, at least one, and of a whole buffer. 0 for a barrier. */
size_t cli_bench_count(enum bench_op op, size_t bytes, int size);
size_t cli_bench_elements(enum bench_op op, size_t bytes, int size);

/* Binds the caller, and threads that it will start, to one of the processors that it may use: each rank to
 * its own while there are enough. For `rank` before the runtime is open. */
void cli_bench_bind(int rank);

/* What the bandwidth of an operation is multiplied with to be that of the memory or wire under it, so that
 * operations and numbers of ranks can be compared: the convention of nccl-tests. */
double cli_bench_bus_factor(enum bench_op op, int size);

/* Runs the operation once on known data and compares every element of the result. Collective. False: the
 * result is wrong and `text` says where; or the runtime has failed, and `text` is empty. */
bool cli_bench_check(const struct bench_runtime *runtime, const struct bench_case *what, char *text,
		     size_t text_bytes);

/* Collective; overwrites the buffers. False: the runtime has failed. */
bool cli_bench_time(const struct bench_runtime *runtime, const struct bench_case *what,
		    const struct bench_effort *effort, struct bench_time *out);

#ifdef __cplusplus
}
#endif
#endif
