/* SPDX-License-Identifier: BSD-3-Clause
 * What is said of operations that leave something open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_probe_leaves_open),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
