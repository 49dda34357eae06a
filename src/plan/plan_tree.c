/* SPDX-License-Identifier: BSD-3-Clause
 * A binomial tree: place v (the rank, counted from the root) has the parent v - lowest_bit(v) and the
 * children v + 1, v + 2, v + 4, … below v + lowest_bit(v). All-reduce and barrier go up to rank 0 and
 * down again. */
#include "plan_build.h"

static int lowest_bit(int place)
{
	return place & -place;
}

/* Distance to my farthest child, 0 if I have none; the nearer ones are at the powers of two below. */
static int farthest_child(int place, int size)
{
	int limit = place == 0 ? size : lowest_bit(place);
	int distance = 0;
	for (int next = 1; next < limit && place + next < size; next *= 2)
		distance = next;
	return distance;
}

/* From the parent, to the children: the farthest first, as it has the most to pass on. */
static void add_descent(struct plan *plan, enum plan_buffer from, int blocks)
{
	int size = plan->size, root = plan->root;
	int place = (plan->rank + size - root) % size;
	if (place != 0)
		plan_add_recv(plan, (place - lowest_bit(place) + root) % size, PLAN_OUTPUT, 0,
			      blocks);
	for (int distance = farthest_child(place, size); distance > 0; distance /= 2)
		plan_add_send(plan, (place + distance + root) % size, from, 0, blocks);
}

/* A message to the parent is followed by one from it, which shows that it was taken: OUTPUT may be
 * written then. Children are combined nearest first, which is the order of the ranks. */
void plan_tree_allreduce(const struct plan_request *request, struct plan *plan)
{
	int rank = request->rank, size = request->size;
	int children = farthest_child(rank, size);
	plan->needs_scratch = children > 0;
	if (children > 0)
		plan_add_local_copy(plan, request);
	for (int distance = 1; distance <= children; distance *= 2) {
		plan_add_recv(plan, rank + distance, PLAN_SCRATCH, 0, 1);
		PLAN_ADD(plan, .kind = PLAN_COMBINE, .from = PLAN_SCRATCH, .to = PLAN_OUTPUT,
			 .blocks = 1);
	}
	if (rank == 0)
		PLAN_ADD(plan, .kind = PLAN_SCALE, .from = PLAN_OUTPUT, .to = PLAN_OUTPUT,
			 .blocks = 1);
	else
		plan_add_send(plan, rank - lowest_bit(rank),
			      children > 0 ? PLAN_OUTPUT : PLAN_INPUT, 0, 1);
	add_descent(plan, PLAN_OUTPUT, 1);
}

void plan_tree_broadcast(const struct plan_request *request, struct plan *plan)
{
	bool root = request->rank == request->root;
	add_descent(plan, root ? PLAN_INPUT : PLAN_OUTPUT, 1);
	if (root)
		plan_add_local_copy(plan, request); /* while the others take theirs */
}

void plan_tree_barrier(const struct plan_request *request, struct plan *plan)
{
	int rank = request->rank, children = farthest_child(rank, request->size);
	for (int distance = 1; distance <= children; distance *= 2)
		plan_add_recv_empty(plan, rank + distance);
	if (rank != 0)
		plan_add_send_empty(plan, rank - lowest_bit(rank));
	add_descent(plan, PLAN_OUTPUT, 0);
}
