/* SPDX-License-Identifier: BSD-3-Clause
 * An all-gather among some ranks of a group, by messages, so that the other ranks need not take
 * part. */
#include <string.h>

#include "base/ranks.h"
#include "group/group_private.h"
#include "group/from_members.h"
#include "group/group.h"

struct exchange {
	ls_request *sends[RANKS_WORLD_MAX],
		*receives[RANKS_WORLD_MAX]; /* by place in the participants; NULL: none */
};

static ls_status start_all(ls_group *parent, const struct group_participants *participants,
			   const void *mine, void *all, size_t bytes, struct exchange *exchange)
{
	ls_status status = LS_OK;
	for (int i = 0; i < participants->count && status == LS_OK; i++) {
		int rank = participants->ranks[i];
		char *place = (char *)all + (size_t)rank * bytes;
		if (rank == parent->rank) {
			memcpy(place, mine, bytes);
			continue;
		}
		status = ls_irecv(parent, place, bytes, LS_UINT8, rank, participants->options,
				  &exchange->receives[i]);
		if (status == LS_OK)
			status = group_isend(parent, mine, bytes, rank, participants->options,
					     &exchange->sends[i]);
	}
	return status;
}

ls_status group_member_allgather(ls_group *parent, const struct group_participants *participants,
				 const void *mine, void *all, size_t bytes)
{
	struct exchange exchange;
	memset(&exchange, 0, sizeof exchange);
	ls_status status = start_all(parent, participants, mine, all, bytes, &exchange);
	for (int i = 0; i < participants->count && status == LS_OK; i++)
		if (exchange.receives[i])
			status = group_op_finish(&exchange.receives[i]);
	/* The messages are short, and wait for nothing but room. */
	for (int i = 0; i < participants->count && status == LS_OK; i++)
		if (exchange.sends[i])
			status = group_op_finish(&exchange.sends[i]);
	for (int i = 0; i < participants->count; i++) {
		(void)group_op_cancel(&exchange.sends[i]);
		(void)group_op_cancel(&exchange.receives[i]);
	}
	return status;
}
