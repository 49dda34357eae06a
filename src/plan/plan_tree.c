/* SPDX-License-Identifier: BSD-3-Clause
 * A binomial tree: place v (the rank, counted from the root) has the parent v - lowest_bit(v) and
 * the children v + 1, v + 2, v + 4, … below v + lowest_bit(v). Reduce goes up to the root;
 * all-reduce and barrier go up to rank 0 and down again. */
#include "plan/plan_build.h"

static int lowest_bit(int place)
{
	return place & -place;
}

/* Distance to the farthest child, 0 if there is none; the nearer ones are at the powers of two
 * below. */
static int farthest_child(const struct plan_tree *tree)
{
	int limit = tree->place == 0 ? tree->size : lowest_bit(tree->place);
	int distance = 0;
	for (int next = 1; next < limit && tree->place + next < tree->size; next *= 2)
		distance = next;
	return distance;
}

static int child_at(const struct plan_tree *tree, int distance)
{
	return tree->ranks[tree->place + distance];
}

static int parent_of(const struct plan_tree *tree)
{
	return tree->ranks[tree->place - lowest_bit(tree->place)];
}

void plan_add_reduction(const struct plan_params *params, const struct plan_tree *tree,
			struct plan *plan)
{
	int children = farthest_child(tree);
	if (children > 0) {
		plan->needs_scratch = true;
		plan_add_local_copy(plan, params);
	}
	for (int distance = 1; distance <= children; distance *= 2) {
		plan_add_recv(plan, child_at(tree, distance), PLAN_SCRATCH, 0, 1);
		plan_add_combine(plan, 0, 0);
	}
	if (tree->place != 0)
		plan_add_send(plan, parent_of(tree), children > 0 ? PLAN_OUTPUT : PLAN_INPUT, 0, 1);
}

/* The parts of the ranks at places [first, end), as ranges of neighbours. */
static void add_parts(const struct plan_tree *tree, int first, int end, int child, struct plan *plan)
{
	for (int next; first < end; first = next) {
		for (next = first + 1; next < end; next++)
			if (tree->ranks[next] != tree->ranks[next - 1] + 1)
				break;
		if (child < 0)
			plan_add_send(plan, parent_of(tree), PLAN_OUTPUT, tree->ranks[first],
				      next - first);
		else
			plan_add_recv(plan, child, PLAN_OUTPUT, tree->ranks[first], next - first);
	}
}

static int end_of_subtree(const struct plan_tree *tree, int first, int places)
{
	return first + places < tree->size ? first + places : tree->size;
}

void plan_add_gathering(const struct plan_tree *tree, struct plan *plan)
{
	int children = farthest_child(tree);
	for (int distance = 1; distance <= children; distance *= 2) {
		int first = tree->place + distance;
		add_parts(tree, first, end_of_subtree(tree, first, distance),
			  child_at(tree, distance), plan);
	}
	if (tree->place != 0)
		add_parts(tree, tree->place,
			  end_of_subtree(tree, tree->place, lowest_bit(tree->place)), -1, plan);
}

void plan_add_descent(const struct plan_tree *tree, enum plan_buffer from, struct plan *plan)
{
	if (tree->place != 0)
		plan_add_recv(plan, parent_of(tree), PLAN_OUTPUT, 0, plan->blocks);
	for (int distance = farthest_child(tree); distance > 0; distance /= 2)
		plan_add_send(plan, child_at(tree, distance), from, 0, plan->blocks);
}

void plan_add_arrival(const struct plan_tree *tree, struct plan *plan)
{
	int children = farthest_child(tree);
	for (int distance = 1; distance <= children; distance *= 2)
		plan_add_recv_empty(plan, child_at(tree, distance));
	if (tree->place != 0)
		plan_add_send_empty(plan, parent_of(tree));
}

void plan_add_release(const struct plan_tree *tree, struct plan *plan)
{
	if (tree->place != 0)
		plan_add_recv_empty(plan, parent_of(tree));
	for (int distance = farthest_child(tree); distance > 0; distance /= 2)
		plan_add_send_empty(plan, child_at(tree, distance));
}

/* The tree of all ranks. */
static void find_tree(const struct plan_params *params, struct plan_tree *out)
{
	out->size = params->size;
	out->place = (params->rank + params->size - params->root) % params->size;
	for (int place = 0; place < params->size; place++)
		out->ranks[place] = (uint16_t)((place + params->root) % params->size);
}

/* A message to the parent is followed by one from the parent, which shows that the parent took the
 * first: then OUTPUT may be written. */
void plan_tree_allreduce(const struct plan_params *params, struct plan *plan)
{
	struct plan_tree tree;
	plan_tree_reduce(params, plan);
	find_tree(params, &tree);
	plan_add_descent(&tree, PLAN_OUTPUT, plan);
}

void plan_tree_reduce(const struct plan_params *params, struct plan *plan)
{
	struct plan_tree tree;
	find_tree(params, &tree);
	plan_add_reduction(params, &tree, plan);
	if (tree.place == 0)
		plan_add_scale(plan, 0);
}

void plan_tree_broadcast(const struct plan_params *params, struct plan *plan)
{
	struct plan_tree tree;
	bool root = params->rank == params->root;
	find_tree(params, &tree);
	plan_add_descent(&tree, root ? PLAN_INPUT : PLAN_OUTPUT, plan);
	if (root)
		plan_add_local_copy(plan, params); /* while the others take theirs */
}

void plan_tree_barrier(const struct plan_params *params, struct plan *plan)
{
	struct plan_tree tree;
	find_tree(params, &tree);
	plan_add_arrival(&tree, plan);
	plan_add_release(&tree, plan);
}
