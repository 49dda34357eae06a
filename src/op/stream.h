/* SPDX-License-Identifier: BSD-3-Clause
 * Operations that a stream of the program runs in its order. The call enqueues all of an operation
 * on the stream, and Lockstep enqueues nothing later. So no thread of Lockstep's enters the driver
 * while others wait for that thread. pool/launch.h says why the driver does not hold the caller.
 * The operation itself runs on blocks of the arena, like any other:
 *
 *   collective   copy in ── store fetched ── await arrived ── copy out ── store done
 *   send         copy in ── store done
 *   receive                                  await arrived ── copy out ── store done
 *   by another engine         store fetched ── what the engine puts there ── store done
 *
 * If it fails, `arrived` is stored nevertheless, so the stream continues; what it then copies out
 * is undefined. Until `done` the device may use the blocks, so the operation ends no earlier. */
#ifndef OP_STREAM_H
#define OP_STREAM_H

#include "device/driver.h"
#include "op/op.h"

/* Makes `op` an operation on this stream, and allocates its blocks. The caller has set op->call,
 * whose buffers the device must be able to copy. trace: the rank's. by_engine: between the two
 * parts below the caller lets an engine put it there, which needs no blocks. Errors:
 * LS_OUT_OF_MEMORY, with a message. */
LS_CHECKED ls_status op_stream_prepare(struct memory *memory, struct trace *trace, struct op *op,
				       struct driver *driver, void *handle, bool by_engine);
/* Frees the blocks of an operation, if nothing of it has been enqueued on the stream, or all of it
 * is done. */
void op_stream_end(struct memory *memory, struct op *op);

/* Whether the caller may enqueue the operation on the stream: true for the first thread that calls
 * this. False: another thread has ended the operation, which has failed. */
bool op_stream_begin_launch(struct op *op);
/* Enqueues the operation on the stream, in two parts. Nothing in the first one waits for other
 * ranks. Between the two the caller may wait until the operation has arrived; then nothing in the
 * second part waits for other ranks, either. Other threads can advance it meanwhile. `first`: the
 * result of the first part. The last call of the driver stores `number` to `done` (pool/launch.h).
 * *stored: that call was accepted. */
LS_CHECKED ls_status op_stream_enqueue_first(struct op *op);
LS_CHECKED ls_status op_stream_enqueue_rest(struct op *op, ls_status first, _Atomic uint64_t *done,
					    uint64_t number, bool *stored);
/* Call after both parts, or if nothing was put there. When it returns the operation may be
 * complete. */
void op_stream_launched(struct op *op, ls_status status);

/* ---- for the engine and the mailbox: OP_BLOCKED with at most two words ---- */

/* Whether the operation is on a stream. */
static inline bool op_is_on_stream(const struct op *op)
{
	return op->stream.on;
}
/* OP_DONE: this rank's input is in its block. */
enum op_progress op_stream_fetched(struct op *op);
/* Lets the stream continue. OP_DONE: it has copied the result out. */
enum op_progress op_stream_deliver(struct op *op);
/* After a failure, in place of op_stream_deliver: waits for the device, without limit.
 * OP_DONE: the device does not touch the blocks any more. */
enum op_progress op_stream_abandon(struct op *op);
/* After an abandon has returned OP_BLOCKED: whether the operation waits only for its device. */
bool op_stream_is_device_busy(const struct op *op);
/* The result is in its block: notes that in the trace, and lets the stream continue. Locks may be
 * held. */
void op_stream_arrived(struct op *op);
/* Whether an engine has put the operation on its stream, or has tried to. */
bool op_stream_is_launched_by_engine(const struct op *op);
/* The group has failed: lets the stream continue without a result. Any thread, from
 * op_stream_prepare on, and so before the operation has a record; locks may be held. */
void op_stream_let_go(struct op *op);
/* The same for the thread that ends an operation, which notes it in the trace. */
void op_stream_give_up(struct op *op);
/* The word that the stream awaits in the second part. Threads of this rank alone store it. False:
 * the stream awaits no word, or the word has come. */
bool op_stream_awaits(const struct op *op, struct wait_word *word);
/* A word that the operation waits for while it is being fetched or delivered; false: the word has
 * come. Any thread, also after the operation has ended. */
bool op_stream_word(const struct op *op, struct wait_word *word);

#endif
