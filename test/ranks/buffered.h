/* SPDX-License-Identifier: BSD-3-Clause
 * Messages of one element for buffered_test.c and buffered_rings_test.c. */
#ifndef TEST_RANKS_BUFFERED_H
#define TEST_RANKS_BUFFERED_H

#include "tests.h"

static inline struct ls_call_options with_tag(int tag)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .tag = tag};
}

static inline void send_one(ls_group *group, int32_t value, int to, int tag)
{
	struct ls_call_options options = with_tag(tag);
	OK(ls_send(group, &value, 1, LS_INT32, to, &options));
}

static inline void receive_one(ls_group *group, int from, int tag)
{
	struct ls_call_options options = with_tag(tag);
	int32_t value;
	OK(ls_recv(group, &value, 1, LS_INT32, from, &options));
}

static inline void isend_one(ls_group *group, int to, int tag, bool waits)
{
	struct ls_call_options options = with_tag(tag);
	int32_t value = 1;
	ls_request *op;
	OK(ls_isend(group, &value, 1, LS_INT32, to, &options, &op));
	if (waits)
		OK(ls_wait(op, 0));
	else
		OK(ls_test(op));
	ls_request_free(op);
}

#endif
