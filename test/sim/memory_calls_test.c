/* SPDX-License-Identifier: BSD-3-Clause
 * Calls on the memory of a device that would have to wait: what else happens meanwhile, when they
 * wait in vain, and where they must not wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>

#include "job_fixture.h"
#include "world/device.h"
#include "world/ls_group.h"

enum { MIB = 1 << 20, ALL = 4 * MIB };
#define DEVICE "bytes=4194304"

static void must_have_said(const char *text)
{
	char said[1024] = "";
	ls_last_error(said, sizeof said);
	if (!strstr(said, text))
		fprintf(stderr, "not \"%s\": %s\n", text, said);
	MUST(strstr(said, text) != NULL);
}

/* A stream of each rank waits for its word. */
static _Atomic uint64_t held[RANKS];

static void hold_stream(struct rank *rank, int stream)
{
	atomic_store(&held[rank->rank], 0);
	MUST(sim_await(rank->streams[stream], &held[rank->rank], 1) == SIM_OK);
}

static void let_go(struct rank *rank)
{
	sim_board_store(rank->sim, &held[rank->rank], 1);
}

/* All memory is freed, but a kernel on stream 1 may still use it. */
static void use_memory_up(struct rank *rank)
{
	void *block = device_block(rank, ALL);
	MUST(ls_device_record(rank->group, block, rank->streams[1]) == LS_OK);
	hold_stream(rank, 1);
	MUST(ls_device_free(rank->group, block) == LS_OK);
}

/* ---- the group is closed meanwhile ---- */

static void *alloc_all(void *argument)
{
	struct rank *rank = argument;
	void *block = device_block(rank, ALL);
	MUST(ls_device_free(rank->group, block) == LS_OK);
	return NULL;
}

static void close_while_a_thread_waits(struct rank *rank)
{
	const struct pool_gate *gate = rank->group->world->device->gate;
	pthread_t thread;
	use_memory_up(rank);
	MUST(pthread_create(&thread, NULL, alloc_all, rank) == 0);
	while (atomic_load(&gate->waiting_count) == 0)
		sched_yield();
	ls_group_close(rank->group);
	must_have_said("is in ls_device_alloc, but must be without calls");
	MUST(ls_group_rank(rank->group) == rank->rank);
	let_go(rank);
	pthread_join(thread, NULL);
}

static void a_group_is_not_closed_under_a_thread(void **state)
{
	(void)state;
	run_job(close_while_a_thread_waits, DEVICE ",free=at_once");
	run_job(close_while_a_thread_waits, DEVICE ",free=waits");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_group_is_not_closed_under_a_thread),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
