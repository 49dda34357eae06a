/* SPDX-License-Identifier: BSD-3-Clause
 * Operations on streams of the program: how the calling thread enqueues them on the stream. */
#include "op/stream.h"

#include "base/messages.h"
#include "engine/engine_ops.h"
#include "failure/failure.h"
#include "pool/launch.h"
#include "races/races.h"
#include "world/device.h"
#include "world/registry.h"
#include "progress/progress.h"

/* ---- the list ---- */

static void enter_list(struct world_device *device, struct ls_request *op)
{
	lock_rank_acquire(&device->lock);
	op->stream_next = device->operations;
	op->stream_link = &device->operations;
	if (op->stream_next)
		op->stream_next->stream_link = &op->stream_next;
	device->operations = op;
	lock_rank_release(&device->lock);
}

void progress_stream_leave(struct ls_request *op)
{
	struct world_device *device = op->group->world->device;
	lock_rank_acquire(&device->lock);
	*op->stream_link = op->stream_next;
	if (op->stream_next)
		op->stream_next->stream_link = op->stream_link;
	lock_rank_release(&device->lock);
}

void progress_stream_resume_failed(struct world *world)
{
	struct world_device *device = world->device;
	lock_rank_acquire(&device->lock);
	for (struct ls_request *op = device->operations; op; op = op->stream_next)
		if (failure_status(op->group) != LS_OK)
			op_stream_let_go(&op->base);
	lock_rank_release(&device->lock);
}

/* ---- words ---- */

void progress_stream_keep_words(struct world *world, struct op_stream_words *words)
{
	struct world_device *device = world->device;
	struct op_stream_words **last = &words;
	if (!words)
		return;
	while (*last)
		last = &(*last)->next;
	lock_rank_acquire(&device->lock);
	*last = device->words;
	device->words = words;
	lock_rank_release(&device->lock);
}

static struct op_stream_words *take_words(struct world_device *device)
{
	lock_rank_acquire(&device->lock);
	struct op_stream_words *words = device->words;
	if (words)
		device->words = words->next;
	lock_rank_release(&device->lock);
	return words;
}

/* ---- the calls ---- */

ls_status progress_stream_prepare(const char *function, struct ls_request *op, void *stream)
{
	ls_group *group = op->group;
	struct world_device *device = group->world->device;
	const struct op_call *call = &op->base.call;
	if (!device) {
		MESSAGE_SAY(MESSAGE_DEVICE_NONE, function);
		return LS_BAD_ARGUMENT;
	}
	ls_status status = pool_stream_check(device->pool, stream);
	if (status != LS_OK)
		return status;
	if (!op->base.stream.words)
		op->base.stream.words = take_words(device);
	status = op_stream_prepare(group->engine.memory, group->engine.trace, &op->base,
				   &device->driver, stream,
				   op_is_collective(call->kind) && engine_launches(&group->engine));
	if (status != LS_OK)
		return status;
	op->on_stream = true;
	enter_list(device, op);
	return LS_OK;
}

void progress_stream_discard(struct ls_request *op)
{
	if (!op->on_stream)
		return;
	progress_stream_leave(op);
	op_stream_end(op->group->engine.memory, &op->base);
}

/* Waits until the stream would not wait for the operation any more, or the device is broken. If
 * this wait fails, the group has failed or will fail, and the stream continues in any case. */
static void await_arrival(struct ls_request *op)
{
	const _Atomic uint64_t *broken = &op->base.stream.driver->broken;
	struct wait_word words[2] = {[1] = {.word = broken,
					    .edge = {.value = 1,
						     .offset = WAIT_DEVICE_BROKEN,
						     .owner = -1,
						     .peer = -1,
						     .segment = WAIT_SEGMENT_DEVICE}}};
	struct wait_call call = {.words = words,
				 .count = 2,
				 .any = true,
				 .deadline_ns = CLOCK_NEVER,
				 .group = op->group->id,
				 .record = op->base.record};
	ls_status status = LS_INTERRUPTED;
	int peer;
	while (op_stream_awaits(&op->base, &words[0]) && status == LS_INTERRUPTED)
		status = wait_words(&op->group->waiter, &call, &peer);
	if (failure_status(op->group) != LS_OK)
		op_stream_let_go(&op->base);
}

/* A capture has begun between the look at the stream and the calls of the driver. */
static void say_if_captured(const struct world *world, const void *stream, ls_status status)
{
	if (status != LS_UNSUPPORTED)
		return;
	char from[TRACE_CALLER_BYTES];
	trace_caller_text(from, sizeof from);
	MESSAGE_SAY(MESSAGE_DEVICE_CAPTURE, stream, world->device->name, from);
}

static ls_status put_behind(struct ls_request *op, const struct pool_launch *launch, bool *stored)
{
	struct waiter *waiter = &op->group->world->waiter;
	wait_foreign_call_begin(waiter, "the driver, behind a stream");
	ls_status status = op_stream_enqueue_first(&op->base);
	wait_foreign_call_end(waiter);
	if (status == LS_OK && !launch->has_room)
		await_arrival(op);
	wait_foreign_call_begin(waiter, "the driver, behind a stream");
	if (status == LS_OK && op->base.stream.by_engine)
		status = engine_launch(&op->group->engine, &op->base);
	status = op_stream_enqueue_rest(&op->base, status, launch->done, launch->number, stored);
	wait_foreign_call_end(waiter);
	say_if_captured(op->group->world, op->base.stream.handle, status);
	return status;
}

ls_status progress_stream_claim(struct ls_request *op, struct pool_launch *out)
{
	return pool_launch_claim(op->group->world->device->pool, &op->group->waiter,
				 op->base.stream.handle, clock_deadline_ns(op->timeout_ms), out);
}

ls_status progress_stream_launch(struct ls_request *op, ls_status claimed,
				 struct pool_launch *launch)
{
	struct pool *pool = op->group->world->device->pool;
	bool stored = false;
	ls_status status = claimed;
	if (!op_stream_begin_launch(&op->base)) { /* the operation has failed */
		if (claimed == LS_OK)
			pool_launch_unclaim(pool, launch);
		return op->callback ? LS_OK : progress_op_fail(op, LS_ABORTED, -1, NULL);
	}
	const struct pool_launch_op shown = {.trace = op->group->engine.trace,
					     .record = op->base.record,
					     .group = op->group->id,
					     .is_put = true,
					     .has_own_limit = op->has_own_limit};
	/* While the thread waits for room, others see behind what the operation will be. */
	if (status == LS_OK) {
		trace_behind(shown.trace, shown.record, atomic_load(launch->recent),
			     atomic_load(launch->follows));
		status = pool_launch_begin(pool, &op->group->waiter,
					   clock_deadline_ns(op->timeout_ms), &shown, launch);
	}
	if (status == LS_OK) {
		trace_behind(shown.trace, shown.record,
			     atomic_exchange(launch->recent, shown.record),
			     atomic_exchange(launch->follows, 0));
		status = put_behind(op, launch, &stored);
		pool_launch_end(pool, launch, stored);
	}
	if (op->access && stored)
		races_launched(op->group->world->races, op->access, launch->done, launch->number);
	/* No other thread ends the operation before op_stream_launched. */
	if (status != LS_OK)
		op->callback = NULL;
	op_stream_launched(&op->base, status);
	/* Peers wait for the operation, so an error fails the group. */
	return status == LS_OK ? LS_OK : progress_op_fail(op, status, -1, NULL);
}

/* Waits until the operation is done in its own stream, or the device is broken. */
static void await_done(const struct ls_request *op, uint64_t deadline_ns)
{
	const struct op_stream *own = &op->base.stream;
	struct wait_word words[] = {
		{.word = own->done, .edge = {.value = own->number, .owner = -1, .peer = -1}},
		{.word = &own->driver->broken, .edge = {.value = 1, .owner = -1, .peer = -1}}};
	struct wait_call call = {.words = words,
				 .count = 2,
				 .any = true,
				 .deadline_ns = deadline_ns,
				 .foreign = "a launch (waiting for another stream)"};
	ls_status status;
	int peer;
	do
		status = wait_words(&op->group->world->waiter, &call, &peer);
	while (status == LS_INTERRUPTED);
}

/* The word and its numbers stay when the operation ends meanwhile, until the pool is closed. */
ls_status progress_stream_follow(const struct ls_request *op, void *stream)
{
	struct world *world = op->group->world;
	struct driver *driver = &world->device->driver;
	const struct op_stream *own = &op->base.stream;
	uint64_t deadline_ns = clock_deadline_ns(op->group->timeout_ms);
	ls_status status = pool_stream_check(world->device->pool, stream);
	if (status != LS_OK || !own->stored) /* not stored: the operation fails */
		return status;
	struct pool_launch launch;
	status = pool_launch_claim(world->device->pool, &op->group->waiter, stream, deadline_ns,
				   &launch);
	const struct pool_launch_op shown = {
		.trace = op->group->engine.trace, .record = op->base.record, .group = op->group->id};
	if (status == LS_OK)
		status = pool_launch_begin(world->device->pool, &op->group->waiter, deadline_ns,
					   &shown, &launch);
	if (status != LS_OK)
		return status;
	if (!launch.has_room)
		await_done(op, deadline_ns);
	wait_foreign_call_begin(&world->waiter, "the driver, behind a stream");
	status = driver->ops->await(driver, stream, own->done, own->number);
	/* A store of its own shows when the stream does not read that word any more. */
	ls_status stored = driver->ops->store(driver, stream, launch.done, launch.number);
	wait_foreign_call_end(&world->waiter);
	/* If the stream waits for several such operations, a proof sees the last one. */
	if (status == LS_OK)
		atomic_store(launch.follows, op->base.record);
	pool_launch_end(world->device->pool, &launch, stored == LS_OK);
	status = status == LS_OK ? stored : status;
	say_if_captured(world, stream, status);
	return status;
}

bool progress_stream_is_over(const struct ls_request *op)
{
	struct wait_word word;
	return op->on_stream && !op_stream_word(&op->base, &word);
}
