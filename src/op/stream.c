/* SPDX-License-Identifier: BSD-3-Clause
 * Operations on a stream of the program: which copies, waits and stores the call puts behind it,
 * and how the operation goes on when the stream has reached them. */
#include "op/stream.h"

#include <stdlib.h>

#include "base/messages.h"
#include "op/device.h"

/* ---- blocks ---- */

ls_status op_stream_prepare(struct memory *memory, struct trace *trace, struct op *op,
			    struct driver *driver, void *handle, bool by_engine)
{
	struct op_stream *stream = &op->stream;
	op->device.send = op->call.send;
	op->device.recv = op->call.recv;
	op->device.send_block = op->device.recv_block = NULL;
	stream->driver = driver;
	stream->handle = handle;
	stream->trace = trace;
	stream->done = NULL;
	stream->number = 0;
	stream->has_enqueued = stream->stored = stream->own_stored = stream->lost = false;
	stream->by_engine = by_engine;
	stream->withdrawn = false;
	if (!stream->words)
		stream->words = calloc(1, sizeof *stream->words);
	if (!stream->words) {
		char from[TRACE_CALLER_BYTES];
		trace_caller_text(from, sizeof from);
		MESSAGE_SAY(MESSAGE_GROUP_HANDLES, from, "out of memory");
		return LS_OUT_OF_MEMORY;
	}
	atomic_store(&stream->words->launching, 0);
	atomic_store(&stream->words->launched, 0);
	atomic_store(&stream->words->fetched, 0);
	atomic_store(&stream->words->arrived, 0);
	atomic_store(&stream->words->own_done, 0);
	op->status = LS_OK;
	/* A message has its block even if it is empty: it is sent when the stream is there. */
	bool sends = op->call.kind == TRACE_SEND || op->call.send.bytes > 0;
	if (!by_engine && !op_device_make_room(memory, op, sends, op->call.recv.bytes > 0)) {
		ls_status status = op->status;
		op_stream_end(memory, op);
		return status;
	}
	stream->on = true;
	return LS_OK;
}

void op_stream_end(struct memory *memory, struct op *op)
{
	op_device_free_blocks(memory, op);
	op->stream.on = false;
}

/* ---- the launch ---- */

bool op_stream_begin_launch(struct op *op)
{
	return atomic_exchange(&op->stream.words->launching, 1) == 0;
}

/* Notes the result of one call of the driver. After a failed call there is no other. */
static bool note_put(struct op *op, ls_status status, ls_status *first)
{
	*first = status;
	op->stream.has_enqueued |= status == LS_OK;
	return status == LS_OK;
}

ls_status op_stream_enqueue_first(struct op *op)
{
	struct op_stream *stream = &op->stream;
	const struct driver_ops *ops = stream->driver->ops;
	const struct op_device *device = &op->device;
	ls_status status = LS_OK;
	if (!stream->by_engine && device->send.bytes > 0 &&
	    !note_put(op,
		      ops->copy(stream->driver, stream->handle, op->call.send.address,
				device->send.address, device->send.bytes),
		      &status))
		return status;
	if (op_is_collective(op->call.kind))
		note_put(op, ops->store(stream->driver, stream->handle, &stream->words->fetched, 1),
			 &status);
	return status;
}

static ls_status put_result(struct op *op)
{
	struct op_stream *stream = &op->stream;
	const struct driver_ops *ops = stream->driver->ops;
	const struct op_device *device = &op->device;
	ls_status status = LS_OK;
	if (op->call.kind != TRACE_SEND &&
	    !note_put(op, ops->await(stream->driver, stream->handle, &stream->words->arrived, 1),
		      &status))
		return status;
	if (device->recv.bytes > 0)
		note_put(op,
			 ops->copy(stream->driver, stream->handle, device->recv.address,
				   op->call.recv.address, device->recv.bytes),
			 &status);
	return status;
}

ls_status op_stream_enqueue_rest(struct op *op, ls_status first, _Atomic uint64_t *done,
				 uint64_t number, bool *stored)
{
	struct op_stream *stream = &op->stream;
	stream->done = done;
	stream->number = number;
	ls_status status = first == LS_OK && !stream->by_engine ? put_result(op) : first;
	/* Also behind a part of the operation, which tells when the device has done that part. */
	ls_status last = stream->driver->ops->store(stream->driver, stream->handle, done, number);
	*stored = stream->stored = last == LS_OK;
	return status != LS_OK ? status : last;
}

void op_stream_launched(struct op *op, ls_status status)
{
	if (status == LS_OK)
		trace_stream(op->stream.trace, op->record, TRACE_LAUNCHED);
	driver_stored(op->stream.driver, &op->stream.words->launched, 1 + (uint64_t)status);
}

/* ---- what it waits for ---- */

/* What was enqueued on the stream is done, or the device is broken and touches nothing. */
static bool is_over(const struct op_stream *stream)
{
	if (!atomic_load_explicit(&stream->words->launched, memory_order_acquire))
		return false;
	return (!stream->has_enqueued && !stream->stored) ||
	       (stream->stored &&
		atomic_load_explicit(stream->done, memory_order_acquire) >= stream->number) ||
	       atomic_load_explicit(&stream->words->own_done, memory_order_acquire) != 0 ||
	       atomic_load(&stream->driver->broken) != 0;
}

/* The word that shows that the operation is over, as far as it is known by now. */
static struct wait_word over_word(const struct op *op)
{
	const struct op_stream *stream = &op->stream;
	bool launched = atomic_load_explicit(&stream->words->launched, memory_order_acquire) != 0;
	struct wait_word over = {.word = &stream->words->launched,
				 .edge = {.value = 1,
					  .offset = op->record | WAIT_DEVICE_PUT,
					  .owner = -1,
					  .peer = -1,
					  .segment = WAIT_SEGMENT_DEVICE}};
	if (!launched)
		return over;
	if (atomic_load(&stream->driver->broken) != 0) {
		over.word = &stream->driver->broken;
	} else if (stream->stored) {
		over.word = stream->done;
		over.edge.value = stream->number;
	} else if (stream->has_enqueued) {
		over.word = &stream->words->own_done;
	} else {
		return over;
	}
	over.edge.offset = over.word == &stream->driver->broken ? WAIT_DEVICE_BROKEN : op->record;
	return over;
}

static enum op_progress await_over(struct op *op)
{
	const struct op_stream *stream = &op->stream;
	op->word_count = 0;
	op->any_suffices = true;
	if (is_over(stream))
		return OP_DONE;
	struct wait_word over = over_word(op);
	op->words[op->word_count++] = over;
	/* The launching thread stores its word in any case. */
	if (over.word != &stream->words->launched)
		op_add_device_word(op, &stream->driver->broken, 1, WAIT_DEVICE_BROKEN);
	return OP_BLOCKED;
}

/* A collective continues once it has been fetched, even if its launch has not ended: the launch may
 * wait until the stream continues. */
static bool is_fetched(const struct op *op)
{
	const struct op_stream *stream = &op->stream;
	if (op_is_collective(op->call.kind))
		return atomic_load_explicit(&stream->words->fetched, memory_order_acquire) != 0;
	return is_over(stream) && stream->stored &&
	       atomic_load_explicit(stream->done, memory_order_acquire) >= stream->number;
}

enum op_progress op_stream_fetched(struct op *op)
{
	const struct op_stream *stream = &op->stream;
	uint64_t launched = atomic_load_explicit(&stream->words->launched, memory_order_acquire);
	if (launched > 1)
		return op_fail(op, (ls_status)(launched - 1), -1);
	if (is_fetched(op)) {
		trace_stream(stream->trace, op->record, TRACE_REACHED);
		return OP_DONE;
	}
	uint64_t broken = atomic_load(&stream->driver->broken);
	if (broken)
		return op_fail(op, (ls_status)broken, -1);
	op->word_count = 0;
	op->any_suffices = true;
	if (op_is_collective(op->call.kind))
		op_add_device_word(op, &stream->words->fetched, 1, op->record);
	else if (launched)
		op_add_device_word(op, stream->done, stream->number, op->record);
	if (launched)
		op_add_device_word(op, &stream->driver->broken, 1, WAIT_DEVICE_BROKEN);
	else
		op_add_device_word(op, &stream->words->launched, 1, op->record | WAIT_DEVICE_PUT);
	return OP_BLOCKED;
}

static bool has_arrived(const struct op_stream *stream)
{
	return atomic_load_explicit(&stream->words->arrived, memory_order_relaxed) != 0;
}

void op_stream_arrived(struct op *op)
{
	if (has_arrived(&op->stream))
		return;
	trace_stream(op->stream.trace, op->record, TRACE_ARRIVED);
	op_stream_let_go(op);
}

void op_stream_let_go(struct op *op)
{
	struct op_stream *stream = &op->stream;
	if (has_arrived(stream))
		return;
	stream->driver->ops->signal(stream->driver, &stream->words->arrived, 1);
	/* The launching thread may wait for `arrived`. */
	if (stream->driver->bell)
		wait_wake(stream->driver->bell);
}

enum op_progress op_stream_deliver(struct op *op)
{
	const struct op_stream *stream = &op->stream;
	op_stream_arrived(op);
	enum op_progress progress = await_over(op);
	if (progress != OP_DONE)
		return progress;
	uint64_t launched = atomic_load(&stream->words->launched);
	uint64_t broken = atomic_load(&stream->driver->broken);
	if (launched > 1)
		return op_fail(op, (ls_status)(launched - 1), -1);
	bool done = atomic_load(stream->done) >= stream->number;
	return done ? OP_DONE : op_fail(op, (ls_status)broken, -1);
}

void op_stream_give_up(struct op *op)
{
	if (!has_arrived(&op->stream))
		trace_stream(op->stream.trace, op->record, TRACE_LET_GO);
	op_stream_let_go(op);
}

enum op_progress op_stream_abandon(struct op *op)
{
	struct op_stream *stream = &op->stream;
	op_stream_give_up(op);
	if (op_stream_begin_launch(op))
		op_stream_launched(op, LS_ABORTED); /* nothing was put there, nor will be */
	enum op_progress progress = await_over(op);
	bool launched = atomic_load_explicit(&stream->words->launched, memory_order_acquire) != 0;
	if (progress != OP_BLOCKED || !launched || stream->stored || stream->own_stored)
		return progress;
	/* The store at the end was refused. Without it no thread would learn when the device has
	 * completed the operation, so it is tried again. */
	struct driver *driver = stream->driver;
	wait_foreign_call_begin(driver->waiter, "the driver, behind a stream");
	ls_status status = driver->ops->store(driver, stream->handle, &stream->words->own_done, 1);
	wait_foreign_call_end(driver->waiter);
	stream->own_stored = status == LS_OK;
	return progress;
}

bool op_stream_is_launched_by_engine(const struct op *op)
{
	const struct op_stream *stream = &op->stream;
	return stream->by_engine && stream->has_enqueued &&
	       atomic_load_explicit(&stream->words->launched, memory_order_acquire) != 0;
}

bool op_stream_is_device_busy(const struct op *op)
{
	return op->stream.on && op->state == OP_STATE_COMPLETE;
}

bool op_stream_word(const struct op *op, struct wait_word *word)
{
	*word = over_word(op);
	return !is_over(&op->stream);
}

bool op_stream_awaits(const struct op *op, struct wait_word *word)
{
	const _Atomic uint64_t *arrived = &op->stream.words->arrived;
	*word = (struct wait_word){.word = arrived,
				   .edge = {.value = 1,
					    .offset = op->record,
					    .owner = -1,
					    .peer = -1,
					    .segment = WAIT_SEGMENT_DEVICE}};
	return op->call.kind != TRACE_SEND && !op->stream.by_engine && atomic_load(arrived) == 0;
}
