/* SPDX-License-Identifier: BSD-3-Clause
 * The public calls on messages. The call site is the return address of the public function, so each
 * of these must stay a function. */
#include <string.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "world/registry.h"
#include "progress/progress.h"
#include "pool/launch.h"
#include "p2p/p2p.h"
#include "group/group_private.h"
#include "group/arguments.h"
#include "group/group.h"
#include "group/p2p_check.h"
#include "group/p2p_short.h"

/* ---- the two ways ---- */

/* False: the call needs an operation. asked: the caller wants a handle. group_may_try_short has the
 * same reasons for a call that has not been checked: a new option belongs into both. */
static bool may_be_short(ls_group *group, const struct group_p2p_call *call,
			 const struct ls_call_options *options, bool blocks, bool asked,
			 struct p2p_short *out)
{
	const struct op_call *op_call = &call->base;
	bool sends = op_call->kind == TRACE_SEND;
	*out = (struct p2p_short){.group = group,
				  .call = {.peer = op_call->peer,
					   .tag = op_call->tag,
					   .dtype = op_call->dtype,
					   .is_blocking = blocks || (options->resumable && sends),
					   .count = op_call->count,
					   .bytes = op_call->send.bytes + op_call->recv.bytes,
					   .send = op_call->send.address,
					   .recv = op_call->recv.address},
				  .label = options->label,
				  .site = call->site,
				  .message = options->message};
	if (asked && !options->resumable)
		out->handle = sends ? &group->short_send : &group->short_recv;
	return out->call.bytes <= MAIL_EAGER_BYTES && op_call->peer >= 0 &&
	       !call->hands_over_block && !call->internal && !call->block && !options->callback &&
	       !group_p2p_is_serial(group, call) && !options->stream &&
	       !group_is_on_device(group, &call->base);
}

/* message: NULL if the call cannot take the short path. */
static ls_status run_blocking(ls_group *group, const struct group_p2p_call *call,
			      const struct ls_call_options *options, const struct p2p_short *message)
{
	struct op_workspace workspace;
	struct ls_request op;
	ls_status status;
	struct waiter *waiter = &group->waiter;
	progress_op_prepare(&op, group, &call->base);
	op.base.seq = mailbox_number(group->mailbox, call->base.kind, call->base.peer);
	op.base.p2p.hands_over_block = call->hands_over_block;
	op.base.p2p.receives_block = call->block != NULL;
	op.base.p2p.crossed = false; /* the operation may fail before it begins */
	op.message = options->message;
	op.block = call->block;
	progress_op_record(&op, options, call->site);
	if (message && call->base.kind == TRACE_RECV && p2p_short_await(message, op.base.record)) {
		p2p_collect(group);
		return LS_OK;
	}
	progress_op_run(&op, &workspace, waiter, &progress_no_pause, &status);
	if (status == LS_OK)
		p2p_deliver(&op);
	/* The call may have taken in messages for other operations. */
	p2p_collect(group);
	if (op.base.p2p.crossed)
		p2p_warn_crossed(group, op.base.call.tag, op.base.record, call->site);
	return status;
}

/* Launches an operation that has begun. After an error its group has failed, and the thread that
 * makes progress ends the operation. */
static ls_status launch_on_stream(struct ls_request *op)
{
	struct pool_launch launch;
	ls_status claimed = progress_stream_claim(op, &launch);
	ls_status status = progress_stream_launch(op, claimed, &launch);
	group_launch_note(status);
	if (status != LS_OK)
		p2p_arm(op->group->world, true);
	return status;
}

/* Begins an operation whose record has begun, and launches it if it is on a stream.
 * After an error it has not begun, and is back in the pool; or its launch has failed. */
static ls_status start_nonblocking(struct ls_request *op, struct ls_request *batch, ls_request **out)
{
	bool on_stream = op->on_stream;
	if (batch)
		group_batch_join(batch, op);
	if (on_stream)
		progress_op_ref(op);
	if (out)
		*out = op; /* before the callback, which may free it */
	ls_status status = p2p_start(op);
	if (status != LS_OK) {
		if (out)
			*out = NULL;
		trace_end(&op->group->world->trace, op->base.record, status);
		if (batch)
			group_batch_unjoin(batch, op, status);
		if (on_stream)
			progress_op_unref(op);
		progress_stream_discard(op);
		progress_op_drop(op, out != NULL);
		return status;
	}
	if (on_stream) {
		status = launch_on_stream(op);
		if (status != LS_OK)
			group_op_withdraw(out);
		progress_op_unref(op);
	}
	return status;
}

static ls_status run_nonblocking(ls_group *group, struct group_p2p_call *call,
				 const struct ls_call_options *options, struct ls_request *batch,
				 ls_request **out)
{
	ls_status status = group_p2p_check_nonblocking(group, call, options);
	if (status != LS_OK)
		return status;
	struct ls_request *op = progress_op_new(group, out != NULL);
	if (!op)
		return LS_OUT_OF_MEMORY;
	op->base.call = call->base;
	op->access = call->access; /* the operation ends the access */
	call->access = 0;
	op->base.seq = mailbox_number(group->mailbox, call->base.kind, call->base.peer);
	op->base.p2p.detached = true;
	op->base.p2p.hands_over_block = call->hands_over_block;
	op->base.p2p.receives_block = call->block != NULL;
	op->base.p2p.cancellable = call->internal;
	op->ordered = group_p2p_is_ordered(group, call);
	op->message = options->message;
	op->block = call->block;
	op->callback = options->callback;
	op->callback_data = options->callback_data;
	if (options->stream)
		status = progress_stream_prepare(group_caller(call->name, options), op,
						 options->stream);
	if (status != LS_OK) {
		progress_op_discard(op);
		return status;
	}
	op->base.p2p.ends_quietly =
		!op->callback && !options->stream && !batch && !op->ordered && !op->access;
	progress_op_record(op, options, call->site);
	return start_nonblocking(op, batch, out);
}

/* Whether the message is complete already. Then *out is the handle that all such messages share. */
static bool run_short(const struct p2p_short *message, bool sends, ls_request **out)
{
	bool complete = sends ? p2p_short_send(message) : p2p_short_receive(message, NULL);
	/* The call may have taken in messages for other operations. */
	p2p_collect(message->group);
	if (complete && out)
		*out = message->handle;
	return complete;
}

static ls_status run_checked(ls_group *group, struct group_p2p_call *call,
			     const struct ls_call_options *options, ls_request **out)
{
	struct ls_request *batch = out || options->callback ? NULL : group_batch_find(group);
	bool blocks = !out && !options->callback && !batch;
	struct p2p_short message;
	ls_status status;
	bool is_short = may_be_short(group, call, options, blocks, out != NULL, &message);
	if (is_short && run_short(&message, call->base.kind == TRACE_SEND, out))
		return LS_OK;
	if ((blocks && !options->stream) || options->resumable) {
		status = group_check_may_wait(group_caller(call->name, options));
		if (status != LS_OK)
			return status;
	}
	if (out || options->callback) {
		status = run_nonblocking(group, call, options, NULL, out);
		return status == LS_OK && options->resumable && out ? group_op_await(out) : status;
	}
	if (batch || options->stream)
		return run_nonblocking(group, call, options, batch, NULL);
	if (!group_p2p_is_ordered(group, call))
		return run_blocking(group, call, options, is_short ? &message : NULL);
	ls_request *op;
	status = run_nonblocking(group, call, options, NULL, &op);
	if (status != LS_OK)
		return status;
	do
		status = group_op_await(&op);
	while (op); /* a signal */
	return status;
}

static ls_status run_message(ls_group *group, struct group_p2p_call *call,
			     const struct ls_call_options *given, ls_request **out)
{
	struct ls_call_options options;
	ls_status status = group_p2p_begin(call, group, given, &options);
	if (status == LS_OK)
		status = group_p2p_check(call, group, &options);
	if (status == LS_OK)
		status = group_p2p_check_stream(group, call, &options);
	if (status != LS_OK)
		return status;
	call->base.tag = options.tag;
	wait_thread_enter(&group->waiter);
	status = group_races_begin(group, &call->base, &options, call->site, &call->access);
	if (status == LS_OK)
		status = run_checked(group, call, &options, out ? out : options.request);
	group_races_end(group, call->access);
	return status;
}

/* ---- sends and receives ---- */

/* Sets each field, for the reason that op_call_set has. */
static void fill_call(struct group_p2p_call *call, const char *name, enum trace_kind kind,
		      uint64_t count, ls_dtype dtype, int peer, const void *site)
{
	call->name = name;
	call->site = site;
	call->block = NULL;
	call->access = 0;
	call->hands_over_block = call->internal = false;
	op_call_set(&call->base, kind, count, dtype, LS_SUM, peer);
}

/* This and to_receive are not inlined: the short path of a public call needs the registers. */
__attribute__((noinline)) static void to_send(struct group_p2p_call *call, const char *name,
					      const void *buffer, uint64_t count, ls_dtype dtype,
					      int dst, const void *site)
{
	fill_call(call, name, TRACE_SEND, count, dtype, dst, site);
	call->base.send = buffer_host(buffer, count * ls_dtype_bytes(dtype));
}

__attribute__((noinline)) static void to_receive(struct group_p2p_call *call, const char *name,
						 void *buffer, uint64_t count, ls_dtype dtype,
						 int src, const void *site)
{
	fill_call(call, name, TRACE_RECV, count, dtype, src, site);
	call->base.recv = buffer_host(buffer, count * ls_dtype_bytes(dtype));
}

/* send or recv is NULL. The call's options are read later. */
static inline struct p2p_short to_short(ls_group *group, const void *send, void *recv,
					uint64_t count, ls_dtype dtype, int peer, bool is_blocking,
					const void *site)
{
	return (struct p2p_short){.group = group,
				  .call = {.peer = peer,
					   .dtype = dtype,
					   .is_blocking = is_blocking,
					   .count = count,
					   .send = send,
					   .recv = recv},
				  .site = site};
}

ls_status ls_send(ls_group *group, const void *buffer, uint64_t count, ls_dtype dtype, int dst,
		  const struct ls_call_options *options)
{
	struct p2p_short message =
		to_short(group, buffer, NULL, count, dtype, dst, true, GROUP_SITE);
	if (group_try_send_short(group, options, &message, NULL))
		return LS_OK;
	struct group_p2p_call call;
	to_send(&call, "ls_send", buffer, count, dtype, dst, GROUP_SITE);
	return run_message(group, &call, options, NULL);
}

ls_status ls_recv(ls_group *group, void *buffer, uint64_t count, ls_dtype dtype, int src,
		  const struct ls_call_options *options)
{
	struct p2p_short message =
		to_short(group, NULL, buffer, count, dtype, src, true, GROUP_SITE);
	if (group_try_receive_short(group, options, &message, NULL))
		return LS_OK;
	struct group_p2p_call call;
	to_receive(&call, "ls_recv", buffer, count, dtype, src, GROUP_SITE);
	return run_message(group, &call, options, NULL);
}

static ls_status check_handle(const char *call, const struct ls_call_options *options,
			      ls_request **request)
{
	if (!request)
		return group_bad_state(call, "request", "NULL", "not NULL");
	*request = NULL;
	if (options && options->size >= offsetof(struct ls_call_options, callback) &&
	    options->request)
		return group_bad_state(call, "options->request", "set",
				       "NULL: the handle goes to request");
	return LS_OK;
}

ls_status ls_isend(ls_group *group, const void *buffer, uint64_t count, ls_dtype dtype, int dst,
		   const struct ls_call_options *options, ls_request **request)
{
	struct p2p_short message =
		to_short(group, buffer, NULL, count, dtype, dst, false, GROUP_SITE);
	if (request && group_try_send_short(group, options, &message, request))
		return LS_OK;
	struct group_p2p_call call;
	to_send(&call, "ls_isend", buffer, count, dtype, dst, GROUP_SITE);
	ls_status status = check_handle(call.name, options, request);
	return status == LS_OK ? run_message(group, &call, options, request) : status;
}

ls_status group_isend(ls_group *group, const void *buffer, uint64_t bytes, int dst,
		      const struct ls_call_options *options, ls_request **request)
{
	struct group_p2p_call call;
	to_send(&call, "ls_isend", buffer, bytes, LS_UINT8, dst, GROUP_SITE);
	call.internal = true;
	ls_status status = check_handle(call.name, options, request);
	return status == LS_OK ? run_message(group, &call, options, request) : status;
}

ls_status ls_irecv(ls_group *group, void *buffer, uint64_t count, ls_dtype dtype, int src,
		   const struct ls_call_options *options, ls_request **request)
{
	struct p2p_short message =
		to_short(group, NULL, buffer, count, dtype, src, false, GROUP_SITE);
	if (request && group_try_receive_short(group, options, &message, request))
		return LS_OK;
	struct group_p2p_call call;
	to_receive(&call, "ls_irecv", buffer, count, dtype, src, GROUP_SITE);
	ls_status status = check_handle(call.name, options, request);
	return status == LS_OK ? run_message(group, &call, options, request) : status;
}

/* ---- blocks ---- */

ls_status ls_send_block(ls_group *group, void *block, uint64_t count, ls_dtype dtype, int dst,
			const struct ls_call_options *options)
{
	struct group_p2p_call call;
	to_send(&call, "ls_send_block", block, count, dtype, dst, GROUP_SITE);
	call.hands_over_block = true;
	ls_status status = group_check(call.name, group);
	if (status != LS_OK)
		return status;
	struct memory *memory = &group->world->memory;
	uint64_t bytes = count * ls_dtype_bytes(dtype);
	if (!memory_has_block(memory, block, bytes))
		return group_bad(call.name, "block", (long long)(uintptr_t)block,
				 "a block of ls_alloc that is as long as the message");
	status = group_races_hand_over(group, block, GROUP_SITE);
	if (status != LS_OK)
		return status;
	status = run_message(group, &call, options, NULL);
	/* Another thread may post the message as this call gives up: then it is sent. */
	bool is_sent =
		status != LS_OK && status != LS_PENDING && !memory_has_block(memory, block, bytes);
	return is_sent ? LS_OK : status;
}

ls_status ls_recv_block(ls_group *group, void **block, uint64_t count, ls_dtype dtype, int src,
			const struct ls_call_options *options)
{
	struct group_p2p_call call;
	to_receive(&call, "ls_recv_block", NULL, count, dtype, src, GROUP_SITE);
	call.block = block;
	if (!block)
		return group_bad_state(call.name, "block", "NULL", "not NULL");
	*block = NULL;
	return run_message(group, &call, options, NULL);
}

/* ---- probes ---- */

ls_status ls_iprobe(ls_group *group, int src, const struct ls_call_options *given,
		    struct ls_message *out)
{
	struct group_p2p_call call = {
		.name = "ls_iprobe", .base = {.kind = TRACE_PROBE, .peer = src}, .site = GROUP_SITE};
	struct ls_call_options options;
	struct mail_message met;
	struct wait_word words[RANKS_WORLD_MAX];
	int count;
	ls_status status = group_p2p_check_probe(&call, group, given, &options, out);
	if (status != LS_OK)
		return status;
	wait_thread_enter(&group->waiter);
	enum op_progress progress =
		mailbox_probe(group->mailbox, src, options.tag, &met, words, &count);
	p2p_collect(group);
	if (progress != OP_DONE) {
		struct ranks room;
		const struct ranks *gone = world_gone(group, &room);
		call.base.tag = options.tag;
		if (gone)
			return p2p_probe_gone(group, &call.base, gone, &options, call.site);
		return count == 0 ? LS_OUT_OF_MEMORY : LS_PENDING; /* as in ls_probe */
	}
	p2p_fill_message(out, &met);
	return LS_OK;
}

ls_status ls_probe(ls_group *group, int src, const struct ls_call_options *given,
		   struct ls_message *out)
{
	struct group_p2p_call call = {
		.name = "ls_probe", .base = {.kind = TRACE_PROBE, .peer = src}, .site = GROUP_SITE};
	struct ls_call_options options;
	struct op_workspace workspace;
	struct ls_request op;
	ls_status status = group_p2p_check_probe(&call, group, given, &options, out);
	if (status != LS_OK)
		return status;
	status = group_check_may_wait(group_caller(call.name, &options));
	if (status != LS_OK)
		return status;
	struct waiter *waiter = &group->waiter;
	wait_thread_enter(waiter);
	call.base.tag = options.tag;
	progress_op_prepare(&op, group, &call.base);
	op.base.seq = 0;
	progress_op_record(&op, &options, call.site);
	progress_op_run(&op, &workspace, waiter, &progress_no_pause, &status);
	p2p_collect(group);
	if (status == LS_OK)
		p2p_fill_message(out, &op.base.p2p.message);
	return status;
}
