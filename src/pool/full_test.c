/* SPDX-License-Identifier: BSD-3-Clause
 * The device has no more memory: what an allocation uses of what is cached, or still to be given
 * back, before it waits. */
#include "pool/pool_fixture.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

/* Something is in flight, so nothing can be given back to a driver whose give waits. */
struct launch {
	struct pool_inflight *inflight;
	uint64_t number;
};

static struct launch launch_begin(struct device *device)
{
	struct launch launch = {.inflight = pool_inflight_open(&device->gate, &device->driver)};
	assert_int_equal(pool_gate_begin(&device->gate, &device->waiter, CLOCK_NEVER), LS_OK);
	launch.number = pool_gate_issue(launch.inflight);
	pool_gate_end(&device->gate);
	return launch;
}

static void launch_end(struct launch *launch)
{
	atomic_store(&launch->inflight->done, launch->number);
	pool_inflight_close(launch->inflight);
}

static void *fill_and_free(struct device *device, int stream)
{
	void *block = take_block(device, DEVICE_BYTES, stream);
	free_block(device, block);
	return block;
}

/* Another stream cannot have these bytes yet, but wants to know when. */
static void ask_in_vain(struct device *device, size_t bytes, int stream)
{
	void *none;
	assert_int_equal(pool_alloc(device->pool, bytes, &device->streams[stream], 0, &none),
			 LS_OUT_OF_MEMORY);
	assert_null(none);
}

/* ---- what cannot be given back ---- */

static void memory_that_was_put_off_is_cut(void **state)
{
	static const size_t sizes[] = {512, MIB, 3 * MIB, 40 * MIB};
	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct device *device = device_new(true);
		struct launch launch = launch_begin(device);
		void *block = fill_and_free(device, 0);
		pool_trim(device->pool, 0);
		device_run_all(device);
		pool_trim(device->pool, 0);
		assert_int_equal(stats_of(device).put_off, DEVICE_BYTES);
		void *part = take_block(device, sizes[i], 1);
		assert_ptr_equal(part, block);
		assert_int_equal(stats_of(device).live, sizes[i]);
		assert_int_equal(stats_of(device).cached, DEVICE_BYTES - sizes[i]);
		/* The rest is had by requests of any size, and becomes whole again. */
		void *more = take_block(device, 4 * MIB, 1), *little = take_block(device, 512, 1);
		free_block(device, part);
		free_block(device, little);
		free_block(device, more);
		assert_ptr_equal(take_block(device, DEVICE_BYTES, 1), block);
		assert_int_equal(device->gives, 0);
		launch_end(&launch);
		device_end(device);
	}
}

static void a_thread_with_a_launch_open_cuts_it_too(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	void *block = fill_and_free(device, 0);
	device_launch(device, 0, block, DEVICE_BYTES);
	assert_int_equal(pool_gate_begin(&device->gate, &device->waiter, CLOCK_NEVER), LS_OK);
	assert_ptr_equal(take_block(device, 512, 0), block);
	pool_gate_end(&device->gate);
	device_end(device);
}

/* ---- what is cached for requests of another size ---- */

static void a_stream_cuts_its_own_blocks_without_a_wait(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *block = take_block(device, DEVICE_BYTES, 0);
	device_launch(device, 0, block, DEVICE_BYTES); /* and does not do that in this test */
	free_block(device, block);
	assert_ptr_equal(take_block(device, 512, 0), block);
	ask_in_vain(device, 512, 1);
	device_end(device);
}

static void a_large_request_may_use_a_segment_for_small_ones(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	pool_limit(device->pool, 2 * MIB);
	void *block = take_block(device, 512, 0);
	device_launch(device, 0, block, 512); /* so that its segment cannot be given back */
	free_block(device, block);
	take_block(device, 3 * MIB / 2, 0);
	assert_int_equal(stats_of(device).reserved, 2 * MIB);
	device_end(device);
}

/* Streams without work: nothing has to be cut. */
static void whole_segments_go_back_if_that_is_soon(void **state)
{
	(void)state;
	for (int waits = 0; waits < 2; waits++) {
		struct device *device = device_new(waits);
		device->runs_in_wait = true;
		fill_and_free(device, 0);
		take_block(device, 512, 0);
		assert_int_equal(device->gives, 1);
		assert_int_equal(stats_of(device).reserved, 2 * MIB);
		device_end(device);
	}
}

/* A block that its stream has reached, behind many of the same size that it has not. */
static void no_block_is_left_out(void **state)
{
	enum { BLOCKS = 512 };
	(void)state;
	struct device *device = device_new(false);
	void *blocks[BLOCKS];
	pool_limit(device->pool, 2 * MIB);
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = take_block(device, 4 * KIB, 0);
	free_block(device, blocks[0]);
	ask_in_vain(device, 4 * KIB, 1);
	device_run_all(device);
	device_launch(device, 0, blocks[2], 4 * KIB);
	for (int i = 2; i < BLOCKS; i += 2)
		free_block(device, blocks[i]);
	assert_ptr_equal(take_block(device, 4 * KIB, 1), blocks[0]);
	device_end(device);
}

/* ---- neighbours ---- */

/* Two neighbours of stream 0, which has reached the first one's free, and not the second one's. */
static void free_two(struct device *device, void **first, void **second)
{
	pool_limit(device->pool, 2 * MIB);
	*first = take_block(device, MIB, 0);
	*second = take_block(device, MIB, 0);
	assert_ptr_equal(*second, (char *)*first + MIB);
	free_block(device, *first);
	ask_in_vain(device, MIB, 1);
	device_run_all(device);
	device_launch(device, 0, *second, MIB);
	free_block(device, *second);
}

static void a_block_does_not_wait_for_its_neighbour(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *first, *second;
	free_two(device, &first, &second);
	ask_in_vain(device, 2 * MIB, 1);
	assert_ptr_equal(take_block(device, MIB, 1), first);
	ask_in_vain(device, MIB, 1);
	device_run(device, 0);
	assert_ptr_equal(take_block(device, MIB, 1), second);
	device_end(device);
}

/* Two frees between which there was a mark: other streams get the first block at the first mark. */
static void a_block_does_not_wait_for_the_next_mark(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	pool_limit(device->pool, 2 * MIB);
	void *first = take_block(device, MIB, 0), *second = take_block(device, MIB, 0);
	device_launch(device, 0, first, MIB);
	free_block(device, first);
	ask_in_vain(device, MIB, 1); /* a mark is put behind the kernel */
	device_launch(device, 0, second, MIB);
	free_block(device, second);
	ask_in_vain(device, MIB, 1);
	device_step(device, 0);
	assert_ptr_equal(take_block(device, MIB, 1), first);
	device_end(device);
}

static void its_own_stream_uses_neighbours_together(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *first, *second;
	free_two(device, &first, &second);
	assert_ptr_equal(take_block(device, 2 * MIB, 0), first);
	assert_int_equal(device->takes, 1);
	device_end(device);
}

/* The first one is stream 0's, which has done its work, and the second one stream 1's. */
static void a_stream_adds_what_another_one_has_left(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	pool_limit(device->pool, 2 * MIB);
	void *first = take_block(device, MIB, 0), *second = take_block(device, MIB, 1);
	free_block(device, first);
	device_launch(device, 1, second, MIB);
	free_block(device, second);
	ask_in_vain(device, 2 * MIB, 0);
	device_run(device, 0);
	assert_ptr_equal(take_block(device, 2 * MIB, 1), first);
	device_end(device);
}

/* Trim has seen it, and the streams are done later: a later trim need not be told of it. */
static void neighbours_are_given_back_together(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *first, *second;
	free_two(device, &first, &second);
	pool_trim(device->pool, 0);
	assert_int_equal(device->gives, 0);
	device_run(device, 0);
	pool_trim(device->pool, DEVICE_BYTES);
	assert_int_equal(device->gives, 1);
	device_end(device);
}

/* ---- why there is none ---- */

static void assert_said(const char *format, const void *stream)
{
	char text[256];
	snprintf(text, sizeof text, format, stream);
	if (!strstr(message_last(), text))
		fail_msg("not \"%s\": %s", text, message_last());
}

/* Another stream's free could come at any time, but none could help. */
static void what_can_never_be_had_is_not_waited_for(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *block = take_block(device, 4 * MIB, 0), *none;
	device_launch(device, 0, block, 4 * MIB);
	free_block(device, block);
	pool_limit(device->pool, 4 * MIB);
	assert_int_equal(pool_alloc(device->pool, 5 * MIB, &device->streams[1], CLOCK_NEVER, &none),
			 LS_OUT_OF_MEMORY);
	assert_said("5242880 bytes are more than device test:0 can ever give: the limit is 4194304 "
		    "(ls_device_limit). Allocate less at a time, or raise the limit",
		    NULL);
	pool_limit(device->pool, 0);
	device->driver.bytes = DEVICE_BYTES;
	assert_int_equal(
		pool_alloc(device->pool, DEVICE_BYTES + 1, &device->streams[1], CLOCK_NEVER, &none),
		LS_OUT_OF_MEMORY);
	assert_said("can ever give: it has 50331648. Allocate less at a time", NULL);
	/* What was had before the limit stays. */
	pool_limit(device->pool, 2 * MIB);
	assert_ptr_equal(take_block(device, 4 * MIB, 0), block);
	device_end(device);
}

static void the_message_says_who_holds_most_and_what_to_do(void **state)
{
	(void)state;
	struct device *device = device_new(false);
	void *other = take_block(device, 6 * MIB, 0);
	void *block = take_block(device, 40 * MIB, 2);
	ask_in_vain(device, 40 * MIB, 1);
	assert_said("Blocks of stream %p have most: 41943040 in use. ", &device->streams[2]);
	assert_said("Free blocks, or use smaller ones", NULL);
	device_launch(device, 2, block, 40 * MIB);
	free_block(device, block);
	ask_in_vain(device, 40 * MIB, 1);
	assert_said("Blocks of stream %p have most: 41943040 freed, but it may still have "
		    "work for them. ",
		    &device->streams[2]);
	assert_said("Wait for that stream before this call, or allocate for it", NULL);
	block = take_block(device, 40 * MIB, 2);
	record_block(device, block, 3);
	device_launch(device, 3, block, 40 * MIB);
	free_block(device, block);
	ask_in_vain(device, 40 * MIB, 1);
	assert_said("Blocks of stream %p have most: 41943040 freed, but other streams may still "
		    "have work for them. ",
		    &device->streams[2]);
	assert_said("Wait for stream %p, which uses freed blocks, before this call",
		    &device->streams[3]);
	free_block(device, other);
	device_end(device);
}

static void it_names_operations_pieces_and_destroyed_streams(void **state)
{
	(void)state;
	struct device *device = device_new(true);
	struct launch launch = launch_begin(device);
	free_block(device, take_block(device, 40 * MIB, 0));
	pool_trim(device->pool, 0);
	device_run_all(device);
	pool_trim(device->pool, 0);
	ask_in_vain(device, 44 * MIB, 1);
	assert_said("Wait for operations in flight before this call", NULL);
	launch_end(&launch);
	void *block = take_block(device, DEVICE_BYTES - 2 * MIB, 0),
	     *piece = take_block(device, 512, 0);
	device_launch(device, 0, block, MIB);
	free_block(device, block);
	device->streams[0].gone = true;
	ask_in_vain(device, 44 * MIB, 1);
	ask_in_vain(device, 44 * MIB, 1);
	assert_said("Blocks of stream %p (which the program has destroyed) have most",
		    &device->streams[0]);
	assert_said("Call ls_device_forget for that stream", NULL);
	assert_int_equal(pool_forget(device->pool, &device->streams[0]), LS_OK);
	free_block(device, piece);
	device_end(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_that_was_put_off_is_cut),
		cmocka_unit_test(a_thread_with_a_launch_open_cuts_it_too),
		cmocka_unit_test(a_stream_cuts_its_own_blocks_without_a_wait),
		cmocka_unit_test(a_large_request_may_use_a_segment_for_small_ones),
		cmocka_unit_test(whole_segments_go_back_if_that_is_soon),
		cmocka_unit_test(no_block_is_left_out),
		cmocka_unit_test(a_block_does_not_wait_for_its_neighbour),
		cmocka_unit_test(a_block_does_not_wait_for_the_next_mark),
		cmocka_unit_test(its_own_stream_uses_neighbours_together),
		cmocka_unit_test(a_stream_adds_what_another_one_has_left),
		cmocka_unit_test(neighbours_are_given_back_together),
		cmocka_unit_test(what_can_never_be_had_is_not_waited_for),
		cmocka_unit_test(the_message_says_who_holds_most_and_what_to_do),
		cmocka_unit_test(it_names_operations_pieces_and_destroyed_streams),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
