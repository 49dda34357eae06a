/* SPDX-License-Identifier: BSD-3-Clause
 * Operations in which all ranks of a group take part. See ls_collective(3).
 *
 * Order: collectives of one group are numbered in the order of their calls. All ranks must call the
 * same collectives in the same order, with the same count, dtype, op and root. If they do not, the
 * group fails with LS_MISMATCH. A call detects it if it needs data or a signal from a rank whose
 * call differs. Otherwise a later call detects it, or ls_group_close, which returns no status: see
 * there.
 *
 * Shapes: counts are in elements. Where a buffer has one part for each rank, count is that of one
 * part, and the parts lie one after the other in the order of ranks. In the ...v calls counts[r] is
 * the count of rank r's part; the array must be the same on all ranks, and is copied before the
 * call returns.
 *
 * Results are bitwise the same on all ranks that get them, and from run to run if the ranks are as
 * many, are placed on hosts in the same way, and have the same settings. send and recv must not
 * overlap, except in place as each call allows.
 *
 * Synchronisation: any collective may wait until all ranks have called it. Ranks that only
 * contribute data, such as the root of a broadcast, may run ahead of the others by an unspecified
 * amount. Only ls_barrier synchronises all ranks.
 *
 * Blocking, threads, buffers: see group.h and request.h. With options NULL a call blocks.
 *
 * Errors: LS_BAD_ARGUMENT, LS_UNSUPPORTED (this dtype with this op), LS_OUT_OF_MEMORY and LS_FORKED
 * leave the group as it is, unless they end a ..._many call in the middle (struct ls_buffers). All
 * other errors mean that the group has failed: see group.h. */
#ifndef LOCKSTEP_COLLECTIVE_H
#define LOCKSTEP_COLLECTIVE_H

#include <stdint.h>

#include "group.h"
#include "request.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* recv[i] = op over all ranks of send[i], for i < count. In place: send == recv. */
LS_EXPORT LS_CHECKED ls_status ls_allreduce(ls_group *group, const void *send, void *recv,
					    uint64_t count, ls_dtype dtype, ls_reduce_op op,
					    const struct ls_call_options *options);

/* The same result on rank `root` only. Other ranks do not use recv (it may be NULL). In place: send
 * == recv. */
LS_EXPORT LS_CHECKED ls_status ls_reduce(ls_group *group, const void *send, void *recv,
					 uint64_t count, ls_dtype dtype, ls_reduce_op op, int root,
					 const struct ls_call_options *options);

/* recv[i] on all ranks = send[i] of rank root. Other ranks do not use send (it may be NULL). In
 * place: send == recv. */
LS_EXPORT LS_CHECKED ls_status ls_broadcast(ls_group *group, const void *send, void *recv,
					    uint64_t count, ls_dtype dtype, int root,
					    const struct ls_call_options *options);

/* Part r of recv on all ranks = send of rank r. In place: send is this rank's part of recv. */
LS_EXPORT LS_CHECKED ls_status ls_allgather(ls_group *group, const void *send, void *recv,
					    uint64_t count, ls_dtype dtype,
					    const struct ls_call_options *options);
LS_EXPORT LS_CHECKED ls_status ls_allgatherv(ls_group *group, const void *send, void *recv,
					     const uint64_t *counts, ls_dtype dtype,
					     const struct ls_call_options *options);

/* The same result on rank `root` only. Other ranks do not use recv (it may be NULL). In place on
 * root: send is its part of recv. */
LS_EXPORT LS_CHECKED ls_status ls_gather(ls_group *group, const void *send, void *recv,
					 uint64_t count, ls_dtype dtype, int root,
					 const struct ls_call_options *options);
LS_EXPORT LS_CHECKED ls_status ls_gatherv(ls_group *group, const void *send, void *recv,
					  const uint64_t *counts, ls_dtype dtype, int root,
					  const struct ls_call_options *options);

/* recv on rank r = part r of send of rank root. Other ranks do not use send (it may be NULL). In
 * place on root: recv is its part of send. */
LS_EXPORT LS_CHECKED ls_status ls_scatter(ls_group *group, const void *send, void *recv,
					  uint64_t count, ls_dtype dtype, int root,
					  const struct ls_call_options *options);
LS_EXPORT LS_CHECKED ls_status ls_scatterv(ls_group *group, const void *send, void *recv,
					   const uint64_t *counts, ls_dtype dtype, int root,
					   const struct ls_call_options *options);

/* recv on rank r = op over all ranks of part r of send. In place: recv is this rank's part of
 * send. */
LS_EXPORT LS_CHECKED ls_status ls_reduce_scatter(ls_group *group, const void *send, void *recv,
						 uint64_t count, ls_dtype dtype, ls_reduce_op op,
						 const struct ls_call_options *options);
LS_EXPORT LS_CHECKED ls_status ls_reduce_scatterv(ls_group *group, const void *send, void *recv,
						  const uint64_t *counts, ls_dtype dtype,
						  ls_reduce_op op,
						  const struct ls_call_options *options);

/* Part q of recv on rank r = part r of send of rank q. Not in place. In ls_alltoallv this rank
 * sends send_counts[q] elements to rank q and receives recv_counts[q] from it; that must be the
 * count which rank q sends to this rank. */
LS_EXPORT LS_CHECKED ls_status ls_alltoall(ls_group *group, const void *send, void *recv,
					   uint64_t count, ls_dtype dtype,
					   const struct ls_call_options *options);
LS_EXPORT LS_CHECKED ls_status ls_alltoallv(ls_group *group, const void *send,
					    const uint64_t *send_counts, void *recv,
					    const uint64_t *recv_counts, ls_dtype dtype,
					    const struct ls_call_options *options);

/* Returns LS_OK after every rank has entered it. */
LS_EXPORT LS_CHECKED ls_status ls_barrier(ls_group *group, const struct ls_call_options *options);

/* Several buffers in one call: one collective for each buffer, one after the other. Together they
 * have one handle, one callback and one status: the first that is not LS_OK. buffer_count is 1 or
 * more, and the same on all ranks; a nonblocking call takes at most 65,536 buffers. The call checks
 * all buffers before it begins the first collective, and copies the array before it returns. If
 * some of the collectives cannot begin, for example because memory runs out in the middle, the call
 * returns the reason, which may be any status. The group then fails on all ranks with LS_ABORTED,
 * because peers wait for the rest. */
struct ls_buffers {
	const void *send;
	void *recv;
	uint64_t count; /* as in the single call */
};
LS_EXPORT LS_CHECKED ls_status ls_allreduce_many(ls_group *group, const struct ls_buffers *buffers,
						 int buffer_count, ls_dtype dtype, ls_reduce_op op,
						 const struct ls_call_options *options);
LS_EXPORT LS_CHECKED ls_status ls_broadcast_many(ls_group *group, const struct ls_buffers *buffers,
						 int buffer_count, ls_dtype dtype, int root,
						 const struct ls_call_options *options);
LS_EXPORT LS_CHECKED ls_status ls_allgather_many(ls_group *group, const struct ls_buffers *buffers,
						 int buffer_count, ls_dtype dtype,
						 const struct ls_call_options *options);
LS_EXPORT LS_CHECKED ls_status ls_reduce_scatter_many(ls_group *group,
						      const struct ls_buffers *buffers,
						      int buffer_count, ls_dtype dtype,
						      ls_reduce_op op,
						      const struct ls_call_options *options);

#ifdef __cplusplus
}
#endif
#endif
