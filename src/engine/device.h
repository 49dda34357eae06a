/* SPDX-License-Identifier: BSD-3-Clause
 * Operations on memory of a device: see device.c. The engine and the mailbox use it alike: each
 * brings the functions that run an operation once its buffers are in host memory. */
#ifndef ENGINE_DEVICE_H
#define ENGINE_DEVICE_H

#include "engine/engine.h"

/* Runs operations whose buffers are in host memory. `self`: the engine or the mailbox. */
struct engine_runner {
	void (*submit)(void *self, struct engine_op *op, struct engine_workspace *workspace);
	enum engine_progress (*advance)(void *self, struct engine_op *op);
	enum engine_progress (*abandon)(void *self, struct engine_op *op, const struct ranks *gone,
					bool force);
};

/* True: a buffer is memory of a device; it is fetched first, and engine_device_advance advances the
 * operation. False: all buffers are host memory, and nothing was done. The device counts the copies
 * that it has completed in *done. */
bool engine_device_submit(struct memory *memory, struct engine_op *op,
			  struct engine_workspace *workspace, _Atomic uint64_t *done);
/* As engine_device_submit, for a collective on a stream: engine_stream_prepare has been called for
 * it. */
void engine_device_submit_on_stream(struct engine_op *op, struct engine_workspace *workspace);
enum engine_progress engine_device_advance(struct memory *memory, struct engine_op *op,
					   const struct engine_runner *runner, void *self);
/* Also with `force` it waits for the device, however long that takes. */
enum engine_progress engine_device_abandon(struct memory *memory, struct engine_op *op,
					   const struct engine_runner *runner, void *self,
					   const struct ranks *gone, bool force);

/* Allocates blocks for what is in op->device.send, op->device.recv, or both; op->call has them
 * then. False, with op->status and a message: no memory. */
bool engine_device_make_room(struct memory *memory, struct engine_op *op, bool send, bool recv);
void engine_device_free_blocks(struct memory *memory, struct engine_op *op);

#endif
