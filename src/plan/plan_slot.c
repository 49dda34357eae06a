/* SPDX-License-Identifier: BSD-3-Clause
 * Small payloads travel inside the entry headers: who needs one reads it there. No second
 * synchronisation, as a slot is written again only when all ranks have left the collective. */
#include "plan_build.h"

void plan_slot_allreduce(const struct plan_request *request, struct plan *plan)
{
	(void)request;
	plan_add_await(plan, PLAN_ALL, 0);
	PLAN_ADD(plan, .kind = PLAN_REDUCE_ALL, .flags = PLAN_TO_SELF, .peer = PLAN_ALL,
		 .from = PLAN_INPUT, .to = PLAN_OUTPUT, .blocks = 1);
}

void plan_slot_broadcast(const struct plan_request *request, struct plan *plan)
{
	if (request->rank == request->root) {
		plan_add_local_copy(plan, request);
		return;
	}
	plan_add_await(plan, request->root, 0);
	PLAN_ADD(plan, .kind = PLAN_COPY, .peer = (int16_t)request->root, .from = PLAN_INPUT,
		 .to = PLAN_OUTPUT, .blocks = 1);
}
