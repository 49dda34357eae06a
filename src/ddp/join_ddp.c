/* SPDX-License-Identifier: BSD-3-Clause
 * Uneven inputs with gradient averaging: the shadow of a step is an all-reduce of zeros for each
 * bucket. At the end all ranks take over the parameters of a rank that took part in every step. */
#include <string.h>

#include "ddp/ddp_private.h"

enum { WORD_SYNC = 1 }; /* the step averages gradients */

static ls_status shadow_step(void *data, const struct ls_join_round *round)
{
	struct ls_ddp *ddp = data;
	if (round->word != WORD_SYNC) {
		ddp_next_pass(ddp, false);
		return LS_OK;
	}
	ddp->active = round->active;
	ddp->joining = DDP_IN_STEP;
	ddp_zero_buckets(ddp);
	ddp_begin_all(ddp, NULL);
	ls_status status = ddp_wait_all(ddp);
	ddp_zero_buckets(ddp);
	ddp_next_pass(ddp, true);
	ddp_reset_step(ddp);
	ddp->joining = DDP_BETWEEN_STEPS;
	return status;
}

ls_status ls_ddp_join_begin(ls_ddp *ddp, const struct ls_ddp_join_options *given)
{
	const char *call = "ls_ddp_join_begin";
	struct ls_ddp_join_options options = {.size = sizeof options};
	if (!ddp)
		return ddp_bad(call, "ddp", 0, "not NULL");
	if (given) {
		if (!option_size_is_right(given->size, sizeof options))
			return ddp_bad(call, "options->size", given->size,
				       "sizeof(struct ls_ddp_join_options)");
		memcpy(&options, given, given->size);
	}
	if (options.reserved)
		return ddp_bad(call, "options->reserved", options.reserved, "0");
	if (ddp->joining != DDP_NOT_JOINING || atomic_load(&ddp->stepping))
		return ddp_bad(call, "ddp", 1, "between steps, and in no join");
	struct ls_join_options join = {
		.size = sizeof join, .mode = options.mode, .shadow = shadow_step, .data = ddp};
	ls_status status = ls_join_open(ddp->group, &join, &ddp->join);
	if (status != LS_OK)
		return status;
	ddp->divide_by_active = options.divide_by_active != 0;
	ddp->joining = DDP_BETWEEN_STEPS;
	return LS_OK;
}

static void leave_join(struct ls_ddp *ddp)
{
	ls_join_close(ddp->join);
	ddp->join = NULL;
	ddp->joining = DDP_NOT_JOINING;
}

static ls_status check_between(const char *call, const ls_ddp *ddp)
{
	if (!ddp)
		return ddp_bad(call, "ddp", 0, "not NULL");
	if (ddp->joining == DDP_NOT_JOINING)
		return ddp_bad(call, "ddp", 0, "in a join: call ls_ddp_join_begin first");
	if (ddp->joining == DDP_IN_STEP)
		return ddp_bad(call, "ddp", 1, "between steps: call ls_ddp_finish first");
	return LS_OK;
}

ls_status ls_ddp_join_step(ls_ddp *ddp)
{
	struct ls_join_round round;
	ls_status status = check_between("ls_ddp_join_step", ddp);
	if (status != LS_OK)
		return status;
	status = ls_join_step(ddp->join, ddp->no_sync ? 0 : WORD_SYNC, &round);
	if (status != LS_OK) {
		leave_join(ddp);
		return status;
	}
	ddp->active = round.active;
	ddp->joining = DDP_IN_STEP;
	return LS_OK;
}

ls_status ls_ddp_join_end(ls_ddp *ddp, int *last)
{
	struct ls_join_round round;
	if (last)
		*last = 0;
	ls_status status = check_between("ls_ddp_join_end", ddp);
	if (status != LS_OK)
		return status;
	status = ls_join_end(ddp->join, &round);
	leave_join(ddp);
	if (status != LS_OK || round.active == 0 || round.active == ddp->size)
		return status;
	if (last)
		*last = round.lead;
	return ddp_broadcast_parameters(ddp, round.lead, "ls_ddp_join_end");
}
