/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of the plan room share: one builder for each collective of an algorithm, and the
 * helpers that append steps. A builder is called with size >= 2, checked arguments, and a plan that is
 * filled but for steps; it sets blocks, phase_end, needs_scratch and uses_windows where they differ from
 * 1, 0, false and false. */
#ifndef PLAN_BUILD_H
#define PLAN_BUILD_H

#include "plan.h"

/* A chain broadcast is cut into so many blocks: rank i forwards one while it receives the next. */
enum { PLAN_CHAIN_BLOCKS = 8 };

typedef void plan_builder(const struct plan_request *request, struct plan *plan);

plan_builder plan_slot_allreduce, plan_slot_broadcast;
plan_builder plan_direct_allreduce, plan_direct_broadcast, plan_direct_barrier;
plan_builder plan_ring_allreduce, plan_ring_broadcast;
plan_builder plan_doubling_allreduce, plan_doubling_barrier;
plan_builder plan_tree_allreduce, plan_tree_broadcast, plan_tree_barrier;

/* Appends a step; all that is not given is zero. */
#define PLAN_ADD(plan, ...) plan_add(plan, &(struct plan_step){__VA_ARGS__})
void plan_add(struct plan *plan, const struct plan_step *step);

/* INPUT to OUTPUT of the same rank, unless they are one. */
void plan_add_local_copy(struct plan *plan, const struct plan_request *request);
void plan_add_send(struct plan *plan, int peer, enum plan_buffer from, int block, int blocks);
void plan_add_recv(struct plan *plan, int peer, enum plan_buffer to, int block, int blocks);
/* Without payload. */
void plan_add_send_empty(struct plan *plan, int peer);
void plan_add_recv_empty(struct plan *plan, int peer);
void plan_add_await(struct plan *plan, int peer, int phase);
void plan_add_signal(struct plan *plan, int phase);

#endif
