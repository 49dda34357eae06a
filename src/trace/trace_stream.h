/* SPDX-License-Identifier: BSD-3-Clause
 * How far an operation on a stream of a device is, as its rank has seen it: in its record, and in
 * words, the same in all reports and pictures. */
#ifndef TRACE_TRACE_STREAM_H
#define TRACE_TRACE_STREAM_H

enum trace_stream {
	TRACE_ON_STREAM = 1,
	TRACE_LAUNCHED = 2, /* all of it is enqueued on the stream */
	TRACE_REACHED = 4,  /* the stream has copied what this rank gives; not of a receive */
	TRACE_ARRIVED = 8,  /* the result is in host memory, for the stream to copy */
	TRACE_LET_GO = 16,  /* it has been given up, and the stream does not wait for it */
	TRACE_NO_ROOM = 32, /* before it is enqueued, it waits for room in the stream's queue */
};
struct trace_record;

/* The last step that its rank has seen: "called", "launched", "reached" or "arrived". NULL: it is
 * not on a stream. */
const char *trace_stream_word(const struct trace_record *record);
/* What to say behind its name: ", to which its stream has not come yet", or, once it has ended,
 * ", on a stream". "": it is not on a stream. */
const char *trace_stream_clause(const struct trace_record *record);

#endif
