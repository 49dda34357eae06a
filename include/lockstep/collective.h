/* SPDX-License-Identifier: BSD-3-Clause
 * Operations in which all ranks of a group take part. See ls_collective(3).
 *
 * Order: collectives of one group are numbered in the order of their calls, and that order must be the
 * same on all ranks; kind, count, dtype, op and root too. What differs is LS_MISMATCH on all ranks.
 *
 * Shapes: count is in elements and, where parts belong to ranks, that of one rank's part; buffers with a
 * part for each rank hold them one behind the other in the order of ranks. In the …v calls counts[r] is
 * the count of rank r's part, the same array on all ranks, copied before the call returns.
 *
 * Results are bitwise the same on all ranks that get them, and from run to run with the same number of
 * ranks. send and recv must not overlap, unless they are in place as told with each call.
 *
 * Errors: LS_BAD_ARGUMENT, LS_UNSUPPORTED (dtype with op), LS_OUT_OF_MEMORY and LS_FORKED leave the group
 * as it is; all others close it, see group.h. Blocking and threads: see group.h and op.h.
 *
 * Any of them may wait until all ranks have called it: how far one that only gives something, such as the root
 * of a broadcast, gets ahead of the others is not promised. */
#ifndef LOCKSTEP_COLLECTIVE_H
#define LOCKSTEP_COLLECTIVE_H

#include <stdint.h>

#include "group.h"
#include "op.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* recv[i] = op over all ranks of send[i], for i < count. In place: send == recv. */
LS_EXPORT LS_CHECKED ls_status ls_allreduce(ls_group *group, const void *send, void *recv,
					    uint64_t count, ls_dtype dtype, ls_reduce_op op,
					    const struct ls_op_options *options);

/* The same on rank `root` only; recv is not used elsewhere (NULL is fine). In place: send == recv. */
LS_EXPORT LS_CHECKED ls_status ls_reduce(ls_group *group, const void *send, void *recv,
					 uint64_t count, ls_dtype dtype, ls_reduce_op op, int root,
					 const struct ls_op_options *options);

/* recv[i] on all ranks = send[i] of rank root. send is read on root only (NULL elsewhere is fine). In
 * place: send == recv. */
LS_EXPORT LS_CHECKED ls_status ls_broadcast(ls_group *group, const void *send, void *recv,
					    uint64_t count, ls_dtype dtype, int root,
					    const struct ls_op_options *options);

/* Part r of recv on all ranks = send of rank r. In place: send is my part of recv. */
LS_EXPORT LS_CHECKED ls_status ls_allgather(ls_group *group, const void *send, void *recv,
					    uint64_t count, ls_dtype dtype,
					    const struct ls_op_options *options);
LS_EXPORT LS_CHECKED ls_status ls_allgatherv(ls_group *group, const void *send, void *recv,
					     const uint64_t *counts, ls_dtype dtype,
					     const struct ls_op_options *options);

/* The same on rank `root` only; recv is not used elsewhere (NULL is fine). */
LS_EXPORT LS_CHECKED ls_status ls_gather(ls_group *group, const void *send, void *recv,
					 uint64_t count, ls_dtype dtype, int root,
					 const struct ls_op_options *options);
LS_EXPORT LS_CHECKED ls_status ls_gatherv(ls_group *group, const void *send, void *recv,
					  const uint64_t *counts, ls_dtype dtype, int root,
					  const struct ls_op_options *options);

/* recv on rank r = part r of send of rank root; send is not used elsewhere (NULL is fine). In place on
 * root: recv is its part of send. */
LS_EXPORT LS_CHECKED ls_status ls_scatter(ls_group *group, const void *send, void *recv,
					  uint64_t count, ls_dtype dtype, int root,
					  const struct ls_op_options *options);
LS_EXPORT LS_CHECKED ls_status ls_scatterv(ls_group *group, const void *send, void *recv,
					   const uint64_t *counts, ls_dtype dtype, int root,
					   const struct ls_op_options *options);

/* recv on rank r = op over all ranks of part r of send. In place: recv is my part of send. */
LS_EXPORT LS_CHECKED ls_status ls_reduce_scatter(ls_group *group, const void *send, void *recv,
						 uint64_t count, ls_dtype dtype, ls_reduce_op op,
						 const struct ls_op_options *options);
LS_EXPORT LS_CHECKED ls_status ls_reduce_scatterv(ls_group *group, const void *send, void *recv,
						  const uint64_t *counts, ls_dtype dtype,
						  ls_reduce_op op,
						  const struct ls_op_options *options);

/* Part q of recv on rank r = part r of send of rank q. Not in place. In the v-call send_counts[q] is what
 * I send to rank q, and recv_counts[q] what I receive from it, which must be what it sends to me. */
LS_EXPORT LS_CHECKED ls_status ls_alltoall(ls_group *group, const void *send, void *recv,
					   uint64_t count, ls_dtype dtype,
					   const struct ls_op_options *options);
LS_EXPORT LS_CHECKED ls_status ls_alltoallv(ls_group *group, const void *send,
					    const uint64_t *send_counts, void *recv,
					    const uint64_t *recv_counts, ls_dtype dtype,
					    const struct ls_op_options *options);

/* Returns after every rank has entered it. */
LS_EXPORT LS_CHECKED ls_status ls_barrier(ls_group *group, const struct ls_op_options *options);

/* Several buffers in one call: as many collectives one after the other, with one handle, one callback and
 * one status, the first that is not LS_OK. A call that does not block takes at most 65,536. If memory runs
 * out in the middle the group is aborted, as peers wait for the rest. */
struct ls_buffers {
	const void *send;
	void *recv;
	uint64_t count; /* as in the single call */
};
LS_EXPORT LS_CHECKED ls_status ls_allreduce_many(ls_group *group, const struct ls_buffers *buffers,
						 int buffer_count, ls_dtype dtype, ls_reduce_op op,
						 const struct ls_op_options *options);
LS_EXPORT LS_CHECKED ls_status ls_broadcast_many(ls_group *group, const struct ls_buffers *buffers,
						 int buffer_count, ls_dtype dtype, int root,
						 const struct ls_op_options *options);
LS_EXPORT LS_CHECKED ls_status ls_allgather_many(ls_group *group, const struct ls_buffers *buffers,
						 int buffer_count, ls_dtype dtype,
						 const struct ls_op_options *options);
LS_EXPORT LS_CHECKED ls_status ls_reduce_scatter_many(ls_group *group,
						      const struct ls_buffers *buffers,
						      int buffer_count, ls_dtype dtype,
						      ls_reduce_op op,
						      const struct ls_op_options *options);

#ifdef __cplusplus
}
#endif
#endif
