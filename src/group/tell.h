/* SPDX-License-Identifier: BSD-3-Clause
 * What is said of operations and messages of a group beside reports. */
#ifndef GROUP_TELL_H
#define GROUP_TELL_H

#include "group_private.h"

/* ---- tell.c: what messages say ---- */

enum { GROUP_DESCRIBED_BYTES = 320 };
/* True once for each place in the program, and never after many places. */
bool group_first_time(ls_group *group, const void *site);
/* "send #1 to rank 0 (tag 7), called from a.c:10"; of a shared handle, of which it is not known
 * whose it is: "a send that was over at once, such as send #1 …" */
void group_describe(const struct ls_op *op, char *out, size_t bytes);
/* It was freed, there, before anybody had asked how it ended. */
void group_tell_dropped(struct ls_op *op, const void *site);
/* The group is closed while so many are under way; `text` is filled with what the first of them is.
 * NULL: it has just ended. */
void group_tell_pending(const struct ls_op *first, long count, char *text, size_t bytes);
/* These ranks of the world have each sent before they received. */
void group_tell_buffered(uint64_t ranks, int tag, const char *where);
/* Says how many handles were not freed, as the group is closed. */
void group_op_tell_left(ls_group *group);

/* ---- lost.c ---- */

/* No operation is under way, and the group, which this rank is about to leave, has not failed: says
 * which messages nobody will receive; with the setting CHECK the group fails for that. */
void group_lost_tell(struct ls_group *group);

#endif
