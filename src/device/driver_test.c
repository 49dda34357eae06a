/* SPDX-License-Identifier: BSD-3-Clause
 * The contract of driver.h, which every plugin has to keep: the processor, a device whose work a
 * thread does, and one whose work the test does step by step. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "device/driver_fixture.h"

enum { COUNT = 5000, SEEDS = 20 };

/* A plugin, and how its memory is reached. */
struct plugin {
	struct driver *driver, cpu;
	struct late *late;     /* NULL: the processor */
	unsigned char *memory; /* of the device; nobody but the driver touches it */
	struct wait_bell bell;
};

static void plugin_open(struct plugin *plugin, int kind, uint64_t seed)
{
	memset(plugin, 0, sizeof *plugin);
	if (kind == 0) {
		plugin->driver = &plugin->cpu;
		plugin->cpu.ops = &device_driver_cpu;
		plugin->cpu.bell = &plugin->bell;
		assert_int_equal(device_driver_cpu.open(plugin->driver), LS_OK);
		plugin->memory = calloc(1, LATE_BYTES);
		assert_non_null(plugin->memory);
		return;
	}
	plugin->late = late_new(&plugin->bell, kind == 1, seed);
	plugin->driver = &plugin->late->driver;
	plugin->memory = plugin->late->device;
}

static void plugin_close(struct plugin *plugin)
{
	if (plugin->late) {
		late_free(plugin->late);
		return;
	}
	plugin->driver->ops->close(plugin->driver);
	free(plugin->memory);
}

/* Until the word is there; the test does the device's work where no thread does. */
static void await(struct plugin *plugin, const _Atomic uint64_t *word, uint64_t value)
{
	while (atomic_load(word) < value)
		if (!plugin->late || plugin->late->threaded)
			sched_yield();
		else
			assert_true(late_step(plugin->late));
}

#define DO(call) assert_int_equal(plugin->driver->ops->call, LS_OK)

static void copies_and_reductions_are_done_in_order(struct plugin *plugin)
{
	struct driver *driver = plugin->driver;
	static float host[3][COUNT], back[COUNT];
	float *device[3];
	_Atomic uint64_t word = 0;
	for (int k = 0; k < 3; k++) {
		device[k] = (float *)(void *)(plugin->memory + (size_t)k * sizeof host[0]);
		for (int i = 0; i < COUNT; i++)
			host[k][i] = (float)(i % 97) * 0.37f + (float)k;
	}
	memset(back, 0, sizeof back);
	for (int k = 0; k < 2; k++)
		DO(copy(driver, driver->stream, device[k], host[k], sizeof host[k]));
	{ /* what describes the reduction is gone when it is done */
		const void *sources[] = {device[0], device[1], host[2]};
		void *targets[] = {device[2], device[0]};
		struct kernel_reduce reduce = {.dtype = LS_FLOAT32,
					       .op = LS_AVERAGE,
					       .source_count = 3,
					       .target_count = 2,
					       .sources = sources,
					       .targets = targets,
					       .count = COUNT,
					       .divisor = 3};
		DO(reduce(driver, driver->stream, &reduce));
		memset(sources, 0, sizeof sources);
		memset(targets, 0, sizeof targets);
		memset(&reduce, 0, sizeof reduce);
	}
	DO(copy(driver, driver->stream, back, device[0], sizeof back));
	DO(store(driver, driver->stream, &word, 7));
	await(plugin, &word, 7);
	float expected[COUNT];
	const void *sources[] = {host[0], host[1], host[2]};
	void *targets[] = {expected};
	struct kernel_reduce reduce = {.dtype = LS_FLOAT32,
				       .op = LS_AVERAGE,
				       .source_count = 3,
				       .target_count = 1,
				       .sources = sources,
				       .targets = targets,
				       .count = COUNT,
				       .divisor = 3};
	kernel_reduce(&reduce);
	assert_memory_equal(back, expected, sizeof back);
}

/* Stores come one after the other, each with the bell, and what was before them can be seen. */
static void stores_say_what_is_done(struct plugin *plugin)
{
	enum { ROUNDS = 50 };
	struct driver *driver = plugin->driver;
	_Atomic uint64_t word = 0;
	uint32_t before = atomic_load(&plugin->bell.wakeups);
	atomic_fetch_add(&plugin->bell.sleepers, 1); /* somebody sleeps, so it is woken */
	for (uint64_t n = 1; n <= ROUNDS; n++) {
		uint64_t out = n * 3, in = 0;
		DO(copy(driver, driver->stream, plugin->memory, &out, sizeof out));
		DO(copy(driver, driver->stream, &in, plugin->memory, sizeof in));
		DO(store(driver, driver->stream, &word, n));
		await(plugin, &word, n);
		assert_true(atomic_load(&word) == n && in == n * 3);
	}
	/* The last wake-up follows its store. */
	while (atomic_load(&plugin->bell.wakeups) == before)
		sched_yield();
	atomic_fetch_sub(&plugin->bell.sleepers, 1);
	assert_int_equal(atomic_load(&driver->broken), 0);
}

/* Nothing but an empty copy. */
static void no_bytes_are_no_harm(struct plugin *plugin)
{
	struct driver *driver = plugin->driver;
	_Atomic uint64_t word = 0;
	DO(copy(driver, driver->stream, plugin->memory, plugin->memory, 0));
	DO(store(driver, driver->stream, &word, 1));
	await(plugin, &word, 1);
}

static void every_body_keeps_the_contract(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++)
		for (uint64_t seed = 1; seed <= SEEDS; seed++) {
			struct plugin plugin;
			plugin_open(&plugin, kind, seed);
			copies_and_reductions_are_done_in_order(&plugin);
			stores_say_what_is_done(&plugin);
			no_bytes_are_no_harm(&plugin);
			plugin_close(&plugin);
		}
}

/* ---- what only one that is late can show ---- */

static void nothing_is_done_before_its_turn(void **state)
{
	(void)state;
	struct plugin plugin;
	uint64_t out = 5, in = 0;
	_Atomic uint64_t word = 0;
	plugin_open(&plugin, 2, 1);
	struct driver *driver = plugin.driver;
	assert_int_equal(driver->ops->copy(driver, driver->stream, plugin.memory, &out, 8), LS_OK);
	assert_int_equal(driver->ops->copy(driver, driver->stream, &in, plugin.memory, 8), LS_OK);
	assert_int_equal(driver->ops->store(driver, driver->stream, &word, 1), LS_OK);
	assert_true(late_step(plugin.late) && in == 0);
	assert_true(late_step(plugin.late) && in == 5 && atomic_load(&word) == 0);
	assert_true(late_step(plugin.late) && atomic_load(&word) == 1);
	assert_false(late_step(plugin.late));
	plugin_close(&plugin);
}

/* A call that fails has put nothing there; a device that breaks says so from then on. */
static void errors_are_told(void **state)
{
	(void)state;
	struct plugin plugin;
	uint64_t out = 5, in = 0;
	_Atomic uint64_t word = 0;
	plugin_open(&plugin, 2, 1);
	struct driver *driver = plugin.driver;
	plugin.late->fail_at = 2;
	assert_int_equal(driver->ops->copy(driver, driver->stream, plugin.memory, &out, 8), LS_OK);
	assert_int_equal(driver->ops->copy(driver, driver->stream, &in, plugin.memory, 8),
			 LS_SYSTEM);
	assert_int_equal(atomic_load(&driver->broken), 0);
	assert_int_equal(driver->ops->store(driver, driver->stream, &word, 1), LS_OK);
	plugin.late->break_at = 2;
	assert_true(late_step(plugin.late));
	assert_false(late_step(plugin.late));
	assert_true(in == 0 && atomic_load(&word) == 0);
	assert_int_equal(atomic_load(&driver->broken), LS_SYSTEM);
	assert_int_equal(driver->ops->store(driver, driver->stream, &word, 2), LS_SYSTEM);
	plugin_close(&plugin);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_body_keeps_the_contract),
		cmocka_unit_test(nothing_is_done_before_its_turn),
		cmocka_unit_test(errors_are_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
