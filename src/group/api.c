/* SPDX-License-Identifier: BSD-3-Clause
 * The public calls on groups: each checks its arguments, fills one operation and submits it. The call
 * site is the return address of the public function, so these must stay functions of their own. */
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "base/messages.h"
#include "group_private.h"

#define HERE __builtin_return_address(0)

static const uint8_t dtype_bytes[] = {
	[LS_UINT8] = 1, [LS_INT32] = 4, [LS_INT64] = 8, [LS_FLOAT32] = 4, [LS_FLOAT64] = 8};

size_t ls_dtype_bytes(ls_dtype dtype)
{
	return (unsigned)dtype < sizeof dtype_bytes ? dtype_bytes[dtype] : 0;
}

int ls_group_rank(const ls_group *group)
{
	return group ? group->rank : -1;
}

int ls_group_size(const ls_group *group)
{
	return group ? group->size : -1;
}

/* Says which argument of which call is wrong, and what would be right. */
ls_status group_bad(const char *call, const char *argument, long long value, const char *right)
{
	MESSAGE_SAY(MESSAGE_GROUP_ARGUMENT, call, argument, value, right);
	return LS_BAD_ARGUMENT;
}

/* The caller's options over the defaults. A struct of another size is from an older or newer header:
 * what it lacks has its default, and what this library does not know must not be asked for. */
static ls_status read_options(const char *call, const struct ls_op_options *options,
			      struct ls_op_options *out)
{
	*out = (struct ls_op_options){.size = sizeof *out};
	if (!options)
		return LS_OK;
	if (options->size < sizeof options->size || options->size > sizeof *out)
		return group_bad(call, "options->size", options->size,
				 "sizeof(struct ls_op_options)");
	memcpy(out, options, options->size);
	if (out->tag < 0)
		return group_bad(call, "options->tag", out->tag, "0 to 2147483647");
	if (out->stream)
		return group_bad(call, "options->stream", 1, "NULL: only host memory is supported");
	return LS_OK;
}

static ls_status check_data(const char *call, struct engine_op *op)
{
	size_t element = ls_dtype_bytes(op->dtype);
	if (!element)
		return group_bad(call, "dtype", op->dtype, "one of enum ls_dtype");
	if (op->count > INT64_MAX / element)
		return group_bad(call, "count", (long long)op->count, "below 2^63 bytes in all");
	op->bytes = op->count * element;
	return LS_OK;
}

static ls_status check_peer(const char *call, const char *name, const ls_group *group, int peer)
{
	char right[48];
	if (peer >= 0 && peer < group->size)
		return LS_OK;
	snprintf(right, sizeof right, "a rank of this group, 0 to %d", group->size - 1);
	return group_bad(call, name, peer, right);
}

static bool overlap(const void *a, const void *b, uint64_t bytes)
{
	uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
	return x != y && bytes > 0 && (x < y ? y - x : x - y) < bytes;
}

static ls_status check_group(const char *call, const ls_group *group)
{
	if (!group)
		return group_bad(call, "group", 0, "a group from ls_group_open");
	return group_usable(group);
}

ls_status ls_allreduce(ls_group *group, const void *send, void *recv, uint64_t count,
		       ls_dtype dtype, ls_reduce_op reduce, const struct ls_op_options *options)
{
	const char *call = "ls_allreduce";
	struct engine_op op = {.kind = TRACE_ALLREDUCE,
			       .dtype = dtype,
			       .reduce = reduce,
			       .peer = -1,
			       .send = send,
			       .recv = recv,
			       .count = count};
	struct ls_op_options all;
	ls_status status = check_group(call, group);
	if (status == LS_OK)
		status = read_options(call, options, &all);
	if (status == LS_OK)
		status = check_data(call, &op);
	if (status != LS_OK)
		return status;
	if ((unsigned)reduce > LS_PRODUCT)
		return group_bad(call, "op", reduce, "one of enum ls_reduce_op");
	if (count > 0 && (!send || !recv))
		return group_bad(call, send ? "recv" : "send", 0, "a buffer");
	if (overlap(send, recv, op.bytes))
		return group_bad(call, "recv", (long long)(intptr_t)recv,
				 "send itself, or apart from it");
	return group_submit(group, &op, &all, HERE);
}

ls_status ls_broadcast(ls_group *group, const void *send, void *recv, uint64_t count,
		       ls_dtype dtype, int root, const struct ls_op_options *options)
{
	const char *call = "ls_broadcast";
	struct engine_op op = {.kind = TRACE_BROADCAST,
			       .dtype = dtype,
			       .peer = root,
			       .send = send,
			       .recv = recv,
			       .count = count};
	struct ls_op_options all;
	ls_status status = check_group(call, group);
	if (status == LS_OK)
		status = read_options(call, options, &all);
	if (status == LS_OK)
		status = check_data(call, &op);
	if (status == LS_OK)
		status = check_peer(call, "root", group, root);
	if (status != LS_OK)
		return status;
	if (count > 0 && !recv)
		return group_bad(call, "recv", 0, "a buffer");
	if (group->rank == root && count > 0 && !send)
		return group_bad(call, "send", 0, "a buffer on the root");
	if (group->rank == root && overlap(send, recv, op.bytes))
		return group_bad(call, "recv", (long long)(intptr_t)recv,
				 "send itself, or apart from it");
	return group_submit(group, &op, &all, HERE);
}

ls_status ls_barrier(ls_group *group, const struct ls_op_options *options)
{
	struct engine_op op = {.kind = TRACE_BARRIER, .dtype = LS_UINT8, .peer = -1};
	struct ls_op_options all;
	ls_status status = check_group("ls_barrier", group);
	if (status == LS_OK)
		status = read_options("ls_barrier", options, &all);
	return status == LS_OK ? group_submit(group, &op, &all, HERE) : status;
}

static ls_status check_point(const char *call, ls_group *group, struct engine_op *op,
			     const void *buffer, const struct ls_op_options *options,
			     struct ls_op_options *all)
{
	ls_status status = check_group(call, group);
	if (status == LS_OK)
		status = read_options(call, options, all);
	if (status == LS_OK)
		status = check_data(call, op);
	if (status == LS_OK)
		status = check_peer(call, op->kind == TRACE_SEND ? "dst" : "src", group, op->peer);
	if (status == LS_OK && op->count > 0 && !buffer)
		status = group_bad(call, "buffer", 0, "a buffer");
	if (status == LS_OK)
		op->tag = all->tag;
	return status;
}

ls_status ls_send(ls_group *group, const void *buffer, uint64_t count, ls_dtype dtype, int dst,
		  const struct ls_op_options *options)
{
	struct engine_op op = {
		.kind = TRACE_SEND, .dtype = dtype, .peer = dst, .send = buffer, .count = count};
	struct ls_op_options all;
	ls_status status = check_point("ls_send", group, &op, buffer, options, &all);
	return status == LS_OK ? group_submit(group, &op, &all, HERE) : status;
}

ls_status ls_recv(ls_group *group, void *buffer, uint64_t count, ls_dtype dtype, int src,
		  const struct ls_op_options *options)
{
	struct engine_op op = {
		.kind = TRACE_RECV, .dtype = dtype, .peer = src, .recv = buffer, .count = count};
	struct ls_op_options all;
	ls_status status = check_point("ls_recv", group, &op, buffer, options, &all);
	return status == LS_OK ? group_submit(group, &op, &all, HERE) : status;
}

ls_status ls_group_abort(ls_group *group, const char *reason)
{
	if (!group)
		return group_bad("ls_group_abort", "group", 0, "a group from ls_group_open");
	if (group->world->fork_generation != fork_generation())
		return LS_FORKED;
	struct diagnose_hint hint = {.status = LS_ABORTED,
				     .rank = group->rank,
				     .peer = -1,
				     .group = group->id,
				     .seq = atomic_load(&group->entry->entered),
				     .note = reason};
	group_cause_abort(group->world, &hint);
	return LS_OK;
}

ls_status ls_group_failure(ls_group *group, struct ls_failure *out)
{
	struct ls_failure failure = {0};
	if (!group || !out || out->size < 8 || out->size > sizeof failure)
		return group_bad("ls_group_failure", group ? "out->size" : "group",
				 out ? out->size : 0, "sizeof(struct ls_failure)");
	if (group->world->fork_generation != fork_generation())
		return LS_FORKED;
	failure.size = out->size;
	group_cause_read(group->world, &failure);
	memcpy(out, &failure, failure.size);
	return LS_OK;
}

ls_status ls_alloc(ls_group *group, size_t bytes, void **out)
{
	if (out)
		*out = NULL;
	if (!group || !out)
		return group_bad("ls_alloc", group ? "out" : "group", 0, "not NULL");
	if (group->world->fork_generation != fork_generation())
		return LS_FORKED;
	return memory_alloc(&group->world->memory, bytes, out);
}

ls_status ls_free(ls_group *group, void *block)
{
	if (!block)
		return LS_OK;
	if (!group)
		return group_bad("ls_free", "group", 0, "not NULL");
	if (group->world->fork_generation != fork_generation())
		return LS_OK;
	return memory_free(&group->world->memory, block);
}
