/* SPDX-License-Identifier: BSD-3-Clause
 * An all-gather among some ranks of a group, by messages, so that the others need not take part. */
#include <string.h>

#include "group_private.h"

struct exchange {
	ls_op *sends[PLAN_SIZE_MAX],
		*receives[PLAN_SIZE_MAX]; /* by place in the circle; NULL: none */
};

static ls_status wait_for(ls_op **op)
{
	ls_status status;
	do
		status = ls_wait(*op, 0);
	while (status == LS_PENDING); /* a signal */
	ls_op_free(*op);
	*op = NULL;
	return status;
}

static ls_status start(ls_group *parent, const struct group_circle *circle, const void *mine,
		       void *all, size_t bytes, struct exchange *exchange)
{
	ls_status status = LS_OK;
	for (int i = 0; i < circle->count && status == LS_OK; i++) {
		int rank = circle->ranks[i];
		char *place = (char *)all + (size_t)rank * bytes;
		if (rank == parent->rank) {
			memcpy(place, mine, bytes);
			continue;
		}
		status = ls_irecv(parent, place, bytes, LS_UINT8, rank, circle->options,
				  &exchange->receives[i]);
		if (status == LS_OK)
			status = ls_isend(parent, mine, bytes, LS_UINT8, rank, circle->options,
					  &exchange->sends[i]);
	}
	return status;
}

/* Those that are left are not wanted any more. */
static void give_up(struct exchange *exchange, int count)
{
	for (int i = 0; i < count; i++) {
		ls_op **both[] = {&exchange->sends[i], &exchange->receives[i]};
		for (int j = 0; j < 2; j++) {
			if (!*both[j])
				continue;
			ls_status status = ls_cancel(*both[j]);
			status = wait_for(both[j]);
			(void)status; /* taken back, or too late for that: in any case over */
		}
	}
}

ls_status group_exchange(ls_group *parent, struct group_circle *circle, const void *mine, void *all,
			 size_t bytes)
{
	struct exchange exchange;
	memset(&exchange, 0, sizeof exchange);
	ls_status status = start(parent, circle, mine, all, bytes, &exchange);
	for (int i = 0; i < circle->count && status == LS_OK; i++) {
		if (!exchange.receives[i])
			continue;
		status = wait_for(&exchange.receives[i]);
		const char *other = (const char *)all + (size_t)circle->ranks[i] * bytes;
		if (status == LS_OK && circle->agrees && !circle->agrees(mine, other)) {
			circle->other = circle->ranks[i];
			status = LS_DIFFERENT;
		}
	}
	/* They are short, and need nobody but room. */
	for (int i = 0; i < circle->count && status == LS_OK; i++)
		if (exchange.sends[i])
			status = wait_for(&exchange.sends[i]);
	give_up(&exchange, circle->count);
	return status;
}
