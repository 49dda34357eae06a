/* SPDX-License-Identifier: BSD-3-Clause
 * How every call on a group begins; how a program aborts a group, and asks why it has failed. */
#include <string.h>

#include "failure/failure.h"
#include "mailbox/mailbox.h"
#include "p2p/p2p.h"
#include "world/registry.h"
#include "group/group_private.h"
#include "group/arguments.h"
#include "group/group.h"

ls_status group_check(const char *function, ls_group *group)
{
	if (!group)
		return group_bad_state(function, "group", "NULL", "a group from ls_group_open");
	if (!world_is_usable(group))
		return group_not_open(function, group);
	if (mailbox_pending(group->mailbox)) /* as it does itself, but it saves many registers */
		p2p_fail_gone(group);
	if (__builtin_expect(!failure_is_set(group) && !failure_is_claimed_here(group), 1))
		return LS_OK;
	/* ls_group_abort does not wait for the thread that works out an earlier failure, but what
	 * this rank calls after it fails. */
	failure_await_claimed(group);
	failure_note(group);
	return failure_status(group);
}

ls_status group_begin_streamable(const char *function, ls_group *group,
				 const struct ls_call_options *given, struct ls_call_options *out)
{
	ls_status status = group_read_options(function, given, out);
	if (status == LS_OK && out->stream && out->resumable)
		return group_bad(group_caller(function, out), "options->resumable", 1,
				 "0 with a stream");
	return status == LS_OK ? group_check(function, group) : status;
}

ls_status group_begin_collective(const char *function, ls_group *group,
				 const struct ls_call_options *given, struct ls_call_options *out)
{
	ls_status status = group_begin_streamable(function, group, given, out);
	bool queued = out->request || out->callback || out->stream;
	if (status != LS_OK || (queued && !out->resumable && !group->world->settings.blocking))
		return status;
	return group_check_may_wait(group_caller(function, out));
}

ls_status group_begin(const char *function, ls_group *group, const struct ls_call_options *given,
		      struct ls_call_options *out)
{
	ls_status status = group_begin_streamable(function, group, given, out);
	if (status == LS_OK && out->stream)
		return group_bad_state(group_caller(function, out), "options->stream", "set",
				       "NULL: this call runs on no stream");
	return status == LS_OK ? group_check_may_wait(group_caller(function, out)) : status;
}

ls_status ls_group_abort(ls_group *group, const char *reason)
{
	if (!group)
		return group_bad_state("ls_group_abort", "group", "NULL",
				       "a group from ls_group_open");
	if (!world_is_usable(group))
		return group_not_open("ls_group_abort", group);
	failure_abort(group, reason, false);
	return LS_OK;
}

ls_status ls_group_failure(ls_group *group, struct ls_failure *out)
{
	struct ls_failure failure = {0};
	if (!group)
		return group_bad_state("ls_group_failure", "group", "NULL",
				       "a group from ls_group_open");
	if (!out || out->size < 8 || out->size > sizeof failure)
		return group_bad("ls_group_failure", out ? "out->size" : "out", out ? out->size : 0,
				 "sizeof(struct ls_failure)");
	if (!world_is_usable(group))
		return group_not_open("ls_group_failure", group);
	failure.size = out->size;
	failure_read(group, &failure);
	memcpy(out, &failure, failure.size);
	return LS_OK;
}
