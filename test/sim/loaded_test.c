/* SPDX-License-Identifier: BSD-3-Clause
 * The library loads a driver from a file of its own, which this program is not linked with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <lockstep/lockstep.h>

static void a_driver_in_a_file(void **state)
{
	(void)state;
	struct ls_group_options options = {.size = sizeof options,
					   .world_size = 1,
					   .rendezvous = "unix:sim-loaded-test",
					   .device = "sim:2,bytes=16777216"};
	ls_group *group;
	void *blocks[2];
	struct ls_device_stats stats = {.size = sizeof stats};
	for (int round = 0; round < 2; round++) { /* the file stays loaded */
		assert_int_equal(ls_group_open(&options, &group), LS_OK);
		assert_int_equal(ls_device_alloc(group, 1 << 20, NULL, &blocks[0]), LS_OK);
		assert_int_equal(ls_device_alloc(group, 100, NULL, &blocks[1]), LS_OK);
		/* With one rank the device itself makes the copy. */
		assert_int_equal(
			ls_allreduce(group, blocks[0], blocks[1], 25, LS_FLOAT32, LS_SUM, NULL),
			LS_OK);
		assert_int_equal(ls_device_stats(group, &stats), LS_OK);
		assert_int_equal(stats.live_blocks, 2);
		for (int i = 0; i < 2; i++)
			assert_int_equal(ls_device_free(group, blocks[i]), LS_OK);
		ls_group_close(group);
	}
}

/* The driver must not have its own copy of the thread's last error. */
static void its_message_is_the_last_error(void **state)
{
	(void)state;
	struct ls_group_options options = {.size = sizeof options,
					   .world_size = 1,
					   .rendezvous = "unix:sim-loaded-test",
					   .device = "sim:0,colour=red"};
	ls_group *group;
	char said[256];
	assert_int_equal(ls_group_open(&options, &group), LS_BAD_ARGUMENT);
	assert_true(ls_last_error(said, sizeof said) > 0);
	assert_non_null(strstr(said, "unknown options"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_driver_in_a_file),
					   cmocka_unit_test(its_message_is_the_last_error)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
