/* SPDX-License-Identifier: BSD-3-Clause
 * The public calls on phases. The rank's trace has what they record, so a report needs only the
 * traces of the other ranks. */
#include <lockstep/phase.h>

#include <stdlib.h>

#include "base/messages.h"
#include "ddp/ddp_private.h"
#include "ddp/phases.h"
#include "group/group.h"

_Static_assert(TRACE_PHASE_DEPTH == 8 && TRACE_PHASE_MAX == 64 && TRACE_PHASE_THREAD_MAX == 64,
	       "messages and the manual say so");

static ls_status say_too_many(const char *name, const char *what, ls_status status)
{
	char from[TRACE_CALLER_BYTES];
	trace_caller_text(from, sizeof from);
	MESSAGE_SAY(MESSAGE_PHASE_MANY, name, what, from);
	return status;
}

ls_status ls_phase_begin(ls_group *group, const char *name)
{
	char from[TRACE_CALLER_BYTES];
	const char *inside;
	if (!group || !name)
		return ddp_bad("ls_phase_begin", group ? "name" : "group", 0, "not NULL");
	ls_status status = group_check_open("ls_phase_begin", group);
	if (status != LS_OK)
		return status;
	switch (trace_phase_begin(group_trace(group), name, &inside)) {
	case TRACE_PHASE_DONE:
		return LS_OK;
	case TRACE_PHASE_FORKED:
		return LS_FORKED;
	case TRACE_PHASE_OUTSIDE:
		trace_caller_text(from, sizeof from);
		MESSAGE_SAY(MESSAGE_PHASE_INSIDE, name, inside, inside, from);
		return LS_BAD_ARGUMENT;
	case TRACE_PHASE_DEEP:
		return say_too_many(name, "8 phases are inside of each other already",
				    LS_BAD_ARGUMENT);
	case TRACE_PHASE_MANY_NAMES:
		return say_too_many(name, "64 others have names already", LS_BAD_ARGUMENT);
	case TRACE_PHASE_MANY_THREADS:
		return say_too_many(name, "64 threads are in phases already", LS_UNSUPPORTED);
	case TRACE_PHASE_BAD_NAME:
	case TRACE_PHASE_NOT_INSIDE:
		break;
	}
	trace_caller_text(from, sizeof from);
	MESSAGE_SAY(MESSAGE_PHASE_NAME, name, TRACE_PHASE_BYTES - 1, from);
	return LS_BAD_ARGUMENT;
}

ls_status ls_phase_end(ls_group *group, const char *name)
{
	char from[TRACE_CALLER_BYTES];
	const char *inside;
	if (!group || !name)
		return ddp_bad("ls_phase_end", group ? "name" : "group", 0, "not NULL");
	ls_status status = group_check_open("ls_phase_end", group);
	if (status != LS_OK)
		return status;
	switch (trace_phase_end(group_trace(group), name, &inside)) {
	case TRACE_PHASE_DONE:
		return LS_OK;
	case TRACE_PHASE_FORKED:
		return LS_FORKED;
	default:
		break;
	}
	trace_caller_text(from, sizeof from);
	MESSAGE_SAY(MESSAGE_PHASE_END, name, inside ? "'" : "", inside ? inside : "no phase",
		    inside ? "'" : "", from);
	return LS_BAD_ARGUMENT;
}

ls_status ls_phase_report(ls_group *group, char *out, size_t bytes)
{
	if (!group)
		return ddp_bad("ls_phase_report", "group", 0, "not NULL");
	if (!out || !bytes)
		return ddp_bad("ls_phase_report", out ? "bytes" : "out", 0, "not NULL");
	out[0] = 0;
	ls_status status = group_check_open("ls_phase_report", group);
	if (status != LS_OK)
		return status;
	struct ddp_phases *phases = ddp_phases_new(ls_group_size(group));
	struct trace_phases *of_rank = malloc(sizeof *of_rank);
	status = phases && of_rank ? LS_OK : LS_OUT_OF_MEMORY;
	uint64_t now_ns = clock_now_ns();
	for (int rank = 0; status == LS_OK && rank < phases->rank_count; rank++) {
		const struct trace_view *view = group_view(group, rank);
		if (!view)
			continue;
		trace_read_phases(view, now_ns, of_rank);
		ddp_phases_add(phases, rank, of_rank);
	}
	if (status == LS_OK)
		ddp_phases_text(phases, out, bytes);
	else
		MESSAGE_SAY(MESSAGE_PHASE_MEMORY, ls_group_size(group),
			    sizeof *phases + sizeof *of_rank);
	free(of_rank);
	free(phases);
	return status;
}
