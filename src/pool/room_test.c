/* SPDX-License-Identifier: BSD-3-Clause
 * How much is reserved beyond the peak. */
#include "pool/pool_fixture.h"

enum { MIB = 1 << 20 };

static void idle_segments_are_given_back_before_more_is_reserved(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	device->runs_in_wait = true;
	for (int i = 1; i <= 3; i++)
		free_block(device, take_block(device, (size_t)i * 4 * MIB, 0));
	assert_int_equal(device->gives, 1);
	assert_int_equal(stats_of(device).reserved, 20 * MIB);
	device_end(device);
}

/* The device itself checks that nothing is given back under a kernel. */
static void what_a_stream_uses_is_given_back_later(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	for (int i = 1; i <= 3; i++) {
		void *block = take_block(device, (size_t)i * 4 * MIB, 0);
		device_launch(device, 0, block, (size_t)i * 4 * MIB);
		free_block(device, block);
	}
	assert_int_equal(device->gives, 0);
	assert_int_equal(stats_of(device).reserved, 24 * MIB);
	device_run_all(device);
	device->runs_in_wait = true;
	free_block(device, take_block(device, 16 * MIB, 0));
	assert_true(device->gives > 0);
	assert_true(stats_of(device).reserved <= 25 * MIB);
	device_end(device);
}

static void a_large_block_is_cut_only_for_lack_of_room(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	unsigned char *large = take_block(device, 16 * MIB, 0), *other;
	device_launch(device, 0, large, 16 * MIB);
	free_block(device, large);
	take_block(device, 2 * MIB, 0);
	take_block(device, 4 * MIB, 0);
	assert_int_equal(device->takes, 3);
	other = take_block(device, 4 * MIB, 0);
	assert_int_equal(device->takes, 3);
	assert_true(other >= large && other < large + 16 * MIB);
	device_end(device);
}

static void a_large_block_is_cut_for_lack_of_memory(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	take_block(device, 30 * MIB, 0);
	unsigned char *large = take_block(device, 16 * MIB, 0), *other;
	device_launch(device, 0, large, 16 * MIB);
	free_block(device, large);
	other = take_block(device, 4 * MIB, 0); /* there would be room for the driver to fill */
	assert_true(other >= large && other < large + 16 * MIB);
	device_end(device);
}

/* A driver's give that waits for the device is called only when memory runs short, as it would
 * delay the program. */
static void a_give_that_waits_waits_for_lack_of_memory(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	device->runs_in_wait = true;
	for (int i = 1; i <= 3; i++)
		free_block(device, take_block(device, (size_t)i * 4 * MIB, 0));
	assert_int_equal(device->gives, 0);
	free_block(device, take_block(device, 40 * MIB, 0));
	assert_true(device->gives > 0);
	device_end(device);
}

static void steps_that_are_alike_end_without_the_driver(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	device->runs_in_wait = true;
	uint64_t takes = 0;
	for (int step = 0; step < 200; step++) {
		if (step == 150)
			takes = device->takes;
		free_block(device, take_block(device, 12 * MIB, 0));
		free_block(device, take_block(device, 16 * MIB, 0));
	}
	assert_true(takes > 10);
	assert_int_equal(device->takes, takes);
	device_end(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(idle_segments_are_given_back_before_more_is_reserved),
		cmocka_unit_test(what_a_stream_uses_is_given_back_later),
		cmocka_unit_test(a_large_block_is_cut_only_for_lack_of_room),
		cmocka_unit_test(a_large_block_is_cut_for_lack_of_memory),
		cmocka_unit_test(a_give_that_waits_waits_for_lack_of_memory),
		cmocka_unit_test(steps_that_are_alike_end_without_the_driver),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
