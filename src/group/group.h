/* SPDX-License-Identifier: BSD-3-Clause
 * What the rooms above may know of a group beside its public calls. */
#ifndef GROUP_GROUP_H
#define GROUP_GROUP_H

#include <lockstep/lockstep.h>

#include "base/settings.h"
#include "diagnose/diagnose.h"
#include "trace/trace.h"

/* My own trace, for writing. */
struct trace *group_trace(ls_group *group);
/* The trace of a rank of the group, for reading; it stays readable after that rank's end. NULL when
 * the rank is out of range, or its trace could not be mapped (a message has said so). */
const struct trace_view *group_view(const ls_group *group, int rank);
/* Its number in the world of all ranks, -1 when out of range. */
int group_world_rank(const ls_group *group, int rank);

/* What it was opened with. */
const struct settings *group_settings(const ls_group *group);

/* ls_allreduce for rooms above: reports name `site`, the return address of their own caller. */
ls_status group_allreduce(ls_group *group, const void *send, void *recv, uint64_t count,
			  ls_dtype dtype, ls_reduce_op op, const struct ls_op_options *options,
			  const void *site);
/* The same of ls_allgather. */
ls_status group_allgather(ls_group *group, const void *send, void *recv, uint64_t count,
			  ls_dtype dtype, const struct ls_op_options *options, const void *site);

/* Adds to a snapshot the messages that nobody has received yet, in groups in which some rank waits.
 * Looks up call sites, so only once something is to be reported; not for two threads at once
 * (trace_site). */
void group_add_messages(const struct diagnose_source *sources, int count, struct diagnose_job *job);

#endif
