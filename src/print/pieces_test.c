/* SPDX-License-Identifier: BSD-3-Clause
 * Texts and JSON: no text from another process's memory may break the programs that read the
 * output. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "print/print.h"

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
		struct ranks ranks = ranks_of_bits(cases[i].mask);
		print_ranks(&ranks, text, sizeof text);
		assert_string_equal(text, cases[i].text);
	}
	/* Cut, and ended. */
	struct ranks many = ranks_below(RANKS_JOB_MAX);
	print_ranks(&many, text, sizeof text);
	assert_string_equal(text, "ranks 0-4095");
	print_ranks(&many, text, 8);
	assert_string_equal(text, "ranks 0");
}

static void small_texts(void **state)
{
	char text[32];

	(void)state;
	print_bytes(4032, text, sizeof text);
	assert_string_equal(text, "4032 B");
	print_bytes(65536, text, sizeof text);
	assert_string_equal(text, "64 KiB");
	print_bytes(3 << 19, text, sizeof text);
	assert_string_equal(text, "1.5 MiB");
	print_bytes(UINT64_MAX, text, sizeof text);
	assert_non_null(strstr(text, "TiB"));
	print_signal(SIGKILL, text, sizeof text);
	assert_string_equal(text, "SIGKILL");
	print_signal(9999, text, sizeof text);
	assert_string_equal(text, "signal 9999");
	assert_string_equal(print_base_name("/usr/bin/x"), "x");
	assert_string_equal(print_base_name("x"), "x");
	assert_string_equal(print_base_name("/x/"), "/x/");
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

static void put_json(FILE *out, const char *text)
{
	struct print_json json = {.out = out};

	print_json_string(&json, NULL, text);
}

static void put_safely(FILE *out, const char *text)
{
	print_safely(out, text, 2);
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
		char *json = printed(put_json, cases[i].text);
		char *safe = printed(put_safely, cases[i].text);
		assert_string_equal(json, cases[i].json);
		assert_string_equal(safe, cases[i].safe);
		free(json);
		free(safe);
	}
}

static void put_object(FILE *out, const char *text)
{
	struct print_json json = {.out = out};

	print_json_open(&json, NULL, '{');
	print_json_open(&json, "a", '[');
	print_json_close(&json, ']');
	print_json_open(&json, "b", '[');
	print_json_open(&json, NULL, '{');
	print_json_close(&json, '}');
	print_json_number(&json, NULL, -1);
	print_json_unsigned(&json, NULL, UINT64_MAX);
	print_json_close(&json, ']');
	print_json_bool(&json, "c", true);
	print_json_null(&json, "d");
	struct ranks ranks = ranks_of_bits(5);
	print_json_ranks(&json, "e", &ranks);
	print_json_string(&json, "f", text);
	print_json_close(&json, '}');
}

static void json_structure(void **state)
{
	char *json = printed(put_object, "x");

	(void)state;
	assert_string_equal(json, "{\"a\":[],\"b\":[{},-1,18446744073709551615],\"c\":true,"
				  "\"d\":null,\"e\":[0,2],\"f\":\"x\"}");
	free(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rank_lists),
		cmocka_unit_test(small_texts),
		cmocka_unit_test(strange_bytes),
		cmocka_unit_test(json_structure),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
