/* SPDX-License-Identifier: BSD-3-Clause
 * Collectives of a group, one after the other, and the thread that goes on with them when no caller
 * does. */
#ifndef PROGRESS_LANE_H
#define PROGRESS_LANE_H

#include "progress.h"

/* ---- lane.c: the collectives of a group ---- */

/* Of an object, once; and of a new group. */
void progress_lane_init(ls_group *group);
void progress_lane_fini(ls_group *group);
void progress_lane_begin(ls_group *group);
/* The group is closed, and has failed if any are queued: ends them, and comes back when no thread
 * drives. */
void progress_lane_close(ls_group *group);
/* Runs op to its end; or, with a pause that returns, until that: LS_PENDING, and it goes on beside
 * the caller, for which it is of the pool and the progress thread there. Of one of the pool that is
 * over the lane's hold is given back. */
ls_status progress_lane_call(struct ls_op *op, const struct ls_op_options *options,
			     const void *site, const struct progress_pause *pause);
/* Queues `op`, from the pool, and goes on with it as far as that is possible without waiting. With
 * `wake` the progress thread is told, if it is needed. */
ls_status progress_lane_queue(struct ls_op *op, const struct ls_op_options *options,
			      const void *site, bool wake);
/* Blocks until op is over, or the pause: LS_PENDING, also after a signal where that ends nothing.
 * Drives the lane if nobody else does. */
ls_status progress_lane_await(struct ls_op *op, const struct progress_pause *pause);
/* Drives as far as possible without waiting, unless somebody else does. True: what is first waits,
 * and the lane shows for what. For the progress thread. */
bool progress_lane_attend(ls_group *group);
/* Whether that wait would not end yet, and stands in the wait table. For the same thread. */
bool progress_lane_waits(const ls_group *group);
/* Another thread is the progress thread now, and waits in place of the one that has shown it. */
void progress_lane_adopt(ls_group *group);
/* How many are queued, the one that is run included. One that is over is not among them, even if
 * whoever ran it has not left the lane yet. */
long progress_lane_queued(ls_group *group);
/* The first of them, held, if it is of the pool; NULL. */
struct ls_op *progress_lane_first(ls_group *group);

#endif
