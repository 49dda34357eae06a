/* SPDX-License-Identifier: BSD-3-Clause
 * The envelope of a received message, for the caller; and warnings about it. */
#include <string.h>

#include "races/races.h"
#include "world/registry.h"
#include "progress/warn.h"
#include "p2p/p2p.h"

void p2p_fill_message(struct ls_message *out, const struct mail_message *matched)
{
	struct ls_message all = {.size = out->size,
				 .source = matched->source,
				 .tag = matched->envelope.tag,
				 .dtype = matched->envelope.dtype,
				 .count = matched->envelope.count};
	memcpy(out, &all, all.size < sizeof all ? all.size : sizeof all);
}

void p2p_deliver(const struct ls_request *op)
{
	if (op->message)
		p2p_fill_message(op->message, &op->base.p2p.message);
	if (!op->block)
		return;
	const struct buffer *block = &op->base.call.recv;
	*op->block = block->address;
	if (op->group->world->races)
		races_allocated(op->group->world->races, block->address, block->bytes);
}

void p2p_warn_crossed(ls_group *group, int tag, uint64_t index, const void *site)
{
	char where[TRACE_LABEL_BYTES];
	struct ranks ranks = {{0}};
	if (!progress_first_time(group, site))
		return;
	struct ranks members = mailbox_crossed_ranks(group->mailbox);
	RANKS_EACH (q, &members)
		ranks_add(&ranks, world_rank_of(group, q));
	struct trace_record record;
	uint32_t step;
	const struct trace_view *view = &group->world->views[group->world->rank];
	where[0] = '\0';
	if (view->header && trace_read(view, index, &record, &step))
		trace_site(view, &record, where, sizeof where);
	progress_warn_buffered(&ranks, tag, where[0] ? where : "an unknown place");
}
