/* SPDX-License-Identifier: BSD-3-Clause
 * What the rooms above may know of a group besides its public calls. */
#ifndef GROUP_GROUP_H
#define GROUP_GROUP_H

#include <lockstep/lockstep.h>

#include "base/settings.h"
#include "trace/trace.h"

/* The call site of a public function, for records and reports. Only in that function itself. */
#define GROUP_SITE __builtin_return_address(0)

/* My own trace, for writing. */
struct trace *group_trace(ls_group *group);
/* The trace of a rank of the group, for reading; it stays readable after that rank's end. NULL when
 * the rank is out of range, or its trace could not be mapped (a message has said so). */
const struct trace_view *group_view(const ls_group *group, int rank);
/* The world rank of a rank of the group; -1: out of range. */
int group_world_rank(const ls_group *group, int rank);

/* For calls of rooms above: LS_OK; LS_FORKED, or LS_BAD_ARGUMENT after a message: the group was
 * closed. */
ls_status group_check_open(const char *function, const ls_group *group);

/* For a call that may wait: LS_BAD_ARGUMENT, with a message, in a callback of the program. */
LS_CHECKED ls_status group_check_may_wait(const char *function);

/* The settings with which the group was opened. */
const struct settings *group_settings(const ls_group *group);

/* Notes that an ls_ddp of the group, by its number, begins to average a pass. Returns a hash of all
 * these notes: equal on ranks that have noted the same in the same order since group_set_passes. */
uint64_t group_note_pass(ls_group *group, uint64_t ddp);
/* The hash of the notes that came before this call. */
void group_set_passes(ls_group *group, uint64_t hash);

/* ls_allreduce for rooms above: reports name `site`, the return address of their own caller. */
ls_status group_allreduce(ls_group *group, const void *send, void *recv, uint64_t count,
			  ls_dtype dtype, ls_reduce_op op, const struct ls_call_options *options,
			  const void *site);
/* As group_allreduce, but ls_allgather. */
ls_status group_allgather(ls_group *group, const void *send, void *recv, uint64_t count,
			  ls_dtype dtype, const struct ls_call_options *options, const void *site);

/* Waits until the operation of the handle *op is complete, whatever signals come, and returns its
 * status; ls_wait may return LS_PENDING (resume_after_signals). Frees the handle; *op is NULL. */
ls_status group_op_finish(ls_request **op);

#endif
