/* SPDX-License-Identifier: BSD-3-Clause
 * The public calls of collectives. Each fills in its operation. The rest is shared: run_collective
 * checks the arguments, and runs the operation by the short path, or queues it. The call site is
 * the return address of the public function, so each of these must stay a function. */
#include "progress/inline_call.h"
#include "progress/lane.h"
#include "progress/progress.h"
#include "pool/launch.h"
#include "group/group_private.h"
#include "group/arguments.h"
#include "group/group.h"

/* A blocking ls_*_many call has at most this many buffers under way at once. */
enum { MANY_AT_ONCE = 1024 };

/* Makes an operation that is ready to be queued, and starts the progress thread if need be. */
static ls_status make_op(ls_group *group, const struct op_call *call,
			 const struct ls_call_options *options, const void *site,
			 struct ls_request **out)
{
	struct ls_request *op = progress_op_new(group, options->request != NULL);
	if (!op)
		return LS_OUT_OF_MEMORY;
	op->base.call = *call;
	ls_status status =
		group_keep_counts(op) ? progress_thread_start(group->world) : LS_OUT_OF_MEMORY;
	if (status == LS_OK)
		status = group_races_begin(group, call, options, site, &op->access);
	if (status != LS_OK)
		progress_op_discard(op);
	else
		*out = op;
	return status;
}

/* The last part of queue_collective for a collective on a stream. The operation is queued before it
 * is enqueued on the stream, so that reports show it while the driver blocks. It is queued even if
 * the launch cannot be claimed: peers wait for this collective, so the group must fail. */
static ls_status queue_on_stream(struct ls_request *op, const struct ls_call_options *options,
				 const void *site, struct ls_request **held)
{
	const char *name = trace_kind_name(op->base.call.kind);
	ls_status status = progress_stream_prepare(group_caller(name, options), op, options->stream);
	if (status != LS_OK) {
		progress_stream_discard(op);
		progress_op_discard(op);
		return status;
	}
	struct pool_launch launch;
	progress_op_limit(op, options);
	ls_status claimed = progress_stream_claim(op, &launch);
	progress_op_ref(op);
	if (options->request)
		*options->request = op; /* before the callback, which may free it */
	progress_lane_enqueue(op, options, site);
	progress_thread_wake(op->group); /* the launch may need the progress thread */
	status = progress_stream_launch(op, claimed, &launch);
	group_launch_note(status);
	if (status != LS_OK)
		group_op_withdraw(options->request);
	if (status == LS_OK && held)
		*held = op;
	else
		progress_op_unref(op);
	return status;
}

/* A nonblocking collective. held: NULL, or where to store the operation, with a reference that the
 * caller drops: the operation may be complete when this returns, and the callback may have freed
 * its handle. */
static ls_status queue_collective(ls_group *group, const struct op_call *call,
				  const struct ls_call_options *options, const void *site,
				  bool wake, struct ls_request **held)
{
	struct ls_request *op;
	ls_status status = make_op(group, call, options, site, &op);
	if (status != LS_OK)
		return status;
	op->callback = options->callback;
	op->callback_data = options->callback_data;
	if (options->stream)
		return queue_on_stream(op, options, site, held);
	if (held) {
		progress_op_ref(op);
		*held = op;
	}
	if (options->request)
		*options->request = op; /* before the callback, which may free it */
	progress_lane_start(op, options, site, wake);
	return LS_OK;
}

/* A blocking call that returns a handle if its wait ends before the operation. */
static ls_status call_resumable(ls_group *group, const struct op_call *call,
				const struct ls_call_options *options, const void *site)
{
	struct ls_request *op;
	ls_status status = make_op(group, call, options, site, &op);
	if (status != LS_OK)
		return status;
	struct progress_pause pause = progress_op_pause(op, 0);
	status = progress_lane_run_blocking(op, options, site, &pause);
	if (status == LS_PENDING) {
		*options->request = op;
		return status;
	}
	group_races_end(group, op->access);
	progress_op_free_handle(op);
	return status;
}

static ls_status call_blocking(ls_group *group, const struct op_call *call,
			       const struct ls_call_options *options, const void *site)
{
	struct ls_request op;
	progress_op_prepare(&op, group, call);
	ls_status status = group_races_begin(group, call, options, site, &op.access);
	if (status != LS_OK)
		return status;
	status = progress_lane_run_blocking(&op, options, site, &progress_no_pause);
	group_races_end(group, op.access);
	return status;
}

/* A call with a handle or a callback. */
static ls_status call_nonblocking(ls_group *group, const struct op_call *call,
				  const struct ls_call_options *options, const void *site)
{
	if (options->request && options->resumable)
		return call_resumable(group, call, options, site);
	/* Between ls_launch_begin and ls_launch_end this thread may yet enqueue what the call waits
	 * for, so the call must not block. */
	bool launches = options->stream && group_launch_is_open();
	if (!group->world->settings.blocking || launches)
		return queue_collective(group, call, options, site, true, NULL);
	struct ls_request *op;
	bool reported = options->request || options->callback; /* these tell the caller */
	ls_status status = queue_collective(group, call, options, site, true, &op);
	if (status != LS_OK)
		return status;
	/* Meanwhile the callback may free the handle, and clear the caller's variable. */
	status = progress_lane_await(op, &progress_no_pause);
	atomic_store(&op->status_read, true);
	progress_op_unref(op);
	return reported ? LS_OK : status;
}

/* Whether the options are valid and make a blocking call: a label, a time limit, or a handle for a
 * call that a signal may interrupt. */
static bool is_plain_blocking(const struct ls_call_options *options)
{
	return options->size == sizeof *options && (!options->request || options->resumable == 1) &&
	       options->resumable <= 1 && !options->callback && !options->stream &&
	       options->tag >= 0;
}

/* A call that the short path does not take. Apart, so that the short path saves few registers. */
__attribute__((noinline)) static ls_status run_general(const char *function, ls_group *group,
						       struct op_call *call,
						       const struct ls_call_options *given,
						       const void *site)
{
	struct ls_call_options options;
	ls_status status = group_begin_collective(function, group, given, &options);
	if (status == LS_OK && call->kind != TRACE_BARRIER)
		status = group_prepare_collective(group_caller(function, &options), group, call);
	if (status != LS_OK)
		return status;
	wait_thread_enter(&group->waiter);
	call->factor = options.factor;
	if (options.request || options.callback || options.stream)
		return call_nonblocking(group, call, &options, site);
	return call_blocking(group, call, &options, site);
}

static ls_status run_collective(const char *function, ls_group *group, struct op_call *call,
				const struct ls_call_options *given, const void *site)
{
	static const struct ls_call_options none = {.size = sizeof none};
	ls_status status;
	/* A call on a closed group, or in a callback, takes the general path, which prints the
	 * message. */
	if ((!given || is_plain_blocking(given)) && group && world_is_usable(group) &&
	    !progress_calls_back() && group_prepare_short(group, call) &&
	    !group_needs_operation(group, call)) {
		status = group_check(function, group);
		if (given && given->request)
			*given->request = NULL;
		if (status != LS_OK)
			return status;
		wait_thread_enter(&group->waiter);
		if (progress_inline_call(group, call, given ? given : &none, site, &status))
			return status;
	}
	return run_general(function, group, call, given, site);
}

/* The operation on one buffer of a call with several buffers. */
static struct op_call one_of(const struct op_call *common, const struct ls_buffers *buffer)
{
	struct op_call call = *common;
	call.send = buffer_at(buffer->send);
	call.recv = buffer_at(buffer->recv);
	call.count = buffer->count;
	return call;
}

/* Checks each buffer. With LOCKSTEP_CHECK=1 also that nothing under way uses one of them. */
static ls_status check_many(const char *function, ls_group *group, const struct op_call *common,
			    const struct ls_buffers *buffers, int count,
			    const struct ls_call_options *options, const void *site)
{
	if (!buffers || count < 1)
		return group_bad(function, buffers ? "buffer_count" : "buffers",
				 buffers ? count : 0, "one buffer or more");
	ls_status status = LS_OK;
	for (int i = 0; status == LS_OK && i < count; i++) {
		struct op_call call = one_of(common, &buffers[i]);
		uint64_t access = 0;
		status = group_prepare_collective(function, group, &call);
		if (status == LS_OK)
			status = group_races_begin(group, &call, options, site, &access);
		group_races_end(group, access);
	}
	return status;
}

/* All collectives but the last are nonblocking and have no handle. The last one represents all,
 * because they run in order and none succeeds after one has failed. A blocking call waits now and
 * then, so that it never has many under way. */
static ls_status run_each(const char *function, ls_group *group, const struct op_call *common,
			  const struct ls_buffers *buffers, int count,
			  const struct ls_call_options *options, const void *site)
{
	bool blocks = !options->request && !options->callback && !options->stream;
	struct ls_call_options silent = *options;
	ls_status status = LS_OK;
	silent.request = NULL;
	silent.callback = NULL;
	for (int i = 0; status == LS_OK && i < count; i++) {
		struct op_call call = one_of(common, &buffers[i]);
		bool last = i == count - 1 || (blocks && i % MANY_AT_ONCE == MANY_AT_ONCE - 1);
		/* Drops buffers that this rank does not use. */
		status = group_prepare_collective(function, group, &call);
		if (status == LS_OK && !last)
			status = queue_collective(group, &call, &silent, site, false, NULL);
		else if (status == LS_OK && blocks)
			status = call_blocking(group, &call, options, site);
		else if (status == LS_OK)
			status = call_nonblocking(group, &call, options, site);
		if (i > 0 && (status == LS_OUT_OF_MEMORY || status == LS_BAD_ARGUMENT ||
			      (options->stream && status != LS_OK))) {
			/* Peers would wait for the rest, and could not tell it from the next call's
			 * collectives. */
			ls_status aborted =
				ls_group_abort(group, "not all operations of one call could begin");
			(void)aborted; /* in any case the group has failed */
		}
	}
	return status;
}

/* Checks all collectives before the first one begins. */
static ls_status run_many(const char *function, ls_group *group, struct op_call *common,
			  const struct ls_buffers *buffers, int count,
			  const struct ls_call_options *given, const void *site)
{
	struct ls_call_options options;
	ls_status status = group_begin_collective(function, group, given, &options);
	if (status != LS_OK)
		return status;
	function = group_caller(function, &options);
	wait_thread_enter(&group->waiter);
	status = check_many(function, group, common, buffers, count, &options, site);
	if (status != LS_OK)
		return status;
	if ((options.request || options.callback || options.stream) &&
	    count > WORLD_POOL_OPS * WORLD_POOL_BLOCKS)
		return group_bad(function, "buffer_count", count,
				 "at most 65536 in a call that does not block");
	common->factor = options.factor;
	status = run_each(function, group, common, buffers, count, &options, site);
	if (status != LS_OK)
		progress_thread_wake(group); /* collectives that were queued before continue */
	return status;
}

static inline void set_call(struct op_call *call, enum trace_kind kind, int root, const void *send,
			    void *recv, uint64_t count, ls_dtype dtype, ls_reduce_op op)
{
	op_call_set(call, kind, count, dtype, op, root);
	buffer_set(&call->send, send, 0);
	buffer_set(&call->recv, recv, 0);
}

ls_status group_allreduce(ls_group *group, const void *send, void *recv, uint64_t count,
			  ls_dtype dtype, ls_reduce_op op, const struct ls_call_options *options,
			  const void *site)
{
	struct op_call call;
	set_call(&call, TRACE_ALLREDUCE, -1, send, recv, count, dtype, op);
	return run_collective("ls_allreduce", group, &call, options, site);
}

ls_status ls_allreduce(ls_group *group, const void *send, void *recv, uint64_t count,
		       ls_dtype dtype, ls_reduce_op op, const struct ls_call_options *options)
{
	struct op_call call;
	set_call(&call, TRACE_ALLREDUCE, -1, send, recv, count, dtype, op);
	return run_collective("ls_allreduce", group, &call, options, GROUP_SITE);
}

ls_status ls_reduce(ls_group *group, const void *send, void *recv, uint64_t count, ls_dtype dtype,
		    ls_reduce_op op, int root, const struct ls_call_options *options)
{
	struct op_call call;
	set_call(&call, TRACE_REDUCE, root, send, recv, count, dtype, op);
	return run_collective("ls_reduce", group, &call, options, GROUP_SITE);
}

ls_status ls_broadcast(ls_group *group, const void *send, void *recv, uint64_t count,
		       ls_dtype dtype, int root, const struct ls_call_options *options)
{
	struct op_call call;
	set_call(&call, TRACE_BROADCAST, root, send, recv, count, dtype, LS_SUM);
	return run_collective("ls_broadcast", group, &call, options, GROUP_SITE);
}

ls_status group_allgather(ls_group *group, const void *send, void *recv, uint64_t count,
			  ls_dtype dtype, const struct ls_call_options *options, const void *site)
{
	struct op_call call;
	set_call(&call, TRACE_ALLGATHER, -1, send, recv, count, dtype, LS_SUM);
	return run_collective("ls_allgather", group, &call, options, site);
}

ls_status ls_allgather(ls_group *group, const void *send, void *recv, uint64_t count,
		       ls_dtype dtype, const struct ls_call_options *options)
{
	struct op_call call;
	set_call(&call, TRACE_ALLGATHER, -1, send, recv, count, dtype, LS_SUM);
	return run_collective("ls_allgather", group, &call, options, GROUP_SITE);
}

ls_status group_exchange(ls_group *group, enum trace_kind kind, const void *mine, void *all,
			 size_t bytes, const void *site)
{
	struct op_call call = {.kind = kind,
			       .dtype = LS_UINT8,
			       .peer = -1,
			       .send = buffer_host(mine, bytes),
			       .recv = buffer_host(all, bytes * (size_t)group->size),
			       .count = bytes};
	return run_collective("ls_group", group, &call, NULL, site);
}

ls_status ls_allgatherv(ls_group *group, const void *send, void *recv, const uint64_t *counts,
			ls_dtype dtype, const struct ls_call_options *options)
{
	struct op_call call = {.kind = TRACE_ALLGATHERV,
			       .dtype = dtype,
			       .peer = -1,
			       .send = buffer_at(send),
			       .recv = buffer_at(recv),
			       .counts = counts};
	return run_collective("ls_allgatherv", group, &call, options, GROUP_SITE);
}

ls_status ls_gather(ls_group *group, const void *send, void *recv, uint64_t count, ls_dtype dtype,
		    int root, const struct ls_call_options *options)
{
	struct op_call call;
	set_call(&call, TRACE_GATHER, root, send, recv, count, dtype, LS_SUM);
	return run_collective("ls_gather", group, &call, options, GROUP_SITE);
}

ls_status ls_gatherv(ls_group *group, const void *send, void *recv, const uint64_t *counts,
		     ls_dtype dtype, int root, const struct ls_call_options *options)
{
	struct op_call call = {.kind = TRACE_GATHERV,
			       .dtype = dtype,
			       .peer = root,
			       .send = buffer_at(send),
			       .recv = buffer_at(recv),
			       .counts = counts};
	return run_collective("ls_gatherv", group, &call, options, GROUP_SITE);
}

ls_status ls_scatter(ls_group *group, const void *send, void *recv, uint64_t count, ls_dtype dtype,
		     int root, const struct ls_call_options *options)
{
	struct op_call call;
	set_call(&call, TRACE_SCATTER, root, send, recv, count, dtype, LS_SUM);
	return run_collective("ls_scatter", group, &call, options, GROUP_SITE);
}

ls_status ls_scatterv(ls_group *group, const void *send, void *recv, const uint64_t *counts,
		      ls_dtype dtype, int root, const struct ls_call_options *options)
{
	struct op_call call = {.kind = TRACE_SCATTERV,
			       .dtype = dtype,
			       .peer = root,
			       .send = buffer_at(send),
			       .recv = buffer_at(recv),
			       .counts = counts};
	return run_collective("ls_scatterv", group, &call, options, GROUP_SITE);
}

ls_status ls_reduce_scatter(ls_group *group, const void *send, void *recv, uint64_t count,
			    ls_dtype dtype, ls_reduce_op op, const struct ls_call_options *options)
{
	struct op_call call;
	set_call(&call, TRACE_REDUCE_SCATTER, -1, send, recv, count, dtype, op);
	return run_collective("ls_reduce_scatter", group, &call, options, GROUP_SITE);
}

ls_status ls_reduce_scatterv(ls_group *group, const void *send, void *recv, const uint64_t *counts,
			     ls_dtype dtype, ls_reduce_op op, const struct ls_call_options *options)
{
	struct op_call call = {.kind = TRACE_REDUCE_SCATTERV,
			       .dtype = dtype,
			       .reduce = op,
			       .peer = -1,
			       .send = buffer_at(send),
			       .recv = buffer_at(recv),
			       .counts = counts};
	return run_collective("ls_reduce_scatterv", group, &call, options, GROUP_SITE);
}

ls_status ls_alltoall(ls_group *group, const void *send, void *recv, uint64_t count, ls_dtype dtype,
		      const struct ls_call_options *options)
{
	struct op_call call;
	set_call(&call, TRACE_ALLTOALL, -1, send, recv, count, dtype, LS_SUM);
	return run_collective("ls_alltoall", group, &call, options, GROUP_SITE);
}

ls_status ls_alltoallv(ls_group *group, const void *send, const uint64_t *send_counts, void *recv,
		       const uint64_t *recv_counts, ls_dtype dtype,
		       const struct ls_call_options *options)
{
	struct op_call call = {.kind = TRACE_ALLTOALLV,
			       .dtype = dtype,
			       .peer = -1,
			       .send = buffer_at(send),
			       .recv = buffer_at(recv),
			       .counts = send_counts,
			       .recv_counts = recv_counts};
	return run_collective("ls_alltoallv", group, &call, options, GROUP_SITE);
}

ls_status ls_barrier(ls_group *group, const struct ls_call_options *options)
{
	struct op_call call;
	set_call(&call, TRACE_BARRIER, -1, NULL, NULL, 0, LS_UINT8, LS_SUM);
	return run_collective("ls_barrier", group, &call, options, GROUP_SITE);
}

ls_status ls_allreduce_many(ls_group *group, const struct ls_buffers *buffers, int buffer_count,
			    ls_dtype dtype, ls_reduce_op op, const struct ls_call_options *options)
{
	struct op_call call = {.kind = TRACE_ALLREDUCE, .dtype = dtype, .reduce = op, .peer = -1};
	return run_many("ls_allreduce_many", group, &call, buffers, buffer_count, options,
			GROUP_SITE);
}

ls_status ls_broadcast_many(ls_group *group, const struct ls_buffers *buffers, int buffer_count,
			    ls_dtype dtype, int root, const struct ls_call_options *options)
{
	struct op_call call = {.kind = TRACE_BROADCAST, .dtype = dtype, .peer = root};
	return run_many("ls_broadcast_many", group, &call, buffers, buffer_count, options,
			GROUP_SITE);
}

ls_status ls_allgather_many(ls_group *group, const struct ls_buffers *buffers, int buffer_count,
			    ls_dtype dtype, const struct ls_call_options *options)
{
	struct op_call call = {.kind = TRACE_ALLGATHER, .dtype = dtype, .peer = -1};
	return run_many("ls_allgather_many", group, &call, buffers, buffer_count, options,
			GROUP_SITE);
}

ls_status ls_reduce_scatter_many(ls_group *group, const struct ls_buffers *buffers,
				 int buffer_count, ls_dtype dtype, ls_reduce_op op,
				 const struct ls_call_options *options)
{
	struct op_call call = {
		.kind = TRACE_REDUCE_SCATTER, .dtype = dtype, .reduce = op, .peer = -1};
	return run_many("ls_reduce_scatter_many", group, &call, buffers, buffer_count, options,
			GROUP_SITE);
}
