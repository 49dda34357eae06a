/* SPDX-License-Identifier: BSD-3-Clause
 * The public calls on handles. */

#include "base/fork.h"
#include "base/messages.h"
#include "progress/lane.h"
#include "progress/warn.h"
#include "progress/progress.h"
#include "p2p/p2p.h"
#include "group/group_private.h"
#include "group/arguments.h"
#include "group/group.h"

enum { CANCEL_MS = 100 };

static bool is_freed(const ls_request *op)
{
	return atomic_load_explicit(&op->is_freed, memory_order_relaxed);
}

__attribute__((noinline)) ls_status group_check_handle(const char *function, const ls_request *op)
{
	static const char right[] = "a handle of an operation that has not been freed";
	if (!op)
		return group_bad_state(function, "request", "NULL", right);
	if (!world_is_usable(op->group))
		return group_not_open(function, op->group);
	if (is_freed(op))
		return group_bad_state(function, "request", "one that was freed already", right);
	return LS_OK;
}

/* The status; LS_PENDING while the operation is under way. */
static ls_status read_status(ls_request *op)
{
	uint32_t complete = atomic_load_explicit(&op->complete, memory_order_acquire);
	if (!complete)
		return LS_PENDING;
	if (op->shared)
		mailbox_increment(op->group->mailbox, &op->asked);
	else
		atomic_store_explicit(&op->status_read, true, memory_order_relaxed);
	return (ls_status)(complete - 1);
}

/* As group_check_handle, but short where nothing is wrong. */
static inline ls_status check_handle(const char *function, const ls_request *op)
{
	if (op && world_is_usable(op->group) && !is_freed(op))
		return LS_OK;
	return group_check_handle(function, op);
}

ls_status ls_test(ls_request *op)
{
	ls_status status = check_handle("ls_test", op);
	if (status != LS_OK)
		return status;
	status = read_status(op);
	if (status != LS_PENDING || !progress_op_is_p2p(op))
		return status;
	if (p2p_posted_test(op))
		return read_status(op);
	p2p_fail_gone(op->group);
	p2p_poll(op);
	return read_status(op);
}

static ls_request *find_first(ls_request *const *ops, int count)
{
	for (int i = 0; i < count; i++)
		if (ops[i])
			return ops[i];
	return NULL;
}

/* LS_OK when one of the operations is complete. */
static ls_status await_p2p(ls_request *const *ops, int count, const struct progress_pause *pause)
{
	ls_status status = p2p_await(ops, count, pause);
	if (status != LS_INTERRUPTED)
		return status;
	ls_request *first = find_first(ops, count);
	if (first->group->world->resumes)
		return LS_PENDING;
	status = progress_op_fail(first, LS_INTERRUPTED, -1, NULL);
	(void)status; /* the operations return it */
	do
		status = p2p_await(ops, count, &progress_no_pause);
	while (status == LS_INTERRUPTED); /* the buffer may still be in use */
	return status;
}

ls_status ls_wait(ls_request *op, uint32_t timeout_ms)
{
	ls_status status = check_handle("ls_wait", op);
	if (status != LS_OK)
		return status;
	if (atomic_load_explicit(&op->complete, memory_order_acquire)) {
		if (op->shared && op->base.call.kind == TRACE_SEND)
			mailbox_note_waited(op->group->mailbox);
		return read_status(op);
	}
	status = group_check_may_wait("ls_wait");
	if (status != LS_OK)
		return status;
	wait_thread_enter(&op->group->waiter);
	if (progress_op_is_p2p(op) && p2p_posted_await(op))
		return read_status(op);
	struct progress_pause pause = progress_op_pause(op, timeout_ms);
	p2p_fail_gone(op->group);
	if (!progress_op_is_p2p(op))
		status = progress_lane_await(op, &pause);
	else
		status = await_p2p(&op, 1, &pause);
	return status == LS_PENDING ? LS_PENDING : read_status(op);
}

/* The index of the first complete operation, or -1. */
static int find_complete(ls_request *const *ops, int count, ls_status *status)
{
	for (int i = 0; i < count; i++) {
		if (!ops[i])
			continue;
		*status = read_status(ops[i]);
		if (*status != LS_PENDING)
			return i;
	}
	*status = LS_PENDING;
	return -1;
}

static bool has_p2p(ls_request *const *ops, int count)
{
	for (int i = 0; i < count; i++)
		if (ops[i] && progress_op_is_p2p(ops[i]))
			return true;
	return false;
}

/* Waits until one operation is complete, or until the pause. If there are messages among the
 * operations, the progress thread runs the collectives. */
static void await_any(ls_request *const *ops, int count, const struct progress_pause *pause)
{
	ls_status status = has_p2p(ops, count)
				   ? await_p2p(ops, count, pause)
				   : progress_lane_await(p2p_first_collective(ops, count), pause);
	(void)status; /* ls_test and ls_wait of each operation return it */
}

ls_status ls_wait_any(ls_request *const *ops, int count, uint32_t timeout_ms, int *index)
{
	const char *function = "ls_wait_any";
	ls_status status;
	if (!index)
		return group_bad_state(function, "index", "NULL", "not NULL");
	*index = -1;
	if (!ops || count < 1 || count > P2P_ANY_MAX)
		return group_bad(function, ops ? "count" : "requests", ops ? count : 0,
				 "1 to 64 handles");
	ls_request *first = find_first(ops, count);
	status = group_check_handle(function, first);
	if (status != LS_OK)
		return status;
	for (int i = 0; i < count; i++) {
		if (ops[i] && ops[i]->group != first->group)
			return group_bad(function, "requests", i,
					 "a handle of the same group as the others");
		status = ops[i] ? group_check_handle(function, ops[i]) : LS_OK;
		if (status != LS_OK)
			return status;
	}
	*index = find_complete(ops, count, &status);
	if (*index >= 0)
		return status;
	status = group_check_may_wait(function);
	if (status != LS_OK)
		return status;
	wait_thread_enter(&first->group->waiter);
	struct progress_pause pause = progress_op_pause(first, timeout_ms);
	p2p_fail_gone(first->group);
	await_any(ops, count, &pause);
	*index = find_complete(ops, count, &status);
	return status;
}

/* The handle does not tell which operation this was. But if it was freed more often than a status
 * was read, one status was not read. */
static void free_shared(struct ls_request *op, const void *site)
{
	struct mailbox *mailbox = op->group->mailbox;
	uint64_t freed = mailbox_increment(mailbox, &op->freed);
	if (freed <= atomic_load_explicit(&op->asked, memory_order_relaxed))
		return;
	mailbox_increment(mailbox, &op->asked);
	progress_warn_dropped(op, site);
}

void ls_request_free(ls_request *op)
{
	const void *site = GROUP_SITE;
	if (!op || !world_is_usable(op->group))
		return;
	if (op->shared) {
		free_shared(op, site);
		return;
	}
	if (atomic_exchange_explicit(&op->is_freed, true, memory_order_relaxed)) {
		(void)check_handle("ls_request_free", op);
		return;
	}
	/* Nobody can read the status any more. A callback, which may be the caller, still gets
	 * it. */
	bool sends = op->is_batch || op->base.call.kind == TRACE_SEND;
	if (sends && !op->callback && !progress_op_is_complete(op))
		p2p_fail_gone(op->group);
	if (!op->callback && !atomic_load_explicit(&op->status_read, memory_order_relaxed))
		progress_warn_dropped(op, site);
	progress_op_free_handle(op);
}

void group_op_withdraw(struct ls_request **op)
{
	if (!op)
		return;
	progress_op_free_handle(*op);
	*op = NULL;
}

ls_status group_op_await(struct ls_request **op)
{
	ls_status status = ls_wait(*op, 0);
	if (status == LS_PENDING)
		return LS_PENDING;
	ls_request_free(*op);
	*op = NULL;
	return status;
}

ls_status group_op_finish(ls_request **op)
{
	ls_status status;
	do
		status = group_op_await(op);
	while (*op); /* a signal */
	return status;
}

/* ---- cancelling ---- */

/* Whether the receiver of a long send to another host has cancelled it. Any thread there that makes
 * progress on the link answers, so a healthy rank answers at once. */
static bool is_cancelled_there(ls_request *op)
{
	struct ls_group *group = op->group;
	struct wait_word words[2];
	if (!mailbox_ask_cancel(group->mailbox, &op->base, words))
		return false;
	struct wait_call call = {
		.words = words, .count = 2, .any = true, .deadline_ns = clock_deadline_ns(CANCEL_MS)};
	int peer;
	ls_status status = wait_words(&group->quiet, &call, &peer);
	(void)status; /* without an answer the send goes on, and may be cancelled later */
	return mailbox_cancel(group->mailbox, &op->base) || atomic_load(&op->base.p2p.cancelled);
}

ls_status ls_cancel(ls_request *op)
{
	ls_status checked = group_check_handle("ls_cancel", op);
	if (checked != LS_OK)
		return checked;
	checked = group_check_may_wait("ls_cancel");
	if (checked != LS_OK)
		return checked;
	ls_group *group = op->group;
	if (op->is_batch || op_is_collective(op->base.call.kind) || op->on_stream)
		return group_bad_state("ls_cancel", "request",
				       "a collective, a batch or on a stream",
				       "a send or a receive on no stream");
	if (p2p_cancel(op)) {
		atomic_store(&op->status_read, true);
		return LS_OK;
	}
	p2p_await_begun(op);
	if (atomic_load_explicit(&op->complete, memory_order_acquire) ||
	    !atomic_load_explicit(&op->begun, memory_order_acquire) ||
	    (!mailbox_cancel(group->mailbox, &op->base) && !is_cancelled_there(op)))
		return LS_PENDING;
	p2p_collect(group);
	/* If that did not complete the operation, another thread is completing it now. */
	p2p_await_complete(op);
	atomic_store(&op->status_read, true);
	return LS_OK;
}

ls_status group_op_cancel(ls_request **op)
{
	if (!*op)
		return LS_CANCELLED;
	ls_status status = ls_cancel(*op);
	(void)status; /* if it is too late, the operation ends by itself */
	return group_op_finish(op);
}
