/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: a trace, and a view of it as another rank has one. After cmocka.h. */
#ifndef TRACE_TRACE_FIXTURE_H
#define TRACE_TRACE_FIXTURE_H

#include "trace/trace.h"

static inline void open_trace(struct trace *trace, uint64_t records, struct trace_view *view)
{
	struct trace_options options = {.job = 0xabc, .rank = 3, .world_size = 4, .records = records};
	const char *why = NULL;
	assert_int_equal(trace_init(trace, &options), LS_OK);
	assert_true(trace_map(trace->fd, view, &why));
	assert_null(why);
}

static inline void close_trace(struct trace *trace, struct trace_view *view)
{
	trace_unmap(view);
	assert_null(view->header);
	trace_fini(trace);
	assert_null(trace->header);
	assert_int_equal(trace->fd, -1);
}

#endif
