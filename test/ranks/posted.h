/* SPDX-License-Identifier: BSD-3-Clause
 * Short receives that rank 1 posts for messages of rank 0. */
#ifndef TEST_RANKS_POSTED_H
#define TEST_RANKS_POSTED_H

#include "runner.h"

enum { POSTED_MANY = 60 };

static inline struct ls_call_options posted_tag(int tag)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .tag = tag};
}

static inline void posted_one(ls_group *group, int32_t *value, int tag, ls_request **op)
{
	struct ls_call_options options = posted_tag(tag);
	*value = -1;
	OK(ls_irecv(group, value, 1, LS_INT32, 0, &options, op));
}

static inline void posted_end(ls_request *op, ls_status status)
{
	GIVES(status, ls_wait(op, 0));
	ls_request_free(op);
}

#endif
