/* SPDX-License-Identifier: BSD-3-Clause
 * Numbers and words of command lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cli/cli.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nearest_words),
		cmocka_unit_test(numbers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
