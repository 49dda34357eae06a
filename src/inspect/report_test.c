/* SPDX-License-Identifier: BSD-3-Clause
 * What is said of operations that leave something open, or are on a stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- on streams ---- */

enum { SIZE = 6, JOB = 0x1234 };

/* What the operation of each rank has come to; 0: it is on no stream. */
static const uint32_t seen[SIZE] = {
	TRACE_ON_STREAM,
	TRACE_ON_STREAM | TRACE_LAUNCHED,
	0,
	TRACE_ON_STREAM | TRACE_REACHED, /* its call is not over */
	TRACE_ON_STREAM | TRACE_LAUNCHED | TRACE_REACHED,
	TRACE_ON_STREAM | TRACE_LAUNCHED | TRACE_REACHED | TRACE_ARRIVED,
};

/* An operation as a rank records it, one step after the other. */
static void call_on_stream(struct trace *trace, uint32_t stream)
{
	struct trace_begin begin = {
		.kind = TRACE_BARRIER, .seq = 17, .stream = stream & TRACE_ON_STREAM};
	uint64_t index = trace_begin(trace, &begin);

	for (uint32_t step = TRACE_LAUNCHED; step <= TRACE_ARRIVED; step *= 2)
		if (stream & step)
			trace_stream(trace, index, step);
}

static char *shown_as_json(const struct inspect_view *view)
{
	struct inspect_report *report = inspect_report_take(view, NULL);
	struct inspect_shown shown = {.report = report};
	char *text = NULL;
	size_t bytes = 0;
	struct print_json json = {.out = open_memstream(&text, &bytes)};

	assert_non_null(report);
	assert_non_null(json.out);
	inspect_print_json(&json, &shown);
	assert_int_equal(fclose(json.out), 0);
	inspect_report_free(report);
	return text;
}

/* The words of all ranks; "-": it has none. */
static void expect_streams(const char *json, const char *expected)
{
	static const char key[] = "\"stream\":\"";
	char words[256] = "";

	for (const char *at = json; (at = strstr(at, "\"operation\":{")); at++) {
		const char *end = strstr(at, "\"site\""), *word = strstr(at, key);
		assert_non_null(end);
		if (word && word < end)
			print_append(words, sizeof words, "%.*s ",
				     (int)strcspn(word + strlen(key), "\""), word + strlen(key));
		else
			print_append(words, sizeof words, "- ");
	}
	assert_string_equal(words, expected);
}

static void how_far_operations_on_streams_are(void **state)
{
	struct inspect_view *view = inspect_view_new(JOB, SIZE);
	struct trace traces[SIZE];

	(void)state;
	assert_non_null(view);
	for (int rank = 0; rank < SIZE; rank++) {
		struct trace_options options = {
			.job = JOB, .rank = rank, .world_size = SIZE, .records = 16};
		assert_int_equal(trace_init(&traces[rank], &options), LS_OK);
		int fd = fcntl(traces[rank].fd, F_DUPFD_CLOEXEC, 3);
		assert_true(fd >= 0 && inspect_view_add_trace(view, rank, fd));
		call_on_stream(&traces[rank], seen[rank]);
	}
	char *json = shown_as_json(view);
	expect_streams(json, "called launched - reached reached arrived ");
	free(json);
	inspect_view_free(view);
	for (int rank = 0; rank < SIZE; rank++)
		trace_fini(&traces[rank]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_probe_leaves_open),
		cmocka_unit_test(how_far_operations_on_streams_are),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
