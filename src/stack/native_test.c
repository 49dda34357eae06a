/* SPDX-License-Identifier: BSD-3-Clause
 * Names of variables of another process, by their addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "stack/child_fixture.h"
#include "stack/stack.h"

enum { FAR_BYTES = 1 << 20 };

/* One variable with a value; one that is zero; and one that is zero and lies beyond the page with
 * the file's last bytes. */
static int with_value = 7;
static int zero;
static char far_zero[FAR_BYTES];

struct look {
	pid_t pid;
	struct stack_memory memory;
	struct stack_native *native;
};

static int open_look(void **state)
{
	static struct look look;
	look.pid = fork_along();
	if (look.pid == 0)
		for (;;)
			pause();
	stack_memory_open(look.pid, &look.memory);
	look.native = stack_native_open(&look.memory);
	*state = &look;
	return 0;
}

static int close_look(void **state)
{
	struct look *look = *state;
	stack_native_close(look->native);
	stack_memory_close(&look->memory);
	end(look->pid);
	return 0;
}

static void check(struct look *look, const volatile void *address, const char *want)
{
	char name[STACK_TEXT_BYTES] = "?";
	stack_native_variable(look->native, (uint64_t)(uintptr_t)address, name, sizeof name);
	assert_string_equal(name, want);
}

static void variables_of_files(void **state)
{
	struct look *look = *state;
	if (!look->native)
		skip(); /* without libdw */
	check(look, &with_value, "with_value");
	check(look, &zero, "zero");
	check(look, far_zero, "far_zero");
	check(look, far_zero + FAR_BYTES / 2, "far_zero");
}

/* Memory without a name is not taken for the last variable before it. */
static void memory_without_a_name(void **state)
{
	struct look *look = *state;
	if (!look->native)
		skip();
	void *small = malloc(64), *large = malloc(FAR_BYTES * 8);
	assert_true(small && large);
	int local = 0;
	check(look, small, "");
	check(look, large, "");
	check(look, &local, "");
	check(look, NULL, "");
	free(small);
	free(large);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(variables_of_files, open_look, close_look),
		cmocka_unit_test_setup_teardown(memory_without_a_name, open_look, close_look),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
