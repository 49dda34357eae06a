/* SPDX-License-Identifier: BSD-3-Clause
 * Handles of operations that run beside the caller: where they come from, and how one learns how they
 * ended. */
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "base/messages.h"
#include "group_private.h"

/* ---- the pool ---- */

void group_pool_init(struct group_pool *pool)
{
	lock_group_init(&pool->lock);
}

static bool grow(struct group_pool *pool)
{
	struct ls_op *block = calloc(GROUP_POOL_OPS, sizeof *block);
	if (!block)
		return false;
	lock_group_acquire(&pool->lock);
	bool fits = pool->block_count < GROUP_POOL_BLOCKS;
	if (fits) {
		pool->blocks[pool->block_count++] = block;
		for (int i = 0; i < GROUP_POOL_OPS; i++) {
			block[i].next = pool->spare;
			pool->spare = &block[i];
		}
	}
	lock_group_release(&pool->lock);
	if (!fits)
		free(block);
	return fits;
}

static struct ls_op *take_spare(struct group_pool *pool)
{
	lock_group_acquire(&pool->lock);
	struct ls_op *op = pool->spare;
	if (op)
		pool->spare = op->next;
	lock_group_release(&pool->lock);
	return op;
}

struct ls_op *group_op_new(ls_group *group, bool handle)
{
	struct group_pool *pool = &group->pool;
	struct ls_op *op = take_spare(pool);
	if (!op && grow(pool))
		op = take_spare(pool);
	if (!op) {
		MESSAGE_SAY(MESSAGE_GROUP_HANDLES, GROUP_POOL_OPS * GROUP_POOL_BLOCKS);
		return NULL;
	}
	*op = (struct ls_op){.group = group, .pooled = true, .counts = op->counts};
	atomic_store(&op->holders, handle ? 2 : 1);
	if (handle)
		atomic_fetch_add(&pool->handles, 1);
	return op;
}

static void let_go(struct ls_op *op)
{
	struct group_pool *pool = &op->group->pool;
	if (atomic_fetch_sub(&op->holders, 1) > 1)
		return;
	lock_group_acquire(&pool->lock);
	op->next = pool->spare;
	pool->spare = op;
	lock_group_release(&pool->lock);
}

void group_op_drop(struct ls_op *op)
{
	if (atomic_load(&op->holders) > 1)
		atomic_fetch_sub(&op->group->pool.handles, 1);
	atomic_store(&op->holders, 1);
	let_go(op);
}

void group_op_over(struct ls_op *op, ls_status status)
{
	struct group_world *world = op->group->world;
	uint64_t seq = op->engine.seq;
	bool pooled = op->pooled;
	if (op->callback) {
		atomic_store(&op->told, true);
		op->callback(op->callback_data, status);
	}
	/* One that is not of the pool lies on the stack of a thread that returns as soon as it sees this. */
	atomic_store_explicit(&op->over, 1 + (uint32_t)status, memory_order_release);
	if (pooled)
		let_go(op);
	wait_store(&transport_member(&world->transport, world->rank)->over, seq);
	wait_ring(world->waiter.bell);
}

void group_pool_fini(struct group_pool *pool)
{
	long handles = atomic_load(&pool->handles);
	if (handles > 0)
		MESSAGE_SAY(MESSAGE_GROUP_HANDLES_LEFT, handles);
	/* Nobody else is in a call on the group any more, but the lock is what makes that visible. */
	lock_group_acquire(&pool->lock);
	for (int b = 0; b < pool->block_count; b++) {
		struct ls_op *block = pool->blocks[b];
		for (int i = 0; i < GROUP_POOL_OPS; i++)
			free(block[i].counts);
		free(block);
	}
	pool->block_count = 0;
	lock_group_release(&pool->lock);
	lock_group_fini(&pool->lock);
}

/* ---- what the user asks ---- */

static ls_status check(const char *call, const ls_op *op)
{
	if (!op)
		return group_bad(call, "op", 0, "a handle of an operation that has not been freed");
	if (op->group->world->fork_generation != fork_generation())
		return LS_FORKED;
	return LS_OK;
}

/* LS_PENDING while it is under way. */
static ls_status ask(ls_op *op)
{
	uint32_t over = atomic_load_explicit(&op->over, memory_order_acquire);
	if (!over)
		return LS_PENDING;
	atomic_store(&op->told, true);
	return (ls_status)(over - 1);
}

ls_status ls_test(ls_op *op)
{
	ls_status status = check("ls_test", op);
	return status == LS_OK ? ask(op) : status;
}

ls_status ls_wait(ls_op *op, uint32_t timeout_ms)
{
	ls_status status = check("ls_wait", op);
	if (status != LS_OK)
		return status;
	wait_thread_enter(&op->group->world->waiter);
	status = group_lane_await(op, timeout_ms ? clock_deadline_ns(timeout_ms) : CLOCK_NEVER);
	return status == LS_PENDING ? LS_PENDING : ask(op);
}

/* Index of the first that is over, or -1. */
static int find_over(ls_op *const *ops, int count, ls_status *status)
{
	for (int i = 0; i < count; i++) {
		if (!ops[i])
			continue;
		*status = ask(ops[i]);
		if (*status != LS_PENDING)
			return i;
	}
	*status = LS_PENDING;
	return -1;
}

/* Operations of a group end in the order of their numbers. */
static ls_op *find_earliest(ls_op *const *ops, int count)
{
	ls_op *earliest = NULL;
	for (int i = 0; i < count; i++)
		if (ops[i] && (!earliest || ops[i]->engine.seq < earliest->engine.seq))
			earliest = ops[i];
	return earliest;
}

ls_status ls_wait_any(ls_op *const *ops, int count, uint32_t timeout_ms, int *index)
{
	const char *call = "ls_wait_any";
	ls_status status;
	if (!index)
		return group_bad(call, "index", 0, "not NULL");
	*index = -1;
	if (!ops || count < 1 || count > WAIT_EDGE_MAX)
		return group_bad(call, ops ? "count" : "ops", ops ? count : 0, "1 to 64 handles");
	ls_op *earliest = find_earliest(ops, count);
	status = check(call, earliest);
	if (status != LS_OK)
		return status;
	for (int i = 0; i < count; i++)
		if (ops[i] && ops[i]->group != earliest->group)
			return group_bad(call, "ops", i, "a handle of the same group as the others");
	*index = find_over(ops, count, &status);
	if (*index >= 0)
		return status;
	wait_thread_enter(&earliest->group->world->waiter);
	uint64_t until = timeout_ms ? clock_deadline_ns(timeout_ms) : CLOCK_NEVER;
	if (group_lane_await(earliest, until) != LS_PENDING)
		*index = find_over(ops, count, &status);
	return status;
}

void ls_op_free(ls_op *op)
{
	if (!op || op->group->world->fork_generation != fork_generation())
		return;
	if (!op->callback && !atomic_load(&op->told)) /* a callback will tell, if it has not yet */
		MESSAGE_SAY(MESSAGE_GROUP_DROPPED, trace_kind_name(op->engine.call.kind),
			    (unsigned long long)op->engine.seq);
	atomic_fetch_sub(&op->group->pool.handles, 1);
	let_go(op);
}
