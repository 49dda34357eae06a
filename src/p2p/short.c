/* SPDX-License-Identifier: BSD-3-Clause
 * Sends and receives of short messages that complete within their call. They are tried first,
 * without an operation that other threads could see, and are recorded when they are complete. */
#include "progress/progress.h"
#include "trace/trace_write.h"
#include "p2p/p2p_private.h"

/* A send polls a full ring this many times, for about four microseconds in all, in which a
 * receiver that looks for each message among a thousand receives takes the 16 after which it says
 * so. */
enum { ROOM_POLLS = 16 };

static void init_handle(ls_group *group, struct ls_request *op, enum trace_kind kind)
{
	*op = (struct ls_request){.group = group, .shared = true};
	op->base.call.kind = kind;
	op->base.status = LS_OK;
	atomic_store(&op->begun, true);
	atomic_store(&op->status_read, true);
	atomic_store(&op->complete, 1 + LS_OK);
}

void p2p_short_init(ls_group *group)
{
	init_handle(group, &group->short_send, TRACE_SEND);
	init_handle(group, &group->short_recv, TRACE_RECV);
}

__attribute__((always_inline)) static inline void record_message(const struct p2p_short *message,
								 uint64_t index,
								 enum trace_kind kind,
								 uint64_t number, int tag)
{
	ls_group *group = message->group;
	struct trace *trace = &group->world->trace;
	const struct mailbox_short *call = &message->call;
	const struct trace_begin begin = {
		.seq = number,
		.count = call->count,
		.site = (uint64_t)(uintptr_t)message->site,
		.label = message->label ? trace_label(trace, message->label) : 0,
		.group = group->id,
		.peer = call->peer,
		.tag = tag,
		.kind = (uint16_t)kind,
		.dtype = (uint8_t)call->dtype,
		.wildcards = progress_wildcards(kind, call->peer, call->tag),
	};
	trace_add_inline(trace, index, &begin);
	struct ls_request *handle = message->handle;
	if (!handle)
		return;
	uint64_t handed_out = atomic_load_explicit(&handle->handed_out, memory_order_relaxed);
	atomic_store_explicit(&handle->handed_out, handed_out + 1, memory_order_relaxed);
	atomic_store_explicit(&handle->newest, index, memory_order_relaxed);
}

/* Polls until the receiver has taken messages from a full ring. A send that is queued instead needs
 * an operation, and a thread that is woken for it. Of a receiver that takes none only the first
 * send comes here: the next ones are queued behind it. */
static bool await_room(const struct p2p_short *message)
{
	ls_group *group = message->group;
	struct wait_word word;
	struct wait_call wait = {.words = &word, .count = 1};
	if (!mailbox_awaits_room(group->mailbox, message->call.peer, &word))
		return false;
	bool comes = false;
	for (int i = 0; i < ROOM_POLLS && !comes; i++)
		comes = wait_briefly(&group->waiter, &wait);
	return comes;
}

/* A send is recorded after it is posted. If it were recorded first, the answer to a message would
 * come a sixth later. So a report must tolerate that
 *   - a peer sees a message a moment before its record exists: the report waits for the record a
 *     moment, and omits a message without one;
 *   - the record at that index may be of another message: the report checks it;
 *   - numbers of threads that send at once are not in the order of the messages: the report
 *     compares numbers of one rank's messages only for being the same. */
bool p2p_short_send(const struct p2p_short *message)
{
	ls_group *group = message->group;
	struct mailbox_short_sent sent;
	uint64_t index = trace_reserve_inline(&group->world->trace);
	bool goes = mailbox_send_short(group->mailbox, &message->call, index, &sent);
	if (__builtin_expect(!goes, 0) && await_room(message))
		goes = mailbox_send_short(group->mailbox, &message->call, index, &sent);
	if (!goes)
		return false;
	record_message(message, index, TRACE_SEND, sent.number, message->call.tag);
	if (__builtin_expect(sent.receiver_lags, 0))
		wait_hold_back(&group->waiter);
	return true;
}

static void tell_caller(const struct p2p_short *message,
			const struct mailbox_short_received *received, uint64_t index)
{
	const struct mail_message *matched = &received->message;
	if (message->message)
		p2p_fill_message(message->message, matched);
	if (received->crossed)
		p2p_warn_crossed(message->group, matched->envelope.tag, index, message->site);
}

bool p2p_short_receive(const struct p2p_short *message, uint64_t *number)
{
	ls_group *group = message->group;
	struct mailbox_short_received received;
	if (!mailbox_receive_short(group->mailbox, &message->call, true, &received, NULL)) {
		if (number)
			*number = received.number;
		return false;
	}
	uint64_t index = trace_reserve_inline(&group->world->trace);
	record_message(message, index, TRACE_RECV, received.number, received.message.envelope.tag);
	tell_caller(message, &received, index);
	return true;
}

/* Polls for about two microseconds without posting the receive: posting would delay the answer. */
bool p2p_short_await(const struct p2p_short *message, uint64_t index)
{
	ls_group *group = message->group;
	struct mailbox_short_received received;
	struct wait_word word;
	struct wait_call wait = {.words = &word, .count = 1};
	int polls = P2P_POLLS;
	bool there;
	do
		there = mailbox_receive_short(group->mailbox, &message->call, false, &received,
					      &word);
	while (!there && p2p_comes_soon(&group->waiter, &wait, &polls));
	if (!there)
		return false;
	const struct mail_message *matched = &received.message;
	if (message->call.tag != matched->envelope.tag)
		trace_matched(&group->world->trace, index, matched->source, matched->envelope.tag);
	trace_end(&group->world->trace, index, LS_OK);
	tell_caller(message, &received, index);
	return true;
}
