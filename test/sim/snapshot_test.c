/* SPDX-License-Identifier: BSD-3-Clause
 * ls_device_snapshot: which blocks there are, what they are, and how many if the caller has no room
 * for all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>

#include "job_fixture.h"

enum { MIB = 1 << 20, ROOM = 64 };

static enum sim_step spin_until(struct sim *sim, void *argument)
{
	(void)sim;
	_Atomic uint64_t *const *word = argument;
	return atomic_load(*word) ? SIM_STEP_DONE : SIM_STEP_SPINS;
}
static const struct sim_kernel spins = {"spins", spin_until};

static struct ls_device_stats stats_of(struct rank *rank)
{
	struct ls_device_stats stats = {.size = sizeof stats};
	MUST(ls_device_stats(rank->group, &stats) == LS_OK);
	return stats;
}

/* The block at this address, or the first one in this state. */
static const struct ls_device_block *find(const struct ls_device_block *blocks, size_t count,
					  const void *address, uint32_t state)
{
	for (size_t i = 0; i < count; i++)
		if (address ? blocks[i].address == address : blocks[i].state == state)
			return &blocks[i];
	return NULL;
}

/* Blocks of one segment leave no gap, and their bytes are those of the statistics. */
static void check_sums(struct rank *rank, const struct ls_device_block *blocks, size_t count)
{
	uint64_t bytes[4] = {0};
	struct ls_device_stats stats = stats_of(rank);
	for (size_t i = 0; i < count; i++) {
		const char *end = (const char *)blocks[i].address + blocks[i].bytes;
		MUST(blocks[i].state <= LS_DEVICE_BLOCK_PUT_OFF && blocks[i].bytes > 0);
		bytes[blocks[i].state] += blocks[i].bytes;
		if (i == 0 || blocks[i].segment != blocks[i - 1].segment)
			MUST(blocks[i].address == blocks[i].segment);
		if (i + 1 < count && blocks[i].segment == blocks[i + 1].segment)
			MUST(blocks[i + 1].address == end);
	}
	MUST(bytes[LS_DEVICE_BLOCK_LIVE] == stats.live);
	MUST(bytes[LS_DEVICE_BLOCK_CACHED] == stats.cached);
	MUST(bytes[LS_DEVICE_BLOCK_PENDING] == stats.pending);
	MUST(bytes[LS_DEVICE_BLOCK_PUT_OFF] == stats.put_off);
}

static void is_empty(struct rank *rank)
{
	size_t count = 7;
	MUST(ls_device_snapshot(rank->group, NULL, 0, &count) == LS_OK && count == 0);
}

/* Puts memory off: it is idle while a launch is open. */
static void put_off(struct rank *rank, size_t bytes)
{
	MUST(ls_device_free(rank->group, device_block(rank, bytes)) == LS_OK);
	MUST(ls_launch_begin(&rank->group, 1) == LS_OK);
	while (stats_of(rank).put_off < bytes) {
		MUST(ls_device_trim(rank->group, 0) == LS_OK);
		sched_yield();
	}
}

static void every_state(struct rank *rank)
{
	_Atomic uint64_t word = 0, *at = &word;
	struct ls_device_block blocks[ROOM];
	size_t count;
	is_empty(rank);
	char *live = device_block(rank, 1000), *used = device_block(rank, (size_t)4 * MIB);
	void *shared;
	MUST(ls_device_alloc(rank->group, 5 * MIB, NULL, &shared) == LS_OK);
	put_off(rank, (size_t)6 * MIB); /* the last one, because an allocation would take it back */
	MUST(ls_device_record(rank->group, used, rank->streams[1]) == LS_OK);
	MUST(sim_launch(rank->streams[1], &spins, &at, sizeof at) == SIM_OK);
	MUST(ls_device_free(rank->group, used) == LS_OK);
	MUST(ls_device_snapshot(rank->group, blocks, ROOM, &count) == LS_OK && count <= ROOM);
	check_sums(rank, blocks, count);
	const struct ls_device_block *block = find(blocks, count, live, 0);
	MUST(block && block->state == LS_DEVICE_BLOCK_LIVE && block->bytes == 1024 &&
	     block->stream == rank->streams[0] && block->recorded == 0);
	block = find(blocks, count, used, 0);
	MUST(block && block->state == LS_DEVICE_BLOCK_PENDING && block->bytes == 4 * MIB &&
	     block->stream == rank->streams[0] && block->recorded == 1);
	block = find(blocks, count, shared, 0);
	MUST(block && block->state == LS_DEVICE_BLOCK_LIVE && !block->stream);
	block = find(blocks, count, live + 1024, 0); /* the rest of its segment */
	MUST(block && block->state == LS_DEVICE_BLOCK_CACHED && block->segment == live);
	block = find(blocks, count, NULL, LS_DEVICE_BLOCK_PUT_OFF);
	MUST(block && block->bytes == 6 * MIB && !block->stream);
	/* With less room: the first blocks, and how many there are. */
	struct ls_device_block few[3] = {[2] = {.state = 77}};
	size_t all = count;
	MUST(ls_device_snapshot(rank->group, few, 2, &count) == LS_OK && count == all && all > 3);
	MUST(memcmp(few, blocks, 2 * sizeof *few) == 0 && few[2].state == 77);
	sim_board_store(rank->sim, &word, 1);
	MUST(ls_launch_end() == LS_OK);
	MUST(sim_stream_sync(rank->streams[1]) == SIM_OK);
	MUST(ls_device_free(rank->group, live) == LS_OK);
	MUST(ls_device_free(rank->group, shared) == LS_OK);
}

static void wrong_use(struct rank *rank)
{
	struct ls_device_block block;
	size_t count = 5;
	MUST(ls_device_snapshot(NULL, &block, 1, &count) == LS_BAD_ARGUMENT);
	MUST(ls_device_snapshot(rank->group, NULL, 1, &count) == LS_BAD_ARGUMENT);
	MUST(ls_device_snapshot(rank->group, &block, 1, NULL) == LS_BAD_ARGUMENT && count == 5);
}

static void snapshots(void **state)
{
	(void)state;
	run_job(every_state, "");
	run_job(wrong_use, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(snapshots)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
