/* SPDX-License-Identifier: BSD-3-Clause
 * What a message says when no descriptor is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/open_limit.h"

static void test_text(void **state)
{
	(void)state;
	struct rlimit before, few;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = 17;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(open_limit_get(), 17);
	assert_string_equal(OPEN_LIMIT_TEXT(EMFILE),
			    "Too many open files: this process may have 17, so raise the limit "
			    "(ulimit -n)");
	assert_string_equal(OPEN_LIMIT_TEXT(ENOENT), strerror(ENOENT));
	assert_string_equal(OPEN_LIMIT_TEXT(ENFILE), strerror(ENFILE));
	assert_false(open_limit_is_reached());
	uint64_t left = open_limit_left();
	assert_in_range(left, 2, 14);
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(open_limit_left(), left - 1);
	assert_int_equal(close(fd), 0);
	few.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_true(open_limit_is_reached());
	assert_int_equal(open_limit_left(), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_text)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
