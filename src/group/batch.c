/* SPDX-License-Identifier: BSD-3-Clause
 * Batches: sends and receives of one thread that begin at their calls and are waited for
 * together. */
#include "progress/progress.h"
#include "world/registry.h"
#include "group/group_private.h"
#include "group/arguments.h"
#include "group/group.h"

struct ls_request *group_batch_find(ls_group *group)
{
	if (!atomic_load_explicit(&group->batch_count, memory_order_relaxed))
		return NULL;
	uint32_t tid = trace_thread_id();
	lock_rank_acquire(&group->pool.lock);
	struct ls_request *batch = group->batches;
	while (batch && batch->batch_tid != tid)
		batch = batch->next;
	lock_rank_release(&group->pool.lock);
	return batch;
}

/* Each part that is not complete has a reference to the batch, and so has the call that ends it. */
void group_batch_join(struct ls_request *batch, struct ls_request *op)
{
	op->batch = batch;
	op->base.p2p.batch = &batch->base;
	atomic_fetch_add(&batch->parts, 1);
	progress_op_ref(batch);
	progress_op_ref(op); /* the batch, which waits for the part, holds it */
	op->next_part = batch->next_part;
	batch->next_part = op;
}

void group_batch_unjoin(struct ls_request *batch, struct ls_request *op, ls_status status)
{
	batch->next_part = op->next_part;
	op->next_part = NULL;
	progress_op_unref(op); /* the batch's reference */
	progress_batch_part_complete(batch, status);
}

ls_status ls_batch_begin(ls_group *group)
{
	ls_status status = group_check("ls_batch_begin", group);
	if (status == LS_OK)
		status = group_check_may_wait("ls_batch_begin");
	if (status != LS_OK)
		return status;
	if (group_batch_find(group))
		return group_bad_state("ls_batch_begin", "group", "in a batch of this thread",
				       "in none");
	struct ls_request *batch = progress_op_new(group, true);
	if (!batch)
		return LS_OUT_OF_MEMORY;
	batch->is_batch = true;
	batch->batch_tid = trace_thread_id();
	atomic_store(&batch->parts, 1);
	lock_rank_acquire(&group->pool.lock);
	batch->next = group->batches;
	group->batches = batch;
	lock_rank_release(&group->pool.lock);
	atomic_fetch_add(&group->batch_count, 1);
	return LS_OK;
}

static void leave_batch(ls_group *group, struct ls_request *batch)
{
	lock_rank_acquire(&group->pool.lock);
	struct ls_request **at = &group->batches;
	while (*at != batch)
		at = &(*at)->next;
	*at = batch->next;
	lock_rank_release(&group->pool.lock);
	atomic_fetch_sub(&group->batch_count, 1);
}

ls_status ls_batch_end(ls_group *group, ls_request **request)
{
	if (request)
		*request = NULL;
	if (!group)
		return group_bad_state("ls_batch_end", "group", "NULL",
				       "a group from ls_group_open");
	if (!world_is_usable(group))
		return group_not_open("ls_batch_end", group);
	ls_status status = group_check_may_wait("ls_batch_end");
	if (status != LS_OK)
		return status;
	struct ls_request *batch = group_batch_find(group);
	if (!batch)
		return group_bad_state("ls_batch_end", "group", "in no batch of this thread",
				       "in one");
	leave_batch(group, batch);
	progress_batch_part_complete(batch, LS_OK); /* of the call itself */
	if (request) {
		*request = batch;
		return LS_OK;
	}
	do
		status = group_op_await(&batch);
	while (batch); /* a signal */
	return status;
}
