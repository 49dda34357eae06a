/* SPDX-License-Identifier: BSD-3-Clause
 * Short messages that complete within their call, without an operation. A stored message cannot be
 * taken back, so all checks come first. */
#ifndef GROUP_P2P_SHORT_H
#define GROUP_P2P_SHORT_H

#include "base/dtype.h"
#include "failure/failure.h"
#include "p2p/p2p.h"
#include "world/registry.h"

/* All reasons to refuse, delay or note a call meet in one branch, because there is nearly always
 * none. False: the general path finds out which reason it is. may_be_short (message_calls.c) has
 * the same reasons for a call that has been checked: a new option belongs in both. */
static inline bool group_may_try_short(ls_group *group, const struct ls_call_options *options,
				       struct p2p_short *message)
{
	struct mailbox_short *call = &message->call;
	uint64_t unusual = 0;
	/* A forked child has none of the memory that the code below reads. */
	if (!group || !world_is_usable(group) || (options && options->size != sizeof *options))
		return false;
	if (options) {
		unusual = (uintptr_t)options->stream | (uintptr_t)options->request |
			  (uintptr_t)options->message | (options->callback != NULL) |
			  options->resumable | (options->tag < 0);
		call->tag = options->tag;
		message->label = options->label;
	}
	size_t element_bytes = dtype_bytes(call->dtype);
	call->bytes = call->count * element_bytes;
	unusual |= ((unsigned)call->peer >= (unsigned)group->size) | !element_bytes |
		   (call->count > MAIL_EAGER_BYTES) | (call->bytes > MAIL_EAGER_BYTES) |
		   (!call->send && !call->recv);
	unusual |= (uint64_t)group->world->p2p.serial |
		   memory_inspects_buffers(&group->world->memory) | failure_is_set(group) |
		   atomic_load_explicit(&group->batch_count, memory_order_relaxed);
	if (__builtin_expect(unusual != 0, 0))
		return false;
	/* If operations in progress can never complete, the general path says so: p2p_fail_gone. */
	return !mailbox_pending(group->mailbox) || !world_any_gone(group);
}

/* request: NULL for a call that blocks; else filled if this returns true. */
static inline bool group_try_send_short(ls_group *group, const struct ls_call_options *options,
					struct p2p_short *message, ls_request **request)
{
	if (!group_may_try_short(group, options, message))
		return false;
	wait_thread_enter(&group->waiter);
	message->handle = request ? &group->short_send : NULL;
	if (!p2p_short_send(message))
		return false;
	if (request)
		*request = message->handle;
	return true;
}

static inline bool group_try_receive_short(ls_group *group, const struct ls_call_options *options,
					   struct p2p_short *message, ls_request **request)
{
	if (!group_may_try_short(group, options, message))
		return false;
	wait_thread_enter(&group->waiter);
	message->handle = request ? &group->short_recv : NULL;
	uint64_t number = 0;
	message->call.posts = request && p2p_may_post(group, message->call.peer, options);
	bool complete = p2p_short_receive(message, request ? &number : NULL);
	if (!complete && request && number)
		return p2p_post_short(message, number, request);
	p2p_collect(group); /* the call may have matched receives of other calls */
	if (complete && request)
		*request = message->handle;
	return complete;
}

#endif
