/* SPDX-License-Identifier: BSD-3-Clause
 * Messages about the operations of a group. */
#ifndef PROGRESS_WARN_H
#define PROGRESS_WARN_H

#include "world/ls_group.h"

enum { PROGRESS_DESCRIBED_BYTES = 320 };
/* True at the first call for a call site; false for all call sites after WORLD_WARNED of them. */
bool progress_first_time(ls_group *group, const void *site);
/* "send #1 to rank 0 (tag 7), called from a.c:10". A shared handle belongs to several operations:
 * "a send that completed at once, such as send #1 …" */
void progress_describe(const struct ls_request *op, char *out, size_t bytes);
/* As progress_describe, for the operation of a record; "an operation" if the trace no longer has
 * the record. */
void progress_describe_record(const ls_group *group, uint64_t index, char *out, size_t bytes);
/* The operation has failed, and waits for a device. Not for batches and shared handles. */
void progress_warn_device(const struct ls_request *op);
/* The program has changed what the operation was to send: fails the group. */
void progress_fail_changed(const struct ls_request *op);
/* The handle was freed at `site` although its status was never read. */
void progress_warn_dropped(struct ls_request *op, const void *site);
/* The group is closed while `count` operations are under way. first: NULL if it has just ended.
 * Writes its description to `text`. */
void progress_warn_pending(const struct ls_request *first, long count, char *text, size_t bytes);
/* Each of these world ranks has sent before it received. */
void progress_warn_buffered(const struct ranks *ranks, int tag, const char *where);
/* When the group is closed: how many handles were not freed. */
void progress_warn_left(ls_group *group);

#endif
