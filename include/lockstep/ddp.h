/* SPDX-License-Identifier: BSD-3-Clause
 * Data-parallel training: gradients are averaged over all ranks while the backward pass is still
 * running. See ls_ddp(3).
 *
 * A step: the gradients lie in memory of Lockstep. The backward pass adds to them, and calls
 * ls_ddp_ready for each parameter whose gradient is complete. ls_ddp_finish then waits for the
 * all-reduces that are still under way. After it the gradients are the averages, bitwise the same
 * on all ranks. Parameters are grouped into buckets from the last parameter to the first, because a
 * backward pass completes them in that order. A bucket's all-reduce begins as soon as all
 * parameters of the bucket are ready.
 *
 * Threads: any thread may call ls_ddp_ready. One thread at a time makes all other calls, and not
 * while an ls_ddp_ready is running. Between the first ls_ddp_ready of a step and its ls_ddp_finish
 * the program must call no other collective on the group: each rank starts its bucket all-reduces
 * at its own moments, and they take positions in the group's order.
 *
 * Fork: in a forked child a call returns LS_FORKED when it would begin a collective, or a join.
 * Calls that begin neither, such as ls_ddp_no_sync, do not notice the fork. The child does not have
 * the memory of the gradients: it must neither touch them nor call ls_ddp_zero_gradients. */
#ifndef LOCKSTEP_DDP_H
#define LOCKSTEP_DDP_H

#include <stdint.h>

#include "group.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_ddp ls_ddp;

#define LS_DDP_DIMS_MAX 8

struct ls_ddp_parameter {
	const char *name; /* for reports, such as "layer3.weight"; copied */
	void *data; /* its elements: the caller's memory, valid as long as the ls_ddp is open */
	const int64_t *shape; /* dims lengths, each 0 or more; copied */
	int32_t dims;         /* 0 (one element) to LS_DDP_DIMS_MAX */
	ls_dtype dtype;       /* one of the floats or complex numbers */
};

struct ls_ddp_options {
	uint32_t size;
	/* Not 0: a parameter that is not ready at ls_ddp_finish counts as ready, with its current
	 * gradient. 0: such a parameter fails the group on all ranks, with a report that names
	 * parameter and rank. */
	uint32_t find_unused;
	/* Sizes in bytes at which a bucket is full: the first bucket of each dtype, which the last
	 * layers fill, and all others. 0: 1 MiB and 25 MiB. Must be the same on all ranks. */
	uint64_t bucket_first_bytes;
	uint64_t bucket_bytes;
	/* Time limit of each bucket's all-reduce in milliseconds, from its start; 0: the
	 * group's. */
	uint32_t timeout_ms;
	uint32_t reserved;
};

/* Compares number, names, dtypes and shapes of the parameters across all ranks, copies rank 0's
 * parameters to every rank, and allocates the gradients, which are zero. `parameters` are in the
 * order in which the forward pass uses them. Collective and blocking.
 * Errors: LS_INCONSISTENT, with a message that names the ranks, and the first parameter that
 * differs with its shapes, or the sizes of buckets that differ; LS_BAD_ARGUMENT and
 * LS_OUT_OF_MEMORY, on all ranks even if only one of them has failed (that rank's message says
 * why). These leave the group as it is. Otherwise as ls_allreduce. *out is NULL on failure. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_open(ls_group *group,
					   const struct ls_ddp_parameter *parameters, int count,
					   const struct ls_ddp_options *options, ls_ddp **out);

/* Frees the ls_ddp and the gradients' memory. Local. Call it before ls_group_close. In the middle
 * of a step it first fails the group with LS_ABORTED on all ranks, because the others need this
 * rank to finish the step, and waits until this rank's all-reduces have ended. NULL is allowed. */
LS_EXPORT void ls_ddp_close(ls_ddp *ddp);

/* Returns the gradient of a parameter: as many elements as the parameter, of its dtype. The address
 * is the same in every step, and valid until ls_ddp_close; gradients of one bucket lie one after
 * the other. NULL if there is no such parameter. */
LS_EXPORT void *ls_ddp_gradient(const ls_ddp *ddp, int parameter);

/* The bucket of a parameter. Buckets are numbered from 0 in the order in which they are reduced. -1
 * if there is no such parameter. */
LS_EXPORT int ls_ddp_bucket(const ls_ddp *ddp, int parameter);

/* Declares the gradient of this parameter complete: the caller must not touch it until
 * ls_ddp_finish has returned. Does not block, unless LOCKSTEP_BLOCKING=1 makes the all-reduce of a
 * bucket do so.
 * Errors: LS_BAD_ARGUMENT, with a message that names the parameter, if it is ready already. If the
 * group has failed, the first call that would begin an all-reduce returns the status with which it
 * failed, and so do the later ones of this step. Calls before it return LS_OK. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_ready(ls_ddp *ddp, int parameter);

/* Ends the step: blocks until all gradients are averages.
 * Errors: those of ls_allreduce; LS_ABORTED if a parameter was not ready (see find_unused);
 * LS_INCONSISTENT on all ranks if gradients of different passes were averaged, because
 * ls_ddp_no_sync differed between ranks in this pass or an earlier one, or those of two ls_ddp,
 * because ranks took their steps in a different order (checked in some passes only, see
 * ls_ddp(3)). */
LS_EXPORT LS_CHECKED ls_status ls_ddp_finish(ls_ddp *ddp);

/* Gradient accumulation: while `on` is not 0, nothing is averaged, so gradients of several backward
 * passes add up on each rank. The first step after ls_ddp_no_sync(ddp, 0) averages the sums. In
 * each step all ranks must have the same value. Local.
 * Errors: LS_BAD_ARGUMENT in the middle of a step. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_no_sync(ls_ddp *ddp, int on);

/* Sets all gradients to zero. Local.
 * Errors: LS_BAD_ARGUMENT in the middle of a step. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_zero_gradients(ls_ddp *ddp);

/* ---- ranks with different numbers of batches; see ls_join(3) ---- */

struct ls_ddp_join_options {
	uint32_t size;
	/* What happens when some ranks have run out of batches: one of enum ls_join_mode (join.h);
	 * 0: the setting LOCKSTEP_JOIN. */
	uint32_t mode;
	/* Not 0: gradients are divided by the number of ranks that had a batch; 0: by the number of
	 * all ranks. The same on all ranks. */
	uint32_t divide_by_active;
	uint32_t reserved;
};

/* From here to ls_ddp_join_end, ranks may have different numbers of batches. Local, but every rank
 * must call it.
 * Errors: LS_BAD_ARGUMENT, LS_OUT_OF_MEMORY, LS_FORKED. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_join_begin(ls_ddp *ddp,
						 const struct ls_ddp_join_options *options);

/* Called before each batch: this rank has one more batch. An ls_ddp_no_sync before it applies to
 * this step. Blocks until every rank has called this or ls_ddp_join_end.
 * Errors: those of ls_allgather; in the mode LS_JOIN_ERROR, LS_UNEVEN on all ranks, which ends the
 * join. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_join_step(ls_ddp *ddp);

/* Called after the last batch: this rank has no more batches. Blocks until no rank has one; until
 * then it takes part in the steps of the others with gradients of zero. If the numbers of batches
 * differed, all ranks then get the parameters of one rank that trained to the end: *last is that
 * rank, the same on all ranks, and its optimizer state is the one to keep; gradients are zero on
 * the ranks that had fewer batches. If the numbers were equal, *last is 0. `last` may be NULL.
 * Errors: those of ls_ddp_join_step. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_join_end(ls_ddp *ddp, int *last);

#ifdef __cplusplus
}
#endif
#endif
