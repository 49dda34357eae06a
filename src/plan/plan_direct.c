/* SPDX-License-Identifier: BSD-3-Clause
 * Large payloads are read from, and written to, the peers' own buffers. Entering says "my buffers are
 * ready", phase 1 says "I no longer touch anybody's"; a rank leaves when all that touch its buffers
 * have said so. */
#include "plan_build.h"

/* Rank i alone reads and writes block i, in all ranks' buffers; so in place needs nothing special. */
void plan_direct_allreduce(const struct plan_request *request, struct plan *plan)
{
	plan->uses_windows = true;
	plan->blocks = plan->size;
	plan->phase_end = 1;
	plan_add_await(plan, PLAN_ALL, 0);
	PLAN_ADD(plan, .kind = PLAN_REDUCE_ALL, .peer = PLAN_ALL, .from = PLAN_INPUT,
		 .to = PLAN_OUTPUT, .block = (uint16_t)request->rank, .blocks = 1);
	plan_add_signal(plan, 1);
	plan_add_await(plan, PLAN_ALL, 1);
}

/* Everybody reads the root's buffer; nobody but the root has to wait for another. */
void plan_direct_broadcast(const struct plan_request *request, struct plan *plan)
{
	plan->phase_end = 1;
	if (request->rank == request->root) {
		plan->uses_windows = true;
		plan_add_local_copy(plan, request);
		plan_add_await(plan, PLAN_ALL, 1);
		return;
	}
	plan_add_await(plan, request->root, 0);
	PLAN_ADD(plan, .kind = PLAN_COPY, .peer = (int16_t)request->root, .from = PLAN_INPUT,
		 .to = PLAN_OUTPUT, .blocks = 1);
	plan_add_signal(plan, 1);
}

/* That all have entered is all there is to know. */
void plan_direct_barrier(const struct plan_request *request, struct plan *plan)
{
	(void)request;
	plan_add_await(plan, PLAN_ALL, 0);
}
