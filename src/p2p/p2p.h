/* SPDX-License-Identifier: BSD-3-Clause
 * Sends and receives that outlive their call, of all groups of a rank. Any number of them are in
 * progress at once. One thread at a time makes the progress that this rank has to make on all of
 * them:
 *
 *   - a thread that waits for an operation makes progress on all until its own is complete;
 *   - else the rank's progress thread. It sleeps until a peer wakes it (base/wait.h: wait_arm).
 *     Only these need it: receives, because a long message holds up its sender; sends without a
 *     free slot, or that wait for earlier sends; operations with a callback, or on a stream. So a
 *     program that calls and then waits never pays for it.
 *
 * A proof of deadlock needs to know whether the rank may still act by itself. While the progress
 * thread may be woken, the wait table counts it as a thread that is not shown (`unpublished`),
 * unless the watch has published what would wake it:
 *   armed and not shown, or the progress thread makes progress  ==  counted in unpublished */
#ifndef P2P_P2P_H
#define P2P_P2P_H

#include "base/ranks.h"
#include "progress/progress.h"

/* ---- start.c ---- */

/* Begins `op` (from the pool, detached, its record begun): it takes its place in the matching
 * order. It may be complete, and back in the pool, when this returns. On failure it has not begun,
 * and the caller drops it. Errors: LS_OUT_OF_MEMORY. */
ls_status p2p_start(struct ls_request *op);

/* ---- pending.c ---- */

/* Completes the operations of a group that the mailbox has finished. Call it after every mailbox
 * call that takes messages from the rings. */
void p2p_collect(ls_group *group);
/* How many operations of a group are not complete. */
long p2p_pending(ls_group *group);
/* As p2p_pending, without those that have failed and only wait for a peer to stop using their
 * buffer. In a job with a device they count, too. */
long p2p_under_way(ls_group *group);
/* The first operation that is not complete, with a reference; NULL: none. */
struct ls_request *p2p_first(ls_group *group);
/* The first operation on a stream, with a reference; NULL: none. */
struct ls_request *p2p_first_on_stream(ls_group *group);
/* The first operation on a stream whose message this rank or the peer has copied out; with a
 * reference. NULL: none. */
struct ls_request *p2p_first_delivered(ls_group *group);
/* Cancels a send that has not begun; false if it has begun or is complete. */
bool p2p_cancel(struct ls_request *op);

/* ---- close.c ---- */

/* Blocks until op is complete. Only for an operation that another thread of this rank, which waits
 * for nobody, is just completing. */
void p2p_await_complete(const struct ls_request *op);
/* Blocks until op has begun or is complete. Only for an operation that another thread is about to
 * begin. */
void p2p_await_begun(const struct ls_request *op);
/* For a thread that closes the group: makes all progress that is possible without waiting, so that
 * what is still pending is under way. */
void p2p_progress(ls_group *group);
/* Ends all operations of a group. Call before it is closed; it has failed if operations are
 * pending. */
void p2p_close(ls_group *group);

/* ---- matched.c ---- */

/* After a receive is complete: fills in the caller's message and block. */
void p2p_deliver(const struct ls_request *op);

/* Writes the envelope of the matched message for the caller. */
void p2p_fill_message(struct ls_message *out, const struct mail_message *matched);
/* Warns, once for each call site, that these members each sent before they received, which worked
 * only because the messages were short. */
void p2p_warn_crossed(ls_group *group, int tag, uint64_t record, const void *site);

/* ---- short.c ---- */

struct p2p_short {
	ls_group *group;
	struct mailbox_short call; /* checked */
	const char *label;
	const void *site;
	struct ls_request *handle;  /* for the caller, if it completes at once; NULL: none */
	struct ls_message *message; /* of a receive: to be filled in; NULL: none */
};

/* Fills the two shared handles of the group. */
void p2p_short_init(ls_group *group);
/* True: the message is complete, with LS_OK, and recorded. False: nothing was done. */
bool p2p_short_send(const struct p2p_short *message);
/* True: the receive is complete. False: if `number` is not NULL, *number is that of the receive
 * that the caller posts; 0: it must not post (`posts` is false, or there is no memory). */
bool p2p_short_receive(const struct p2p_short *message, uint64_t *number);
/* A blocking receive whose record has begun. True: its message arrived soon, and the receive is
 * complete and recorded. */
bool p2p_short_await(const struct p2p_short *message, uint64_t index);

/* ---- posted.c ---- */

/* Whether p2p_post_short may take a receive from this peer: the peer is on this host, the options
 * have no time limit, and the progress thread exists, which the general path starts. The other
 * options are known to be plain. */
static inline bool p2p_may_post(const ls_group *group, int peer,
				const struct ls_call_options *options)
{
	return transport_is_here(&group->team, peer) && !(options && options->timeout_ms) &&
	       atomic_load_explicit(&group->world->progress.there, memory_order_acquire);
}
/* As p2p_start, for a receive that p2p_short_receive has found no message for: makes the operation,
 * records it and posts it. True: *out is its handle; it may be complete. False: nothing was done,
 * for lack of memory, of which the general path tells. */
bool p2p_post_short(const struct p2p_short *message, uint64_t number, struct ls_request **out);
/* For a thread that asks for a request: if it is a posted receive whose message is there, takes the
 * message in without the right to make progress. True: the request is complete. */
bool p2p_posted_test(const struct ls_request *op);
/* The same for a thread that waits: also if the message comes soon. */
bool p2p_posted_await(const struct ls_request *op);

/* ---- wakeups.c ---- */

/* How often threads of this rank have woken each other. */
uint64_t p2p_wakeups(const struct world *world);

/* ---- in_vain.c ---- */

/* After a probe has found nothing: LS_PENDING, or the status with which it can never find a
 * message. `gone`: the members that were dead or had left before the probe looked. */
ls_status p2p_probe_gone(ls_group *group, const struct op_call *call, const struct ranks *gone,
			 const struct ls_call_options *options, const void *site);
/* For public calls: fails the group if one of its nonblocking sends can never be received. */
void p2p_fail_gone(ls_group *group);

/* ---- await.c ---- */

enum { P2P_ANY_MAX = 64 }; /* handles of one wait */

/* Blocks until one of `count` operations is complete, or until the pause: LS_PENDING; or
 * LS_INTERRUPTED. */
ls_status p2p_await(struct ls_request *const *ops, int count, const struct progress_pause *pause);
/* The collective among the operations that ends first: collectives of a group end in the order of
 * their numbers. NULL: there is none. */
struct ls_request *p2p_first_collective(struct ls_request *const *ops, int count);
/* For ls_test of `op`: makes what progress is possible at once on all operations, unless another
 * thread does. Fails the group if `op` can never complete. */
void p2p_poll(const struct ls_request *op);

/* ---- arm.c ---- */

void p2p_init(struct world *world);
/* Call after all groups are closed and the progress thread has ended. */
void p2p_fini(struct world *world);

/* Call for a new operation: arms the doorbell, if no thread makes progress and the doorbell is not
 * armed already. has_work: the operation can make progress, or complete, at once. */
void p2p_arm(struct world *world, bool has_work);

/* For the watch, when a wait lasts long: publishes in the wait table what would wake the progress
 * thread, or removes what it has published. */
void p2p_show(struct world *world);

/* ---- attend.c ---- */

/* The body of the progress thread (world_progress.act): returns when the thread has to stop, or has
 * handed over. */
void p2p_thread_run(struct world *world);

#endif
