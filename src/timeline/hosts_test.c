/* SPDX-License-Identifier: BSD-3-Clause
 * Timelines of jobs on several hosts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timeline/timeline.h"

enum { SIZE = 3, WORLD = 1 };

/* Two hosts with clocks of their own: their bars are on one axis, and it is said how. */
static void two_hosts(void **state)
{
	enum { AHEAD_NS = 1250000000, ERROR_NS = 41000 };
	struct trace_options options = {.job = 1, .rank = 0, .world_size = SIZE, .records = 16};
	struct timeline *timeline = timeline_new(0x1234, SIZE);
	struct trace trace;
	struct trace_view view;
	char note[256], *svg = NULL;
	size_t svg_bytes = 0;
	const char *why;
	(void)state;
	assert_non_null(timeline);

	assert_int_equal(trace_init(&trace, &options), LS_OK);
	struct trace_begin begin = {.kind = TRACE_ALLREDUCE, .group = WORLD, .seq = 1, .peer = -1};
	trace_end(&trace, trace_begin(&trace, &begin), LS_OK);
	assert_true(trace_check(trace.header, trace.bytes, &view, &why));
	struct timeline_clock here = {.first = 0, .rate = trace_rate_now(&view)}, there = here;
	there.first = 1;
	there.offset_ns = AHEAD_NS;
	there.error_ns = ERROR_NS;
	assert_true(timeline_add_at(timeline, 0, &view, &here));
	assert_true(timeline_add_at(timeline, 1, &view, &there));
	timeline_miss(timeline, 2, "c\n", 2);
	assert_int_equal(timeline->op_count, 2);
	assert_int_equal(timeline->ops[0].begin_ns - AHEAD_NS, timeline->ops[1].begin_ns);
	assert_int_equal(timeline->ops[0].end_ns - AHEAD_NS, timeline->ops[1].end_ns);
	assert_int_equal(timeline->ranks[0].start_ns - AHEAD_NS, timeline->ranks[1].start_ns);
	snprintf(timeline->ranks[0].host, sizeof timeline->ranks[0].host, "a");
	snprintf(timeline->ranks[1].host, sizeof timeline->ranks[1].host, "b");
	assert_true(timeline_note(timeline, 0, note, sizeof note));
	assert_string_equal(note, "times are those of host a (rank 0)");
	assert_true(timeline_note(timeline, 1, note, sizeof note));
	assert_string_equal(
		note, "the clock of host b (rank 1) is 1.250000 s ahead, give or take 41.0 us");
	assert_true(timeline_note(timeline, 2, note, sizeof note));
	assert_string_equal(note, "host c? (rank 2) has not answered");
	assert_false(timeline_note(timeline, 3, note, sizeof note));
	timeline_title(timeline, note, sizeof note);
	assert_non_null(strstr(note, ", 3 ranks on 3 hosts, "));
	timeline->ranks[1].clock.offset_ns = -AHEAD_NS;
	assert_true(timeline_note(timeline, 1, note, sizeof note));
	assert_non_null(strstr(note, "1.250000 s behind"));
	assert_true(timeline_lay_out(timeline, 0, 0));
	FILE *out = open_memstream(&svg, &svg_bytes);
	assert_non_null(out);
	timeline_svg(timeline, out);
	assert_int_equal(fclose(out), 0);
	assert_non_null(strstr(svg, ">times are those of host a (rank 0)</text>"));
	assert_non_null(strstr(svg, ">host c? (rank 2) has not answered</text>"));
	free(svg);
	timeline_free(timeline);
	trace_fini(&trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_hosts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
