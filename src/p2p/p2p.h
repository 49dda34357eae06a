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

/* The first part of p2p_start: the operation has begun, or is in the list behind earlier sends. */
ls_status p2p_begin(struct ls_request *op);
/* Completes the operations of a group that the mailbox has finished. Call it after every mailbox
 * call that takes messages from the rings. */
void p2p_collect(ls_group *group);
/* How many operations of a group are not complete. */
long p2p_pending(ls_group *group);
/* The first operation that is not complete, with a reference; NULL: none. */
struct ls_request *p2p_first(ls_group *group);
/* The first operation on a stream, with a reference; NULL: none. */
struct ls_request *p2p_first_on_stream(ls_group *group);
/* The first operation on a stream whose message this rank or the peer has copied out; with a
 * reference. NULL: none. */
struct ls_request *p2p_first_delivered(ls_group *group);
/* ---- close.c ---- */

/* Blocks until op is complete. Only for an operation that another thread of this rank, which waits
 * for nobody, is just completing. */
void p2p_await_complete(const struct ls_request *op);
/* Blocks until op has begun or is complete. Only for an operation that another thread is about to
 * begin. */
void p2p_await_begun(const struct ls_request *op);
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

/* So often a thread that waits for a message polls, for about two microseconds in all, before it
 * makes progress on everything else as well, or shows in the wait table what it waits for. */
enum { P2P_POLLS = 8 };

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
/* number: NULL, or set to that of a receive that is to be posted; 0: there is no memory for an
 * inbox, or the message was there. */
bool p2p_short_receive(const struct p2p_short *message, uint64_t *number);
/* A blocking receive whose record has begun. True: its message arrived soon, and the receive is
 * complete and recorded. */
bool p2p_short_await(const struct p2p_short *message, uint64_t index);

/* ---- posted.c ---- */

/* Whether p2p_post_short may take a receive from this peer. The options have a tag and a label at
 * most, and perhaps a time limit. The general path starts the progress thread. */
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
/* Fills *out to wait until there are more than `seen` of them. */
void p2p_wakeups_word(const struct world *world, uint64_t seen, struct wait_word *out);
/* Wakes the threads that wait for the one that makes progress, as one of them may have to take its
 * place; and that thread itself, as it may have to look again. */
void p2p_wake_threads(struct world *world);
/* The same, if there is such a thread: if world_p2p.followers is not 0. */
void p2p_wake_waiters(struct world *world);
/* Makes the thread that makes progress look again at new operations, at deadlines and at causes,
 * even if it sleeps. */
void p2p_recheck(struct world *world);

/* ---- pending.c, for posted.c ---- */

/* Adds the group to those that have operations. */
void p2p_add_group(ls_group *group);
/* Appends an operation to the list. */
void p2p_append(struct world_p2p *p2p, struct ls_request *op) LOCK_REQUIRES(group);

/* ---- pending.c, for the thread that makes progress ---- */

/* Ends all operations of a group that has failed. waits: until peers and devices no longer touch
 * their buffers. */
void p2p_end_all(ls_group *group, bool waits);
/* Setting P2P=serial: begins the next send; true if there was one. */
bool p2p_begin_next(struct world *world);
/* Cancels a send that has not begun; false if it has begun or is complete. */
bool p2p_cancel(struct ls_request *op);
/* Under the list's lock: whether there is a send that p2p_begin_next would begin. */
bool p2p_can_begin(struct world_p2p *p2p) LOCK_REQUIRES(group);

/* ---- pass.c ---- */

/* Call with the right to make progress: makes all progress that is possible without waiting. True:
 * there is more to do. */
bool p2p_pass(struct world *world);

enum {
	P2P_ANY_MAX = 64,    /* handles of one wait */
	P2P_EXTRA_WORDS = 2, /* one for a recheck, one for collectives */
	/* Words of the operations of one wait. An operation has one word, or one for each source,
	 * or the word for room at a peer; a batch has up to three for each peer. Several batches
	 * may have more, which are not shown. */
	P2P_WORDS_OF_A_PEER = 3,
	/* The words on the stack of a thread that waits. */
	P2P_FEW_WORDS = P2P_ANY_MAX + P2P_WORDS_OF_A_PEER * RANKS_HOST_MAX,
};

void p2p_words_init(struct world_words *words);
void p2p_words_fini(struct world_words *words);
/* Makes room for `count` words; the old content is lost. False without memory: then nothing has
 * changed. */
bool p2p_words_grow(struct world_words *words, int count);
/* Marks the words as this group's: its members are the peers of the wait. */
void p2p_words_of(const ls_group *group, struct wait_word *words, int count);

/* One pass of progress over all operations: for which of them the thread waits, and what it has to
 * wait for afterwards. */
struct p2p_pass {
	ls_request *const *ops;
	int count;
	/* Setting P2P=serial: the send that has begun, with a reference. All other sends wait for
	 * it, so it represents them in each wait. NULL: there is none, or a thread just begins
	 * it. */
	struct ls_request *head;
	struct wait_word *words;  /* [word_max + P2P_EXTRA_WORDS] */
	int word_max, word_count; /* word_count > word_max: some were left out */
	bool partial;             /* there was no memory for all words */
	bool more;
	uint64_t rechecks; /* world_p2p.rechecks before the thread looked for work */
};

/* p2p_pass for a thread that waits: fills words, more and rechecks. */
void p2p_progress_pass(struct world *world, struct p2p_pass *pass);
/* Writes the awaited operations that are in this group; returns their number, at most
 * P2P_ANY_MAX. */
int p2p_pass_own(const struct p2p_pass *pass, const ls_group *group, struct mailbox_awaited *own);
/* The head, with a reference that the caller drops. */
struct ls_request *p2p_head(struct world_p2p *p2p);
/* Whether the end of an operation may wake a thread that does not wait for it in Lockstep: by its
 * callback, or in its stream. */
static inline bool p2p_wakes(const struct ls_request *op)
{
	return op->on_stream || op->callback; /* a launch may drop the callback */
}
/* Under the list's lock: an operation that wakes a thread, and can never complete without the
 * members `gone`; *peer as in progress_op_need; NULL: none. *again: an operation may need them
 * later, so the progress thread checks again. */
struct ls_request *p2p_needing(ls_group *group, const struct ranks *gone, int *peer, bool *again)
	LOCK_REQUIRES(group);

/* ---- in_vain.c ---- */

/* For ls_test after a member has died or left: true, having failed the group, if op or a part of it
 * can never complete. */
bool p2p_poll_gone(const struct ls_request *op);

/* After a probe has found nothing: LS_PENDING, or the status with which it can never find a
 * message. `gone`: the members that were dead or had left before the probe looked. */
ls_status p2p_probe_gone(ls_group *group, const struct op_call *call, const struct ranks *gone,
			 const struct ls_call_options *options, const void *site);
/* For public calls: fails the group if one of its nonblocking sends can never be received. */
void p2p_fail_gone(ls_group *group);

/* For a thread that waits for one of these operations, none of which is complete. head:
 * p2p_pass.head. True: without the gone members none can complete, and a group has failed. */
bool p2p_fail_without(ls_request *const *ops, int count, const struct ls_request *head,
		      struct progress_self_only *self_only);

/* ---- await.c ---- */

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

/* For the watch, when a wait lasts long: publishes in the wait table what would wake the progress
 * thread, or removes what it has published. */
void p2p_show(struct world *world);

/* ---- attend.c ---- */

/* The body of the progress thread (world_progress.act): returns when the thread has to stop, or has
 * handed over. */
void p2p_thread_run(struct world *world);

/* ---- arm.c; under the right to make progress, or with the list's lock as said ---- */

/* For the progress thread: makes all progress that is possible without waiting, unless another
 * thread does. */
void p2p_attend(struct world *world);
/* When p2p_attend has to be called next, although no other thread asks for it. */
uint64_t p2p_sleep_until(struct world_p2p *p2p);
/* Takes the right to make progress; false if another thread has it, or one that closes a group
 * wants it. */
bool p2p_take(struct world_p2p *p2p);
/* As p2p_take, for a thread that closes a group and has raised `wanted`: until it has the right no
 * other thread takes it, and the thread that has it stops after one pass. */
bool p2p_take_over(struct world_p2p *p2p);
/* Whether a thread makes progress, or has raised `wanted`. */
bool p2p_is_progressing(struct world_p2p *p2p);
/* Gives the right back. Arms the doorbell if the progress thread is needed, and wakes that thread
 * at once if there is `more` to do. */
void p2p_release(struct world *world, bool more);
/* Call for a new operation: arms the doorbell, if no thread makes progress and the doorbell is not
 * armed already. has_work: the operation can make progress, or complete, at once. */
void p2p_arm(struct world *world, bool has_work);
/* The same in two parts, for a caller that has the list's lock anyway: what it finds under the
 * lock, after it has begun the operation; and what follows without the lock. */
struct p2p_arming {
	bool armed, progressing, late, has_work;
};
struct p2p_arming p2p_look_armed(struct world *world, bool has_work) LOCK_REQUIRES(group);
void p2p_arm_after(struct world *world, const struct p2p_arming *found);

#endif
