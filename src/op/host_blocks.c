/* SPDX-License-Identifier: BSD-3-Clause
 * Blocks of the arena in place of buffers that are memory of a device. */
#include "op/device.h"

static bool buffers_overlap(const struct buffer *a, const struct buffer *b)
{
	uintptr_t first = (uintptr_t)a->address, second = (uintptr_t)b->address;
	return first < second + b->bytes && second < first + a->bytes;
}

static bool make_room(struct memory *memory, struct op *op, const struct buffer *device,
		      struct buffer *host, void **block)
{
	op->status = memory_alloc(memory, device->bytes, block);
	if (op->status == LS_OK)
		*host = buffer_host(*block, device->bytes);
	return op->status == LS_OK;
}

/* In place: one block, with both buffers at the distance that they have in the caller's memory. */
static bool make_room_for_both(struct memory *memory, struct op *op)
{
	struct op_device *device = &op->device;
	uintptr_t send = (uintptr_t)device->send.address, recv = (uintptr_t)device->recv.address;
	uintptr_t first = send < recv ? send : recv;
	uintptr_t send_end = send + device->send.bytes, recv_end = recv + device->recv.bytes;
	uintptr_t end = send_end > recv_end ? send_end : recv_end;
	op->status = memory_alloc(memory, end - first, &device->send_block);
	if (op->status != LS_OK)
		return false;
	unsigned char *block = device->send_block;
	op->call.send = buffer_host(block + (send - first), device->send.bytes);
	op->call.recv = buffer_host(block + (recv - first), device->recv.bytes);
	return true;
}

bool op_device_make_room(struct memory *memory, struct op *op, bool send, bool recv)
{
	struct op_device *device = &op->device;
	if (send && recv && buffers_overlap(&device->send, &device->recv))
		return make_room_for_both(memory, op);
	return (!send || make_room(memory, op, &device->send, &op->call.send, &device->send_block)) &&
	       (!recv || make_room(memory, op, &device->recv, &op->call.recv, &device->recv_block));
}

void op_device_free_blocks(struct memory *memory, struct op *op)
{
	struct op_device *device = &op->device;
	/* As in engine/window.c: memory_free has printed what was wrong. */
	ls_status status = memory_free(memory, device->send_block, trace_caller_text);
	status = memory_free(memory, device->recv_block, trace_caller_text);
	(void)status;
	device->send_block = device->recv_block = NULL;
	op->call.send = device->send;
	op->call.recv = device->recv;
}
