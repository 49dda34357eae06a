/* SPDX-License-Identifier: BSD-3-Clause
 * What messages say of the operations of a group. */
#ifndef PROGRESS_TELL_H
#define PROGRESS_TELL_H

#include "world/ls_group.h"

enum { PROGRESS_DESCRIBED_BYTES = 320 };
/* True once for each place in the program, and never after many places. */
bool progress_first_time(ls_group *group, const void *site);
/* "send #1 to rank 0 (tag 7), called from a.c:10"; of a shared handle, of which it is not known
 * whose it is: "a send that was over at once, such as send #1 …" */
void progress_describe(const struct ls_op *op, char *out, size_t bytes);
/* It has failed, and waits for a device. For any operation but a batch and a shared handle. */
void progress_tell_device(const struct ls_op *op);
/* It was freed, there, before anybody had asked how it ended. */
void progress_tell_dropped(struct ls_op *op, const void *site);
/* The group is closed while so many are under way; `text` is filled with what the first of them is.
 * NULL: it has just ended. */
void progress_tell_pending(const struct ls_op *first, long count, char *text, size_t bytes);
/* These ranks of the world have each sent before they received. */
void progress_tell_buffered(uint64_t ranks, int tag, const char *where);
/* Says how many handles were not freed, as the group is closed. */
void progress_tell_left(ls_group *group);

#endif
