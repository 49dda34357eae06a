/* SPDX-License-Identifier: BSD-3-Clause
 * What is said of operations that leave something open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "inspect/report.h"

/* A probe has no number, and what is left open is said in words. */
static const struct trace_record probe = {.kind = TRACE_PROBE, .peer = -1, .tag = -1};

static void what_a_probe_leaves_open(void **state)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	struct print_json json = {.out = out};

	(void)state;
	assert_non_null(out);
	print_json_open(&json, NULL, '{');
	inspect_json_call(&json, &probe);
	print_json_close(&json, '}');
	assert_int_equal(fclose(out), 0);
	assert_string_equal(text, "{\"number\":null,\"count\":null,\"dtype\":null,\"reduce_op\":null,"
				  "\"peer\":\"any\",\"tag\":\"any\"}");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_probe_leaves_open),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
