/* SPDX-License-Identifier: BSD-3-Clause
 * The public calls on messages. The call site is the return address of the public function, so these
 * must stay functions of their own. */
#include "group_private.h"

#define HERE __builtin_return_address(0)

static void number(ls_group *group, struct engine_op *op)
{
	_Atomic uint64_t *counter = op->call.kind == TRACE_SEND ? &group->sends[op->call.peer]
								: &group->receives[op->call.peer];
	op->seq = atomic_fetch_add_explicit(counter, 1, memory_order_relaxed) + 1;
}

static ls_status check(const char *call, const ls_group *group, const struct engine_call *engine,
		       const void *buffer, const struct ls_op_options *options)
{
	ls_status status = group_check_count(call, engine->dtype, engine->count);
	if (status == LS_OK)
		status = group_check_rank(call, engine->kind == TRACE_SEND ? "dst" : "src", group,
					  engine->peer);
	if (status == LS_OK && engine->count > 0 && !buffer)
		status = group_bad(call, "buffer", 0, "a buffer");
	if (status == LS_OK && options->op)
		status = group_bad(call, "options->op", 1, "NULL: messages block so far");
	if (status == LS_OK && options->callback)
		status = group_bad(call, "options->callback", 1, "NULL: messages block so far");
	return status;
}

static ls_status run(const char *call, ls_group *group, struct engine_call *engine,
		     const void *buffer, const struct ls_op_options *given, const void *site)
{
	struct ls_op_options options;
	struct engine_room room;
	struct ls_op op;
	ls_status status = group_begin(call, group, given, &options);
	if (status == LS_OK)
		status = check(call, group, engine, buffer, &options);
	if (status != LS_OK)
		return status;
	struct waiter *waiter = &group->world->waiter;
	wait_thread_enter(waiter);
	engine->tag = options.tag;
	group_op_prepare(&op, group, engine);
	number(group, &op.engine);
	group_op_open(&op, &options, site);
	group_op_run(&op, &room, waiter, CLOCK_NEVER, &status);
	return status;
}

ls_status ls_send(ls_group *group, const void *buffer, uint64_t count, ls_dtype dtype, int dst,
		  const struct ls_op_options *options)
{
	struct engine_call engine = {
		.kind = TRACE_SEND, .dtype = dtype, .peer = dst, .send = buffer, .count = count};
	return run("ls_send", group, &engine, buffer, options, HERE);
}

ls_status ls_recv(ls_group *group, void *buffer, uint64_t count, ls_dtype dtype, int src,
		  const struct ls_op_options *options)
{
	struct engine_call engine = {
		.kind = TRACE_RECV, .dtype = dtype, .peer = src, .recv = buffer, .count = count};
	return run("ls_recv", group, &engine, buffer, options, HERE);
}
