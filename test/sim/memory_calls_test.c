/* SPDX-License-Identifier: BSD-3-Clause
 * Calls on the memory of a device that would have to wait: what else happens meanwhile, when they
 * wait in vain, and where they must not wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>

#include "base/capture.h"
#include "base/clock.h"
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

/* ---- the close waits in vain ---- */

static ls_group *open_alone(uint32_t timeout_ms)
{
	struct ls_group_options options = {.size = sizeof options,
					   .world_size = 1,
					   .timeout_ms = timeout_ms,
					   .device = "sim:0," DEVICE};
	ls_group *group;
	MUST(ls_group_open(&options, &group) == LS_OK);
	return group;
}

static void free_a_block_of(ls_group *group, struct sim_stream *stream)
{
	void *block;
	MUST(ls_device_alloc(group, ALL, stream, &block) == LS_OK);
	MUST(ls_device_free(group, block) == LS_OK);
}

/* Long before the other limit, of the group or of LOCKSTEP_TIMEOUT_MS. */
static void close_says(ls_group *group, const char *text)
{
	struct capture capture;
	uint64_t since_ns = clock_now_ns();
	capture_begin(&capture);
	ls_group_close(group);
	const char *said = capture_end(&capture);
	if (!strstr(said, text))
		fail_msg("not \"%s\": %s", text, said);
	assert_true(clock_now_ns() - since_ns < UINT64_C(30000000000));
}

/* The stream was destroyed: whether its work is done, nobody can tell, however long one waits. */
static void a_destroyed_stream_does_not_hold_up_the_close(void **state)
{
	(void)state;
	ls_group *group = open_alone(60000);
	struct sim_stream *stream;
	MUST(sim_stream_open(lockstep_sim(), 0, &stream) == SIM_OK);
	free_a_block_of(group, stream);
	MUST(sim_stream_close(stream) == SIM_OK);
	close_says(group, "(LS_BAD_ARGUMENT), because the program has destroyed streams without "
			  "ls_device_forget");
}

static void the_close_waits_as_long_as_the_group_says(void **state)
{
	(void)state;
	ls_group *group = open_alone(20);
	struct sim_stream *stream;
	struct rank rank = {.sim = lockstep_sim()};
	MUST(sim_stream_open(rank.sim, 0, &stream) == SIM_OK);
	rank.streams[0] = stream;
	hold_stream(&rank, 0);
	free_a_block_of(group, stream);
	close_says(group, "(LS_TIMED_OUT), because the device does not finish its work on streams ");
	let_go(&rank);
	MUST(sim_stream_sync(stream) == SIM_OK);
}

/* ---- in a callback ---- */

struct note {
	struct rank *rank;
	void *block;
	ls_status status;
	_Atomic bool called;
};

static void alloc_all_there(void *data, ls_status status)
{
	struct note *note = data;
	MUST(status == LS_OK);
	note->status = ls_device_alloc(note->rank->group, ALL, NULL, &note->block);
	if (note->status != LS_OK)
		must_have_said("ls_device_alloc: the calling thread is in a completion callback");
	atomic_store(&note->called, true);
}

static void trim_there(void *data, ls_status status)
{
	struct note *note = data;
	MUST(status == LS_OK);
	note->status = ls_device_trim(note->rank->group, 0);
	atomic_store(&note->called, true);
}

/* The callback of an operation without a stream. It must not wait for what the device does. */
static void call_back(struct rank *rank, ls_request_callback *callback, struct note *note)
{
	int32_t one = 1, sum;
	*note = (struct note){.rank = rank};
	struct ls_call_options options = {
		.size = sizeof options, .callback = callback, .callback_data = note};
	MUST(ls_allreduce(rank->group, &one, &sum, 1, LS_INT32, LS_SUM, &options) == LS_OK);
	uint64_t until_ns = clock_now_ns() + UINT64_C(20000000000);
	while (!atomic_load(&note->called) && clock_now_ns() < until_ns)
		sched_yield();
	MUST(atomic_load(&note->called));
}

static void call_in_callbacks(struct rank *rank)
{
	struct ls_device_stats stats = {.size = sizeof stats};
	struct note note;
	call_back(rank, alloc_all_there, &note);
	MUST(note.status == LS_OK && note.block != NULL);
	MUST(ls_device_free(rank->group, note.block) == LS_OK);
	call_back(rank, alloc_all_there, &note); /* from the cache */
	MUST(note.status == LS_OK && note.block != NULL);
	MUST(ls_device_free(rank->group, note.block) == LS_OK);
	use_memory_up(rank);
	call_back(rank, alloc_all_there, &note);
	MUST(note.status == LS_BAD_ARGUMENT && note.block == NULL);
	let_go(rank);
	MUST(sim_stream_sync(rank->streams[1]) == SIM_OK);
	/* With a driver that waits for the device, nothing is given back. */
	alloc_all(rank);
	hold_stream(rank, 1);
	call_back(rank, trim_there, &note);
	call_back(rank, trim_there, &note);
	MUST(note.status == LS_OK);
	let_go(rank);
	MUST(sim_stream_sync(rank->streams[1]) == SIM_OK);
	alloc_all(rank);
	MUST(ls_device_stats(rank->group, &stats) == LS_OK && stats.reserved == ALL);
}

static void a_callback_does_not_wait(void **state)
{
	(void)state;
	run_job(call_in_callbacks, DEVICE ",free=at_once");
	run_job(call_in_callbacks, DEVICE ",free=waits");
}

/* ---- the device fails ---- */

static enum sim_step fail_step(struct sim *sim, void *argument)
{
	(void)sim, (void)argument;
	return SIM_STEP_FAILED;
}

static void a_device_that_fails_is_named_with_the_call(void **state)
{
	static const struct sim_kernel kernel = {"fails", fail_step};
	(void)state;
	ls_group *group = open_alone(60000);
	struct sim_stream *stream;
	void *block;
	char unused = 0;
	int32_t one = 1, sum;
	MUST(sim_stream_open(lockstep_sim(), 0, &stream) == SIM_OK);
	MUST(sim_launch(stream, &kernel, &unused, sizeof unused) == SIM_OK);
	MUST(sim_stream_sync(stream) == SIM_FAILED);
	assert_int_equal(ls_device_alloc(group, ALL, stream, &block), LS_SYSTEM);
	must_have_said("the driver of device sim:0 has failed, and so does this call (LS_SYSTEM)");
	struct ls_call_options options = {.size = sizeof options, .stream = stream};
	assert_int_equal(ls_allreduce(group, &one, &sum, 1, LS_INT32, LS_SUM, &options), LS_SYSTEM);
	must_have_said("the driver of device sim:0 has failed, and so does this call (LS_SYSTEM)");
	ls_group_close(group);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_group_is_not_closed_under_a_thread),
		cmocka_unit_test(a_destroyed_stream_does_not_hold_up_the_close),
		cmocka_unit_test(the_close_waits_as_long_as_the_group_says),
		cmocka_unit_test(a_callback_does_not_wait),
		cmocka_unit_test(a_device_that_fails_is_named_with_the_call),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
