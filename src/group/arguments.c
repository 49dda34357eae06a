/* SPDX-License-Identifier: BSD-3-Clause
 * What callers pass: options over the defaults, and the checks that all calls share. */
#include <stdio.h>
#include <string.h>

#include "base/messages.h"
#include "base/option_size.h"
#include "progress/progress.h"
#include "world/registry.h"
#include "group/arguments.h"
#include "group/group.h"

ls_status group_bad_state(const char *function, const char *argument, const char *state,
			  const char *right)
{
	char from[TRACE_CALLER_BYTES];
	trace_caller_text(from, sizeof from);
	MESSAGE_SAY(MESSAGE_GROUP_ARGUMENT, function, argument, state, right, from);
	return LS_BAD_ARGUMENT;
}

ls_status group_bad(const char *function, const char *argument, long long value, const char *right)
{
	char text[24];
	snprintf(text, sizeof text, "%lld", value);
	return group_bad_state(function, argument, text, right);
}

bool group_is_closed(const ls_group *group)
{
	return group->fork_generation == FORK_NEVER;
}

ls_status group_not_open(const char *function, const ls_group *group)
{
	if (!group_is_closed(group))
		return LS_FORKED;
	return group_bad(function, "group", (long long)(uintptr_t)group,
			 "an open group: ls_group_close has closed this one");
}

ls_status group_check_open(const char *function, const ls_group *group)
{
	return world_is_usable(group) ? LS_OK : group_not_open(function, group);
}

ls_status group_check_may_wait(const char *function)
{
	if (!progress_calls_back())
		return LS_OK;
	return group_bad_state(function, "the calling thread", "in a completion callback",
			       "outside of one: a callback must not wait");
}

ls_status group_read_options(const char *function, const struct ls_call_options *options,
			     struct ls_call_options *out)
{
	*out = (struct ls_call_options){.size = sizeof *out};
	if (!options)
		return LS_OK;
	if (options->size >= offsetof(struct ls_call_options, request) + sizeof options->request &&
	    options->request)
		*options->request = NULL;
	if (!option_size_is_right(options->size, sizeof *out))
		return group_bad(function, "options->size", options->size,
				 "sizeof(struct ls_call_options)");
	memcpy(out, options, options->size);
	if (out->tag < 0)
		return group_bad(function, "options->tag", out->tag,
				 "0 to 2147483647, or LS_ANY_TAG in a receive or a probe");
	if (out->resumable > 1)
		return group_bad(function, "options->resumable", out->resumable, "0 or 1");
	if (out->resumable && out->callback)
		return group_bad(function, "options->resumable", out->resumable,
				 "0 when a callback is set");
	return LS_OK;
}

ls_status group_bad_count(const char *function, uint64_t count)
{
	char text[24];
	snprintf(text, sizeof text, "%llu", (unsigned long long)count);
	return group_bad_state(function, "count", text, "below 2^63 bytes in all");
}

ls_status group_check_count(const char *function, ls_dtype dtype, uint64_t count)
{
	size_t element_bytes = ls_dtype_bytes(dtype);
	if (!element_bytes)
		return group_bad(function, "dtype", dtype, "one of enum ls_dtype");
	if (count > INT64_MAX / element_bytes)
		return group_bad_count(function, count);
	return LS_OK;
}

ls_status group_check_rank(const char *function, const char *name, const ls_group *group, int rank)
{
	char right[48];
	if (rank >= 0 && rank < group->size)
		return LS_OK;
	snprintf(right, sizeof right, "a rank of this group, 0 to %d", group->size - 1);
	return group_bad(function, name, rank, right);
}

const char *group_caller(const char *function, const struct ls_call_options *options)
{
	return options->label ? options->label : function;
}
