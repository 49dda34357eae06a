/* SPDX-License-Identifier: BSD-3-Clause
 * One step: threads mark parameters as ready, in any order. Buckets whose parameters are all ready
 * begin in their order, as nonblocking all-reduces, and ls_ddp_finish waits for them. No lock is
 * held, because starting an all-reduce may wait (LOCKSTEP_BLOCKING). */
#include <stdio.h>
#include <string.h>

#include "base/messages.h"
#include "ddp/ddp_private.h"
#include "group/group.h"

void ddp_reset_step(struct ls_ddp *ddp)
{
	for (int i = 0; i < ddp->parameter_count; i++)
		atomic_store(&ddp->parameters[i].ready, false);
	for (int k = 0; k < ddp->bucket_count; k++) {
		atomic_store(&ddp->buckets[k].pending, ddp->buckets[k].members);
		atomic_store(&ddp->buckets[k].site, NULL);
	}
	ddp->next = 0;
	atomic_store(&ddp->status, LS_OK);
	atomic_store(&ddp->stepping, false);
}

/* ---- ranks exchange the numbers of their passes ---- */

/* A rank that does not average in a pass in which others do would give these the gradients of a
 * later pass: no call fails, but the training is wrong. A rank that has missed a pass stays behind,
 * and so does the hash of the order of all passes. So a check finds both even if few passes are
 * checked: 0, 1, 2, 4, 8, … and each 256th. */
static bool is_checked(uint64_t averaged)
{
	return (averaged & (averaged - 1)) == 0 || averaged % 256 == 0;
}

/* One of the words that the ranks have exchanged. */
static uint64_t *pass_word(struct ls_ddp *ddp, int word, int rank)
{
	return &ddp->passes[word * ddp->size + rank];
}

/* Exchanges the passes of all ranks, as the sum of arrays to which each rank adds its own; and of
 * which ls_ddp they are, and those before: ranks that take the steps of two models in a different
 * order average the gradients of one with those of the other, if both have the same size. */
static ls_status exchange_pass(struct ls_ddp *ddp, uint64_t order, const void *site)
{
	struct ls_call_options options = {.size = sizeof options,
					  .timeout_ms = ddp->timeout_ms,
					  .label = site ? NULL : DDP_SHADOW_LABEL,
					  .request = &ddp->pass_op};
	memset(ddp->passes, 0, sizeof ddp->passes);
	*pass_word(ddp, DDP_PASS_NUMBER, ddp->rank) = ddp->pass;
	*pass_word(ddp, DDP_PASS_OPENED, ddp->rank) = ddp->opened;
	*pass_word(ddp, DDP_PASS_ORDER, ddp->rank) = order;
	return group_allreduce(ddp->group, ddp->passes, ddp->passes,
			       DDP_PASS_WORDS * (uint64_t)ddp->size, LS_UINT64, LS_SUM, &options,
			       site);
}

static bool differs(struct ls_ddp *ddp, int word, int rank)
{
	return *pass_word(ddp, word, rank) != *pass_word(ddp, word, 0);
}

static void say_passes(struct ls_ddp *ddp, int rank)
{
	int first = ddp_world_rank(ddp, 0), other = ddp_world_rank(ddp, rank);
	if (differs(ddp, DDP_PASS_OPENED, rank))
		MESSAGE_SAY(MESSAGE_DDP_MODELS, first, ddp->buckets[0].label, other);
	else if (differs(ddp, DDP_PASS_NUMBER, rank))
		MESSAGE_SAY(MESSAGE_DDP_PASSES,
			    (unsigned long long)*pass_word(ddp, DDP_PASS_NUMBER, 0) + 1, first,
			    other, (unsigned long long)*pass_word(ddp, DDP_PASS_NUMBER, rank) + 1);
	else
		MESSAGE_SAY(MESSAGE_DDP_ORDER, first, other);
}

static ls_status await_passes(struct ls_ddp *ddp)
{
	if (!ddp->pass_op)
		return LS_OK;
	ls_status status = group_op_finish(&ddp->pass_op);
	for (int r = 1; status == LS_OK && r < ddp->size; r++) {
		if (!differs(ddp, DDP_PASS_NUMBER, r) && !differs(ddp, DDP_PASS_OPENED, r) &&
		    !differs(ddp, DDP_PASS_ORDER, r))
			continue;
		if (ddp->rank == 0)
			say_passes(ddp, r);
		status = LS_INCONSISTENT;
		group_set_passes(ddp->group, 0); /* all ranks know it: they begin anew */
	}
	return status;
}

void ddp_next_pass(struct ls_ddp *ddp, bool averaged)
{
	ddp->pass++;
	ddp->averaged += averaged;
}

/* ---- buckets begin ---- */

/* The other ranks wait for this bucket, so if this rank alone fails, the group fails. */
static void give_up(struct ls_ddp *ddp, const struct ddp_bucket *bucket, ls_status status)
{
	char text[DDP_TEXT_BYTES];
	snprintf(text, sizeof text, "rank %d could not begin the all-reduce of %s: %s",
		 ddp_world_rank(ddp, ddp->rank), bucket->label, ls_status_text(status));
	if (ls_status_scope(status) == LS_SCOPE_CALL && ls_group_abort(ddp->group, text) == LS_OK)
		status = LS_ABORTED;
	atomic_store(&ddp->status, (int)status);
}

static void begin_bucket(struct ls_ddp *ddp, struct ddp_bucket *bucket)
{
	bool by_active = ddp->joining != DDP_NOT_JOINING && ddp->divide_by_active &&
			 ddp->active > 0 && ddp->active < ddp->size;
	const void *site = atomic_load(&bucket->site);
	struct ls_call_options options = {.size = sizeof options,
					  .timeout_ms = ddp->timeout_ms,
					  .label = site ? NULL : DDP_SHADOW_LABEL,
					  .request = &bucket->op,
					  .factor = by_active ? 1.0 / ddp->active : 0};
	ls_status status = LS_OK;
	uint64_t order = bucket == ddp->buckets ? group_note_pass(ddp->group, ddp->opened) : 0;
	if (bucket == ddp->buckets && is_checked(ddp->averaged))
		status = exchange_pass(ddp, order, site);
	if (status == LS_OK)
		status = group_allreduce(ddp->group, bucket->memory, bucket->memory,
					 bucket->bytes / ls_dtype_bytes(bucket->dtype),
					 bucket->dtype, by_active ? LS_PREMUL_SUM : LS_AVERAGE,
					 &options, site);
	if (status != LS_OK)
		give_up(ddp, bucket, status);
}

static void begin_complete(struct ls_ddp *ddp)
{
	while (ddp->next < ddp->bucket_count && atomic_load(&ddp->status) == LS_OK &&
	       atomic_load(&ddp->buckets[ddp->next].pending) == 0)
		begin_bucket(ddp, &ddp->buckets[ddp->next++]);
}

/* One thread at a time begins buckets; the others leave it a request. */
static void begin_what_can(struct ls_ddp *ddp)
{
	if (atomic_fetch_add(&ddp->begin_requests, 1) != 0)
		return;
	for (uint32_t seen = 1; seen > 0;) {
		begin_complete(ddp);
		seen = atomic_fetch_sub(&ddp->begin_requests, seen) - seen;
	}
}

void ddp_begin_all(struct ls_ddp *ddp, const void *site)
{
	for (int k = ddp->next; k < ddp->bucket_count; k++) {
		atomic_store(&ddp->buckets[k].pending, 0);
		if (!atomic_load(&ddp->buckets[k].site))
			atomic_store(&ddp->buckets[k].site, site);
	}
	begin_complete(ddp);
}

ls_status ddp_wait_all(struct ls_ddp *ddp)
{
	ls_status status = (ls_status)atomic_load(&ddp->status);
	for (int k = 0; k < ddp->next; k++) {
		struct ddp_bucket *bucket = &ddp->buckets[k];
		if (!bucket->op)
			continue;
		ls_status ended = group_op_finish(&bucket->op);
		status = status == LS_OK ? ended : status;
	}
	ls_status passed = await_passes(ddp);
	return status == LS_OK ? passed : status;
}

/* ---- the calls ---- */

static ls_status check_in_step(const char *call, const ls_ddp *ddp)
{
	if (!ddp)
		return ddp_bad(call, "ddp", 0, "not NULL");
	if (ddp->joining == DDP_BETWEEN_STEPS)
		return ddp_bad(call, "ddp", 1, "in a step: call ls_ddp_join_step before each batch");
	return LS_OK;
}

ls_status ls_ddp_ready(ls_ddp *ddp, int parameter)
{
	ls_status status = check_in_step("ls_ddp_ready", ddp);
	if (status != LS_OK)
		return status;
	if (parameter < 0 || parameter >= ddp->parameter_count)
		return ddp_bad("ls_ddp_ready", "parameter", parameter, "the index of a parameter");
	struct ddp_parameter *p = &ddp->parameters[parameter];
	struct ddp_bucket *bucket = &ddp->buckets[p->bucket];
	if (atomic_exchange(&p->ready, true)) {
		MESSAGE_SAY(MESSAGE_DDP_READY_TWICE, p->name);
		return LS_BAD_ARGUMENT;
	}
	if (!atomic_load(&ddp->stepping))
		atomic_store(&ddp->stepping, true);
	if (ddp->no_sync)
		return LS_OK;
	atomic_store(&bucket->site, GROUP_SITE);
	if (atomic_fetch_sub(&bucket->pending, 1) == 1)
		begin_what_can(ddp);
	return (ls_status)atomic_load(&ddp->status);
}

/* "parameters 'b3' and 'w3' were not ready …"; false if all were. */
static bool name_unready(const struct ls_ddp *ddp, char *text, size_t bytes)
{
	enum { NAMED = 3 };
	int named[NAMED], count = 0;
	for (int i = ddp->parameter_count - 1; i >= 0; i--) {
		if (atomic_load(&ddp->parameters[i].ready))
			continue;
		if (count < NAMED)
			named[count] = i;
		count++;
	}
	if (count == 0)
		return false;
	size_t used = (size_t)snprintf(text, bytes, count == 1 ? "parameter" : "parameters");
	for (int i = 0; i < count && i < NAMED; i++) {
		const char *before = i == 0 ? "" : i == count - 1 ? " and" : ",";
		char name[DDP_NAME_BYTES];
		ddp_text_name(ddp->parameters[named[i]].name, name, sizeof name);
		used += (size_t)snprintf(text + used, bytes - used, "%s '%s'", before, name);
	}
	if (count > NAMED)
		used += (size_t)snprintf(text + used, bytes - used, " and %d more", count - NAMED);
	snprintf(text + used, bytes - used,
		 " %s not ready on rank %d when it finished its backward pass",
		 count == 1 ? "was" : "were", ddp_world_rank(ddp, ddp->rank));
	return true;
}

/* The other ranks wait in the buckets that this rank cannot begin, so it fails the group at
 * once. */
static ls_status give_up_unready(struct ls_ddp *ddp, const char *text)
{
	struct ls_failure failure = {.size = offsetof(struct ls_failure, text)};
	ls_status status = ls_group_abort(ddp->group, text);
	if (status == LS_OK)
		status = ls_group_failure(ddp->group, &failure);
	return status == LS_OK ? failure.status : status;
}

static ls_status finish_pass(struct ls_ddp *ddp, const void *site)
{
	char text[DDP_TEXT_BYTES];
	ls_status status = LS_OK, ended;
	if (ddp->no_sync)
		return LS_OK;
	if (!ddp->find_unused && atomic_load(&ddp->status) == LS_OK &&
	    name_unready(ddp, text, sizeof text))
		status = give_up_unready(ddp, text);
	else
		ddp_begin_all(ddp, site);
	ended = ddp_wait_all(ddp);
	return status == LS_OK ? ended : status;
}

ls_status ls_ddp_finish(ls_ddp *ddp)
{
	ls_status status = check_in_step("ls_ddp_finish", ddp);
	if (status == LS_OK)
		status = group_check_may_wait("ls_ddp_finish");
	if (status != LS_OK)
		return status;
	status = finish_pass(ddp, GROUP_SITE);
	ddp_next_pass(ddp, !ddp->no_sync);
	ddp_reset_step(ddp);
	if (ddp->joining == DDP_IN_STEP)
		ddp->joining = DDP_BETWEEN_STEPS;
	return status;
}
