/* SPDX-License-Identifier: BSD-3-Clause
 * The life of an operation: made, submitted, advanced, complete; what happens to it when members
 * die or leave; and the progress thread, which makes progress on operations that no calling thread
 * waits for.
 *
 * An operation is complete when its status is final. A member is `gone` when it is dead or has left
 * the group. */
#ifndef PROGRESS_PROGRESS_H
#define PROGRESS_PROGRESS_H

#include "world/ls_group.h"

struct pool_launch;

/* A thread that waits for another thread of this rank checks for itself after this long. */
enum { PROGRESS_SLICE_MS = 5 };

/* Whether a wait has ended with this status because a member is gone. */
static inline bool progress_says_gone(ls_status status)
{
	return status == LS_PEER_DIED || status == LS_PEER_LEFT;
}

/* ---- op_pool.c: the life of an operation ---- */

/* An operation from the pool, zeroed. The lane has a reference to it, and with `handle` the user
 * has one, too. NULL, with a message, if there is no memory. */
struct ls_request *progress_op_new(ls_group *group, bool handle);
/* As progress_op_new with a handle, for a receive that is only posted: not zeroed, but with all
 * fields set, except base.call and timeout_ms, and those that posting it sets. */
struct ls_request *progress_op_new_receive(ls_group *group);
/* Returns an operation to the pool that was never queued. */
void progress_op_discard(struct ls_request *op);
/* As progress_op_discard, for an operation that was listed, so that other threads may hold it. */
void progress_op_drop(struct ls_request *op, bool handle);
/* Completes an operation with `status`: runs its callback, and drops one reference. Returns the
 * status that it has in the end: with LOCKSTEP_CHECK=1 it fails if the program has changed what it
 * was to send. */
ls_status progress_op_complete(struct ls_request *op, ls_status status);
/* Whether the calling thread is in a callback of the program. It must not wait there: others wait
 * for what this thread has taken to make progress. */
extern _Thread_local bool progress_in_callback;
static inline bool progress_calls_back(void)
{
	return progress_in_callback;
}
/* As progress_op_complete with LS_OK, for an operation of the pool that ends quietly. The store to
 * `complete` is a release only: before the caller looks for threads that wait, it makes a
 * sequentially consistent exchange with them. */
void progress_op_complete_quietly(struct ls_request *op);
/* Whether the operation is a send, a receive or a batch, and so not in the lane. */
static inline bool progress_op_is_p2p(const struct ls_request *op)
{
	return op->is_batch || !op_is_collective(op->base.call.kind);
}
/* Sequentially consistent: see progress_op_complete. */
static inline bool progress_op_is_complete(const struct ls_request *op)
{
	return atomic_load(&op->complete) != 0;
}
/* The user frees the handle. */
void progress_op_free_handle(struct ls_request *op);
/* Adds a reference, and drops one. */
void progress_op_ref(struct ls_request *op);
void progress_op_unref(struct ls_request *op);
void progress_pool_init(struct world_pool *pool);
/* Frees the handles that the user has not freed; progress_warn_left has named them. */
void progress_pool_fini(ls_group *group);
/* A part of the batch is complete, or ls_batch_end was called. */
void progress_batch_part_complete(struct ls_request *batch, ls_status status);

/* ---- run.c and pause.c: one operation ---- */

/* Up to when a wait lasts: it returns then, although its operation is not complete. */
struct progress_pause {
	uint64_t at_ns; /* 0: at once; CLOCK_NEVER: not before the operation is complete */
	bool returns;   /* the caller resumes the wait soon, so a diagnosis takes both for one */
	/* With at_ns 0: test the wait once; never block. An operation whose time limit has passed,
	 * or that can never complete, fails. */
	bool checks_only;
	uint64_t since_ns; /* when a resumed wait began; 0: now */
};
extern const struct progress_pause progress_no_pause;
/* The pause of a public wait. It ends after timeout_ms. With 0 it never ends, except in groups of
 * resume_after_signals: there now and then, so that signal handlers run. */
struct progress_pause progress_op_pause(struct ls_request *op, uint32_t timeout_ms);
/* When the first of the operation's resumed waits began; now, if there was none before. */
uint64_t progress_op_since(struct ls_request *op);

/* Whether a thread that waits for the operation may stop waiting before it is complete. */
static inline bool progress_pause_has_own_limit(const struct progress_pause *pause,
						const struct ls_request *op)
{
	return op->has_own_limit || (pause->at_ns < op->deadline_ns && !pause->returns);
}

/* Sets all fields that no other function sets. Other fields keep their values, because clearing
 * them would cost more than a short collective. */
void progress_op_prepare(struct ls_request *op, ls_group *group, const struct op_call *call);
/* Sets the operation's time limit. */
void progress_op_limit(struct ls_request *op, const struct ls_call_options *options);
/* Sets the time limit, and begins the trace record. The caller has set op->base.seq and the fields
 * that the call asks for. */
void progress_op_record(struct ls_request *op, const struct ls_call_options *options,
			const void *site);
/* What a trace record says of the wildcards of a receive or probe. */
static inline uint32_t progress_wildcards(enum trace_kind kind, int peer, int tag)
{
	if (kind != TRACE_RECV && kind != TRACE_PROBE)
		return 0;
	return (peer < 0 ? TRACE_ANY_SOURCE : 0u) | (tag < 0 ? TRACE_ANY_TAG : 0u);
}
/* The trace record of a call. label: NULL for none. */
static inline struct trace_begin progress_record(ls_group *group, const struct op_call *call,
						 uint64_t seq, const char *label, const void *site)
{
	return (struct trace_begin){
		.seq = seq,
		.count = call->count,
		.shape = call->shape,
		.site = (uint64_t)(uintptr_t)site,
		.label = label ? trace_label(&group->world->trace, label) : 0,
		.group = group->id,
		.peer = call->peer,
		.tag = call->tag,
		.kind = (uint16_t)call->kind,
		.dtype = (uint8_t)call->dtype,
		.reduce_op = (uint8_t)call->reduce,
		.wildcards = progress_wildcards(call->kind, call->peer, call->tag),
	};
}
/* Makes progress on an operation: submits it if necessary, advances it, and waits.
 * True: *status is its status, and no peer touches its buffers any more. False, at the pause:
 * another thread may continue. */
bool progress_op_run(struct ls_request *op, struct op_workspace *workspace, struct waiter *waiter,
		     const struct progress_pause *pause, ls_status *status);
/* As progress_op_settle, for a message that the mailbox has finished with LS_OK, at `ticks` of
 * base/clock.h. */
void progress_op_succeed(struct ls_request *op, uint64_t ticks);
/* As progress_op_run, for a detached operation, after the mailbox has finished it
 * (op->base.status) or because of `reason`: returns its final status; no peer touches its buffers
 * any more. LS_PENDING, only without `waits`: it has failed, and a device still works on it
 * (mailbox_await_device), or a peer or the link still uses its buffer (mailbox_linger). */
ls_status progress_op_settle(struct ls_request *op, ls_status reason, int peer, bool waits);

/* ---- enqueue.c: operations on streams of the program's, see op/stream.h ---- */

/* Makes the new operation one on this stream of the group's device; its call is set. Errors, with a
 * message: LS_BAD_ARGUMENT (the group has no device, or no such stream on it), LS_UNSUPPORTED (the
 * stream is being captured; the peer of a send is on another host), LS_OUT_OF_MEMORY, LS_SYSTEM. */
LS_CHECKED ls_status progress_stream_prepare(const char *function, struct ls_request *op,
					     void *stream);
/* Claims the launch of the operation (pool/launch.h). A collective claims it before it takes its
 * number: so the collectives of a group run in the order in which the stream has them. */
LS_CHECKED ls_status progress_stream_claim(struct ls_request *op, struct pool_launch *out);
/* Enqueues the operation, which has begun, on the stream. claimed: what progress_stream_claim
 * returned; the claim ends. The call waits for room in the stream's queue, or until the operation
 * has arrived; other threads can advance it meanwhile. The caller holds a reference to it. After an
 * error the group has failed, and the thread that advances its operations ends this one, but calls
 * no callback. If the callback has been called already, or will be, this returns LS_OK. Errors: the
 * cause of the group. */
LS_CHECKED ls_status progress_stream_launch(struct ls_request *op, ls_status claimed,
					    struct pool_launch *launch);
/* Makes `stream` wait until the launched operation is done in its own stream. Errors:
 * LS_BAD_ARGUMENT, LS_UNSUPPORTED (the stream is being captured), LS_SYSTEM, with a message. */
LS_CHECKED ls_status progress_stream_follow(const struct ls_request *op, void *stream);
/* Whether the operation is on a stream, and the stream has done all of it. */
bool progress_stream_is_over(const struct ls_request *op);
/* Lets streams continue that wait for operations of failed groups, because other operations may be
 * behind them in these streams. */
void progress_stream_resume_failed(struct world *world);
/* Keeps the words of operations that are freed; NULL is allowed. */
void progress_stream_keep_words(struct world *world, struct op_stream_words *words);
/* Removes the operation from the device's list of operations on streams. Call when it is complete,
 * or will not be launched. */
void progress_stream_leave(struct ls_request *op);
/* For an operation that was prepared and will not be launched. */
void progress_stream_discard(struct ls_request *op);

/* ---- fail.c ---- */

/* Makes `reason` the group's cause. world_peer: the world rank on which it was seen; -1: none.
 * Returns the cause that counts, never LS_OK. Only the thread that advances the operation may give
 * what the operation itself has found: LS_MISMATCH and LS_TRUNCATED. Any other thread may give any
 * other reason. */
ls_status progress_op_fail(const struct ls_request *op, ls_status reason, int world_peer,
			   const struct ranks *needs);
/* Fails the group because the operation needs `member` or, with -1, one of the members `gone`.
 * Returns the cause that counts. */
ls_status progress_op_fail_gone(const struct ls_request *op, const struct ranks *gone, int member);

/* ---- needs.c ---- */

/* Whether the operation can complete without the members `gone`. *peer: the member that it needs;
 * -1: any of them. */
enum mailbox_need progress_op_need(const struct ls_request *op, const struct ranks *gone, int *peer);

/* A receive or probe from any source when all other members are gone: it continues as long as
 * another thread of this rank may still send the message, because it runs or has called
 * Lockstep. */
struct progress_self_only {
	/* check again after this long; 0: other members are there, or it cannot complete */
	uint64_t slice_ns;
	/* For a blocking call: how its wait for the others ended. */
	ls_status status;
	int peer;
};
/* After progress_op_need has returned MAILBOX_NEEDS_SELF: whether the operation may continue, or
 * its message has arrived. */
bool progress_self_only_goes_on(const struct ls_request *op, const struct ranks *gone,
				struct progress_self_only *self_only);
uint64_t progress_self_only_until(const struct progress_self_only *self_only, uint64_t until_ns);
/* For an operation that no thread waits for: whether it can never complete. *self_only: another
 * thread of this rank may complete it, so the caller checks again later. */
bool progress_op_is_lost(const struct ls_request *op, const struct ranks *gone, int *peer,
			 bool *self_only);

/* ---- representative.c ---- */

/* The operation that represents this one in a wait: for a batch one of its parts; otherwise the
 * operation itself. */
const struct ls_request *progress_representative(const struct ls_request *op);
/* Setting P2P=serial: whether the operation waits for the sends before it. */
bool progress_waits_for_sends(const struct ls_request *op);
/* As progress_representative, but `head` if the operation waits for the sends before it, and head
 * is not NULL. */
const struct ls_request *progress_shown_for(const struct ls_request *op,
					    const struct ls_request *head);
/* Under the list's lock: the first of the sends that wait for each other, whether it has begun or
 * not; NULL: none. One that has failed, and lingers until its peer stops using its buffer, holds up
 * no other. */
struct ls_request *progress_first_ordered(struct world_p2p *p2p) LOCK_REQUIRES(rank);

/* ---- thread.c: the progress thread ---- */

/* Starts the progress thread if there is none. Errors: LS_OUT_OF_MEMORY, with a message. */
ls_status progress_thread_start(struct world *world);
/* Call when collectives of the group are queued and no thread makes progress on them. */
void progress_thread_wake(ls_group *group);
/* Whether the calling thread is the progress thread. */
bool progress_thread_is_me(const struct world *world);
/* Call before an operation fails, because that may take until other ranks have written their
 * reports or stopped using buffers. If the calling thread is the progress thread, this starts
 * another one in its place, and the caller ends when it is done with the operation. If no thread
 * can be started, a message says so, and the caller stays the progress thread. */
void progress_thread_replace(struct world *world);
/* Called when no group object is free: waits a moment for the progress thread to release those of
 * closed groups. False: it holds none. */
bool progress_thread_release_closed(struct world *world);
/* After all groups are closed: waits until the thread has ended. */
void progress_thread_stop(struct world *world);

/* ---- thread.c, for the thread itself (p2p/attend.c) ---- */

/* Between these two calls the thread may act, so nothing is proved about this rank. end: false if
 * another thread woke it meanwhile, so there may be work; otherwise it sleeps next. */
void progress_thread_begin(struct world *world);
bool progress_thread_end(struct world *world);

#endif
