/* SPDX-License-Identifier: BSD-3-Clause
 * One send or receive, awaited in every way that there is. */
#ifndef TEST_RANKS_MESSAGE_WAYS_H
#define TEST_RANKS_MESSAGE_WAYS_H

#include <sched.h>
#include <string.h>

#include "runner.h"

/* How a rank waits for its send or receive. */
enum way { BLOCKING, HANDLE, ANY, CALLBACK, BATCH };

static inline void message_keep_status(void *data, ls_status status)
{
	_Atomic int *kept = data;
	atomic_store(kept, (int)status);
}

struct message {
	ls_group *group;
	void *buffer;
	uint64_t count;
	int peer; /* of a receive in the way ANY: not asked for */
	int tag;
	bool sends;
};

static inline ls_status message_call(const struct message *message, int peer,
				     const struct ls_call_options *options)
{
	if (message->sends)
		return ls_send(message->group, message->buffer, message->count, LS_INT32, peer,
			       options);
	return ls_recv(message->group, message->buffer, message->count, LS_INT32, peer, options);
}

/* How it ended. The limit is the call's own, 0: the group's. */
static inline ls_status message_pass(const struct message *message, enum way way, uint32_t limit_ms)
{
	struct ls_call_options options = {
		.size = sizeof options, .tag = message->tag, .timeout_ms = limit_ms};
	int peer = way == ANY && !message->sends ? LS_ANY_SOURCE : message->peer;
	_Atomic int kept = LS_PENDING;
	ls_request *op = NULL;
	ls_status status, ended;
	switch (way) {
	case HANDLE:
		options.request = &op;
		status = message_call(message, peer, &options);
		if (status == LS_OK)
			status = ls_wait(op, 0);
		ls_request_free(op);
		return status;
	case CALLBACK:
		options.callback = message_keep_status;
		options.callback_data = &kept;
		status = message_call(message, peer, &options);
		if (status != LS_OK)
			return status;
		while (atomic_load(&kept) == LS_PENDING)
			sched_yield();
		return (ls_status)atomic_load(&kept);
	case BATCH:
		status = ls_batch_begin(message->group);
		if (status != LS_OK)
			return status;
		status = message_call(message, peer, &options);
		ended = ls_batch_end(message->group, NULL);
		return status != LS_OK ? status : ended;
	default:
		return message_call(message, peer, &options);
	}
}

/* The group is closed; the report blames this rank, and says this of it. */
static inline void message_is_closed(ls_group *group, ls_status status, int culprit,
				     const char *part)
{
	struct ls_failure failure = {.size = sizeof failure};
	int32_t value = 0;
	runner_await_failure(group);
	OK(ls_group_failure(group, &failure));
	CHECK_THAT(failure.status == status && failure.rank == culprit && strstr(failure.text, part),
		   "%s, rank %d is blamed: %s", ls_status_name(failure.status), failure.rank,
		   failure.text);
	ls_request *op;
	GIVES(status, ls_recv(group, &value, 1, LS_INT32, 0, NULL));
	if (ls_irecv(group, &value, 1, LS_INT32, 0, NULL, &op) == LS_OK) {
		GIVES(status, ls_wait(op, 0));
		ls_request_free(op);
	}
}

/* As many short messages as there is room for by default, which nobody receives. */
static inline void message_fill_room(ls_group *group, int peer)
{
	enum { ROOM = 64 };
	for (int32_t i = 0; i < ROOM; i++)
		OK(ls_send(group, &i, 1, LS_INT32, peer, NULL));
}

#endif
