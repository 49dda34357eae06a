/* SPDX-License-Identifier: BSD-3-Clause
 * Process groups and what their ranks do together. See ls_group(3), ls_allreduce(3), ls_send(3).
 *
 * Threads: a group may be used from any thread of the process that opened it. Collectives of one
 * group are numbered in the order of their calls, and that order must be the same on all ranks; so
 * two threads that call collectives on one group without ordering them are a bug, which is found
 * like any other mismatch. Sends and receives may run beside collectives and beside each other.
 *
 * Blocking: every operation returns when its part is done, when it has failed, or at its time-out.
 *
 * Buffers: any memory. Memory from ls_alloc is reached by peers without a copy, and so is faster.
 * After an error no peer touches the caller's buffer any more; its content is undefined. Only after
 * LS_SYSTEM a stopped peer still may: the system had no memory left to take the buffer away from it.
 *
 * Again: a world can be opened again after all ranks have closed it, except under `lockstep run`, which
 * serves one meeting for each launch: there a program that cannot go on ends, and is started again.
 *
 * Failure: a status with scope LS_SCOPE_GROUP closes the group for good: every later call on it
 * returns the same status at once, on every surviving rank; ls_group_failure tells the cause.
 *
 * Fork: in a child that was forked without exec every call that would touch the group returns
 * LS_FORKED, and ls_free and ls_group_close do nothing. */
#ifndef LOCKSTEP_GROUP_H
#define LOCKSTEP_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_group ls_group;

typedef enum ls_dtype {
	LS_UINT8 = 0,
	LS_INT32 = 1,
	LS_INT64 = 2,
	LS_FLOAT32 = 3,
	LS_FLOAT64 = 4,
} ls_dtype;

typedef enum ls_reduce_op {
	LS_SUM = 0,
	LS_AVERAGE =
		1, /* the sum, then divided by the number of ranks; integers round towards zero */
	LS_MIN = 2,
	LS_MAX = 3,
	LS_PRODUCT = 4,
} ls_reduce_op;

/* All option structs: `size` is sizeof the struct; every other field may be zero for its default;
 * NULL in place of the struct means all defaults. */

struct ls_group_options {
	uint32_t size;
	/* Default time limit of an operation in milliseconds; 0: setting LOCKSTEP_TIMEOUT_MS. */
	uint32_t timeout_ms;
	/* Time limit of ls_group_open itself in milliseconds; 0: setting LOCKSTEP_OPEN_TIMEOUT_MS. */
	uint32_t open_timeout_ms;
	/* Which rank of how many the caller is. Read only when `rendezvous` is set; otherwise the
	 * launcher's environment says it (RANK, WORLD_SIZE). */
	int32_t rank;
	int32_t world_size;
	uint32_t reserved;
	/* Where ranks meet: "unix:NAME" (an abstract Unix socket) or "tcp:127.0.0.1:PORT"; rank 0 listens
	 * there. NULL: from the environment (lockstep run, torchrun, or MASTER_ADDR and MASTER_PORT). */
	const char *rendezvous;
};

struct ls_op_options {
	uint32_t size;
	/* Time limit of this call in milliseconds; 0: the group's. */
	uint32_t timeout_ms;
	/* Matches sends with receives, 0 to 2^31-1; not used by collectives. */
	int32_t tag;
	uint32_t reserved;
	/* Named in reports in place of the C call site, e.g. "train.py:42". Copied. NULL: none. */
	const char *label;
	/* Device stream; NULL, as only host memory is supported. */
	void *stream;
};

/* Why a group is closed. */
struct ls_failure {
	uint32_t size;    /* set by the caller: sizeof(struct ls_failure) */
	ls_status status; /* LS_OK while the group is open */
	int32_t rank;     /* the rank that is to blame, -1 if there is no single one */
	uint32_t reserved;
	uint64_t operation; /* number of the operation that could not go on, from 1; 0 if none */
	char text[2048];    /* the report, several lines, no terminal colours, NUL-terminated */
};

/* Opens the group of all ranks: meets them, connects to every one of them, maps their memory.
 * Collective and blocking; all ranks return the same status. *out is NULL on failure, and the reason
 * was said on standard error. Errors: LS_BAD_ARGUMENT, LS_WRONG_WORLD_SIZE, LS_DUPLICATE_RANK,
 * LS_RANK_MISSING, LS_PEER_DIED, LS_PORT_TAKEN, LS_NO_MASTER, LS_STRANGER, LS_WRONG_VERSION, LS_OUT_OF_MEMORY,
 * LS_UNSUPPORTED, LS_INTERRUPTED, LS_SYSTEM. */
LS_EXPORT LS_CHECKED ls_status ls_group_open(const struct ls_group_options *options, ls_group **out);

/* Leaves and frees the group. Local: it waits for nobody, and peers that still need this rank get
 * LS_PEER_LEFT. Frees all memory of ls_alloc. No other thread may be inside a call on the group.
 * NULL is allowed. */
LS_EXPORT void ls_group_close(ls_group *group);

/* Closes the group with LS_ABORTED on all ranks; their blocked calls return at once. From any thread,
 * at any time; does not block. `reason` (may be NULL) is copied into the report. The first cause
 * stays: on a group that has failed already this does nothing and returns LS_OK. */
LS_EXPORT LS_CHECKED ls_status ls_group_abort(ls_group *group, const char *reason);

/* -1 if group is NULL. */
LS_EXPORT int ls_group_rank(const ls_group *group);
LS_EXPORT int ls_group_size(const ls_group *group);

/* Why the group is closed; out->status is LS_OK while it is open. Does not block. */
LS_EXPORT LS_CHECKED ls_status ls_group_failure(ls_group *group, struct ls_failure *out);

/* recv[i] = op over all ranks of send[i], for i < count. Bitwise the same on all ranks, and from run
 * to run with the same number of ranks. send may equal recv; otherwise they must not overlap. */
LS_EXPORT LS_CHECKED ls_status ls_allreduce(ls_group *group, const void *send, void *recv,
					    uint64_t count, ls_dtype dtype, ls_reduce_op op,
					    const struct ls_op_options *options);

/* recv[i] on all ranks = send[i] of rank root. send is read on root only (NULL elsewhere is fine);
 * send may equal recv; otherwise they must not overlap. */
LS_EXPORT LS_CHECKED ls_status ls_broadcast(ls_group *group, const void *send, void *recv,
					    uint64_t count, ls_dtype dtype, int root,
					    const struct ls_op_options *options);

/* Returns after every rank has entered it. */
LS_EXPORT LS_CHECKED ls_status ls_barrier(ls_group *group, const struct ls_op_options *options);

/* Sends count elements to rank `dst` (also to itself) with options->tag. Messages of one sender with
 * one tag arrive in order. Returns when buffer may be used again: short messages are buffered (a
 * number of them per peer, see lockstep-settings(7)), long ones are taken by the receiver. A receive
 * of another count or dtype fails on both sides with LS_MISMATCH. */
LS_EXPORT LS_CHECKED ls_status ls_send(ls_group *group, const void *buffer, uint64_t count,
				       ls_dtype dtype, int dst, const struct ls_op_options *options);

/* Receives the oldest message of rank `src` with options->tag. */
LS_EXPORT LS_CHECKED ls_status ls_recv(ls_group *group, void *buffer, uint64_t count,
				       ls_dtype dtype, int src, const struct ls_op_options *options);

/* Bytes of one element, 0 for a number that is no dtype. */
LS_EXPORT size_t ls_dtype_bytes(ls_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
