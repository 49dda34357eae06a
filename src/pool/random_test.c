/* SPDX-License-Identifier: BSD-3-Clause
 * Random programs of one thread. The device knows which stream still has work for which memory, so
 * each block is checked when the pool returns it, and each segment when it is given back; at the
 * end all memory is the driver's again. And the same pool over host memory, whose content shows
 * whether a block has two owners. */
#include "pool/pool_fixture.h"

enum { LIVE = 64, STEPS = 3000, SEEDS = 40 };

struct live {
	unsigned char *block;
	size_t bytes;
	int stream;
	unsigned recorded; /* bit: stream */
};

struct program {
	struct device *device;
	uint64_t random;
	struct live live[LIVE];
	int count;
	struct pool_inflight *inflight;
	uint64_t issued;
	bool open;
};

static uint64_t draw(struct program *program, uint64_t limit)
{
	program->random = program->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (program->random >> 33) % limit;
}

static size_t draw_bytes(struct program *program)
{
	switch (draw(program, 4)) {
	case 0:
		return draw(program, 4096);
	case 1:
		return draw(program, 1 << 17);
	case 2:
		return draw(program, 3 << 20);
	default:
		return (size_t)1 << (9 + draw(program, 14));
	}
}

static void check_apart(const struct program *program, const unsigned char *block, size_t bytes)
{
	for (int i = 0; i < program->count; i++) {
		const struct live *one = &program->live[i];
		assert_true(block + bytes <= one->block || one->block + one->bytes <= block);
	}
}

static void try_alloc(struct program *program)
{
	struct device *device = program->device;
	if (program->count == LIVE)
		return;
	struct live *live = &program->live[program->count];
	*live = (struct live){.bytes = draw_bytes(program),
			      .stream = (int)draw(program, DEVICE_STREAMS)};
	void *block;
	ls_status status =
		pool_alloc(device->pool, live->bytes, &device->streams[live->stream], 0, &block);
	if (status == LS_OUT_OF_MEMORY)
		return;
	assert_int_equal(status, LS_OK);
	live->block = block;
	size_t used = live->bytes > 0 ? live->bytes : 1;
	assert_true(device_is_unused(device, block, used, live->stream));
	check_apart(program, live->block, used);
	live->bytes = used;
	program->count++;
}

static void use_one(struct program *program)
{
	struct device *device = program->device;
	if (program->count == 0)
		return;
	struct live *live = &program->live[draw(program, (uint64_t)program->count)];
	int stream = (int)draw(program, DEVICE_STREAMS);
	if (stream != live->stream && !(live->recorded & 1u << stream)) {
		record_block(device, live->block, stream);
		live->recorded |= 1u << stream;
	}
	device_launch(device, stream, live->block, live->bytes);
}

static void free_one(struct program *program)
{
	if (program->count == 0)
		return;
	int which = (int)draw(program, (uint64_t)program->count);
	assert_int_equal(pool_free(program->device->pool, program->live[which].block, NULL), LS_OK);
	program->live[which] = program->live[--program->count];
}

static void launch(struct program *program)
{
	struct device *device = program->device;
	if (program->open) {
		program->issued = pool_gate_issue(program->inflight);
		pool_gate_end(&device->gate);
	} else {
		assert_int_equal(pool_gate_begin(&device->gate, &device->waiter, CLOCK_NEVER),
				 LS_OK);
	}
	program->open = !program->open;
}

static void step(struct program *program)
{
	struct device *device = program->device;
	switch (draw(program, 12)) {
	case 0:
	case 1:
	case 2:
		try_alloc(program);
		break;
	case 3:
	case 4:
		free_one(program);
		break;
	case 5:
	case 6:
		use_one(program);
		break;
	case 7:
	case 8:
		device_step(device, (int)draw(program, DEVICE_STREAMS));
		break;
	case 9:
		if (draw(program, 8) == 0)
			pool_trim(device->pool, (size_t)draw(program, DEVICE_BYTES));
		break;
	case 10:
		launch(program);
		break;
	default:
		atomic_store(&program->inflight->done, program->issued);
		if (draw(program, 16) == 0)
			device->store_fails_at = device->stores + 1;
		break;
	}
}

static void run(uint64_t seed, bool give_waits)
{
	struct program program = {.device = device_new(give_waits), .random = seed};
	program.inflight = pool_inflight_open(&program.device->gate, &program.device->driver);
	for (int i = 0; i < STEPS; i++) {
		step(&program);
		if (i % 16 == 0)
			assert_true(pool_is_valid(program.device->pool));
		stats_of(program.device);
	}
	while (program.count > 0)
		free_one(&program);
	if (program.open)
		launch(&program);
	atomic_store(&program.inflight->done, program.issued);
	pool_inflight_close(program.inflight);
	device_end(program.device);
}

static void random_programs(void **state)
{
	(void)state;
	message_set_level(SETTING_LOG_ERROR);
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		run(seed, seed % 2 == 0);
}

/* ---- memory of the host ---- */

static void fill(const struct live *live)
{
	memset(live->block, (int)((uintptr_t)live->block / 512 % 251), live->bytes);
}

static void check_filled(const struct live *live)
{
	for (size_t i = 0; i < live->bytes; i += i < 16 ? 1 : 509)
		assert_int_equal(live->block[i], (uintptr_t)live->block / 512 % 251);
}

static void over_host_memory(void **state)
{
	(void)state;
	struct pool_gate gate;
	struct wait_bell bell = {0};
	struct waiter waiter = {.bell = &bell, .look_fd = -1};
	struct driver driver = {.ops = &device_driver_cpu};
	struct pool_options options = {
		.driver = &driver, .gate = &gate, .waiter = &waiter, .name = "cpu"};
	struct program program = {.random = 7};
	struct pool *pool;
	pool_gate_init(&gate);
	assert_int_equal(driver.ops->open(&driver), LS_OK);
	assert_int_equal(pool_open(&pool, &options), LS_OK);
	for (int i = 0; i < STEPS; i++) {
		int at = (int)draw(&program, LIVE);
		struct live *live = &program.live[at];
		if (live->block) {
			check_filled(live);
			assert_int_equal(pool_free(pool, live->block, NULL), LS_OK);
			live->block = NULL;
		} else {
			void *block;
			live->bytes = draw_bytes(&program);
			assert_int_equal(pool_alloc(pool, live->bytes, NULL, CLOCK_NEVER, &block),
					 LS_OK);
			live->block = block;
			fill(live);
		}
		if (draw(&program, 50) == 0)
			pool_trim(pool, (size_t)draw(&program, 64 << 20));
		if (i % 16 == 0)
			assert_true(pool_is_valid(pool));
	}
	for (int i = 0; i < LIVE; i++)
		if (program.live[i].block)
			assert_int_equal(pool_free(pool, program.live[i].block, NULL), LS_OK);
	pool_trim(pool, 0); /* marks how far the stream is, and the next one gives back */
	pool_trim(pool, 0);
	struct pool_stats stats;
	pool_stats(pool, &stats);
	assert_true(stats.peak_reserved > 0 && stats.reserved == 0 && stats.segments == 0);
	assert_int_equal(pool_close(pool, CLOCK_NEVER), LS_OK);
	pool_gate_fini(&gate);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs),
					   cmocka_unit_test(over_host_memory)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
