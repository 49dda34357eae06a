/* SPDX-License-Identifier: BSD-3-Clause
 * Operations on memory of a device: see device.c. The engine and the mailbox use it alike: each
 * brings the functions that run an operation once its buffers are in host memory. */
#ifndef OP_DEVICE_H
#define OP_DEVICE_H

#include "op/op.h"

/* Runs operations whose buffers are in host memory. `self`: the engine or the mailbox. */
struct op_runner {
	void (*submit)(void *self, struct op *op, struct op_workspace *workspace);
	enum op_progress (*advance)(void *self, struct op *op);
	enum op_progress (*abandon)(void *self, struct op *op, const struct ranks *gone, bool force);
	/* After a failure, for what an engine has put on a stream (op->stream.by_engine): OP_DONE:
	 * it will end. */
	enum op_progress (*withdraw)(void *self, struct op *op, bool force);
};

/* True: a buffer is memory of a device. The device copies it first, and op_device_advance advances
 * the operation. False: all buffers are host memory, and nothing was done. The device counts the
 * copies that it has completed in *done. */
bool op_device_submit(struct memory *memory, struct op *op, struct op_workspace *workspace,
		      _Atomic uint64_t *done);
/* As op_device_submit, for a collective on a stream, after op_stream_prepare. */
void op_device_submit_on_stream(struct op *op, struct op_workspace *workspace);
enum op_progress op_device_advance(struct memory *memory, struct op *op,
				   const struct op_runner *runner, void *self);
/* Waits for the device, however long that takes, also with `force`. */
enum op_progress op_device_abandon(struct memory *memory, struct op *op,
				   const struct op_runner *runner, void *self,
				   const struct ranks *gone, bool force);

/* ---- host_blocks.c, also for operations on streams ---- */

/* Allocates blocks for op->device.send, op->device.recv, or both, and makes them the buffers of
 * op->call. False, with op->status and a message: no memory. */
bool op_device_make_room(struct memory *memory, struct op *op, bool send, bool recv);
void op_device_free_blocks(struct memory *memory, struct op *op);

#endif
