/* SPDX-License-Identifier: BSD-3-Clause
 * The first host of lists in Slurm's notation, and of other lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "rendezvous/meet.h"

static void test_lists(void **state)
{
	static const struct {
		const char *list, *first;
	} lists[] = {
		{"node1", "node1"},
		{"node1,node2", "node1"},
		{"node[1-3,7]", "node1"},
		{"node[07,1-3]", "node07"},
		{"node[001-128]", "node001"},
		{"rack[2-3]n[5-8]", "rack2n5"},
		{"gpu[3]-ib.example.org,login", "gpu3-ib.example.org"},
		{"n-1_x", "n-1_x"},
	};
	char first[RENDEZVOUS_NAME_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		assert_true(rendezvous_first_host(lists[i].list, first));
		assert_string_equal(first, lists[i].first);
	}
}

static void test_wrong(void **state)
{
	static const char *const lists[] = {
		"",       ",node1",   "node[",  "node[1", "node[]", "node[a-b]", "node[1;2]",
		"node 1", "node[-1]", "node1]", "$(x)",   "node\n", "(null)",    "node[1x]",
	};
	char first[RENDEZVOUS_NAME_BYTES], list[2 * RENDEZVOUS_NAME_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		if (rendezvous_first_host(lists[i], first))
			fail_msg("'%s' was taken for a list that begins with %s", lists[i], first);
		assert_string_equal(first, "");
	}
	/* The longest name, and one more byte, written both ways. */
	memset(list, '1', sizeof list);
	list[RENDEZVOUS_NAME_BYTES - 1] = '\0';
	assert_true(rendezvous_first_host(list, first));
	assert_string_equal(first, list);
	list[RENDEZVOUS_NAME_BYTES - 1] = '1';
	list[RENDEZVOUS_NAME_BYTES] = '\0';
	assert_false(rendezvous_first_host(list, first));
	list[0] = '[';
	list[RENDEZVOUS_NAME_BYTES] = ']';
	list[RENDEZVOUS_NAME_BYTES + 1] = '\0';
	assert_true(rendezvous_first_host(list, first));
	list[RENDEZVOUS_NAME_BYTES] = '1';
	list[RENDEZVOUS_NAME_BYTES + 1] = ']';
	list[RENDEZVOUS_NAME_BYTES + 2] = '\0';
	assert_false(rendezvous_first_host(list, first));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_wrong),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
