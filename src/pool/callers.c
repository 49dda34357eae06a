/* SPDX-License-Identifier: BSD-3-Clause
 * Which threads are in a call that may wait for memory or for the driver, so that the pool is not
 * closed under them. A hit is not counted: it waits for nothing. */
#include "pool/pool_private.h"
#include "trace/trace.h"

void pool_caller_enter(struct pool *pool, struct pool_caller *caller, const char *call)
{
	caller->call = call;
	caller->tid = trace_thread_id();
	lock_pool_acquire(&pool->lock);
	caller->next = pool->callers;
	pool->callers = caller;
	lock_pool_release(&pool->lock);
}

void pool_caller_leave(struct pool *pool, const struct pool_caller *caller)
{
	lock_pool_acquire(&pool->lock);
	struct pool_caller **at = &pool->callers;
	while (*at != caller)
		at = &(*at)->next;
	*at = caller->next;
	lock_pool_release(&pool->lock);
}

uint32_t pool_find_caller(struct pool *pool, const char **call)
{
	uint32_t tid = 0;
	lock_pool_acquire(&pool->lock);
	if (pool->callers) {
		tid = pool->callers->tid;
		*call = pool->callers->call;
	}
	for (int i = 0; tid == 0 && i < POOL_STREAMS; i++)
		if (pool->launch_streams[i].users > 0) {
			tid = pool->launch_streams[i].user_tid;
			*call = "a call that enqueues work on a stream";
		}
	lock_pool_release(&pool->lock);
	return tid;
}
