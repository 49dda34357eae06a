/* SPDX-License-Identifier: BSD-3-Clause
 * The work of a rank's progress thread. */
#ifndef GROUP_ATTEND_H
#define GROUP_ATTEND_H

#include "group/group_private.h"

/* The body of the thread (world_progress.act): returns when the thread has to stop, or has handed
 * over. */
void group_attend(struct world *world);

#endif
