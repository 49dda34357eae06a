/* SPDX-License-Identifier: BSD-3-Clause
 * Checks the arguments and options of sends, receives and probes. */
#include "group/p2p_check.h"

#include <stdio.h>
#include <string.h>

#include "group/group_private.h"
#include "group/arguments.h"

static ls_status check_peer(const struct group_p2p_call *call, const ls_group *group,
			    const struct ls_call_options *options)
{
	const char *name = group_caller(call->name, options);
	char right[80];
	if (call->base.kind == TRACE_SEND)
		return group_check_rank(name, "dst", group, call->base.peer);
	if (call->base.peer == LS_ANY_SOURCE ||
	    (call->base.peer >= 0 && call->base.peer < group->size))
		return LS_OK;
	snprintf(right, sizeof right, "a rank of this group, 0 to %d, or LS_ANY_SOURCE (%d)",
		 group->size - 1, LS_ANY_SOURCE);
	return group_bad(name, "src", call->base.peer, right);
}

/* LS_ANY_TAG is only for receives and probes. */
ls_status group_p2p_begin(const struct group_p2p_call *call, ls_group *group,
			  const struct ls_call_options *given, struct ls_call_options *options)
{
	struct ls_call_options some;
	bool any = call->base.kind != TRACE_SEND && given &&
		   given->size >= offsetof(struct ls_call_options, resumable) &&
		   given->size <= sizeof some && given->tag == LS_ANY_TAG;
	if (any) {
		memset(&some, 0, sizeof some);
		memcpy(&some, given, given->size);
		some.tag = 0;
		given = &some;
	}
	ls_status status = group_begin_streamable(call->name, group, given, options);
	if (any)
		options->tag = LS_ANY_TAG;
	return status;
}

ls_status group_p2p_check(const struct group_p2p_call *call, const ls_group *group,
			  const struct ls_call_options *options)
{
	const struct op_call *op_call = &call->base;
	const struct buffer *buffer = op_call->kind == TRACE_SEND ? &op_call->send : &op_call->recv;
	const struct ls_message *message = options->message;
	const char *name = group_caller(call->name, options);
	/* The size does not overflow, and the dtype is valid. */
	bool sound = op_call->count <= UINT32_MAX && buffer->bytes > 0;
	ls_status status = sound ? LS_OK : group_check_count(name, op_call->dtype, op_call->count);
	if (status == LS_OK)
		status = check_peer(call, group, options);
	if (status == LS_OK && op_call->count > 0 && !buffer->address && !call->block)
		status = group_bad_state(name, "buffer", "NULL", "a buffer");
	if (status == LS_OK && message && op_call->kind == TRACE_SEND)
		status = group_bad_state(name, "options->message", "set", "NULL for a send");
	if (status == LS_OK && message && message->size < sizeof message->size)
		status = group_bad(name, "options->message->size", message->size,
				   "sizeof(struct ls_message)");
	return status;
}

bool group_p2p_is_serial(const ls_group *group, const struct group_p2p_call *call)
{
	return group->world->p2p.serial && call->base.kind == TRACE_SEND;
}

bool group_p2p_is_ordered(const ls_group *group, const struct group_p2p_call *call)
{
	return group_p2p_is_serial(group, call) && !call->internal;
}

/* A send that outlives its call would need a place in the queue while the device fetches its
 * payload, and no thread waits for that device. */
ls_status group_p2p_check_nonblocking(ls_group *group, const struct group_p2p_call *call,
				      const struct ls_call_options *options)
{
	if (options->stream || !group_is_on_device(group, &call->base))
		return LS_OK;
	const struct op_call *op_call = &call->base;
	const struct buffer *buffer = op_call->kind == TRACE_SEND ? &op_call->send : &op_call->recv;
	return group_bad(call->name, "buffer", (long long)(uintptr_t)buffer->address,
			 group_p2p_is_ordered(group, call)
				 ? "host memory with LOCKSTEP_P2P=serial"
				 : "host memory, or a stream in options->stream: without it only "
				   "ls_send and ls_recv outside of a batch, and without a handle or "
				   "a callback, take a device's");
}

/* Which calls may run on a stream. */
ls_status group_p2p_check_stream(ls_group *group, const struct group_p2p_call *call,
				 const struct ls_call_options *options)
{
	const char *wrong = call->hands_over_block || call->block ? "NULL for blocks"
			    : group_p2p_is_ordered(group, call)   ? "NULL with LOCKSTEP_P2P=serial"
								  : NULL;
	if (!options->stream || !wrong)
		return LS_OK;
	return group_bad_state(group_caller(call->name, options), "options->stream", "set", wrong);
}

ls_status group_p2p_check_probe(const struct group_p2p_call *call, ls_group *group,
				const struct ls_call_options *given,
				struct ls_call_options *options, const struct ls_message *out)
{
	ls_status status = group_p2p_begin(call, group, given, options);
	if (status == LS_OK && options->stream)
		status = group_bad_state(group_caller(call->name, options), "options->stream",
					 "set", "NULL: this call runs on no stream");
	if (status == LS_OK)
		status = check_peer(call, group, options);
	if (status == LS_OK && (!out || out->size < sizeof out->size))
		status = group_bad(call->name, out ? "out->size" : "out", out ? out->size : 0,
				   "sizeof(struct ls_message)");
	return status;
}
