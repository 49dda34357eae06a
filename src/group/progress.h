/* SPDX-License-Identifier: BSD-3-Clause
 * The thread of a rank that goes on with what no caller waits for: how it is made, called, replaced
 * and ended. */
#ifndef GROUP_PROGRESS_H
#define GROUP_PROGRESS_H

#include "group_private.h"

/* Makes the thread if there is none. Errors: LS_OUT_OF_MEMORY, with a message. */
ls_status group_progress_start(struct group_world *world);
/* Nobody drives the group's collectives, and some are queued. */
void group_progress_wake(ls_group *group);
/* Whether the calling thread is the progress thread. */
bool group_progress_is_me(const struct group_world *world);
/* Before an operation fails, which may take until others have written their reports or let go of
 * buffers: if the calling thread is the progress thread, another one becomes it, and the caller
 * ends when it is done with that operation. Where no thread can be made it says so, and stays the
 * progress thread. */
void group_progress_hand_over(struct group_world *world);
/* No object is left for another group: waits a moment for the progress thread to let go of those
 * that are closed. False: it holds none. */
bool group_progress_frees(struct group_world *world);
/* After all groups are closed: waits for the thread's end. */
void group_progress_stop(struct group_world *world);

/* ---- for the thread itself, attend.c ---- */

/* Where it sleeps. */
struct wait_bell *group_progress_bell(struct group_world *world);
/* From the one to the other proofs of deadlock reckon with it. end: false if it has been called
 * meanwhile, so there may be more to do; else it sleeps next. */
void group_progress_begin(struct group_world *world);
bool group_progress_end(struct group_world *world);

#endif
