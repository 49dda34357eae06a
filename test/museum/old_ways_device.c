/* SPDX-License-Identifier: BSD-3-Clause
 * Exhibits whose threads stay in a lock, or in a call of the device's driver. */
#include <sched.h>
#include <stdio.h>

#include "old_ways.h"

enum { LAUNCHES = 3 };

/* The lock of what must not free during a launch; Python's lock. */
static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t interpreter_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- calls of the driver, which the program declares to Lockstep ---- */

struct meeting {
	int first, member, members; /* words[first] … words[first + members - 1] */
	uint64_t round;
};

static enum sim_step step_collective(struct sim *device, void *argument)
{
	const struct meeting *meeting = argument;
	_Atomic uint64_t *words = &shared->words[meeting->first];
	if (atomic_load(&words[meeting->member]) < meeting->round)
		sim_board_store(device, &words[meeting->member], meeting->round);
	for (int i = 0; i < meeting->members; i++)
		if (atomic_load(&words[i]) < meeting->round)
			return SIM_STEP_SPINS;
	return SIM_STEP_DONE;
}
static const struct sim_kernel collective = {"collective", step_collective};

static enum sim_step step_local(struct sim *device, void *argument)
{
	(void)device;
	(void)argument;
	return SIM_STEP_DONE;
}
static const struct sim_kernel local = {"local", step_local};

SHOWN enum sim_error launch_collective(const char *call, int stream, int first, int member,
				       uint64_t round)
{
	struct meeting meeting = {first, member, 2, round};
	must_status(ls_foreign_begin(world, call));
	enum sim_error error = sim_launch(streams[stream], &collective, &meeting, sizeof meeting);
	must_status(ls_foreign_end(world));
	return error;
}

SHOWN void launch_local(int stream)
{
	must_status(ls_foreign_begin(world, "launch of a local kernel, first time"));
	must(sim_launch(streams[stream], &local, NULL, 0));
	must_status(ls_foreign_end(world));
}

SHOWN void free_block(const char *call)
{
	must_status(ls_foreign_begin(world, call));
	must(sim_free(sim, cached));
	must_status(ls_foreign_end(world));
}

SHOWN enum sim_error synchronise(const char *call, int stream)
{
	must_status(ls_foreign_begin(world, call));
	enum sim_error error = sim_stream_sync(streams[stream]);
	must_status(ls_foreign_end(world));
	return error;
}

static void await_running(int word)
{
	while (atomic_load(&shared->words[word]) == 0)
		sched_yield();
}

/* ---- allocator-lock, allocator-retry ---- */

SHOWN void record_stream(void)
{
	pthread_mutex_lock(&allocator_lock);
	pthread_mutex_unlock(&allocator_lock);
}

void all_reduce_then_record(void)
{
	pthread_mutex_lock(&free_lock);
	launch_local(0);
	meet();
	edge();
	record_stream();
	pthread_mutex_unlock(&free_lock);
}

SHOWN void give_back(void)
{
	meet();
	edge();
	pthread_mutex_lock(&free_lock);
	free_block("free of 4 MiB");
	pthread_mutex_unlock(&free_lock);
}

void *empty_cache(void *unused)
{
	pthread_mutex_lock(&allocator_lock);
	give_back();
	pthread_mutex_unlock(&allocator_lock);
	return unused;
}

void *malloc_with_retry(void *unused)
{
	void *block;
	pthread_mutex_lock(&allocator_lock);
	if (sim_alloc(sim, 0, HALF + 1, &block) == SIM_OUT_OF_MEMORY)
		give_back();
	pthread_mutex_unlock(&allocator_lock);
	return unused;
}

/* ---- free-between-launches ---- */

void *garbage_collect(void *unused)
{
	meet();
	edge();
	free_block("free of 4 MiB on device 0");
	return unused;
}

/* The second launch needs the driver's lock, which the free holds. */
void launch_on_both(void)
{
	must(launch_collective("launch of all-reduce 1 on device 0 of 0 and 1", 0, 0, 0, 1));
	uint64_t calls = sim_calls(sim);
	meet();
	while (sim_calls(sim) == calls)
		sched_yield();
	edge();
	must(launch_collective("launch on device 1, after device 0", 1, 0, 1, 1));
}

/* ---- launch-excludes-free ---- */

static char behind_receive[WAIT_FOREIGN_BYTES];

void *free_with_lock(void *unused)
{
	meet();
	pthread_mutex_lock(&free_lock);
	meet();
	edge();
	free_block(behind_receive);
	pthread_mutex_unlock(&free_lock);
	return unused;
}

SHOWN void launch_receive(void)
{
	pthread_mutex_lock(&free_lock);
	must(sim_await(streams[0], &shared->words[!my_rank], 1));
	pthread_mutex_unlock(&free_lock);
}

SHOWN void launch_send(void)
{
	pthread_mutex_lock(&free_lock);
	must(sim_store(streams[1], &shared->words[my_rank], 1, NULL));
	pthread_mutex_unlock(&free_lock);
}

void exchange(void)
{
	snprintf(behind_receive, sizeof behind_receive,
		 "free of 4 MiB, behind a receive from rank %d", !my_rank);
	launch_receive();
	meet();
	meet();
	edge();
	launch_send();
}

/* ---- retry-synchronises ---- */

void retry_synchronises(void)
{
	float value = 0;
	void *block;
	if (my_rank == 1) {
		must_status(ls_recv(world, &value, 1, LS_FLOAT32, 0, NULL));
		return;
	}
	must(launch_collective("launch of all-reduce 1", 0, 0, 0, 1));
	if (sim_alloc(sim, 0, HALF + 1, &block) == SIM_OUT_OF_MEMORY) {
		edge();
		must(synchronise("sync of stream 0 (all-reduce 1), for 4194305 B", 0));
	}
	must_status(ls_send(world, &value, 1, LS_FLOAT32, 1, NULL));
}

/* ---- opposite-order ---- */

void opposite_order(void)
{
	char call[WAIT_FOREIGN_BYTES];
	int first = my_rank, second = !my_rank; /* groups */
	must(launch_collective("launch of an all-reduce", first, 2 * first, my_rank, 1));
	await_running(2 * first + my_rank);
	must(launch_collective("launch of an all-reduce", second, 2 * second, my_rank, 1));
	snprintf(call, sizeof call, "sync of group %c, queued behind group %c", 'A' + second,
		 'A' + first);
	edge();
	must(synchronise(call, second));
}

/* ---- failed-launch ---- */

void failed_launch(void)
{
	char call[WAIT_FOREIGN_BYTES];
	for (uint64_t i = 1; i <= LAUNCHES; i++) {
		enum sim_error error = launch_collective("launch", 0, 0, my_rank, i);
		if (error != SIM_OK) {
			printf("launch %d failed\n", (int)i);
			edge();
			return; /* as after an exception that is caught elsewhere */
		}
		snprintf(call, sizeof call, "sync of stream 0 (all-reduce %d)", (int)i);
		if (my_rank == 0 && (int)i == failing_launch)
			edge();
		must(synchronise(call, 0));
	}
}

/* ---- abort-in-error-path ---- */

SHOWN void clean_up(void)
{
	edge();
	must(synchronise("sync of stream 0 (all-reduce 1), after an error", 0));
}

void abort_in_error_path(void)
{
	float value = 0;
	if (my_rank == 1) {
		must_status(ls_recv(world, &value, 1, LS_FLOAT32, 0, NULL));
		return;
	}
	must(launch_collective("launch of all-reduce 1", 0, 0, 0, 1));
	clean_up();
}

/* ---- lazy-loading ---- */

void lazy_loading(void)
{
	float value = 0;
	if (my_rank == 1) {
		must_status(ls_recv(world, &value, 1, LS_FLOAT32, 0, NULL));
		return;
	}
	must(launch_collective("launch of all-reduce 1", 0, 0, 0, 1));
	edge();
	launch_local(1);
	must_status(ls_send(world, &value, 1, LS_FLOAT32, 1, NULL));
}

/* ---- callback-lock ---- */

SHOWN void take_interpreter_lock(void *unused)
{
	(void)unused;
	edge();
	pthread_mutex_lock(&interpreter_lock);
	pthread_mutex_unlock(&interpreter_lock);
}

void callback_lock(void)
{
	pthread_mutex_lock(&interpreter_lock);
	must(sim_host(streams[0], take_interpreter_lock, NULL));
	edge();
	must(synchronise("sync of stream 0 (a host function)", 0));
	pthread_mutex_unlock(&interpreter_lock);
}
