/* SPDX-License-Identifier: BSD-3-Clause
 * What the rooms above may know of a group beside its public calls. */
#ifndef GROUP_GROUP_H
#define GROUP_GROUP_H

#include <lockstep/lockstep.h>

#include "base/settings.h"
#include "trace/trace.h"

/* My own trace, for writing. */
struct trace *group_trace(ls_group *group);
/* The trace of a rank of the group, for reading; it stays readable after that rank's end. NULL when
 * the rank is out of range, or its trace could not be mapped (a message has said so). */
const struct trace_view *group_view(const ls_group *group, int rank);
/* Its rank in the world, -1 when out of range. */
int group_world_rank(const ls_group *group, int rank);

/* For calls of rooms above: LS_OK; LS_FORKED, or LS_BAD_ARGUMENT after a message: the group was
 * closed. */
ls_status group_check_open(const char *function, const ls_group *group);

/* What it was opened with. */
const struct settings *group_settings(const ls_group *group);

/* ls_allreduce for rooms above: reports name `site`, the return address of their own caller. */
ls_status group_allreduce(ls_group *group, const void *send, void *recv, uint64_t count,
			  ls_dtype dtype, ls_reduce_op op, const struct ls_op_options *options,
			  const void *site);
/* As group_allreduce, but ls_allgather. */
ls_status group_allgather(ls_group *group, const void *send, void *recv, uint64_t count,
			  ls_dtype dtype, const struct ls_op_options *options, const void *site);

#endif
