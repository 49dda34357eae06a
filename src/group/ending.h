/* SPDX-License-Identifier: BSD-3-Clause
 * What is looked at when a group is closed: see ending.c. */
#ifndef GROUP_ENDING_H
#define GROUP_ENDING_H

#include "group_private.h"

/* This rank knows that the group has failed. */
void group_ending_note(struct ls_group *group);
/* Before it leaves, with no operation under way: whether all members' collectives were the same, as
 * far as they have come. If not, the group fails with that; who is told of it only so finds it on
 * standard error and in the trace. */
void group_ending_compare(struct ls_group *group);
/* Groups made from others that are open, before that of all ranks takes them along. */
void group_ending_say_open(struct group_world *world);

#endif
