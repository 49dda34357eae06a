/* SPDX-License-Identifier: BSD-3-Clause
 * What the progress thread of a rank does. */
#ifndef GROUP_ATTEND_H
#define GROUP_ATTEND_H

#include "group_private.h"

/* On that thread alone (world_progress.act): until it is told to stop, or has handed over. */
void group_attend(struct world *world);

#endif
