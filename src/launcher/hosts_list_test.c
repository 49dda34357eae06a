/* SPDX-License-Identifier: BSD-3-Clause
 * Lists of hosts, right and wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "launcher/launcher.h"

static void test_right(void **state)
{
	struct launcher_list list;
	char why[256];

	(void)state;
	assert_true(launcher_list_parse("a:4,b:2", &list, why));
	assert_int_equal(list.count, 2);
	assert_int_equal(list.ranks, 6);
	assert_string_equal(list.hosts[0].name, "a");
	assert_int_equal(list.hosts[0].ranks, 4);
	assert_string_equal(list.hosts[1].name, "b");
	assert_int_equal(list.hosts[1].ranks, 2);

	assert_true(launcher_list_parse("me@node-1.example", &list, why));
	assert_string_equal(list.hosts[0].name, "me@node-1.example");
	assert_int_equal(list.ranks, 1);

	assert_true(launcher_list_parse("[fd00::1]:3,me@[::1],10.0.0.1:64", &list, why));
	assert_string_equal(list.hosts[0].name, "[fd00::1]");
	assert_int_equal(list.hosts[0].ranks, 3);
	assert_string_equal(list.hosts[1].name, "me@[::1]");
	assert_int_equal(list.ranks, 68);

	assert_true(launcher_list_parse("a:64,b:64,c:64,d:64,e:64,f:64,g:64,h:64", &list, why));
	assert_int_equal(list.ranks, RANKS_WORLD_MAX);
}

static void test_wrong(void **state)
{
	static const char *const texts[] = {
		"",
		",",
		"a:2,",
		"a:",
		":4",
		"a:0",
		"a:65",
		"a:64,b:64,c:64,d:64,e:64,f:64,g:64,h:64,i",
		"a:x",
		"a:4x",
		"a:-1",
		"a b:2",
		"-oProxyCommand=x:2",
		"a;b:2",
		"$(a):2",
		"fd00::1:2",
		"a:1:2",
		"'a':2",
		"a/b:1",
		"me@:1",
		"me@-x:1",
		"a:99999999999999999999",
	};
	struct launcher_list list;

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		char why[256] = "";
		if (launcher_list_parse(texts[i], &list, why))
			fail_msg("'%s' was taken for a list of hosts", texts[i]);
		assert_true(why[0] != '\0');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right),
		cmocka_unit_test(test_wrong),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
