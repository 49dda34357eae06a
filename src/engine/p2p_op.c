/* SPDX-License-Identifier: BSD-3-Clause
 * A send, receive or probe from its submission to its end, also with a buffer of a device. */
#include "engine/device.h"
#include "engine/mailbox_private.h"
#include "engine/stream.h"

static void submit_host(void *self, struct engine_op *op, struct engine_workspace *workspace)
{
	struct engine_p2p *p2p = &op->p2p;
	(void)self;
	engine_op_reset(op, workspace);
	op->stage = ENGINE_STEPS;
	p2p->rts = NULL;
	p2p->cancelled = p2p->asks_cancel = p2p->by_address = p2p->fetches = p2p->crossed = false;
	atomic_store_explicit(&p2p->stage, ENGINE_P2P_NEW, memory_order_relaxed);
}

static enum engine_progress advance_host(void *self, struct engine_op *op)
{
	return mailbox_advance_host(self, op);
}

static enum engine_progress abandon_host(void *self, struct engine_op *op, const struct ranks *gone,
					 bool force)
{
	return mailbox_abandon_host(self, op, gone, force);
}

static const struct engine_runner runner = {
	.submit = submit_host, .advance = advance_host, .abandon = abandon_host};

void mailbox_submit(struct mailbox *mailbox, struct engine_op *op,
		    struct engine_workspace *workspace)
{
	op->device.stage = ENGINE_DEVICE_NONE;
	if (engine_is_on_stream(op) || !memory_inspects_buffers(mailbox->memory) ||
	    !engine_device_submit(mailbox->memory, op, workspace, &op->device.own_done))
		submit_host(mailbox, op, workspace);
}

enum engine_progress mailbox_advance(struct mailbox *mailbox, struct engine_op *op)
{
	return op->device.stage == ENGINE_DEVICE_NONE
		       ? mailbox_advance_host(mailbox, op)
		       : engine_device_advance(mailbox->memory, op, &runner, mailbox);
}

enum engine_progress mailbox_abandon(struct mailbox *mailbox, struct engine_op *op,
				     const struct ranks *gone, bool force)
{
	return op->device.stage == ENGINE_DEVICE_NONE && !engine_is_on_stream(op)
		       ? mailbox_abandon_host(mailbox, op, gone, force)
		       : engine_device_abandon(mailbox->memory, op, &runner, mailbox, gone, force);
}
