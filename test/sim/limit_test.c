/* SPDX-License-Identifier: BSD-3-Clause
 * ls_device_limit: the memory that a rank takes from the driver stays below the limit, and which
 * call returns which error if that is not enough. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>

#include "job_fixture.h"
#include "world/device.h"
#include "world/ls_group.h"

enum { MIB = 1 << 20 };

static struct ls_device_stats stats_of(const struct rank *rank)
{
	struct ls_device_stats stats = {.size = sizeof stats};
	MUST(ls_device_stats(rank->group, &stats) == LS_OK);
	return stats;
}

static bool has_said(const char *text)
{
	char said[1024];
	return ls_last_error(said, sizeof said) > 0 && strstr(said, text) != NULL;
}

static ls_status try_block(const struct rank *rank, size_t bytes, int stream, void **out)
{
	return ls_device_alloc(rank->group, bytes, rank->streams[stream], out);
}

static void an_allocation_is_refused(struct rank *rank)
{
	void *first, *second, *little, *none = &none;
	MUST(ls_device_limit(rank->group, 8 * MIB) == LS_OK);
	MUST(try_block(rank, 4 * MIB, 0, &first) == LS_OK);
	MUST(try_block(rank, 3 * MIB, 0, &second) == LS_OK); /* in a segment of 4 MiB */
	MUST(try_block(rank, 2 * MIB, 0, &none) == LS_OUT_OF_MEMORY && !none);
	char said[256];
	snprintf(said, sizeof said,
		 "2097152 bytes more on device sim:%d would exceed the limit of 8388608 "
		 "(ls_device_limit): 7340032 are in use, 1048576 cached",
		 rank->rank);
	MUST(has_said(said));
	MUST(stats_of(rank).reserved == 8 * MIB && stats_of(rank).peak_reserved == 8 * MIB);
	/* A small request gets a part of what is free in the large segment. */
	MUST(try_block(rank, 512, 0, &little) == LS_OK);
	MUST(stats_of(rank).reserved == 8 * MIB);
	MUST(ls_device_free(rank->group, little) == LS_OK);
	/* What is free can be had, also by another stream, in another size. */
	MUST(ls_device_free(rank->group, first) == LS_OK);
	MUST(ls_device_free(rank->group, second) == LS_OK);
	MUST(try_block(rank, 8 * MIB, 1, &first) == LS_OK);
	MUST(stats_of(rank).peak_reserved == 8 * MIB);
	MUST(try_block(rank, 512, 0, &none) == LS_OUT_OF_MEMORY);
	MUST(ls_device_limit(rank->group, 0) == LS_OK);
	MUST(try_block(rank, 512, 0, &second) == LS_OK);
	MUST(ls_device_free(rank->group, first) == LS_OK);
	MUST(ls_device_free(rank->group, second) == LS_OK);
}

/* A limit below what is held: nothing is taken away from the program, and ls_device_trim helps. */
static void what_is_held_stays(struct rank *rank)
{
	void *block, *other;
	MUST(try_block(rank, 8 * MIB, 0, &block) == LS_OK);
	MUST(ls_device_limit(rank->group, 4 * MIB) == LS_OK);
	MUST(stats_of(rank).live == 8 * MIB);
	MUST(try_block(rank, 512, 1, &other) == LS_OUT_OF_MEMORY);
	MUST(ls_device_free(rank->group, block) == LS_OK);
	MUST(try_block(rank, 8 * MIB, 0, &block) == LS_OK); /* the cache has it */
	MUST(ls_device_free(rank->group, block) == LS_OK);
	MUST(ls_device_trim(rank->group, 0) == LS_OK); /* marks how far the stream is */
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK);
	MUST(ls_device_trim(rank->group, 0) == LS_OK && stats_of(rank).reserved == 0);
	MUST(try_block(rank, 8 * MIB, 0, &block) == LS_OUT_OF_MEMORY);
	MUST(has_said("the limit is 4194304 (ls_device_limit)"));
	MUST(try_block(rank, 4 * MIB, 0, &block) == LS_OK);
	MUST(ls_device_free(rank->group, block) == LS_OK);
}

static void *raise_when_one_waits(void *argument)
{
	struct rank *rank = argument;
	const struct pool_gate *gate = rank->group->world->device->gate;
	while (atomic_load(&gate->waiting_count) == 0)
		sched_yield();
	MUST(ls_device_limit(rank->group, 16 * MIB) == LS_OK);
	return NULL;
}

/* The allocation waits for a block that a stream still uses. The time limit only ends the test if
 * the thread is not told. */
static void a_higher_limit_ends_a_wait(struct rank *rank)
{
	static _Atomic uint64_t held[RANKS];
	_Atomic uint64_t *word = &held[rank->rank];
	void *block, *other;
	pthread_t thread;
	MUST(ls_device_limit(rank->group, 8 * MIB) == LS_OK);
	MUST(try_block(rank, 8 * MIB, 0, &block) == LS_OK);
	MUST(ls_device_record(rank->group, block, rank->streams[1]) == LS_OK);
	atomic_store(word, 0);
	MUST(sim_await(rank->streams[1], word, 1) == SIM_OK);
	MUST(ls_device_free(rank->group, block) == LS_OK);
	MUST(stats_of(rank).pending == 8 * MIB);
	MUST(pthread_create(&thread, NULL, raise_when_one_waits, rank) == 0);
	MUST(try_block(rank, 8 * MIB, 0, &other) == LS_OK && other != block);
	pthread_join(thread, NULL);
	MUST(stats_of(rank).pending == 8 * MIB);
	sim_board_store(rank->sim, word, 1);
	MUST(ls_device_free(rank->group, other) == LS_OK);
}

static void it_holds(void **state)
{
	(void)state;
	static const char *const options[] = {"free=at_once", "free=waits"};
	for (int i = 0; i < 2; i++) {
		run_job(an_allocation_is_refused, options[i]);
		run_job(what_is_held_stays, options[i]);
		run_job(a_higher_limit_ends_a_wait, options[i]);
	}
}

static void it_needs_a_device(void **state)
{
	struct ls_group_options options = {
		.size = sizeof options, .world_size = 1, .rendezvous = "unix:sim-limit-no-device"};
	ls_group *group;
	(void)state;
	assert_int_equal(ls_group_open(&options, &group), LS_OK);
	assert_int_equal(ls_device_limit(group, 1), LS_BAD_ARGUMENT);
	assert_int_equal(ls_device_limit(NULL, 1), LS_BAD_ARGUMENT);
	ls_group_close(group);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(it_holds),
					   cmocka_unit_test(it_needs_a_device)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
