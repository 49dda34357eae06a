/* SPDX-License-Identifier: BSD-3-Clause
 * The properties 5 to 10 of README.md: other ranks, memory, capture, loading, failures, host
 * functions. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "sim_fixture.h"

/* ---- 5 ---- */

static bool run_rank(struct two_ranks *two, int rank)
{
	struct sim_options options = {.devices = 1, .bytes = BYTES, .board = &two->board};
	struct sim *sim = sim_open(&options);
	struct sim_stream *stream;
	void *argument[2] = {two, (void *)(intptr_t)rank};
	bool right = sim && sim_stream_open(sim, 0, &stream) == SIM_OK &&
		     sim_launch(stream, &exchanges, argument, sizeof argument) == SIM_OK &&
		     sim_stream_sync(stream) == SIM_OK;
	if (sim)
		sim_close(sim);
	return right;
}

static void kernels_of_two_processes_meet(void **state)
{
	(void)state;
	struct two_ranks *two =
		mmap(NULL, sizeof *two, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(two != MAP_FAILED);
	pid_t pid = fork();
	if (pid == 0)
		_exit(run_rank(two, 1) ? 0 : 1);
	assert_true(pid > 0);
	assert_true(run_rank(two, 0));
	int how;
	assert_int_equal(waitpid(pid, &how, 0), pid);
	assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
	munmap(two, sizeof *two);
}

/* ---- 6 ---- */

static void memory_is_bounded(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){.free = SIM_FREE_WAITS});
	void *blocks[4], *more;
	for (int i = 0; i < 4; i++)
		OK(sim_alloc(sim, 0, BYTES / 4, &blocks[i]));
	assert_int_equal(sim_alloc(sim, 0, 1, &more), SIM_OUT_OF_MEMORY);
	assert_null(more);
	OK(sim_free(sim, blocks[1]));
	OK(sim_free(sim, blocks[2]));
	OK(sim_alloc(sim, 0, BYTES / 2, &more)); /* both are in one gap */
	assert_ptr_equal(more, blocks[1]);
	assert_int_equal(sim_alloc(sim, 0, SIZE_MAX, &more), SIM_OUT_OF_MEMORY);
	assert_int_equal(sim_alloc(sim, 0, 0, &more), SIM_BAD_VALUE);
	assert_int_equal(sim_alloc(sim, 1, 1, &more), SIM_BAD_VALUE);
	assert_int_equal(sim_free(sim, blocks[2]), SIM_BAD_VALUE);
	sim_close(sim);
}

static void the_processor_cannot_touch_it(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){0});
	struct sim_stream *stream = open_stream(sim, 0);
	int32_t value = 41;
	void *address;
	OK(sim_alloc(sim, 0, sizeof value, &address));
	OK(sim_copy(stream, address, &value, sizeof value));
	OK(sim_launch(stream, &increments, &address, sizeof address));
	OK(sim_copy(stream, &value, address, sizeof value));
	OK(sim_stream_sync(stream));
	assert_int_equal(value, 42);
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile int32_t *)address = 1;
		_exit(0);
	}
	int how;
	assert_int_equal(waitpid(pid, &how, 0), pid);
	assert_true(!WIFEXITED(how) || WEXITSTATUS(how) != 0);
	sim_close(sim);
}

/* ---- 7 ---- */

static void a_capture_refuses_calls_that_wait(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){.free = SIM_FREE_AT_ONCE});
	struct sim_stream *stream = open_stream(sim, 0), *other = open_stream(sim, 0);
	struct sim_event *event;
	struct list list = {.count = 0};
	uint64_t count = 0;
	void *address, *none;
	OK(sim_event_open(sim, &event));
	OK(sim_alloc(sim, 0, 1, &address));
	OK(sim_capture_begin(stream));
	bool is_captured, other_is;
	OK(sim_is_captured(stream, &is_captured));
	OK(sim_is_captured(other, &other_is));
	assert_true(is_captured && !other_is);
	launch_append(stream, &list, 1);
	launch_append(stream, &list, 2);
	launch_append(other, &list, 3);
	OK(sim_capture_end(stream, &count));
	assert_int_equal(count, 2);
	OK(sim_device_sync(sim, 0));
	assert_int_equal(list.count, 1); /* in a capture the operation has not run */

	for (int which = 0; which < 8; which++) {
		OK(sim_capture_begin(stream));
		enum sim_error error = which == 0   ? sim_alloc(sim, 0, 1, &none)
				       : which == 1 ? sim_free(sim, address)
				       : which == 2 ? sim_stream_query(other)
				       : which == 3 ? sim_event_query(event)
				       : which == 4 ? sim_stream_sync(other)
				       : which == 5 ? sim_event_sync(event)
				       : which == 6 ? sim_stream_close(other)
						    : sim_device_sync(sim, 0);
		assert_int_equal(error, SIM_CAPTURED);
		assert_int_equal(sim_capture_end(stream, &count), SIM_CAPTURED);
	}
	OK(sim_free(sim, address));
	sim_close(sim);
}

/* ---- 8 ---- */

static void the_first_launch_of_a_kernel_waits_for_the_device(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){.loads_lazily = true});
	struct sim_stream *first = open_stream(sim, 0), *second = open_stream(sim, 0);
	struct gate gate = {.word = 0};
	launch_gated(first, &gate);
	struct blocked launch = {.call = call_append, .data = second}, locked_out;
	begin_blocked(&launch);
	begin_locked_out(&locked_out, sim);
	open_gate(sim, &gate);
	OK(end_blocked(&launch));
	OK(end_blocked(&locked_out));
	gate.word = 0;
	launch_gated(first, &gate);
	OK(call_append(second)); /* loaded */
	open_gate(sim, &gate);
	OK(sim_device_sync(sim, 0));
	sim_close(sim);
}

/* ---- 9 ---- */

static enum sim_error do_a_bit(struct sim *sim)
{
	static int32_t value = 1; /* a copy may read it until the device is closed */
	struct sim_stream *stream;
	void *address = NULL;
	enum sim_error error = sim_stream_open(sim, 0, &stream);
	if (error == SIM_OK)
		error = sim_alloc(sim, 0, sizeof value, &address);
	if (error == SIM_OK)
		error = sim_copy(stream, address, &value, sizeof value);
	if (error == SIM_OK)
		error = sim_launch(stream, &increments, &address, sizeof address);
	if (error == SIM_OK)
		error = sim_stream_sync(stream);
	return error == SIM_OK ? sim_free(sim, address) : error;
}

static void each_call_can_fail(void **state)
{
	(void)state;
	for (uint64_t n = 1; n <= 6; n++) {
		struct sim *sim = open_sim((struct sim_options){.fail_at = n});
		assert_int_equal(do_a_bit(sim), SIM_FAILED);
		assert_int_equal(sim_calls(sim), n);
		OK(do_a_bit(sim)); /* only that call fails */
		sim_close(sim);
	}
}

static void a_failed_kernel_fails_the_device_for_good(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){0});
	struct sim_stream *stream = open_stream(sim, 0), *other;
	_Atomic uint64_t word = 0;
	OK(sim_launch(stream, &fails, NULL, 0));
	assert_int_equal(sim_stream_sync(stream), SIM_FAILED);
	assert_int_equal(sim_store(stream, &word, 1, NULL), SIM_FAILED);
	assert_int_equal(sim_stream_open(sim, 0, &other), SIM_FAILED);
	assert_int_equal(word, 0);
	sim_close(sim);
}

static void a_failed_kernel_ends_all_waits(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){0});
	struct gate gate = {.word = 0};
	_Atomic uint64_t word = 0;
	struct sim_stream *stream = open_stream(sim, 0), *other = open_stream(sim, 0);
	launch_gated(stream, &gate);
	OK(sim_store(stream, &word, 1, NULL));
	OK(sim_await(other, &gate.word, 1));
	OK(sim_launch(other, &fails, NULL, 0));
	struct blocked sync = {.call = call_sync, .data = other};
	begin_blocked(&sync);
	open_gate(sim, &gate);
	assert_int_equal(end_blocked(&sync), SIM_FAILED);
	sim_close(sim);
}

static void blocked_calls_return_if_the_device_stops(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){0});
	struct gate gate = {.word = 0};
	struct sim_stream *stream = open_stream(sim, 0);
	launch_gated(stream, &gate);
	struct blocked sync = {.call = call_sync, .data = stream};
	begin_blocked(&sync);
	sim_stop(sim);
	assert_int_equal(end_blocked(&sync), SIM_FAILED);
	sim_close(sim);
}

/* ---- 10 ---- */

struct from_host {
	struct sim_stream *stream;
	enum sim_error error;
	struct list list;
};

static void call_in_host_function(void *data)
{
	struct from_host *from = data;
	from->error = sim_stream_query(from->stream);
	from->list.numbers[from->list.count++] = 1;
}

static void host_functions_may_not_call(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){0});
	struct from_host from = {.stream = open_stream(sim, 0)};
	OK(sim_host(from.stream, call_in_host_function, &from));
	launch_append(from.stream, &from.list, 2);
	OK(sim_host(from.stream, call_in_host_function, &from));
	OK(sim_stream_sync(from.stream));
	assert_int_equal(from.error, SIM_NOT_PERMITTED);
	assert_int_equal(from.list.count, 3);
	assert_int_equal(from.list.numbers[1], 2);
	sim_close(sim);
}

static void count_up(void *data)
{
	atomic_fetch_add((_Atomic int *)data, 1);
}

/* One thread runs the host functions of all devices. */
static void host_functions_of_two_devices(void **state)
{
	enum { SEEDS = 50, FUNCTIONS = 20 };
	(void)state;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct sim *sim = open_sim((struct sim_options){.devices = 2, .seed = seed});
		struct sim_stream *streams[2] = {open_stream(sim, 0), open_stream(sim, 1)};
		_Atomic int count = 0;
		for (int i = 0; i < 2 * FUNCTIONS; i++)
			OK(sim_host(streams[i % 2], count_up, &count));
		for (int i = 0; i < 2; i++)
			OK(sim_stream_sync(streams[i]));
		assert_int_equal(count, 2 * FUNCTIONS);
		sim_close(sim);
	}
}

static void options_are_checked(void **state)
{
	(void)state;
	static const struct sim_options bad[] = {
		{.devices = 0, .bytes = BYTES},
		{.devices = SIM_DEVICES + 1, .bytes = BYTES},
		{.devices = 1, .bytes = 0},
		{.devices = 1, .bytes = BYTES, .resident = SIM_RESIDENT + 1},
		{.devices = 1, .bytes = BYTES, .queues = -1},
		{.devices = 1, .bytes = BYTES, .depth = SIM_DEPTH + 1},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_null(sim_open(&bad[i]));
	assert_string_equal(sim_error_name(SIM_CAPTURED), "refused in capture");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_of_two_processes_meet),
		cmocka_unit_test(memory_is_bounded),
		cmocka_unit_test(the_processor_cannot_touch_it),
		cmocka_unit_test(a_capture_refuses_calls_that_wait),
		cmocka_unit_test(the_first_launch_of_a_kernel_waits_for_the_device),
		cmocka_unit_test(each_call_can_fail),
		cmocka_unit_test(a_failed_kernel_fails_the_device_for_good),
		cmocka_unit_test(blocked_calls_return_if_the_device_stops),
		cmocka_unit_test(host_functions_may_not_call),
		cmocka_unit_test(options_are_checked),
		cmocka_unit_test(a_failed_kernel_ends_all_waits),
		cmocka_unit_test(host_functions_of_two_devices),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
