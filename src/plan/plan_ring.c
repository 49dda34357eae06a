/* SPDX-License-Identifier: BSD-3-Clause
 * Around a ring of neighbours. All-reduce: size - 1 rounds in which block after block is summed up
 * on its way round, then size - 1 rounds in which the finished blocks go round. All-gather is the
 * second half of all-reduce. Broadcast: a chain that begins at the root. */
#include "plan/plan_build.h"

/* Each block goes round, from the rank that has it, which is `mine` here, to all others. */
static void add_circulation(struct plan *plan, int mine)
{
	int rank = plan->rank, size = plan->size;
	for (int round = 0; round < size - 1; round++) {
		int coming = (mine + size - round - 1) % size;
		plan_add_send(plan, (rank + 1) % size, PLAN_OUTPUT, (coming + 1) % size, 1);
		plan_add_recv(plan, (rank + size - 1) % size, PLAN_OUTPUT, coming, 1);
	}
}

/* A block that was sent in the first half is written in the second only by the result that comes
 * back, which was made from it: no payload is overwritten before it was taken. One rank alone
 * finishes each block, so all ranks end with the same bits. */
void plan_ring_allreduce(const struct plan_params *params, struct plan *plan)
{
	int rank = params->rank, size = params->size;
	int next = (rank + 1) % size, previous = (rank + size - 1) % size;
	plan->blocks = (uint16_t)size;
	plan->needs_scratch = true;
	plan_add_local_copy(plan, params);
	for (int round = 0; round < size - 1; round++) {
		int coming = (rank + 2 * size - round - 1) % size;
		plan_add_send(plan, next, PLAN_OUTPUT, (coming + 1) % size, 1);
		plan_add_recv(plan, previous, PLAN_SCRATCH, coming, 1);
		plan_add_combine(plan, coming, PLAN_SCRATCH_FIRST);
	}
	plan_add_scale(plan, next);
	add_circulation(plan, next);
}

/* My part leaves from OUTPUT too, so that only one buffer has to be where peers reach it. */
void plan_ring_allgather(const struct plan_params *params, struct plan *plan)
{
	plan_add_local_copy(plan, params);
	add_circulation(plan, params->rank);
}

void plan_ring_broadcast(const struct plan_params *params, struct plan *plan)
{
	int rank = params->rank, size = params->size;
	int place = (rank + size - params->root) % size; /* in the chain; the root has 0 */
	bool first = place == 0, last = place == size - 1;
	plan->blocks = PLAN_CHAIN_BLOCKS;
	for (int block = 0; block < PLAN_CHAIN_BLOCKS; block++) {
		if (!first)
			plan_add_recv(plan, (rank + size - 1) % size, PLAN_OUTPUT, block, 1);
		if (!last)
			plan_add_send(plan, (rank + 1) % size, first ? PLAN_INPUT : PLAN_OUTPUT,
				      block, 1);
	}
	if (first)
		plan_add_local_copy(plan, params); /* while the others take theirs */
}
