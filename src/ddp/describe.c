/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room say: wrong arguments, and names in reports. */
#include <stdio.h>
#include <string.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "ddp/ddp_private.h"
#include "group/group.h"
#include "trace/trace.h"

ls_status ddp_bad(const char *call, const char *argument, long long value, const char *right)
{
	char from[TRACE_CALLER_BYTES];
	trace_caller_text(from, sizeof from);
	MESSAGE_SAY(MESSAGE_DDP_ARGUMENT, call, argument, value, right, from);
	return LS_BAD_ARGUMENT;
}

int ddp_world_rank(const struct ls_ddp *ddp, int rank)
{
	return group_world_rank(ddp->group, rank);
}

struct ranks ddp_world_ranks(const ls_group *group, const struct ranks *ranks)
{
	struct ranks world = {{0}};
	RANKS_EACH (r, ranks)
		ranks_add(&world, group_world_rank(group, r));
	return world;
}

void ddp_text_ranks(const struct ranks *ranks, char *out, size_t bytes)
{
	int count = ranks_count(ranks), seen = 0, low = ranks_first(ranks);
	size_t used = (size_t)snprintf(out, bytes, count == 1 ? "rank " : "ranks ");
	if (count > 2 && ranks_last(ranks) == low + count - 1) {
		snprintf(out + used, bytes - used, "%d-%d", low, low + count - 1);
		return;
	}
	RANKS_EACH (r, ranks) {
		if (used >= bytes)
			break;
		const char *before = seen == 0 ? "" : seen == count - 1 ? " and " : ", ";
		used += (size_t)snprintf(out + used, bytes - used, "%s%d", before, r);
		seen++;
	}
}

void ddp_text_name(const char *name, char *out, size_t bytes)
{
	static const char cut[] = "...";
	size_t length = strlen(name);
	if (length < bytes) {
		memcpy(out, name, length + 1);
		return;
	}
	const char *end = name + length + sizeof cut - bytes;
	while (((unsigned char)*end & 0xc0) == 0x80) /* no half of a character */
		end++;
	snprintf(out, bytes, "%s%s", cut, end);
}
