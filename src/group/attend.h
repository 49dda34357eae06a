/* SPDX-License-Identifier: BSD-3-Clause
 * What the progress thread of a rank does. */
#ifndef GROUP_ATTEND_H
#define GROUP_ATTEND_H

#include "group_private.h"

/* On that thread alone (group_progress.act): until it is told to stop, or has handed over. */
void group_attend(struct group_world *world);

#endif
