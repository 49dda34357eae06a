/* SPDX-License-Identifier: BSD-3-Clause
 * Recursive doubling: in round i partners at distance 2^i exchange all they have and both combine
 * it. If the size is no power of two, the first ranks pair up before and after the rounds ("fold"),
 * so that a power of two remains for them. Barrier: dissemination, which needs no fold. */
#include "plan/plan_build.h"

struct doubling {
	int core;   /* largest power of two that is <= size */
	int folded; /* ranks 0 to 2 folded - 1 are pairs; the even rank of a pair takes part */
};

static struct doubling doubling_of(int size)
{
	int core = 1;
	while (2 * core <= size)
		core *= 2;
	return (struct doubling){.core = core, .folded = size - core};
}

/* Places are in the order of the ranks' numbers, so that a place always stands for a contiguous
 * range of them, and lower numbers can be combined first. */
static int number_of_place(const struct doubling *doubling, int place)
{
	return place < doubling->folded ? 2 * place : place + doubling->folded;
}

/* Both partners combine the same two values in the same order: all ranks end with the same bits. */
static void add_round(struct plan *plan, int partner, bool first, int block)
{
	plan_add_send(plan, partner, PLAN_OUTPUT, block, 1);
	plan_add_recv(plan, partner, PLAN_SCRATCH, block, 1);
	/* The partner reads my OUTPUT, and I am about to change it. */
	PLAN_ADD(plan, .kind = PLAN_STEP_AWAIT, .flags = PLAN_UNTIL_TAKEN, .peer = (int16_t)partner);
	plan_add_combine(plan, block, first ? PLAN_SCRATCH_FIRST : 0);
}

static int rank_at(const uint16_t *ranks, int number)
{
	return ranks ? ranks[number] : number;
}

void plan_add_doubling(struct plan *plan, int number, int count, const uint16_t *ranks, int block)
{
	struct doubling doubling = doubling_of(count);
	bool paired = number < 2 * doubling.folded;
	if (paired && number % 2 == 1) {
		/* The result is made from this block, and so shows that the partner has taken
		 * it. */
		plan_add_send(plan, rank_at(ranks, number - 1), PLAN_OUTPUT, block, 1);
		plan_add_recv(plan, rank_at(ranks, number - 1), PLAN_OUTPUT, block, 1);
		return;
	}
	plan->needs_scratch = true;
	if (paired) {
		plan_add_recv(plan, rank_at(ranks, number + 1), PLAN_SCRATCH, block, 1);
		plan_add_combine(plan, block, 0);
	}
	int place = paired ? number / 2 : number - doubling.folded;
	for (int distance = 1; distance < doubling.core; distance *= 2) {
		int partner = number_of_place(&doubling, place ^ distance);
		add_round(plan, rank_at(ranks, partner), partner < number, block);
	}
	plan_add_scale(plan, block);
	if (paired)
		plan_add_send(plan, rank_at(ranks, number + 1), PLAN_OUTPUT, block, 1);
}

void plan_doubling_allreduce(const struct plan_params *params, struct plan *plan)
{
	int rank = params->rank;
	struct doubling doubling = doubling_of(params->size);
	if (rank < 2 * doubling.folded && rank % 2 == 1) { /* INPUT is sent from where it is */
		plan_add_send(plan, rank - 1, PLAN_INPUT, 0, 1);
		plan_add_recv(plan, rank - 1, PLAN_OUTPUT, 0, 1);
		return;
	}
	plan_add_local_copy(plan, params);
	plan_add_doubling(plan, rank, params->size, NULL, 0);
}

void plan_add_dissemination(struct plan *plan, int number, int count, const uint16_t *ranks)
{
	for (int distance = 1; distance < count; distance *= 2) {
		plan_add_send_empty(plan, rank_at(ranks, (number + distance) % count));
		plan_add_recv_empty(plan, rank_at(ranks, (number + count - distance) % count));
	}
}

void plan_doubling_barrier(const struct plan_params *params, struct plan *plan)
{
	plan_add_dissemination(plan, params->rank, params->size, NULL);
}
