/* SPDX-License-Identifier: BSD-3-Clause
 * The life of an operation that outlives its call: its references, how it completes, and the pool
 * that it comes from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "pool/gate.h"
#include "races/races.h"
#include "progress/progress.h"
#include "progress/warn.h"

_Thread_local bool progress_in_callback;

void progress_pool_init(struct world_pool *pool)
{
	lock_rank_init(&pool->lock);
	lock_rank_acquire(&pool->lock);
	pool->spare = NULL;
	pool->block_count = 0;
	pool->handles = 0;
	lock_rank_release(&pool->lock);
}

static bool grow_pool(struct world_pool *pool)
{
	struct ls_request *block = calloc(WORLD_POOL_OPS, sizeof *block);
	if (!block)
		return false;
	lock_rank_acquire(&pool->lock);
	bool fits = pool->block_count < WORLD_POOL_BLOCKS;
	if (fits) {
		pool->blocks[pool->block_count++] = block;
		for (int i = 0; i < WORLD_POOL_OPS; i++) {
			block[i].next = pool->spare;
			pool->spare = &block[i];
		}
	}
	lock_rank_release(&pool->lock);
	if (!fits)
		free(block);
	return fits;
}

static struct ls_request *take_spare(struct world_pool *pool, bool handle)
{
	lock_rank_acquire(&pool->lock);
	struct ls_request *op = pool->spare;
	if (op) {
		pool->spare = op->next;
		pool->handles += handle;
	}
	lock_rank_release(&pool->lock);
	return op;
}

static void say_none(struct world_pool *pool)
{
	char from[TRACE_CALLER_BYTES], why[128];
	lock_rank_acquire(&pool->lock);
	bool full = pool->block_count == WORLD_POOL_BLOCKS;
	lock_rank_release(&pool->lock);
	if (full)
		snprintf(why, sizeof why,
			 "the group has %d operations that are under way or whose handles were not "
			 "freed, which is the limit",
			 WORLD_POOL_OPS * WORLD_POOL_BLOCKS);
	else
		snprintf(why, sizeof why, "out of memory");
	trace_caller_text(from, sizeof from);
	MESSAGE_SAY(MESSAGE_GROUP_HANDLES, from, why);
}

static struct ls_request *take_or_grow(struct world_pool *pool, bool handle)
{
	struct ls_request *op = take_spare(pool, handle);
	if (!op && grow_pool(pool))
		op = take_spare(pool, handle);
	return op;
}

/* Clearing all of it takes longer than to post the receive. */
struct ls_request *progress_op_new_receive(ls_group *group)
{
	struct ls_request *op = take_or_grow(&group->pool, true);
	if (!op)
		return NULL;
	struct op *base = &op->base;
	struct op_p2p *p2p = &base->p2p;
	base->status = LS_OK;
	base->culprit = -1;
	base->state = OP_STATE_STEPS;
	base->peer_sends = base->peer_expected = 0;
	base->word_count = 0;
	base->words = NULL;
	base->any_suffices = false;
	base->input_block = NULL;
	base->device.state = OP_DEVICE_NONE;
	base->stream.on = false;
	atomic_store_explicit(&p2p->state, OP_P2P_NEW, memory_order_relaxed);
	p2p->detached = p2p->ends_quietly = true;
	p2p->hands_over_block = p2p->receives_block = p2p->is_blocking = false;
	p2p->cancellable = p2p->uses_cells = p2p->fetches = p2p->crossed = false;
	atomic_store_explicit(&p2p->cancelled, false, memory_order_relaxed);
	atomic_store_explicit(&p2p->asks_cancel, false, memory_order_relaxed);
	p2p->by_address = false;
	p2p->batch = NULL;
	p2p->rts = NULL;
	op->group = group;
	op->has_own_limit = op->on_stream = op->ordered = op->is_batch = op->shared = false;
	op->pooled = true;
	op->failing = LS_OK;
	op->access = 0;
	op->callback = NULL;
	op->callback_data = NULL;
	op->message = NULL;
	op->block = NULL;
	op->batch = op->next_part = NULL;
	atomic_store_explicit(&op->waited_ns, 0, memory_order_relaxed);
	op->waited_word = 0;
	atomic_store_explicit(&op->begun, false, memory_order_relaxed);
	atomic_store_explicit(&op->status_read, false, memory_order_relaxed);
	atomic_store_explicit(&op->is_freed, false, memory_order_relaxed);
	atomic_store_explicit(&op->complete, 0, memory_order_relaxed);
	atomic_store_explicit(&op->references, 2, memory_order_relaxed);
	return op;
}

struct ls_request *progress_op_new(ls_group *group, bool handle)
{
	struct ls_request *op = take_or_grow(&group->pool, handle);
	if (!op) {
		say_none(&group->pool);
		return NULL;
	}
	*op = (struct ls_request){.group = group,
				  .pooled = true,
				  .counts = op->counts,
				  .base.stream.words = op->base.stream.words};
	atomic_init(&op->references, handle ? 2 : 1);
	return op;
}

void progress_op_ref(struct ls_request *op)
{
	atomic_fetch_add(&op->references, 1);
}

/* True: that was the last reference. Only a holder adds another one, so the last holder needs no
 * locked instruction. */
static bool drop_reference(struct ls_request *op)
{
	return atomic_load_explicit(&op->references, memory_order_acquire) == 1 ||
	       atomic_fetch_sub(&op->references, 1) == 1;
}

static void return_to_pool(struct ls_request *op, bool handle)
{
	struct world_pool *pool = &op->group->pool;
	while (op->is_batch && op->next_part) { /* a batch keeps its parts */
		struct ls_request *part = op->next_part;
		op->next_part = part->next_part;
		part->next_part = NULL;
		progress_op_unref(part);
	}
	atomic_store_explicit(&op->references, 0, memory_order_relaxed); /* see warn.c */
	lock_rank_acquire(&pool->lock);
	op->next = pool->spare;
	pool->spare = op;
	pool->handles -= handle;
	lock_rank_release(&pool->lock);
}

void progress_op_unref(struct ls_request *op)
{
	if (drop_reference(op))
		return_to_pool(op, false);
}

void progress_op_free_handle(struct ls_request *op)
{
	struct world_pool *pool = &op->group->pool;
	if (drop_reference(op)) {
		return_to_pool(op, true);
		return;
	}
	lock_rank_acquire(&pool->lock);
	pool->handles--;
	lock_rank_release(&pool->lock);
}

static void end_access(struct ls_request *op)
{
	if (op->access)
		races_end(op->group->world->races, op->access);
}

/* Fails the group if the program has changed what the operation was to send. Call before another
 * thread may know that the operation is over. A block that was handed over is the receiver's. */
static ls_status check_access(struct ls_request *op, ls_status status)
{
	if (!op->access || status != LS_OK || op->base.p2p.hands_over_block ||
	    races_is_unchanged(op->group->world->races, op->access))
		return status;
	progress_fail_changed(op);
	return LS_ABORTED;
}

void progress_op_discard(struct ls_request *op)
{
	end_access(op);
	return_to_pool(op, atomic_load(&op->references) > 1);
}

void progress_op_drop(struct ls_request *op, bool handle)
{
	end_access(op);
	if (handle)
		progress_op_free_handle(op);
	progress_op_unref(op);
}

ls_status progress_op_complete(struct ls_request *op, ls_status status)
{
	bool pooled = op->pooled;
	if (op->on_stream)
		progress_stream_leave(op);
	status = check_access(op, status);
	end_access(op); /* the callback may use the buffers again */
	if (op->callback) {
		bool outer = progress_in_callback; /* one may call back in another one */
		atomic_store(&op->status_read, true);
		progress_in_callback = true;
		pool_gate_set_callback(true);
		op->callback(op->callback_data, status);
		pool_gate_set_callback(outer);
		progress_in_callback = outer;
	}
	/* After this store an operation that is not from the pool may be gone: it is on the stack
	 * of a thread that returns as soon as it sees the store. Sequentially consistent, as is the
	 * load of a thread that is about to wait: either that thread sees this store, or the caller
	 * sees that it waits (finish_op of p2p/pending.c). */
	atomic_store(&op->complete, 1 + (uint32_t)status);
	if (pooled)
		progress_op_unref(op);
	return status;
}

void progress_op_complete_quietly(struct ls_request *op)
{
	atomic_store_explicit(&op->complete, 1 + LS_OK, memory_order_release);
	progress_op_unref(op);
}

static struct op_stream_words *add_words(struct op_stream_words *list, struct op_stream_words *words)
{
	if (!words)
		return list;
	words->next = list;
	return words;
}

void progress_pool_fini(ls_group *group)
{
	struct world_pool *pool = &group->pool;
	struct op_stream_words *words = NULL;
	/* No other thread is in a call on the group any more. The lock makes visible what these
	 * threads wrote. */
	lock_rank_acquire(&pool->lock);
	for (int b = 0; b < pool->block_count; b++) {
		struct ls_request *block = pool->blocks[b];
		for (int i = 0; i < WORLD_POOL_OPS; i++) {
			free(block[i].counts);
			words = add_words(words, block[i].base.stream.words);
		}
		free(block);
	}
	pool->block_count = 0;
	lock_rank_release(&pool->lock);
	lock_rank_fini(&pool->lock);
	progress_stream_keep_words(group->world, words);
}

void progress_batch_part_complete(struct ls_request *batch, ls_status status)
{
	uint32_t fine = LS_OK;
	if (status != LS_OK)
		atomic_compare_exchange_strong(&batch->worst, &fine, (uint32_t)status);
	if (atomic_fetch_sub(&batch->parts, 1) == 1)
		progress_op_complete(batch, (ls_status)atomic_load(&batch->worst));
	else
		progress_op_unref(batch);
}
