/* SPDX-License-Identifier: BSD-3-Clause
 * A binomial tree: place v (the rank, counted from the root) has the parent v - lowest_bit(v) and
 * the children v + 1, v + 2, v + 4, … below v + lowest_bit(v). Reduce goes up to the root;
 * all-reduce and barrier go up to rank 0 and down again. */
#include "plan/plan_build.h"

static int lowest_bit(int place)
{
	return place & -place;
}

/* Distance to my farthest child, 0 if I have none; the nearer ones are at the powers of two
 * below. */
static int farthest_child(int place, int size)
{
	int limit = place == 0 ? size : lowest_bit(place);
	int distance = 0;
	for (int next = 1; next < limit && place + next < size; next *= 2)
		distance = next;
	return distance;
}

static int place_of(const struct plan *plan)
{
	return (plan->rank + plan->size - plan->root) % plan->size;
}

static int rank_at(const struct plan *plan, int place)
{
	return (place + plan->root) % plan->size;
}

static int parent_of(const struct plan *plan)
{
	int place = place_of(plan);
	return rank_at(plan, place - lowest_bit(place));
}

/* Combines what the children send, and sends it to the parent; the root ends with the result.
 * Children are combined nearest first, which is the order of the places. */
static void add_reduction(const struct plan_params *params, struct plan *plan)
{
	int place = place_of(plan), children = farthest_child(place, plan->size);
	plan->needs_scratch = children > 0;
	if (children > 0)
		plan_add_local_copy(plan, params);
	for (int distance = 1; distance <= children; distance *= 2) {
		plan_add_recv(plan, rank_at(plan, place + distance), PLAN_SCRATCH, 0, 1);
		plan_add_combine(plan, 0, 0);
	}
	if (place == 0)
		plan_add_scale(plan, 0);
	else
		plan_add_send(plan, parent_of(plan), children > 0 ? PLAN_OUTPUT : PLAN_INPUT, 0, 1);
}

/* Passes the payload on from the parent to the children: to the farthest first, as that one has the
 * most to pass on. */
static void add_descent(struct plan *plan, enum plan_buffer from)
{
	int place = place_of(plan);
	if (place != 0)
		plan_add_recv(plan, parent_of(plan), PLAN_OUTPUT, 0, 1);
	for (int distance = farthest_child(place, plan->size); distance > 0; distance /= 2)
		plan_add_send(plan, rank_at(plan, place + distance), from, 0, 1);
}

/* A message to the parent is followed by one from the parent, which shows that the parent took the
 * first: then OUTPUT may be written. */
void plan_tree_allreduce(const struct plan_params *params, struct plan *plan)
{
	add_reduction(params, plan);
	add_descent(plan, PLAN_OUTPUT);
}

void plan_tree_reduce(const struct plan_params *params, struct plan *plan)
{
	add_reduction(params, plan);
}

void plan_tree_broadcast(const struct plan_params *params, struct plan *plan)
{
	bool root = params->rank == params->root;
	add_descent(plan, root ? PLAN_INPUT : PLAN_OUTPUT);
	if (root)
		plan_add_local_copy(plan, params); /* while the others take theirs */
}

void plan_tree_barrier(const struct plan_params *params, struct plan *plan)
{
	int rank = params->rank, children = farthest_child(rank, params->size);
	for (int distance = 1; distance <= children; distance *= 2)
		plan_add_recv_empty(plan, rank + distance);
	if (rank != 0) {
		plan_add_send_empty(plan, parent_of(plan));
		plan_add_recv_empty(plan, parent_of(plan));
	}
	for (int distance = children; distance > 0; distance /= 2)
		plan_add_send_empty(plan, rank + distance);
}
