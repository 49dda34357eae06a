/* SPDX-License-Identifier: BSD-3-Clause
 * Appending steps to a plan: what the files of all algorithms use. */
#include <assert.h>

#include "base/ranks.h"
#include "plan/plan_build.h"

/* The longest plans: ring all-reduce, 2 + 5 (size - 1) steps; doubling, 6 + 4 log2(size); a chain,
 * 2 PLAN_CHAIN_BLOCKS. */
static size_t steps_max(int size)
{
	return 2 * PLAN_CHAIN_BLOCKS + 5 * (size_t)size;
}

size_t plan_steps_max(const struct plan_params *params)
{
	return params->size < 1 || params->size > RANKS_JOB_MAX ? 0 : steps_max(params->size);
}

void plan_add(struct plan *plan, const struct plan_step *step)
{
	assert(plan->step_count < steps_max(plan->size));
	plan->steps[plan->step_count++] = *step;
}

void plan_add_local_copy(struct plan *plan, const struct plan_params *params)
{
	bool parts = plan->layout[PLAN_INPUT] != PLAN_LAYOUT_BLOCKS;
	if (!params->in_place)
		PLAN_ADD(plan, .kind = PLAN_STEP_COPY, .peer = (int16_t)plan->rank,
			 .from = PLAN_INPUT, .to = PLAN_OUTPUT, .block = parts ? plan->rank : 0,
			 .blocks = parts ? 1 : plan->blocks);
}

void plan_add_copy(struct plan *plan, int peer, int block, int flags)
{
	PLAN_ADD(plan, .kind = PLAN_STEP_COPY, .flags = (uint8_t)flags, .peer = (int16_t)peer,
		 .from = PLAN_INPUT, .to = PLAN_OUTPUT, .block = (uint16_t)block, .blocks = 1);
}

void plan_add_copies(struct plan *plan, int flags)
{
	for (int distance = 1; distance < plan->size; distance++) {
		int peer = (plan->rank + distance) % plan->size;
		plan_add_copy(plan, peer, peer, flags);
	}
}

void plan_add_send(struct plan *plan, int peer, enum plan_buffer from, int block, int blocks)
{
	plan->reach[from] = PLAN_REACH_MAPPED;
	PLAN_ADD(plan, .kind = PLAN_STEP_SEND, .peer = (int16_t)peer, .from = (uint8_t)from,
		 .block = (uint16_t)block, .blocks = (uint16_t)blocks);
}

void plan_add_recv(struct plan *plan, int peer, enum plan_buffer to, int block, int blocks)
{
	PLAN_ADD(plan, .kind = PLAN_STEP_RECV, .peer = (int16_t)peer, .to = (uint8_t)to,
		 .block = (uint16_t)block, .blocks = (uint16_t)blocks);
}

void plan_add_send_empty(struct plan *plan, int peer)
{
	PLAN_ADD(plan, .kind = PLAN_STEP_SEND, .peer = (int16_t)peer);
}

void plan_add_recv_empty(struct plan *plan, int peer)
{
	PLAN_ADD(plan, .kind = PLAN_STEP_RECV, .peer = (int16_t)peer);
}

void plan_add_combine(struct plan *plan, int block, int flags)
{
	PLAN_ADD(plan, .kind = PLAN_STEP_COMBINE, .flags = (uint8_t)flags, .from = PLAN_SCRATCH,
		 .to = PLAN_OUTPUT, .block = (uint16_t)block, .blocks = 1);
}

void plan_add_scale(struct plan *plan, int block)
{
	PLAN_ADD(plan, .kind = PLAN_STEP_SCALE, .from = PLAN_OUTPUT, .to = PLAN_OUTPUT,
		 .block = (uint16_t)block, .blocks = 1);
}

void plan_add_await(struct plan *plan, int peer, int phase)
{
	PLAN_ADD(plan, .kind = PLAN_STEP_AWAIT, .peer = (int16_t)peer, .phase = (uint16_t)phase);
}

void plan_add_signal(struct plan *plan, int phase)
{
	PLAN_ADD(plan, .kind = PLAN_STEP_SIGNAL, .phase = (uint16_t)phase);
}
