/* SPDX-License-Identifier: BSD-3-Clause
 * The public calls on groups and their memory, and the checks that all calls share. */
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "base/messages.h"
#include "ending.h"

static const uint8_t dtype_bytes[] = {
#define X(name, value, bytes, text) [value] = bytes,
	LS_DTYPES(X)
#undef X
};

size_t ls_dtype_bytes(ls_dtype dtype)
{
	return (unsigned)dtype < sizeof dtype_bytes ? dtype_bytes[dtype] : 0;
}

int ls_group_rank(const ls_group *group)
{
	return group ? group->rank : -1;
}

int ls_group_size(const ls_group *group)
{
	return group ? group->size : -1;
}

/* Says which argument of which call is wrong, and what would be right. */
ls_status group_bad(const char *call, const char *argument, long long value, const char *right)
{
	char from[TRACE_CALLED_BYTES];
	trace_called(from, sizeof from);
	MESSAGE_SAY(MESSAGE_GROUP_ARGUMENT, call, argument, value, right, from);
	return LS_BAD_ARGUMENT;
}

/* The caller's options over the defaults. A struct of another size is from an older or newer header:
 * what it lacks has its default, and what this library does not know must not be asked for. */
static ls_status read_options(const char *call, const struct ls_op_options *options,
			      struct ls_op_options *out)
{
	*out = (struct ls_op_options){.size = sizeof *out};
	if (!options)
		return LS_OK;
	if (options->size >= offsetof(struct ls_op_options, op) + sizeof options->op && options->op)
		*options->op = NULL;
	if (options->size < sizeof options->size || options->size > sizeof *out)
		return group_bad(call, "options->size", options->size,
				 "sizeof(struct ls_op_options)");
	memcpy(out, options, options->size);
	if (out->tag < 0)
		return group_bad(call, "options->tag", out->tag, "0 to 2147483647");
	if (out->awaited > 1)
		return group_bad(call, "options->awaited", out->awaited, "0 or 1");
	if (out->awaited && out->callback)
		return group_bad(call, "options->awaited", out->awaited, "0 beside a callback");
	if (out->stream)
		return group_bad(call, "options->stream", 1, "NULL: only host memory is supported");
	return LS_OK;
}

ls_status group_check_count(const char *call, ls_dtype dtype, uint64_t count)
{
	size_t element = ls_dtype_bytes(dtype);
	if (!element)
		return group_bad(call, "dtype", dtype, "one of enum ls_dtype");
	if (count > INT64_MAX / element)
		return group_bad(call, "count", (long long)count, "below 2^63 bytes in all");
	return LS_OK;
}

ls_status group_check_rank(const char *call, const char *name, const ls_group *group, int rank)
{
	char right[48];
	if (rank >= 0 && rank < group->size)
		return LS_OK;
	snprintf(right, sizeof right, "a rank of this group, 0 to %d", group->size - 1);
	return group_bad(call, name, rank, right);
}

bool group_is_forked(const ls_group *group)
{
	return group->world->fork_generation != fork_generation();
}

ls_status group_check(const char *call, ls_group *group)
{
	if (!group)
		return group_bad(call, "group", 0, "a group from ls_group_open");
	if (group->world->fork_generation != fork_generation())
		return LS_FORKED;
	group_gone_tell(group);
	ls_status status = group_cause_status(group);
	if (status != LS_OK)
		group_ending_note(group);
	return status;
}

ls_status group_begin(const char *call, ls_group *group, const struct ls_op_options *given,
		      struct ls_op_options *out)
{
	ls_status status = read_options(call, given, out);
	return status == LS_OK ? group_check(call, group) : status;
}

const char *group_caller(const char *call, const struct ls_op_options *options)
{
	return options->label ? options->label : call;
}

struct trace *group_trace(ls_group *group)
{
	return &group->world->trace;
}

const struct trace_view *group_view(const ls_group *group, int rank)
{
	int world_rank = group_world_rank(group, rank);
	const struct trace_view *view = world_rank < 0 ? NULL : &group->world->views[world_rank];
	return view && view->header ? view : NULL;
}

const struct settings *group_settings(const ls_group *group)
{
	return &group->world->settings;
}

int group_world_rank(const ls_group *group, int rank)
{
	return rank >= 0 && rank < group->size ? group->team.seats[rank].world : -1;
}

/* closes: as in struct diagnose_hint. */
static void end_group(ls_group *group, const char *note, bool closes)
{
	struct diagnose_hint hint = {.status = LS_ABORTED,
				     .rank = group->world->rank,
				     .peer = -1,
				     .group = group->id,
				     .seq = atomic_load(&group->entry->entered),
				     .note = note,
				     .closes = closes};
	group_cause_abort(group, &hint);
}

ls_status ls_group_abort(ls_group *group, const char *reason)
{
	if (!group)
		return group_bad("ls_group_abort", "group", 0, "a group from ls_group_open");
	if (group->world->fork_generation != fork_generation())
		return LS_FORKED;
	end_group(group, reason, false);
	return LS_OK;
}

void group_close_failing(ls_group *group, const char *why)
{
	bool sound = group_cause_status(group) == LS_OK;
	end_group(group, why, true);
	if (sound)
		trace_report_unreturned(&group->world->trace, group->id);
}

ls_status ls_group_failure(ls_group *group, struct ls_failure *out)
{
	struct ls_failure failure = {0};
	if (!group || !out || out->size < 8 || out->size > sizeof failure)
		return group_bad("ls_group_failure", group ? "out->size" : "group",
				 out ? out->size : 0, "sizeof(struct ls_failure)");
	if (group->world->fork_generation != fork_generation())
		return LS_FORKED;
	failure.size = out->size;
	group_cause_read(group, &failure);
	memcpy(out, &failure, failure.size);
	return LS_OK;
}
