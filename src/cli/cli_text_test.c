/* SPDX-License-Identifier: BSD-3-Clause
 * Texts and JSON: what may come out of other processes' memory must not break what reads the output. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/diagnose_print.h"
#include "cli/timeline.h"

static const char *const words[] = {"run", "diagnose", "plan", "settings", "explain", NULL};

static void nearest_words(void **state)
{
	(void)state;
	assert_string_equal(cli_nearest("rnu", words), "run");
	assert_string_equal(cli_nearest("RUN", words), "run");
	assert_string_equal(cli_nearest("plane", words), "plan");
	assert_string_equal(cli_nearest("diagnsoe", words), "diagnose");
	assert_string_equal(cli_nearest("settigns", words), "settings");
	assert_null(cli_nearest("", words));
	assert_null(cli_nearest("bench", words));
	char longest[200];
	memset(longest, 'x', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	assert_null(cli_nearest(longest, words));
}

static void rank_lists(void **state)
{
	static const struct {
		uint64_t mask;
		const char *text;
	} cases[] = {
		{1, "rank 0"},
		{UINT64_C(1) << 63, "rank 63"},
		{0xb, "ranks 0, 1, 3"},
		{0x7, "ranks 0, 1, 2"},
		{0xf, "ranks 0-3"},
		{0x4fff0, "ranks 4-15, 18"},
		{UINT64_MAX, "ranks 0-63"},
		{UINT64_C(0x5555555555555555),
		 "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, "
		 "40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62"},
	};
	char text[256];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		cli_ranks(cases[i].mask, text, sizeof text);
		assert_string_equal(text, cases[i].text);
	}
	/* Cut, and ended. */
	cli_ranks(UINT64_MAX, text, 8);
	assert_string_equal(text, "ranks 0");
}

static void numbers(void **state)
{
	uint64_t value;

	(void)state;
	assert_true(cli_number("64", 1, 64, &value) && value == 64);
	assert_true(cli_number("18446744073709551615", 0, UINT64_MAX, &value) && value == UINT64_MAX);
	static const char *const wrong[] = {"",   "0",  "65", "-1",  "+1",
					    " 1", "1 ", "1x", "0x1", "18446744073709551616"};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		assert_false(cli_number(wrong[i], 1, 64, &value));
	assert_true(cli_bytes("0", &value) && value == 0);
	assert_true(cli_bytes("3K", &value) && value == 3072);
	assert_true(cli_bytes("16G", &value) && value == UINT64_C(16) << 30);
	assert_false(cli_bytes("1k", &value));
	assert_false(cli_bytes("1KB", &value));
	assert_false(cli_bytes("K", &value));
	assert_false(cli_bytes("17179869184G", &value));
	assert_true(cli_seconds("0.5", &value) && value == 500);
	assert_true(cli_seconds("2", &value) && value == 2000);
	assert_true(cli_seconds(".0001", &value) && value == 1);
	static const char *const no_time[] = {"", "0", "-1", "inf", "nan", "1s", "1e99", "."};
	for (size_t i = 0; i < sizeof no_time / sizeof no_time[0]; i++)
		assert_false(cli_seconds(no_time[i], &value));
}

static void small_texts(void **state)
{
	char text[32];

	(void)state;
	cli_bytes_text(4032, text, sizeof text);
	assert_string_equal(text, "4032 B");
	cli_bytes_text(65536, text, sizeof text);
	assert_string_equal(text, "64 KiB");
	cli_bytes_text(3 << 19, text, sizeof text);
	assert_string_equal(text, "1.5 MiB");
	cli_bytes_text(UINT64_MAX, text, sizeof text);
	assert_non_null(strstr(text, "TiB"));
	cli_signal(SIGKILL, text, sizeof text);
	assert_string_equal(text, "SIGKILL");
	cli_signal(9999, text, sizeof text);
	assert_string_equal(text, "signal 9999");
	assert_string_equal(cli_base_name("/usr/bin/x"), "x");
	assert_string_equal(cli_base_name("x"), "x");
	assert_string_equal(cli_base_name("/x/"), "/x/");
	char *environment[] = {"AB=1", "A=2", NULL};
	assert_string_equal(cli_variable(environment, "A"), "2");
	assert_null(cli_variable(environment, "B"));
}

static char *printed(void (*print)(FILE *out, const char *text), const char *text)
{
	char *buffer = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&buffer, &bytes);

	assert_non_null(out);
	print(out, text);
	assert_int_equal(fclose(out), 0);
	return buffer;
}

static void print_json(FILE *out, const char *text)
{
	struct cli_json json = {.out = out};

	cli_json_string(&json, NULL, text);
}

static void print_safely(FILE *out, const char *text)
{
	cli_print_safely(out, text, 2);
}

static void strange_bytes(void **state)
{
	static const struct {
		const char *text, *json, *safe;
	} cases[] = {
		{"plain", "\"plain\"", "plain"},
		{"a\"b\\c/", "\"a\\\"b\\\\c/\"", "a\"b\\c/"},
		{"a\nb", "\"a\\nb\"", "a\n  b"},
		{"\t\x1b[2J\x7f", "\"\\u0009\\u001b[2J\\u007f\"", "\t?[2J?"},
		{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
		 "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
		{"\xc2\x9b"
		 "1m",
		 "\"\\u009b1m\"", "?1m"}, /* CSI, as UTF-8 */
		{"\x9b"
		 "1m",
		 "\"\\ufffd"
		 "1m\"",
		 "?1m"}, /* as one byte */
		{"\xe2\x80\xae"
		 "a\xf3\xa0\x81\x81",
		 "\"\\u202ea\\udb40\\udc41\"", "?a?"},    /* right to left, and a tag */
		{"\xc0\xaf", "\"\\ufffd\\ufffd\"", "??"}, /* overlong */
		{"\xe0\x80\xaf", "\"\\ufffd\\ufffd\\ufffd\"", "???"},
		{"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"", "???"}, /* surrogate */
		{"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"", "????"},
		{"\xe2\x82", "\"\\ufffd\\ufffd\"", "??"}, /* cut */
		{"\xf0\x9f\x98", "\"\\ufffd\\ufffd\\ufffd\"", "???"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char *json = printed(print_json, cases[i].text);
		char *safe = printed(print_safely, cases[i].text);
		assert_string_equal(json, cases[i].json);
		assert_string_equal(safe, cases[i].safe);
		free(json);
		free(safe);
	}
}

static void print_object(FILE *out, const char *text)
{
	struct cli_json json = {.out = out};

	cli_json_open(&json, NULL, '{');
	cli_json_open(&json, "a", '[');
	cli_json_close(&json, ']');
	cli_json_open(&json, "b", '[');
	cli_json_open(&json, NULL, '{');
	cli_json_close(&json, '}');
	cli_json_number(&json, NULL, -1);
	cli_json_unsigned(&json, NULL, UINT64_MAX);
	cli_json_close(&json, ']');
	cli_json_bool(&json, "c", true);
	cli_json_null(&json, "d");
	cli_json_mask(&json, "e", 5);
	cli_json_string(&json, "f", text);
	cli_json_close(&json, '}');
}

static void json_structure(void **state)
{
	char *json = printed(print_object, "x");

	(void)state;
	assert_string_equal(json, "{\"a\":[],\"b\":[{},-1,18446744073709551615],\"c\":true,"
				  "\"d\":null,\"e\":[0,2],\"f\":\"x\"}");
	free(json);
}

/* A probe has no number, and what is left open is said in words. */
static void print_probe(FILE *out, const char *text)
{
	struct cli_json json = {.out = out};
	const struct trace_record probe = {.kind = TRACE_PROBE, .peer = -1, .tag = -1};

	(void)text;
	cli_json_open(&json, NULL, '{');
	cli_json_call(&json, &probe);
	cli_json_close(&json, '}');
}

static void what_is_left_open(void **state)
{
	const struct cli_timeline_op op = {.record = {.kind = TRACE_PROBE, .peer = -1, .tag = -1}};
	const struct cli_timeline timeline = {0};
	char name[64] = "", *json = printed(print_probe, "");

	(void)state;
	cli_timeline_name(&timeline, &op, name, sizeof name);
	assert_string_equal(name, "probe from any, any tag");
	assert_string_equal(json, "{\"number\":null,\"count\":null,\"dtype\":null,\"reduce_op\":null,"
				  "\"peer\":\"any\",\"tag\":\"any\"}");
	free(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nearest_words),     cmocka_unit_test(rank_lists),
		cmocka_unit_test(numbers),           cmocka_unit_test(small_texts),
		cmocka_unit_test(strange_bytes),     cmocka_unit_test(json_structure),
		cmocka_unit_test(what_is_left_open),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
