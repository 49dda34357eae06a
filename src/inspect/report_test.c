/* SPDX-License-Identifier: BSD-3-Clause
 * What is printed of operations that leave something open, or are on a stream. */
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

/* How far the operation of each rank is on its stream; 0: it is on none. */
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

/* ---- ranks on their way back into a wait ---- */

enum { MANY_LOOKS = 10, MS = 1000000 };

static int looks, ends_at; /* ends_at: the look that sees the operation over; 0: none */
static uint64_t lasts_ns;

void __real_diagnose_collect(const struct diagnose_source *sources, int count,
			     const struct diagnose_closing *closing,
			     struct diagnose_snapshot *snapshot);
void __wrap_diagnose_collect(const struct diagnose_source *sources, int count,
			     const struct diagnose_closing *closing,
			     struct diagnose_snapshot *snapshot);

void __wrap_diagnose_collect(const struct diagnose_source *sources, int count,
			     const struct diagnose_closing *closing,
			     struct diagnose_snapshot *snapshot)
{
	__real_diagnose_collect(sources, count, closing, snapshot);
	looks++;
	if (lasts_ns == 0)
		return;
	assert_int_equal(snapshot->ranks[0].record_count, 1);
	snapshot->ranks[0].records[0].begin_ns = snapshot->now_ns - lasts_ns;
	if (looks == ends_at)
		snapshot->ranks[0].records[0].record.state = TRACE_DONE;
}

static int looks_of_one(const struct inspect_view *view, uint64_t ns, int over)
{
	looks = 0;
	lasts_ns = ns;
	ends_at = over;
	inspect_report_free(inspect_report_take(view, NULL));
	lasts_ns = 0;
	return looks;
}

/* Nobody is seen to wait in an operation that has lasted for long. */
static void looks_again(void **state)
{
	struct inspect_view *view = inspect_view_new(JOB, 1);
	struct trace_options options = {.job = JOB, .world_size = 1, .records = 16};
	struct trace trace;

	(void)state;
	assert_non_null(view);
	assert_int_equal(trace_init(&trace, &options), LS_OK);
	int fd = fcntl(trace.fd, F_DUPFD_CLOEXEC, 3);
	assert_true(fd >= 0 && inspect_view_add_trace(view, 0, fd));
	trace_begin(&trace, &(struct trace_begin){.kind = TRACE_BARRIER, .seq = 1});
	assert_int_equal(looks_of_one(view, UINT64_C(500) * MS, 0), 1);
	assert_int_equal(looks_of_one(view, UINT64_C(2000) * MS, 3), 3);
	assert_true(looks_of_one(view, UINT64_C(2000) * MS, 0) >= MANY_LOOKS);
	inspect_view_free(view);
	trace_fini(&trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_probe_leaves_open),
		cmocka_unit_test(how_far_operations_on_streams_are),
		cmocka_unit_test(looks_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
