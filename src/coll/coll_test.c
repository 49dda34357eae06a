/* SPDX-License-Identifier: BSD-3-Clause
 * The table of collectives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "coll/coll.h"

static void names_are_found(void **state)
{
	(void)state;
	for (int id = 0; id < COLL_COUNT; id++)
		assert_int_equal(coll_from_name(coll_table[id].name), id);
	assert_int_equal(coll_from_name("allreduce"), COLL_ALLREDUCE);
	assert_int_equal(coll_from_name("all_reduce"), COLL_ALLREDUCE);
	assert_int_equal(coll_from_name("reducescatter"), COLL_REDUCE_SCATTER);
	assert_int_equal(coll_from_name("all-reduc"), COLL_NONE);
	assert_int_equal(coll_from_name("all-reduces"), COLL_NONE);
	assert_int_equal(coll_from_name(""), COLL_NONE);
	assert_true(coll_is_name("ping_pong", "ping-pong"));
}

/* No two collectives have one name, nor two kinds; what a kind is called begins with its
 * collective's name. */
static void names_differ(void **state)
{
	(void)state;
	for (int a = 0; a < COLL_COUNT; a++)
		for (int b = 0; b < a; b++)
			assert_string_not_equal(coll_table[a].name, coll_table[b].name);
	for (int a = 1; a < COLL_KIND_COUNT; a++) {
		const struct coll *coll = &coll_table[coll_kinds[a].collective];
		for (int b = 1; b < a; b++)
			assert_string_not_equal(coll_kinds[a].name, coll_kinds[b].name);
		if (coll_kinds[a].collective != COLL_NONE &&
		    strncmp(coll_kinds[a].name, "group-", 6) != 0)
			assert_memory_equal(coll_kinds[a].name, coll->name, strlen(coll->name));
	}
}

/* Only peers of the root lack a buffer, and in reductions all buffers have one length. */
static void buffers_make_sense(void **state)
{
	(void)state;
	for (int id = 0; id < COLL_COUNT; id++) {
		const struct coll *coll = &coll_table[id];
		assert_int_equal(coll->input == COLL_NOTHING, coll->output == COLL_NOTHING);
		assert_int_equal(coll->input == COLL_WHOLE, coll->output == COLL_WHOLE);
		if (coll->input == COLL_NOTHING)
			assert_false(coll->reduces || coll->root);
		if (coll->reduces)
			assert_int_not_equal(coll->input, COLL_PART);
	}
	for (int k = 1; k < COLL_KIND_COUNT; k++)
		if (coll_kinds[k].counts == COLL_SAME_COUNTS ||
		    coll_kinds[k].counts == COLL_OWN_COUNTS)
			assert_int_not_equal(coll_table[coll_kinds[k].collective].input, COLL_WHOLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_found),
		cmocka_unit_test(names_differ),
		cmocka_unit_test(buffers_make_sense),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
