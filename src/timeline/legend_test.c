/* SPDX-License-Identifier: BSD-3-Clause
 * What the legend says of operations that leave something open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "timeline/timeline.h"

/* A probe has no number, and what is left open is said in words. */
static const struct trace_record probe = {.kind = TRACE_PROBE, .peer = -1, .tag = -1};

static void what_a_probe_leaves_open(void **state)
{
	const struct timeline_op op = {.record = probe};
	const struct timeline timeline = {0};
	char name[64] = "";

	(void)state;
	timeline_name(&timeline, &op, name, sizeof name);
	assert_string_equal(name, "probe from any, any tag");
}

/* Ranks are those of the job, as the bands are, and not those of a group that counts otherwise. */
static void ranks_are_those_of_the_job(void **state)
{
	static const char *const names[] = {"send to 0, tag 4, in group 7",
					    "send to member 1, tag 4, in an unknown group",
					    "send to 1, tag 4, in world"};
	static const char *const roots[] = {", root 0", ", root member 1", ", root 1"};
	static const uint32_t groups[] = {7, 9, TRACE_GROUP_WORLD};
	struct timeline *timeline = timeline_new(1, 3);
	(void)state;
	assert_non_null(timeline);
	timeline->group_count = 2;
	timeline->groups[0] =
		(struct timeline_group){.id = 7, .name = "group 7", .size = 2, .members = {2, 0}};
	timeline->groups[1] = (struct timeline_group){.id = TRACE_GROUP_WORLD, .name = "world"};
	for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
		struct timeline_op op = {
			.record = {.kind = TRACE_SEND, .group = groups[i], .peer = 1, .tag = 4}};
		char text[256] = "";
		timeline_name(timeline, &op, text, sizeof text);
		assert_string_equal(text, names[i]);
		op.record.kind = TRACE_BROADCAST;
		timeline_describe(timeline, &op, text, sizeof text);
		assert_non_null(strstr(text, roots[i]));
	}
	const struct trace_record send = {.kind = TRACE_SEND, .group = 7, .peer = 1, .tag = 4};
	assert_true(timeline_put(timeline, 2, &send, 1, 2));
	assert_true(timeline_lay_out(timeline, 0, 3));
	assert_string_equal(timeline->rows[0].label, "group 7: to 0 tag 4");
	timeline_free(timeline);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_probe_leaves_open),
		cmocka_unit_test(ranks_are_those_of_the_job),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
