/* SPDX-License-Identifier: BSD-3-Clause
 * Operations on memory of a device, which no other rank sees and the processor cannot touch. The
 * device's driver copies this rank's input to a block of the arena. There the operation runs as on
 * any other memory, and the driver copies the result back:
 *
 *   fetching ── runner->submit, runner->advance … (running) ── delivering
 *
 * The device stores how many copies it has completed in *op->device.done, a word that only this
 * process can read. A rank that waits for it is never part of a proof. Peers see nothing of the
 * operation before all is fetched, so they wait for it as for a late rank. */
#include "op/device.h"

#include "device/driver.h"
#include "op/stream.h"

/* ---- the device ---- */

/* Issues a store behind the copies, unless one is there. A store that fails is tried again, because
 * the operation must wait for the copies: its buffers must not be released before. */
static ls_status issue_store(struct op_device *device)
{
	struct driver *driver = device->driver;
	ls_status status = LS_OK;
	if (device->stored < device->issued) {
		wait_foreign_call_begin(driver->waiter, "the driver, behind a stream");
		status = driver->ops->store(driver, driver->stream, device->done, device->issued);
		wait_foreign_call_end(driver->waiter);
	}
	if (status == LS_OK)
		device->stored = device->issued;
	return status;
}

/* Whether the device has completed what was issued. */
static enum op_progress check_device(struct op *op)
{
	struct op_device *device = &op->device;
	op->word_count = 0;
	op->any_suffices = true;
	if (atomic_load_explicit(device->done, memory_order_acquire) >= device->issued)
		return OP_DONE;
	uint64_t broken = atomic_load_explicit(&device->driver->broken, memory_order_acquire);
	if (broken)
		return op_fail(op, (ls_status)broken, -1);
	ls_status status = issue_store(device);
	(void)status; /* an error of the first store was reported; this store is tried again */
	op_add_device_word(op, device->done, device->issued, op->record);
	op_add_device_word(op, &device->driver->broken, 1, WAIT_DEVICE_BROKEN);
	return OP_BLOCKED;
}

static bool issue_copy(struct op *op, const struct memory_region *region, void *to,
		       const void *from, uint64_t bytes)
{
	struct op_device *device = &op->device;
	struct driver *driver = region->driver;
	wait_foreign_call_begin(driver->waiter, "the driver, to copy a buffer");
	ls_status status = driver->ops->copy(driver, driver->stream, to, from, bytes);
	wait_foreign_call_end(driver->waiter);
	if (status == LS_OK) {
		device->driver = driver;
		device->issued++;
		status = issue_store(device);
	}
	if (status != LS_OK)
		op_fail(op, status, -1);
	return status == LS_OK;
}

/* ---- the operation ---- */

/* The caller has its own buffers again. lost: peers may still write to the blocks, which therefore
 * are never used again. */
static void return_buffers(struct memory *memory, struct op *op, bool lost)
{
	struct op_device *device = &op->device;
	if (lost)
		device->send_block = device->recv_block = NULL;
	device->state = OP_DEVICE_NONE;
	if (op_is_on_stream(op)) {
		op_stream_end(memory, op);
		return;
	}
	op_device_free_blocks(memory, op);
	memory_region_release(device->send.region);
	memory_region_release(device->recv.region);
}

/* Holds the regions until return_buffers. */
static bool find_regions(struct memory *memory, struct op_call *call)
{
	struct buffer *buffers[] = {&call->send, &call->recv};
	bool found = false;
	for (int i = 0; i < 2; i++) {
		struct buffer *buffer = buffers[i];
		buffer->region = NULL;
		if (buffer->address && buffer->bytes > 0)
			buffer->region = memory_region_hold(memory, buffer->address, buffer->bytes);
		found |= buffer->region != NULL;
	}
	return found;
}

/* Initialises the operation as one that has not entered a collective. */
static void begin_unentered(struct op *op, struct op_workspace *workspace)
{
	op_reset(op, workspace);
	op->p2p.rts = NULL;
	atomic_store_explicit(&op->p2p.state, OP_P2P_NEW, memory_order_relaxed);
	op->device.state = OP_DEVICE_FETCHING;
	op->device.workspace = workspace;
}

static void begin_fetching(struct op *op, struct op_workspace *workspace, _Atomic uint64_t *done)
{
	struct op_device *device = &op->device;
	begin_unentered(op, workspace);
	device->send = op->call.send;
	device->recv = op->call.recv;
	device->send_block = device->recv_block = NULL;
	device->driver = NULL;
	device->done = done;
	atomic_store_explicit(&device->own_done, 0, memory_order_relaxed);
	/* One collective runs at a time, and each waits for what it has issued. */
	device->issued = device->stored = atomic_load_explicit(device->done, memory_order_relaxed);
}

bool op_device_submit(struct memory *memory, struct op *op, struct op_workspace *workspace,
		      _Atomic uint64_t *done)
{
	struct op_device *device = &op->device;
	if (!find_regions(memory, &op->call))
		return false;
	begin_fetching(op, workspace, done);
	bool ready = op_device_make_room(memory, op, device->send.region != NULL,
					 device->recv.region != NULL);
	if (ready && device->send.region)
		ready = issue_copy(op, device->send.region, op->call.send.address,
				   device->send.address, device->send.bytes);
	if (ready)
		op->status = LS_PENDING;
	return true;
}

void op_device_submit_on_stream(struct op *op, struct op_workspace *workspace)
{
	begin_unentered(op, workspace);
	op->status = LS_PENDING;
}

static enum op_progress run_on_host(struct op *op, const struct op_runner *runner, void *self)
{
	if (!op_is_collective(op->call.kind))
		return runner->advance(self, op);
	if (op->status == LS_PENDING)
		op->status = LS_OK;
	enum op_progress progress = op->status == LS_OK ? runner->advance(self, op) : OP_FAILED;
	if (progress == OP_BLOCKED)
		op->status = LS_PENDING; /* the next call is for op_device_advance, too */
	return progress;
}

static bool issue_delivery(struct op *op)
{
	const struct op_device *device = &op->device;
	return op_is_on_stream(op) || !device->recv.region ||
	       issue_copy(op, device->recv.region, device->recv.address, op->call.recv.address,
			  device->recv.bytes);
}

enum op_progress op_device_advance(struct memory *memory, struct op *op,
				   const struct op_runner *runner, void *self)
{
	struct op_device *device = &op->device;
	bool on_stream = op_is_on_stream(op);
	enum op_progress progress;
	if (device->state == OP_DEVICE_FETCHING) {
		if (op->status != LS_PENDING)
			return OP_FAILED;
		progress = on_stream ? op_stream_fetched(op) : check_device(op);
		if (progress != OP_DONE)
			return progress;
		runner->submit(self, op, device->workspace);
		device->state = OP_DEVICE_RUNNING;
	}
	if (device->state == OP_DEVICE_RUNNING) {
		progress = run_on_host(op, runner, self);
		if (progress != OP_DONE)
			return progress;
		device->state = OP_DEVICE_DELIVERING;
		if (!issue_delivery(op))
			return OP_FAILED;
		op->status = LS_PENDING;
	}
	progress = on_stream ? op_stream_deliver(op) : check_device(op);
	if (progress != OP_DONE)
		return progress;
	op->status = LS_OK;
	return_buffers(memory, op, false);
	return OP_DONE;
}

/* Abandons the operation towards peers, whatever the memory of its buffers. */
static enum op_progress abandon_host(struct op *op, const struct op_runner *runner, void *self,
				     const struct ranks *gone, bool force)
{
	bool on_stream = op->stream.on;
	enum op_device_state state = op->device.state;
	enum op_progress progress = OP_DONE;
	if (state == OP_DEVICE_RUNNING ||
	    (state == OP_DEVICE_NONE && !op_is_collective(op->call.kind))) {
		op->device.state = OP_DEVICE_NONE;
		op->stream.on = false;
		progress = runner->abandon(self, op, gone, force);
		op->stream.on = on_stream;
		op->device.state = state;
	}
	if (progress != OP_BLOCKED)
		op->state = OP_STATE_COMPLETE;
	return progress;
}

/* Peers first, because the stream may work for others for a long time. */
static enum op_progress abandon_on_stream(struct memory *memory, struct op *op,
					  const struct op_runner *runner, void *self,
					  const struct ranks *gone, bool force)
{
	enum op_progress progress = OP_DONE;
	op_stream_give_up(op);
	if (op->state != OP_STATE_COMPLETE)
		progress = abandon_host(op, runner, self, gone, force);
	if (progress == OP_BLOCKED)
		return progress;
	op->stream.lost |= progress == OP_FAILED;
	progress = op_stream_abandon(op);
	if (progress == OP_BLOCKED && op_stream_is_launched_by_engine(op) && !op->stream.withdrawn) {
		progress = runner->withdraw(self, op, force);
		if (progress != OP_DONE)
			return progress;
		op->stream.withdrawn = true;
		progress = op_stream_abandon(op);
	}
	if (progress == OP_BLOCKED)
		return OP_BLOCKED;
	return_buffers(memory, op, op->stream.lost);
	return OP_DONE; /* what peers may still touch is no memory of the caller's */
}

enum op_progress op_device_abandon(struct memory *memory, struct op *op,
				   const struct op_runner *runner, void *self,
				   const struct ranks *gone, bool force)
{
	if (op_is_on_stream(op))
		return abandon_on_stream(memory, op, runner, self, gone, force);
	ls_status status = op->status;
	enum op_progress progress = check_device(op);
	op->status = status;
	if (progress == OP_BLOCKED)
		return progress;
	progress = abandon_host(op, runner, self, gone, force);
	if (progress != OP_BLOCKED)
		return_buffers(memory, op, progress == OP_FAILED);
	return progress;
}
