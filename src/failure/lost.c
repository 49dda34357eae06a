/* SPDX-License-Identifier: BSD-3-Clause
 * Messages that no rank will receive. A rank that closes the group reports them when that is
 * certain. */
#include <stdio.h>
#include <string.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "world/registry.h"
#include "failure/failure.h"

enum { TEXT_BYTES = 256, REASON_BYTES = TEXT_BYTES + 64 };

/* from, to: group ranks. */
static void describe_message(const ls_group *group, int from, int to,
			     const struct mail_envelope *envelope, char *out, size_t bytes)
{
	struct diagnose_message message = {.group = group->id,
					   .from = world_rank_of(group, from),
					   .to = world_rank_of(group, to),
					   .tag = envelope->tag,
					   .dtype = envelope->dtype,
					   .count = envelope->count};
	const struct trace_view *trace = &group->world->views[message.from];
	struct trace_record send;
	uint32_t step;
	if (trace->header && trace_read(trace, trace_index(trace, envelope->record), &send, &step) &&
	    send.kind == TRACE_SEND && send.group == group->id && send.peer == to) {
		message.seq = send.seq;
		trace_site(trace, &send, message.site, sizeof message.site);
	}
	struct ranks members = world_members_if_part(group);
	diagnose_message_text(&message, &members, out, bytes);
}

static void report_lost(ls_group *group, int from, int to, int count,
			const struct mail_envelope *first)
{
	char text[TEXT_BYTES], more[64] = "", reason[REASON_BYTES];
	if (count == 0)
		return;
	describe_message(group, from, to, first, text, sizeof text);
	if (count > 1)
		snprintf(more, sizeof more, ", nor %d later one%s", count - 1,
			 count == 2 ? "" : "s");
	MESSAGE_SAY(MESSAGE_GROUP_LOST, world_rank_of(group, to), text, more);
	if (!group->world->settings.check || failure_status(group) != LS_OK)
		return;
	snprintf(reason, sizeof reason,
		 "and nobody has received %s; with LOCKSTEP_CHECK=1 that is an error", text);
	failure_abort_by_close(group, reason);
}

void failure_warn_lost(ls_group *group)
{
	if (failure_status(group) != LS_OK)
		return;
	for (int q = 0; q < group->size; q++) {
		struct mail_envelope first;
		int count = mailbox_lost_from(group->mailbox, q, &first);
		report_lost(group, q, group->rank, count, &first);
		count = mailbox_lost_to(group->mailbox, q, &first);
		report_lost(group, group->rank, q, count, &first);
	}
}
