/* SPDX-License-Identifier: BSD-3-Clause
 * How collectives, messages and groups are timed, the same for every runtime: `lockstep bench`
 * times Lockstep, and the programs of bench time it and its peers. operations.c, measure.c and
 * message.c need nothing but the room coll, so that they can be built into programs that know no
 * Lockstep. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "coll/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

enum bench_op {
#define X(id, ...) BENCH_##id = COLL_##id,
	COLL_TABLE(X)
#undef X
		BENCH_PING_PONG, /* from here on: struct bench_messages */
	BENCH_BANDWIDTH, /* rank 0 sends windows of messages to rank 1, which answers each window */
	BENCH_MESSAGE_RATE, /* the same with messages of BENCH_SMALL_BYTES */
	BENCH_MATCH,        /* rank 1 has receives outstanding, each with another tag */
	BENCH_GROUP,        /* opening and closing a group of all ranks */
	BENCH_OP_COUNT,
	BENCH_COLLECTIVE_COUNT = BENCH_PING_PONG,
};

enum {
	BENCH_SMALL_BYTES = 8,        /* a message of BENCH_MESSAGE_RATE and BENCH_MATCH */
	BENCH_WINDOW = 64,            /* messages, or fewer if they are large */
	BENCH_OUTSTANDING_MAX = 1024, /* receives of BENCH_MATCH */
};

enum bench_combine {
	BENCH_MAX,
	BENCH_SUM,
};

/* Messages between two ranks, in elements as below, and groups. Messages are matched by tag, 0 to
 * 2^15-1. Those of isend and irecv are numbered from 0 in the order of their calls; `finish` waits
 * for all of them, which are `count`, and begins again at 0. `regroup` opens a group of all ranks
 * and closes it. */
struct bench_messages {
	bool (*send)(void *state, const float *buffer, size_t count, int peer, int tag);
	bool (*recv)(void *state, float *buffer, size_t count, int peer, int tag);
	bool (*isend)(void *state, int number, const float *buffer, size_t count, int peer, int tag);
	bool (*irecv)(void *state, int number, float *buffer, size_t count, int peer, int tag);
	bool (*finish)(void *state, int count);
	bool (*regroup)(void *state);
};

/* One rank's view of a runtime. Its functions return false when the runtime has failed and said so;
 * the benchmark is then over. Elements are float32, reductions are sums, the root is rank 0. */
struct bench_runtime {
	int rank, size;
	void *state;
	/* count is in elements; of operations with a part for each rank, that of one part.
	 * all-reduce, reduce and broadcast are in place: send == recv. */
	bool (*run)(void *state, enum bench_op op, float *send, float *recv, size_t count);
	/* *value = the value of all ranks together. */
	bool (*combine)(void *state, enum bench_combine how, double *value);
	const struct bench_messages *messages; /* NULL: it has none */
};

/* Two buffers of bench_elements() each; recv is not used by operations in place. */
struct bench_case {
	enum bench_op op;
	size_t bytes; /* of the larger buffer of a rank; of BENCH_MATCH: of all messages together */
	bool fresh;   /* every rank rewrites its send buffer before each operation */
	float *send, *recv;
};

/* How long to measure: the median of `repeats` loops of about repeat_s each, and no new loop after
 * limit_s. */
struct bench_effort {
	double repeat_s, limit_s;
	int repeats;
};

struct bench_time {
	double seconds; /* for one operation, or one message one way: the slowest rank's mean */
	/* processor time of one operation, all ranks together; negative if fresh */
	double cpu_seconds;
};

/* The middle one of at least one value; sorts the values. */
double bench_median(double *values, int count);

/* "all-reduce"; and the operation of that name, with or without dashes, -1 if there is none. */
const char *bench_op_name(enum bench_op op);
int bench_op_from(const char *name);

/* The sizes in bytes at which an operation is timed, if the caller cannot choose them; else
 * NULL. */
const size_t *bench_sizes(enum bench_op op, int *count);

/* Whether the operation takes two ranks. */
bool bench_needs_two(enum bench_op op);

/* The collective; of an operation that is none: one without buffers. */
static inline const struct coll *bench_coll(enum bench_op op)
{
	return &coll_table[op < BENCH_COLLECTIVE_COUNT ? (int)op : COLL_NONE];
}

/* How many messages go one way in a round. Of a collective and of BENCH_GROUP: 1. */
int bench_round_messages(enum bench_op op, size_t bytes);

/* Elements of one part, at least one, and of a whole buffer. 0 for a barrier. */
size_t bench_count(enum bench_op op, size_t bytes, int size);
size_t bench_elements(enum bench_op op, size_t bytes, int size);

/* Binds the caller, and threads that it will start, to one of the processors that it may use: each
 * rank to its own while there are enough. For `rank` before the runtime is open. */
void bench_bind(int rank);

/* What the bandwidth of an operation is multiplied with to be that of the memory or wire under it,
 * so that operations and numbers of ranks can be compared: the convention of nccl-tests. */
double bench_bus_factor(enum bench_op op, int size);

/* Runs the operation once on known data and compares every element of the result. Collective.
 * False: the result is wrong and `text` says where; or the runtime has failed, and `text` is
 * empty. */
bool bench_check(const struct bench_runtime *runtime, const struct bench_case *what, char *text,
		 size_t text_bytes);

/* Collective; overwrites the buffers. False: the runtime has failed. */
bool bench_time(const struct bench_runtime *runtime, const struct bench_case *what,
		const struct bench_effort *effort, struct bench_time *out);

/* ---- message.c: messages and groups ---- */

/* One round of an operation from BENCH_PING_PONG on. False: the runtime has failed. */
bool bench_round(const struct bench_runtime *runtime, const struct bench_case *what);

/* The rank whose send buffer the caller's recv buffer holds after a round, -1 if none. */
int bench_round_source(const struct bench_runtime *runtime, enum bench_op op);

#ifdef __cplusplus
}
#endif
#endif
