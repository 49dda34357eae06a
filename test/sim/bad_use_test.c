/* SPDX-License-Identifier: BSD-3-Clause
 * Wrong calls of lockstep/device.h and on streams: each returns its status, gives its text, and
 * does nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/capture.h"
#include "job_fixture.h"

/* Whether the last message of the calling thread has this text. */
static bool has_said(const char *text)
{
	char said[1024];
	return ls_last_error(said, sizeof said) > 0 && strstr(said, text) != NULL;
}

/* ---- a device that exists ---- */

static void refuses_streams(struct rank *rank)
{
	ls_group *group = rank->group;
	int32_t value = 1, sum;
	int not_a_stream;
	ls_request *op = (void *)&value;
	struct ls_call_options options = on(rank, 0);
	options.stream = &not_a_stream;
	MUST(ls_allreduce(group, &value, &sum, 1, LS_INT32, LS_SUM, &options) == LS_BAD_ARGUMENT);
	MUST(ls_isend(group, &value, 1, LS_INT32, 0, &options, &op) == LS_BAD_ARGUMENT && !op);
	options.stream = rank->streams[0];
	MUST(sim_capture_begin(rank->streams[0]) == SIM_OK);
	MUST(ls_barrier(group, &options) == LS_UNSUPPORTED);
	char said[64];
	snprintf(said, sizeof said, "stream %p of device sim:", rank->streams[0]);
	MUST(has_said(said));
	uint64_t captured;
	MUST(sim_capture_end(rank->streams[0], &captured) == SIM_OK && captured == 0);
	struct ls_message message = {.size = sizeof message};
	MUST(ls_probe(group, 0, &options, &message) == LS_BAD_ARGUMENT);
	MUST(has_said("this call runs on no stream"));
	ls_group *other;
	int all[RANKS] = {0, 1, 2};
	MUST(ls_group_from_members(group, all, RANKS, &options, &other) == LS_BAD_ARGUMENT);
	options.resumable = 1;
	options.request = &op;
	MUST(ls_barrier(group, &options) == LS_BAD_ARGUMENT && !op);
	/* None of these was a collective. */
	MUST(ls_barrier(group, NULL) == LS_OK);
}

/* All calls that take a stream, with one that this device does not have. */
static void refuses_stream(struct rank *rank, void *stream)
{
	int32_t value = 1;
	void *block = device_block(rank, sizeof value), *none = block;
	ls_request *op;
	struct ls_call_options options = on(rank, 0);
	options.request = &op;
	MUST(ls_barrier(rank->group, &options) == LS_OK);
	MUST(ls_request_follow(op, stream) == LS_BAD_ARGUMENT || ls_test(op) == LS_OK);
	MUST(ls_wait(op, 0) == LS_OK);
	ls_request_free(op);
	options = (struct ls_call_options){.size = sizeof options, .stream = stream};
	char said[96];
	snprintf(said, sizeof said, "stream %p is not one of device sim:%d, so this call", stream,
		 rank->rank);
	MUST(ls_allreduce(rank->group, &value, &value, 1, LS_INT32, LS_SUM, &options) ==
	     LS_BAD_ARGUMENT);
	MUST(has_said(said));
	MUST(ls_send(rank->group, &value, 1, LS_INT32, 0, &options) == LS_BAD_ARGUMENT);
	MUST(ls_recv(rank->group, &value, 1, LS_INT32, 0, &options) == LS_BAD_ARGUMENT);
	MUST(ls_device_alloc(rank->group, 1, stream, &none) == LS_BAD_ARGUMENT && !none);
	MUST(has_said(said));
	MUST(ls_device_record(rank->group, block, stream) == LS_BAD_ARGUMENT);
	MUST(has_said(said));
	MUST(ls_device_free(rank->group, block) == LS_OK);
}

static void refuses_other_streams(struct rank *rank)
{
	struct sim_stream *other, *closed;
	MUST(sim_stream_open(rank->sim, (rank->rank + 1) % RANKS, &other) == SIM_OK);
	refuses_stream(rank, other); /* of another device */
	MUST(sim_stream_close(other) == SIM_OK);
	MUST(sim_stream_open(rank->sim, rank->rank, &closed) == SIM_OK);
	MUST(sim_stream_close(closed) == SIM_OK);
	refuses_stream(rank, closed);
	/* None of these was a collective. */
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
}

/* Of a stream that was destroyed while its block was in use, nobody can tell when it is done. */
static void destroys_a_stream(struct rank *rank)
{
	struct sim_stream *stream;
	struct ls_device_stats stats = {.size = sizeof stats};
	void *block;
	MUST(sim_stream_open(rank->sim, rank->rank, &stream) == SIM_OK);
	MUST(ls_device_alloc(rank->group, 1000, stream, &block) == LS_OK);
	MUST(sim_stream_close(stream) == SIM_OK);
	MUST(ls_device_free(rank->group, block) == LS_OK);
	for (int i = 0; i < 3; i++) /* each tries to learn it */
		MUST(ls_device_trim(rank->group, 0) == LS_OK);
	MUST(ls_device_stats(rank->group, &stats) == LS_OK && stats.reserved > 0);
	MUST(ls_device_forget(rank->group, stream) == LS_OK);
	MUST(ls_device_trim(rank->group, 0) == LS_OK);
	MUST(ls_device_stats(rank->group, &stats) == LS_OK && stats.reserved == 0);
}

static void tells_once_of_a_destroyed_stream(void **state)
{
	struct capture capture;
	int times = 0;
	(void)state;
	capture_begin(&capture);
	run_job(destroys_a_stream, "free=at_once");
	const char *said = capture_end(&capture);
	assert_non_null(strstr(said, "Call ls_device_forget before"));
	for (; (said = strstr(said, "has been destroyed, but still has blocks")) != NULL; said++)
		times++;
	assert_int_equal(times, RANKS);
}

/* Closes a group in a launch of it, which ends the launch: no memory stays put off. */
static void closes_a_group_in_a_launch(void **state)
{
	struct ls_group_options options = {.size = sizeof options,
					   .world_size = 1,
					   .rendezvous = "unix:sim-closed-in-launch",
					   .device = "sim:0"};
	ls_group *group, *part;
	struct capture capture;
	void *block;
	(void)state;
	for (int closes_part = 0; closes_part < 2; closes_part++) {
		assert_int_equal(ls_group_open(&options, &group), LS_OK);
		part = group;
		if (closes_part)
			assert_int_equal(ls_group_split(group, 0, 0, &part), LS_OK);
		ls_group *groups[] = {group, part};
		assert_int_equal(ls_launch_begin(groups, 2), LS_OK);
		assert_int_equal(ls_device_alloc(group, (size_t)4 << 20, NULL, &block), LS_OK);
		assert_int_equal(ls_device_free(group, block), LS_OK);
		capture_begin(&capture);
		ls_group_close(part);
		assert_non_null(strstr(capture_end(&capture), "in a launch of the group, but must "
							      "be in none: call ls_launch_end"));
		assert_int_equal(ls_launch_end(), LS_BAD_ARGUMENT);
		if (closes_part)
			ls_group_close(group);
	}
}

/* ---- launches that their thread does not end ---- */

/* The devices of the groups that open_alone opens. */
static struct sim *sim;

static ls_group *open_alone(const char *rendezvous, const char *device)
{
	struct ls_group_options options = {
		.size = sizeof options, .world_size = 1, .rendezvous = rendezvous, .device = device};
	ls_group *group;
	MUST(ls_group_open(&options, &group) == LS_OK);
	sim = lockstep_sim();
	return group;
}

/* Bytes that the driver gets back later, after all was freed that could be. */
static uint64_t put_off(ls_group *group, int device)
{
	struct ls_device_stats stats = {.size = sizeof stats};
	MUST(ls_device_trim(group, 0) == LS_OK); /* marks how far the streams are */
	MUST(sim_device_sync(sim, device) == SIM_OK);
	MUST(ls_device_trim(group, 0) == LS_OK);
	MUST(ls_device_stats(group, &stats) == LS_OK);
	MUST(stats.reserved == stats.put_off);
	return stats.put_off;
}

static void free_some(ls_group *group)
{
	void *block;
	MUST(ls_device_alloc(group, (size_t)4 << 20, NULL, &block) == LS_OK);
	MUST(ls_device_free(group, block) == LS_OK);
}

static void *end_in_a_launch(void *argument)
{
	ls_group *group = argument;
	MUST(ls_launch_begin(&group, 1) == LS_OK);
	free_some(group);
	MUST(put_off(group, 0) == (size_t)4 << 20);
	return NULL;
}

static void a_launch_ends_with_its_thread(void **state)
{
	ls_group *group = open_alone("unix:sim-thread-in-launch", "sim:0,free=waits");
	struct capture capture;
	pthread_t thread;
	(void)state;
	capture_begin(&capture);
	assert_int_equal(pthread_create(&thread, NULL, end_in_a_launch, group), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	const char *said = capture_end(&capture);
	assert_non_null(strstr(said, "a thread has ended in the launch that it began by "
				     "ls_launch_begin, called from bad_use_test.c:"));
	assert_int_equal(put_off(group, 0), 0);
	ls_group_close(group);
}

/* The launch is of another group, whose device shares the driver: to wait for it would be in vain,
 * as this thread cannot end it meanwhile. */
static void a_launch_ends_if_it_would_be_waited_for(void **state)
{
	(void)state;
	for (int part = 0; part < 2; part++) {
		ls_group *group = open_alone("unix:sim-launch-c", "sim:0,process=1,free=waits");
		ls_group *other = open_alone("unix:sim-launch-d", "sim:1,process=1"),
			 *listed = group;
		struct capture capture;
		if (part)
			assert_int_equal(ls_group_split(other, 0, 0, &listed), LS_OK);
		assert_int_equal(ls_launch_begin(&listed, 1), LS_OK);
		free_some(other);
		capture_begin(&capture);
		ls_group_close(other);
		const char *said = capture_end(&capture);
		assert_non_null(strstr(said, "in a launch that the group's device waits for, but"));
		assert_null(strstr(said, "stays allocated"));
		assert_int_equal(ls_launch_end(), LS_BAD_ARGUMENT);
		ls_group_close(group);
	}
}

struct launching {
	ls_group *group;
	pthread_barrier_t begun, closed;
	bool ends;
};

static void *launch_beyond_the_group(void *argument)
{
	struct launching *launching = argument;
	MUST(ls_launch_begin(&launching->group, 1) == LS_OK);
	pthread_barrier_wait(&launching->begun);
	pthread_barrier_wait(&launching->closed);
	if (launching->ends)
		MUST(ls_launch_end() == LS_OK);
	return NULL;
}

/* Another thread closes the group meanwhile. The device of another rank, for which the driver may
 * wait as well, gets its memory back nevertheless. */
static void a_launch_may_outlive_its_group(void **state)
{
	(void)state;
	for (int ends = 0; ends < 2; ends++) {
		struct launching launching = {.ends = ends};
		struct capture capture;
		pthread_t thread;
		launching.group = open_alone("unix:sim-launch-a", "sim:0,process=1,free=waits");
		ls_group *other = open_alone("unix:sim-launch-b", "sim:1,process=1");
		pthread_barrier_init(&launching.begun, NULL, 2);
		pthread_barrier_init(&launching.closed, NULL, 2);
		assert_int_equal(pthread_create(&thread, NULL, launch_beyond_the_group, &launching),
				 0);
		pthread_barrier_wait(&launching.begun);
		capture_begin(&capture);
		ls_group_close(launching.group);
		free_some(other);
		assert_int_equal(put_off(other, 1), (size_t)4 << 20);
		pthread_barrier_wait(&launching.closed);
		assert_int_equal(pthread_join(thread, NULL), 0);
		const char *said = capture_end(&capture);
		assert_int_equal(strstr(said, "a thread has ended in the launch") != NULL, !ends);
		assert_int_equal(put_off(other, 1), 0);
		ls_group_close(other);
		pthread_barrier_destroy(&launching.begun);
		pthread_barrier_destroy(&launching.closed);
	}
}

/* Frees a block after its group was closed, and another one opened. */
static void refuses_blocks_of_a_closed_group(void **state)
{
	struct ls_group_options options = {.size = sizeof options,
					   .world_size = 1,
					   .rendezvous = "unix:sim-closed-group",
					   .device = "sim:0"};
	ls_group *group;
	void *block, *other;
	(void)state;
	assert_int_equal(ls_group_open(&options, &group), LS_OK);
	assert_int_equal(ls_device_alloc(group, (size_t)4 << 20, NULL, &block), LS_OK);
	ls_group_close(group);
	assert_int_equal(ls_group_open(&options, &group), LS_OK);
	assert_int_equal(ls_device_alloc(group, 1, NULL, &other), LS_OK);
	assert_int_equal(ls_device_free(group, (char *)block + 1024), LS_BAD_ARGUMENT);
	assert_true(has_said("is no block of device sim:0"));
	assert_int_equal(ls_device_free(group, other), LS_OK);
	ls_group_close(group);
}

static void refuses_memory(struct rank *rank)
{
	ls_group *group = rank->group;
	char *block = device_block(rank, 1000), *none = (void *)1;
	int here;
	char said[64];
	snprintf(said, sizeof said, "ls_device_free: %p is no block of device", (void *)&here);
	MUST(ls_device_free(group, &here) == LS_BAD_ARGUMENT && has_said(said));
	MUST(ls_device_free(group, block + 512) == LS_BAD_ARGUMENT);
	MUST(ls_device_record(group, block, &here) == LS_BAD_ARGUMENT);
	MUST(ls_device_free(group, block) == LS_OK && ls_device_free(group, NULL) == LS_OK);
	MUST(ls_device_free(group, block) == LS_BAD_ARGUMENT && has_said("is free already"));
	MUST(ls_device_alloc(group, SIZE_MAX, rank->streams[0], (void **)&none) == LS_BAD_ARGUMENT &&
	     !none);
	MUST(ls_device_alloc(group, (size_t)1 << 40, rank->streams[0], (void **)&none) ==
	     LS_OUT_OF_MEMORY);
	MUST(ls_device_alloc(group, 1, &here, (void **)&none) == LS_BAD_ARGUMENT);
	MUST(ls_device_alloc(group, 0, NULL, (void **)&none) == LS_OK && none);
	MUST(ls_device_free(group, none) == LS_OK);
	MUST(ls_device_alloc(NULL, 1, NULL, (void **)&none) == LS_BAD_ARGUMENT);
	struct ls_device_stats stats = {.size = 3};
	MUST(ls_device_stats(group, &stats) == LS_BAD_ARGUMENT);
	stats.size = sizeof stats;
	MUST(ls_device_stats(group, &stats) == LS_OK && stats.live == 0 && stats.reserved > 0);
	MUST(stats.live + stats.cached + stats.pending + stats.put_off == stats.reserved);
	MUST(sim_stream_sync(rank->streams[0]) == SIM_OK && ls_device_trim(group, 0) == LS_OK);
	MUST(ls_device_forget(group, rank->streams[1]) == LS_OK);
}

static void refuses_launches(struct rank *rank)
{
	MUST(ls_launch_end() == LS_BAD_ARGUMENT && has_said("ls_launch_begin"));
	MUST(ls_launch_begin(&rank->group, 0) == LS_BAD_ARGUMENT);
	MUST(ls_launch_begin(&rank->group, 1) == LS_OK);
	MUST(ls_launch_begin(&rank->group, 1) == LS_BAD_ARGUMENT && has_said("ls_launch_end"));
	MUST(ls_launch_end() == LS_OK);
	MUST(ls_launch_end() == LS_BAD_ARGUMENT);
	MUST(ls_request_follow(NULL, rank->streams[0]) == LS_BAD_ARGUMENT);
	int32_t value = 1;
	ls_request *op;
	struct ls_call_options host = {.size = sizeof host, .request = &op};
	MUST(ls_allreduce(rank->group, &value, &value, 1, LS_INT32, LS_SUM, &host) == LS_OK);
	MUST(ls_request_follow(op, rank->streams[0]) == LS_BAD_ARGUMENT);
	MUST(ls_wait(op, 0) == LS_OK);
	ls_request_free(op);
}

static void refuses_foreign_calls(struct rank *rank)
{
	MUST(ls_foreign_begin(NULL, "cudaFree") == LS_BAD_ARGUMENT);
	MUST(ls_foreign_begin(rank->group, NULL) == LS_BAD_ARGUMENT);
	MUST(has_said("the name of a call"));
	MUST(ls_foreign_end(NULL) == LS_BAD_ARGUMENT);
	MUST(ls_foreign_end(rank->group) == LS_OK);
}

static void refusals(void **state)
{
	(void)state;
	run_job(refuses_streams, "");
	run_job(refuses_other_streams, "");
	run_job(refuses_memory, "free=at_once");
	run_job(refuses_memory, "");
	run_job(refuses_launches, "");
	run_job(refuses_foreign_calls, "");
}

/* ---- a device that does not exist ---- */

static void devices_that_do_not_exist(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		ls_status status;
		const char *says;
	} cases[] = {
		{"nothing:0", LS_UNSUPPORTED, "there is no driver 'nothing'"},
		{"sim:x", LS_BAD_ARGUMENT, "such as sim:0"},
		{"../sim:0", LS_BAD_ARGUMENT, "such as sim:0"},
		{"sim:99", LS_BAD_ARGUMENT, "no such device"},
		{"sim:0,colour=red", LS_BAD_ARGUMENT, "unknown options"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ls_group_options options = {.size = sizeof options,
						   .world_size = 1,
						   .rendezvous = "unix:sim-no-device",
						   .device = cases[i].name};
		ls_group *group;
		assert_int_equal(ls_group_open(&options, &group), cases[i].status);
		assert_null(group);
		assert_true(has_said(cases[i].says));
	}
	struct ls_group_options options = {
		.size = sizeof options, .world_size = 1, .rendezvous = "unix:sim-no-device"};
	ls_group *group;
	void *block;
	assert_int_equal(ls_group_open(&options, &group), LS_OK);
	assert_int_equal(ls_device_alloc(group, 1, NULL, &block), LS_BAD_ARGUMENT);
	assert_true(has_said("has no device"));
	assert_int_equal(ls_launch_begin(&group, 1), LS_BAD_ARGUMENT);
	struct ls_call_options on_stream = {.size = sizeof on_stream, .stream = &group};
	assert_int_equal(ls_barrier(group, &on_stream), LS_BAD_ARGUMENT);
	ls_group_close(group);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(refusals),
					   cmocka_unit_test(tells_once_of_a_destroyed_stream),
					   cmocka_unit_test(closes_a_group_in_a_launch),
					   cmocka_unit_test(a_launch_ends_with_its_thread),
					   cmocka_unit_test(a_launch_ends_if_it_would_be_waited_for),
					   cmocka_unit_test(a_launch_may_outlive_its_group),
					   cmocka_unit_test(refuses_blocks_of_a_closed_group),
					   cmocka_unit_test(devices_that_do_not_exist)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
