/* SPDX-License-Identifier: BSD-3-Clause
 * Which characters are printed as they are, and how the others are replaced; text that grows. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"

static void expect(const char *text, const char *line, const char *lines)
{
	char copy[256];
	snprintf(copy, sizeof copy, "%s", text);
	text_clean(copy, false);
	assert_string_equal(copy, line);
	snprintf(copy, sizeof copy, "%s", text);
	text_clean(copy, true);
	assert_string_equal(copy, lines);
}

static void test_clean(void **state)
{
	(void)state;
	expect("", "", "");
	expect("plain ~ text", "plain ~ text", "plain ~ text");
	expect("two\n\tlines\r", "two??lines?", "two\n\tlines?");
	expect("\x1b[31mred\x7f", "?[31mred?", "?[31mred?");
	expect("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
	       "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
	/* No UTF-8: a byte alone, overlong, a surrogate, beyond the end, and cut. */
	expect("\x9b"
	       "1m",
	       "?1m", "?1m");
	expect("\xc0\xaf", "??", "??");
	expect("\xed\xa0\x80", "???", "???");
	expect("\xf4\x90\x80\x80", "????", "????");
	expect("a\xe2\x82", "a??", "a??");
}

/* Writes the character as UTF-8. */
static void encode(uint32_t point, char out[5])
{
	char *at = out;
	if (point < 0x80) {
		*at++ = (char)point;
	} else if (point < 0x800) {
		*at++ = (char)(0xc0 | point >> 6);
	} else if (point < 0x10000) {
		*at++ = (char)(0xe0 | point >> 12);
		*at++ = (char)(0x80 | (point >> 6 & 0x3f));
	} else {
		*at++ = (char)(0xf0 | point >> 18);
		*at++ = (char)(0x80 | (point >> 12 & 0x3f));
		*at++ = (char)(0x80 | (point >> 6 & 0x3f));
	}
	if (point >= 0x80)
		*at++ = (char)(0x80 | (point & 0x3f));
	*at = '\0';
}

static bool is_hidden(uint32_t point)
{
	char text[5];
	encode(point, text);
	text_clean(text, true);
	return text[0] == '?' && point != '?';
}

/* Every control character, all that turn the direction, and those without width; and their
 * neighbours. */
static void test_every_character(void **state)
{
	(void)state;
	for (uint32_t c = 1; c < 0xa0; c++)
		assert_int_equal(is_hidden(c), (c < 0x20 && c != '\n' && c != '\t') || c >= 0x7f);
	static const uint32_t out[] = {0xad,   0x61c,  0x200b, 0x200c,  0x200d, 0x200e,
				       0x200f, 0x2028, 0x2029, 0x202a,  0x202b, 0x202c,
				       0x202d, 0x202e, 0x2060, 0x2066,  0x2067, 0x2068,
				       0x2069, 0xfeff, 0xfffe, 0xe0001, 0xe0041};
	static const uint32_t in[] = {0xa0,    0xac,    0xae,    0x61b,   0x61d,   0x200a, 0x2010,
				      0x2027,  0x202f,  0x205f,  0x2070,  0xfefe,  0xfffd, 0xff00,
				      0x10000, 0x1f600, 0xdffff, 0xe0100, 0x10ffff};
	for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
		if (!is_hidden(out[i]))
			fail_msg("U+%04X is shown", out[i]);
	for (size_t i = 0; i < sizeof in / sizeof in[0]; i++)
		if (is_hidden(in[i]))
			fail_msg("U+%04X is not shown", in[i]);
}

static void test_append(void **state)
{
	(void)state;
	char text[8] = "", guard[8] = "";
	size_t used = 0;
	text_append(text, 6, &used, "%s%d", "ab", 1);
	assert_string_equal(text, "ab1");
	assert_int_equal(used, 3);
	text_append(text, 6, &used, "%s", "cdef");
	assert_string_equal(text, "ab1cd");
	assert_int_equal(used, 7);
	text_append(text, 6, &used, "g");
	assert_string_equal(text, "ab1cd");
	assert_int_equal(used, 7);
	assert_memory_equal(text + 6, guard, 2);
}

static void test_signals(void **state)
{
	(void)state;
	assert_string_equal(text_signal(SIGKILL), "KILL");
	assert_string_equal(text_signal(SIGSYS), "SYS");
	assert_null(text_signal(0));
	assert_null(text_signal(-1));
	assert_null(text_signal(9999));
	for (int i = 1; i < 32; i++)
		assert_non_null(text_signal(i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clean),
		cmocka_unit_test(test_every_character),
		cmocka_unit_test(test_append),
		cmocka_unit_test(test_signals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
