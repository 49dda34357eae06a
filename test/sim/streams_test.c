/* SPDX-License-Identifier: BSD-3-Clause
 * The properties 1 to 4 of README.md: streams, events, free, launches, queues. */
#include "sim_fixture.h"

/* ---- 1 ---- */

static enum sim_error call_event_sync(void *data)
{
	return sim_event_sync(data);
}

static void a_later_record_replaces_the_first(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){0});
	struct sim_stream *busy = open_stream(sim, 0), *idle = open_stream(sim, 0);
	struct sim_event *event;
	struct gate gate = {.word = 0};
	OK(sim_event_open(sim, &event));
	launch_gated(busy, &gate);
	OK(sim_record(event, busy));
	assert_int_equal(sim_event_query(event), SIM_NOT_READY);
	OK(sim_record(event, idle));
	OK(sim_event_query(event));
	OK(sim_event_sync(event));
	open_gate(sim, &gate);
	OK(sim_stream_sync(busy));
	sim_close(sim);
}

static void streams_and_events_keep_the_order(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 50; seed++) {
		struct sim *sim = open_sim((struct sim_options){.devices = 2, .seed = seed});
		struct sim_stream *first = open_stream(sim, 0), *second = open_stream(sim, 1);
		struct sim_event *event, *never;
		struct list list = {.count = 0};
		struct gate gate = {.word = 0};
		OK(sim_event_open(sim, &event));
		OK(sim_event_open(sim, &never));
		OK(sim_follow(second, never));
		launch_append(second, &list, 0);
		OK(sim_stream_sync(second));
		launch_gated(first, &gate);
		launch_append(first, &list, 1);
		OK(sim_record(event, first));
		OK(sim_follow(second, event));
		launch_append(second, &list, 2);
		struct blocked sync = {.call = call_event_sync, .data = event};
		let_it_run(sim, 0);
		let_it_run(sim, 1);
		assert_int_equal(sim_event_query(event), SIM_NOT_READY);
		assert_int_equal(sim_stream_query(second), SIM_NOT_READY);
		assert_int_equal(list.count, 1);
		begin_blocked(&sync);
		open_gate(sim, &gate);
		OK(end_blocked(&sync));
		OK(sim_stream_sync(second));
		OK(sim_event_sync(event));
		OK(sim_event_query(event));
		assert_int_equal(list.count, 3);
		for (int i = 0; i < 3; i++)
			assert_int_equal(list.numbers[i], i);
		sim_event_close(event);
		sim_close(sim);
	}
}

static void the_seed_draws_the_order_of_streams(void **state)
{
	(void)state;
	bool seen[2] = {false};
	for (uint64_t seed = 0; seed < 1000 && !(seen[0] && seen[1]); seed++) {
		struct sim *sim = open_sim((struct sim_options){.seed = seed});
		struct sim_stream *streams[2] = {open_stream(sim, 0), open_stream(sim, 0)};
		struct list list = {.count = 0};
		struct gate gate = {.word = 0};
		for (int i = 0; i < 2; i++) {
			launch_gated(streams[i], &gate);
			launch_append(streams[i], &list, i);
		}
		open_gate(sim, &gate);
		OK(sim_device_sync(sim, 0));
		seen[list.numbers[0]] = true;
		sim_close(sim);
	}
	assert_true(seen[0] && seen[1]);
}

/* ---- 2 ---- */

static void free_waits_with_the_driver_lock(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){.devices = 2, .free = SIM_FREE_WAITS});
	struct sim_stream *stream = open_stream(sim, 1);
	struct gate gate = {.word = 0};
	struct memory_of memory = {.sim = sim};
	OK(sim_alloc(sim, 0, 100, &memory.address));
	launch_gated(stream, &gate); /* on another device */
	struct blocked frees = {.call = call_free, .data = &memory};
	struct blocked locked_out;
	begin_blocked(&frees);
	begin_locked_out(&locked_out, sim);
	open_gate(sim, &gate);
	OK(end_blocked(&frees));
	OK(end_blocked(&locked_out));
	assert_int_equal(sim_bytes_used(sim, 0), 512); /* of the second one */
	sim_close(sim);
}

static void waiting_for_a_stream_takes_the_driver_lock(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){0});
	struct sim_stream *stream = open_stream(sim, 0);
	struct gate gate = {.word = 0};
	struct blocked sync = {.call = call_sync, .data = stream}, locked_out;
	launch_gated(stream, &gate);
	begin_blocked(&sync);
	begin_locked_out(&locked_out, sim);
	open_gate(sim, &gate);
	OK(end_blocked(&sync));
	OK(end_blocked(&locked_out));
	sim_close(sim);
}

static void free_at_once_destroys_the_content(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){.free = SIM_FREE_AT_ONCE});
	struct sim_stream *stream = open_stream(sim, 0);
	struct gate gate = {.word = 0};
	int32_t result = 0, seven = 7;
	void *address;
	OK(sim_alloc(sim, 0, sizeof seven, &address));
	OK(sim_copy(stream, address, &seven, sizeof seven));
	OK(sim_stream_sync(stream));
	launch_gated(stream, &gate);
	OK(sim_copy(stream, &result, address, sizeof result));
	OK(sim_free(sim, address)); /* while another one needs it */
	open_gate(sim, &gate);
	OK(sim_stream_sync(stream));
	assert_int_equal((uint32_t)result, 0xdbdbdbdb);
	sim_close(sim);
}

static void free_may_do_either(void **state)
{
	(void)state;
	bool at_once = false, waited = false;
	for (uint64_t seed = 0; seed < 1000 && !(at_once && waited); seed++) {
		struct sim *sim =
			open_sim((struct sim_options){.free = SIM_FREE_DRAWN, .seed = seed});
		struct gate gate = {.word = 0};
		struct memory_of memory = {.sim = sim};
		struct blocked frees = {.call = call_free, .data = &memory};
		OK(sim_alloc(sim, 0, 1, &memory.address));
		launch_gated(open_stream(sim, 0), &gate);
		pthread_create(&frees.thread, NULL, blocked_main, &frees);
		while (!atomic_load(&frees.returned) &&
		       (!atomic_load(&frees.tid) || state_of(frees.tid) != 'S'))
			sched_yield();
		*(atomic_load(&frees.returned) ? &at_once : &waited) = true;
		open_gate(sim, &gate);
		OK(end_blocked(&frees));
		sim_close(sim);
	}
	assert_true(at_once && waited);
}

/* ---- 3 ---- */

static void a_launch_waits_for_room_in_its_queue(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){.depth = 3, .queues = 1});
	struct sim_stream *stream = open_stream(sim, 0);
	struct gate gate = {.word = 0};
	launch_gated(stream, &gate);
	/* If it runs already, it is not in the queue. */
	struct sim_stream *other = open_stream(sim, 0);
	OK(sim_await(other, &gate.word, 1)); /* at the head, because it cannot begin */
	call_append(stream);
	call_append(stream);
	struct blocked launch = {.call = call_append, .data = stream}, locked_out;
	begin_blocked(&launch);
	begin_locked_out(&locked_out, sim);
	open_gate(sim, &gate);
	OK(end_blocked(&launch));
	OK(end_blocked(&locked_out));
	OK(sim_device_sync(sim, 0));
	sim_close(sim);
}

static enum sim_error call_gated(void *data)
{
	struct gate *gate = *(struct gate **)((void **)data + 1);
	return sim_launch(*(struct sim_stream **)data, &gated, &gate, sizeof gate);
}

static void a_launch_may_wait_for_its_work(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){.launch = SIM_LAUNCH_WAITS});
	struct gate gate = {.word = 0};
	void *both[2] = {open_stream(sim, 0), &gate};
	struct blocked launch = {.call = call_gated, .data = both};
	begin_blocked(&launch);
	open_gate(sim, &gate);
	OK(end_blocked(&launch));
	sim_close(sim);
}

/* ---- 4 ---- */

/* Two that wait for each other. */
static void several_kernels_run_at_once(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){.resident = 2});
	struct two_ranks two = {.words = {0}};
	for (int i = 0; i < 2; i++) {
		void *argument[2] = {&two, (void *)(intptr_t)i};
		OK(sim_launch(open_stream(sim, 0), &exchanges, argument, sizeof argument));
	}
	OK(sim_device_sync(sim, 0));
	sim_close(sim);
}

static void few_kernels_run_at_once(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){.resident = 1});
	struct sim_stream *first = open_stream(sim, 0), *second = open_stream(sim, 0);
	struct gate gate = {.word = 0};
	struct list list = {.count = 0};
	_Atomic uint64_t runs = 0;
	launch_gated(first, &gate);
	launch_append(second, &list, 0);
	/* Work that is no kernel needs no place among the running kernels. */
	struct sim_stream *third = open_stream(sim, 0);
	OK(sim_store(third, &runs, 1, NULL));
	OK(sim_stream_sync(third));
	while (sim_stream_query(first) != SIM_NOT_READY)
		sched_yield();
	/* Either of the two has got the place. If it is the one that waits, the other cannot
	 * end. */
	if (atomic_load(&list.count) == 0)
		assert_int_equal(sim_stream_query(second), SIM_NOT_READY);
	open_gate(sim, &gate);
	OK(sim_device_sync(sim, 0));
	assert_int_equal(list.count, 1);
	sim_close(sim);
}

static void streams_share_hardware_queues(void **state)
{
	(void)state;
	struct sim *sim = open_sim((struct sim_options){.queues = 2});
	struct sim_stream *streams[3];
	_Atomic uint64_t word = 0, runs = 0, stored = 0;
	for (int i = 0; i < 3; i++)
		streams[i] = open_stream(sim, 0);
	OK(sim_await(streams[0], &word, 1));
	OK(sim_store(streams[2], &stored, 1, NULL)); /* behind it, in the same queue */
	OK(sim_store(streams[1], &runs, 1, NULL));
	OK(sim_stream_sync(streams[1]));
	assert_int_equal(stored, 0);
	assert_int_equal(sim_stream_query(streams[2]), SIM_NOT_READY);
	sim_board_store(sim, &word, 1);
	OK(sim_stream_sync(streams[2]));
	assert_int_equal(stored, 1);
	sim_close(sim);
}

/* ---- what an observer learns ---- */

struct slow_observer {
	struct sim *sim;
	struct sim_stream *stream;
	_Atomic bool called, may_end, has_ended;
};

static void touches_slowly(void *data, const struct driver_touch *touch)
{
	struct slow_observer *slow = data;
	(void)touch;
	atomic_store(&slow->called, true);
	while (!atomic_load(&slow->may_end))
		sched_yield();
	atomic_store(&slow->has_ended, true);
}

static void *copy_main(void *data)
{
	static char from[8], to[8];
	struct slow_observer *slow = data;
	return sim_copy(slow->stream, to, from, sizeof to) == SIM_OK ? slow : NULL;
}

static enum sim_error call_remove(void *data)
{
	struct slow_observer *slow = data;
	sim_observe(slow->sim, 0, NULL);
	return atomic_load(&slow->has_ended) ? SIM_OK : SIM_NOT_READY;
}

/* The memory of an observer can be freed once the observer was removed. */
static void no_thread_is_in_a_former_observer(void **state)
{
	(void)state;
	struct slow_observer slow = {.sim = open_sim((struct sim_options){0})};
	const struct driver_observer observer = {.data = &slow, .touches = touches_slowly};
	struct blocked remove = {.call = call_remove, .data = &slow};
	pthread_t thread;
	void *result;
	slow.stream = open_stream(slow.sim, 0);
	sim_observe(slow.sim, 0, &observer);
	assert_int_equal(pthread_create(&thread, NULL, copy_main, &slow), 0);
	while (!atomic_load(&slow.called))
		sched_yield();
	begin_blocked(&remove);
	atomic_store(&slow.may_end, true);
	OK(end_blocked(&remove));
	pthread_join(thread, &result);
	assert_non_null(result);
	sim_close(slow.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(streams_and_events_keep_the_order),
		cmocka_unit_test(the_seed_draws_the_order_of_streams),
		cmocka_unit_test(free_waits_with_the_driver_lock),
		cmocka_unit_test(free_at_once_destroys_the_content),
		cmocka_unit_test(free_may_do_either),
		cmocka_unit_test(a_launch_waits_for_room_in_its_queue),
		cmocka_unit_test(a_launch_may_wait_for_its_work),
		cmocka_unit_test(few_kernels_run_at_once),
		cmocka_unit_test(streams_share_hardware_queues),
		cmocka_unit_test(a_later_record_replaces_the_first),
		cmocka_unit_test(waiting_for_a_stream_takes_the_driver_lock),
		cmocka_unit_test(several_kernels_run_at_once),
		cmocka_unit_test(no_thread_is_in_a_former_observer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
