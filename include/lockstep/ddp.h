/* SPDX-License-Identifier: BSD-3-Clause
 * Data-parallel training: gradients are averaged over all ranks while the backward pass goes on. See
 * ls_ddp(3).
 *
 * A step: the backward pass adds to the gradients, which lie in memory of Lockstep, and says of each
 * parameter when its gradient is complete; ls_ddp_finish then waits for what is still under way, and the
 * gradients are the averages, bitwise the same on all ranks. Parameters are taken to become ready last
 * one first: they are gathered into buckets in that order, and a bucket's all-reduce begins as soon as
 * all of its parameters are ready.
 *
 * Threads: ls_ddp_ready from any thread; all other calls from one thread at a time, and not beside it.
 * Between the first ls_ddp_ready of a step and its ls_ddp_finish the buckets are operations of the group
 * like any other, begun at moments of each rank's own, so call no other collective of the group then. */
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
	void *data;       /* its elements, the caller's memory, for as long as the ls_ddp is open */
	const int64_t *shape; /* dims numbers, each 0 or more; copied */
	int32_t dims;         /* 0 (one element) to LS_DDP_DIMS_MAX */
	ls_dtype dtype;       /* one of the floats or complex numbers */
};

struct ls_ddp_options {
	uint32_t size;
	/* Not 0: parameters that are not ready at ls_ddp_finish count as ready with the gradient they have.
	 * 0: that ends the group on all ranks, with a report that names parameter and rank. */
	uint32_t find_unused;
	/* A bucket is closed once it holds so many bytes: the first one, which the end of the network fills,
	 * and all others. 0: 1 MiB and 25 MiB. The same on all ranks. */
	uint64_t bucket_first_bytes;
	uint64_t bucket_bytes;
	/* Time limit of each bucket's all-reduce, from its begin on; 0: the group's. */
	uint32_t timeout_ms;
	uint32_t reserved;
};

/* Compares number, names, dtypes and shapes of the parameters with those of all ranks, sets every rank's
 * parameters to rank 0's, and makes room for the gradients, which are zero. Collective and blocking.
 * Parameters in the order in which the forward pass uses them.
 * Errors: LS_INCONSISTENT, with a message that names the first parameter that is not the same everywhere, its
 * shapes, and the ranks; LS_BAD_ARGUMENT and LS_OUT_OF_MEMORY, on all ranks, even if only one of them
 * has failed (its message says why). All of these leave the group as it is. *out is NULL. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_open(ls_group *group,
					   const struct ls_ddp_parameter *parameters, int count,
					   const struct ls_ddp_options *options, ls_ddp **out);

/* Gives the gradients' memory back. Local. In the middle of a step it first closes the group for all
 * ranks, as the others need this one to finish it. Before ls_group_close. NULL is allowed. */
LS_EXPORT void ls_ddp_close(ls_ddp *ddp);

/* Where the gradient of a parameter is: as many elements as the parameter, of its dtype. The same address in
 * every step; gradients of a bucket lie one behind the other. NULL if there is no such parameter. */
LS_EXPORT void *ls_ddp_gradient(const ls_ddp *ddp, int parameter);

/* The bucket a parameter is in, from 0 in the order in which they are reduced; -1 if there is none. */
LS_EXPORT int ls_ddp_bucket(const ls_ddp *ddp, int parameter);

/* The gradient of this parameter is complete: it must be left alone until ls_ddp_finish. Does not block.
 * Errors: LS_BAD_ARGUMENT, with a message that names the parameter, if it is ready already; what closed
 * the group. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_ready(ls_ddp *ddp, int parameter);

/* The backward pass is over: blocks until all gradients are averages. Errors: those of ls_allreduce;
 * LS_ABORTED if a parameter was not ready, see find_unused; LS_INCONSISTENT on all ranks if ls_ddp_no_sync
 * differed, now or before (looked at now and then): gradients of different passes were averaged. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_finish(ls_ddp *ddp);

/* Gradient accumulation: while `on` is not 0, nothing is averaged, so gradients of several backward passes
 * add up on each rank; the first step after it averages their sums. The same on all ranks in a step.
 * Errors: LS_BAD_ARGUMENT in the middle of a step. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_no_sync(ls_ddp *ddp, int on);

/* Sets all gradients to zero. Errors: LS_BAD_ARGUMENT in the middle of a step. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_zero_gradients(ls_ddp *ddp);

/* ---- ranks with different numbers of batches; see ls_join(3) ---- */

struct ls_ddp_join_options {
	uint32_t size;
	/* What happens when some ranks have no batch left: one of enum ls_join_mode of join.h; 0: the
	 * setting LOCKSTEP_JOIN. */
	uint32_t mode;
	/* Not 0: gradients are divided by the number of ranks that had a batch; 0: by that of all. */
	uint32_t divide_by_active;
	uint32_t reserved;
};

/* From here to ls_ddp_join_end ranks may have different numbers of batches. Local; every rank calls it.
 * Errors: LS_BAD_ARGUMENT, LS_OUT_OF_MEMORY. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_join_begin(ls_ddp *ddp,
						 const struct ls_ddp_join_options *options);

/* Before each batch (and after ls_ddp_no_sync, which holds for this step then): I have one more. Blocks
 * until every rank has said whether it has one. Errors: LS_UNEVEN on all ranks, which ends the join, in
 * the mode LS_JOIN_ERROR; those of ls_allgather. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_join_step(ls_ddp *ddp);

/* I have no more batches: until no rank has one, takes part in the others' steps with gradients of zero.
 * If numbers of batches differed, the parameters of all ranks are then set to those of a rank that trained
 * to the end, *last (may be NULL; the same on all ranks; else 0), whose optimizer's state is the one to
 * keep. Gradients are zero then on the ranks that had fewer. Errors: as ls_ddp_join_step. */
LS_EXPORT LS_CHECKED ls_status ls_ddp_join_end(ls_ddp *ddp, int *last);

#ifdef __cplusplus
}
#endif
#endif
