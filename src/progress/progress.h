/* SPDX-License-Identifier: BSD-3-Clause
 * The life of an operation: made, submitted to the engine, advanced, over; what becomes of it when
 * members go; and the thread that goes on with what no caller waits for. */
#ifndef PROGRESS_PROGRESS_H
#define PROGRESS_PROGRESS_H

#include "world/ls_group.h"

/* So long a wait for another thread of this rank lasts before the caller looks for itself. */
enum { PROGRESS_SLICE_MS = 5 };

/* ---- pool.c: the life of an operation ---- */

/* An operation of the pool, zeroed, held by the lane and, with `handle`, by the user. NULL after a
 * message. */
struct ls_op *progress_op_new(ls_group *group, bool handle);
/* Gives one back that was never queued. */
void progress_op_drop(struct ls_op *op);
/* The lane is done with it; `status` is how it ended. Tells whoever wants to know. */
void progress_op_over(struct ls_op *op, ls_status status);
/* The same without the lane: callback, status, and one holder less. */
void progress_op_tell(struct ls_op *op, ls_status status);
/* Whether it is a send, a receive or a batch of them, and not in the lane. */
static inline bool progress_op_is_p2p(const struct ls_op *op)
{
	return op->is_batch || !engine_is_collective(op->engine.call.kind);
}
static inline bool progress_op_is_over(const struct ls_op *op)
{
	return atomic_load_explicit(&op->over, memory_order_acquire) != 0;
}
/* The user's handle is given back. */
void progress_op_forget(struct ls_op *op);
/* When waiting for it began, for waits that are taken up again: now, if nobody has asked before. */
uint64_t progress_op_since(struct ls_op *op);
/* One holder more, and less. */
void progress_op_hold(struct ls_op *op);
void progress_op_let_go(struct ls_op *op);
void progress_pool_init(struct world_pool *pool);
/* Says how many handles have not been freed, and frees them. */
void progress_pool_fini(struct world_pool *pool);
/* A part of the batch is over, or the call that ends it has been made. */
void progress_batch_part_over(struct ls_op *batch, ls_status status);

/* ---- submit.c: one operation ---- */

/* When a wait comes back though what it waits for is not over. */
struct progress_pause {
	uint64_t at_ns;    /* 0: at once; CLOCK_NEVER: only with the end */
	bool returns;      /* it is taken up again in a moment, so nothing can happen in between */
	bool looks;        /* with at_ns 0: what can no longer succeed, or is late, fails */
	uint64_t since_ns; /* when a wait was begun that is taken up again; 0: now */
};
extern const struct progress_pause progress_no_pause;

/* Whether somebody who waits for it may do something else before it is over. */
static inline bool progress_pause_leaves(const struct progress_pause *pause, const struct ls_op *op)
{
	return op->may_leave || (pause->at_ns < op->deadline_ns && !pause->returns);
}

/* Everything of an operation that nobody else sets; the rest stays as it is, as clearing it would
 * cost more than a short collective. */
void progress_op_prepare(struct ls_op *op, ls_group *group, const struct engine_call *call);
/* Makes op ready: deadline, trace record. op->engine.seq and what the caller wants are set. */
void progress_op_open(struct ls_op *op, const struct ls_op_options *options, const void *site);
/* What the trace says of a call. label: NULL for none. */
struct trace_begin progress_record(ls_group *group, const struct engine_call *call, uint64_t seq,
				   const char *label, const void *site);
/* Goes on with it: hands it to the engine if that has not been done, advances, waits. True when its
 * status is in *status and no peer touches its buffers any more; false at the pause, when another
 * thread may go on with it. */
bool progress_op_run(struct ls_op *op, struct engine_room *room, struct waiter *waiter,
		     const struct progress_pause *pause, ls_status *status);
/* The same for one that is detached, once the engine is done with it (op->engine.status), or for
 * `reason`: returns the status that it ends with, and no peer touches its buffers any more. */
ls_status progress_op_settle(struct ls_op *op, ls_status reason, int peer);

/* ---- fail.c ---- */

/* Turns `reason`, seen on `peer`, into the group's cause; returns the cause that stands. */
ls_status progress_op_fail(const struct ls_op *op, ls_status reason, int peer, uint64_t needs);
/* Turns that it needs one of `gone`, or `peer` if not -1, into the group's cause; returns the cause
 * that stands. */
ls_status progress_op_fail_gone(const struct ls_op *op, uint64_t gone, int peer);

/* ---- needs.c ---- */

/* Whether it is over without those in `gone`. *peer: whom it needs, -1: any of them. */
enum engine_need progress_op_need(const struct ls_op *op, uint64_t gone, int *peer);

/* A receive or probe of any source when all other members are gone: it goes on as long as another
 * thread of this rank that has called Lockstep, or runs, may still send it. */
struct progress_self_only {
	/* after which it is asked again; 0: others are there, or it does not go on */
	uint64_t slice_ns;
	/* Of a call that blocks: how its wait for the others ended. */
	ls_status status;
	int peer;
};
/* Whether it does, or what it waits for has come, once progress_op_need says SELF. */
bool progress_self_only_goes_on(const struct ls_op *op, uint64_t gone,
				struct progress_self_only *self_only);
uint64_t progress_self_only_until(const struct progress_self_only *self_only, uint64_t until_ns);
/* Of one that nobody waits for: whether it can never be over. *self_only: it may be, by another
 * thread of this rank, so it is asked again. */
bool progress_op_is_lost(const struct ls_op *op, uint64_t gone, int *peer, bool *self_only);

/* ---- turn.c ---- */

/* The part of a batch that stands for it in a wait; else the operation itself. */
const struct ls_op *progress_representative(const struct ls_op *op);
/* Setting P2P=serial: whether it waits for its turn. */
bool progress_waits_turn(const struct ls_op *op);
/* That representative, or the head if it waits for its turn; with NULL the representative in any
 * case. */
const struct ls_op *progress_stand_in(const struct ls_op *op, const struct ls_op *head);
/* Under the list's lock: the first in it of the sends that wait for each other, whether it has
 * begun or not; NULL. */
struct ls_op *progress_first_in_turn(struct world_p2p *p2p) LOCK_REQUIRES(group);

/* ---- thread.c: the progress thread ---- */

/* Makes the thread if there is none. Errors: LS_OUT_OF_MEMORY, with a message. */
ls_status progress_thread_start(struct world *world);
/* Nobody drives the group's collectives, and some are queued. */
void progress_thread_wake(ls_group *group);
/* Whether the calling thread is the progress thread. */
bool progress_thread_is_me(const struct world *world);
/* Before an operation fails, which may take until others have written their reports or let go of
 * buffers: if the calling thread is the progress thread, another one becomes it, and the caller
 * ends when it is done with that operation. Where no thread can be made it says so, and stays the
 * progress thread. */
void progress_thread_hand_over(struct world *world);
/* No object is left for another group: waits a moment for the progress thread to let go of those
 * that are closed. False: it holds none. */
bool progress_thread_frees(struct world *world);
/* After all groups are closed: waits for the thread's end. */
void progress_thread_stop(struct world *world);

/* ---- for the thread itself, attend.c ---- */

/* Where it sleeps. */
struct wait_bell *progress_thread_bell(struct world *world);
/* From the one to the other proofs of deadlock reckon with it. end: false if it has been called
 * meanwhile, so there may be more to do; else it sleeps next. */
void progress_thread_begin(struct world *world);
bool progress_thread_end(struct world *world);

#endif
