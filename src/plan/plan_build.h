/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of the plan room share: one builder for each collective of an algorithm, and the
 * functions that append steps (plan_add.c). A builder is called with size >= 2, checked arguments,
 * `in_place` only where it means something, and a plan that is filled but for steps; the builder
 * sets blocks, phase_end, needs_scratch and reach where the plan needs other values than those that
 * are there (plan_add_send sets the reach of the buffer that it sends from). */
#ifndef PLAN_BUILD_H
#define PLAN_BUILD_H

#include "plan/plan.h"

/* A chain broadcast cuts its payload into this many blocks: rank i forwards one while it receives
 * the next.
 * */
enum { PLAN_CHAIN_BLOCKS = 8 };

typedef void plan_builder(const struct plan_params *params, struct plan *plan);

/* X(collective, algorithm, builder): which collective has which algorithm. A barrier has no
 * payload, and so nothing to put into an entry. */
#define PLAN_BUILDERS(X)                                          \
	X(ALLREDUCE, INLINE, plan_inline_allreduce)               \
	X(ALLREDUCE, DIRECT, plan_direct_allreduce)               \
	X(ALLREDUCE, PULL, plan_pull_allreduce)                   \
	X(ALLREDUCE, RING, plan_ring_allreduce)                   \
	X(ALLREDUCE, DOUBLING, plan_doubling_allreduce)           \
	X(ALLREDUCE, TREE, plan_tree_allreduce)                   \
	X(ALLREDUCE, RAILS, plan_rails_allreduce)                 \
	X(ALLREDUCE, LEADERS, plan_leaders_allreduce)             \
	X(REDUCE, INLINE, plan_inline_reduce)                     \
	X(REDUCE, DIRECT, plan_direct_reduce)                     \
	X(REDUCE, TREE, plan_tree_reduce)                         \
	X(BROADCAST, INLINE, plan_inline_broadcast)               \
	X(BROADCAST, DIRECT, plan_direct_broadcast)               \
	X(BROADCAST, RING, plan_ring_broadcast)                   \
	X(BROADCAST, TREE, plan_tree_broadcast)                   \
	X(ALLGATHER, INLINE, plan_inline_allgather)               \
	X(ALLGATHER, DIRECT, plan_direct_allgather)               \
	X(ALLGATHER, RING, plan_ring_allgather)                   \
	X(ALLGATHER, LEADERS, plan_leaders_allgather)             \
	X(GATHER, INLINE, plan_inline_gather)                     \
	X(GATHER, DIRECT, plan_direct_gather)                     \
	X(GATHER, PAIRWISE, plan_pairwise_gather)                 \
	X(SCATTER, INLINE, plan_inline_scatter)                   \
	X(SCATTER, DIRECT, plan_direct_scatter)                   \
	X(SCATTER, PAIRWISE, plan_pairwise_scatter)               \
	X(REDUCE_SCATTER, INLINE, plan_inline_reduce_scatter)     \
	X(REDUCE_SCATTER, DIRECT, plan_direct_reduce_scatter)     \
	X(REDUCE_SCATTER, PAIRWISE, plan_pairwise_reduce_scatter) \
	X(ALLTOALL, INLINE, plan_inline_alltoall)                 \
	X(ALLTOALL, DIRECT, plan_direct_alltoall)                 \
	X(ALLTOALL, PAIRWISE, plan_pairwise_alltoall)             \
	X(BARRIER, DIRECT, plan_direct_barrier)                   \
	X(BARRIER, DOUBLING, plan_doubling_barrier)               \
	X(BARRIER, TREE, plan_tree_barrier)                       \
	X(BARRIER, LEADERS, plan_leaders_barrier)

#define X(collective, algorithm, builder) plan_builder builder;
PLAN_BUILDERS(X)
#undef X

/* Appends a step; fields that are not given are zero. */
#define PLAN_ADD(plan, ...) plan_add(plan, &(struct plan_step){__VA_ARGS__})
void plan_add(struct plan *plan, const struct plan_step *step);

/* Copies my part of my INPUT to my OUTPUT, unless the two are one there. */
void plan_add_local_copy(struct plan *plan, const struct plan_params *params);
/* Copies a block of a peer's INPUT to my OUTPUT; flags: PLAN_TRANSPOSE or 0. */
void plan_add_copy(struct plan *plan, int peer, int block, int flags);
/* Copies the block named after each peer, beginning with the rank behind me, so that not all ranks
 * read from the same peer at a time. */
void plan_add_copies(struct plan *plan, int flags);
void plan_add_send(struct plan *plan, int peer, enum plan_buffer from, int block, int blocks);
void plan_add_recv(struct plan *plan, int peer, enum plan_buffer to, int block, int blocks);
/* Messages without payload. */
void plan_add_send_empty(struct plan *plan, int peer);
void plan_add_recv_empty(struct plan *plan, int peer);
/* Combines one block of SCRATCH into OUTPUT; flags: PLAN_SCRATCH_FIRST or 0. */
void plan_add_combine(struct plan *plan, int block, int flags);
/* `count` >= 2 ranks (NULL: 0 to count - 1), of which the plan's is number `number`, combine a
 * block of their OUTPUTs: the result, divided for an average, is in the OUTPUT of each. */
void plan_add_doubling(struct plan *plan, int number, int count, const uint16_t *ranks, int block);
/* The same ranks wait for each other. */
void plan_add_dissemination(struct plan *plan, int number, int count, const uint16_t *ranks);
/* Divides one block of OUTPUT if the op is the average. */
void plan_add_scale(struct plan *plan, int block);

/* A binomial tree of ranks, of which the plan's is at `place`; the root is at place 0. */
struct plan_tree {
	int place, size;
	uint16_t ranks[RANKS_JOB_MAX];
};
/* Combines what the children send, and sends it to the parent; the root ends with the result, not
 * divided yet, in OUTPUT. Children are combined nearest first, which is the order of the places. */
void plan_add_reduction(const struct plan_params *params, const struct plan_tree *tree,
			struct plan *plan);
/* The same for parts, one of each rank, without combining: the root ends with those of all. */
void plan_add_gathering(const struct plan_tree *tree, struct plan *plan);
/* Passes the whole payload on from the parent to the children: to the farthest first, as that one
 * has the most to pass on. */
void plan_add_descent(const struct plan_tree *tree, enum plan_buffer from, struct plan *plan);
/* The same two without payload, for a barrier: the root learns that all have arrived, and lets them
 * go on. */
void plan_add_arrival(const struct plan_tree *tree, struct plan *plan);
void plan_add_release(const struct plan_tree *tree, struct plan *plan);

void plan_add_await(struct plan *plan, int peer, int phase);
void plan_add_signal(struct plan *plan, int phase);

#endif
