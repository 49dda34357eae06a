/* SPDX-License-Identifier: BSD-3-Clause
 * For tests of the simulated device: kernels, and calls that block. */
#ifndef TEST_SIM_FIXTURE_H
#define TEST_SIM_FIXTURE_H

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "sim.h"

enum { BYTES = 1 << 20 };

#define OK(call) assert_int_equal(call, SIM_OK)

static inline struct sim *open_sim(struct sim_options options)
{
	if (!options.devices)
		options.devices = 1;
	options.bytes = BYTES;
	struct sim *sim = sim_open(&options);
	assert_non_null(sim);
	return sim;
}

static inline struct sim_stream *open_stream(struct sim *sim, int device)
{
	struct sim_stream *stream;
	OK(sim_stream_open(sim, device, &stream));
	return stream;
}

/* ---- kernels ---- */

/* Spins until the gate is open. */
struct gate {
	_Atomic uint64_t word;
};

static inline enum sim_step wait_at(struct sim *sim, void *argument)
{
	(void)sim;
	struct gate *const *gate = argument;
	return atomic_load(&(*gate)->word) ? SIM_STEP_DONE : SIM_STEP_SPINS;
}
static const struct sim_kernel __attribute__((unused)) gated = {"gated", wait_at};

static inline void launch_gated(struct sim_stream *stream, struct gate *gate)
{
	OK(sim_launch(stream, &gated, &gate, sizeof gate));
}

static inline void open_gate(struct sim *sim, struct gate *gate)
{
	sim_board_store(sim, &gate->word, 1);
}

/* list[count++] = number */
struct append {
	struct list *list;
	int number;
};
struct list {
	_Atomic int count;
	int numbers[128];
};

static inline enum sim_step append_one(struct sim *sim, void *argument)
{
	(void)sim;
	const struct append *append = argument;
	int at = atomic_fetch_add(&append->list->count, 1);
	append->list->numbers[at] = append->number;
	return SIM_STEP_DONE;
}
static const struct sim_kernel __attribute__((unused)) appends = {"append", append_one};

static inline void launch_append(struct sim_stream *stream, struct list *list, int number)
{
	struct append append = {list, number};
	OK(sim_launch(stream, &appends, &append, sizeof append));
}

static inline enum sim_step add_one(struct sim *sim, void *argument)
{
	int32_t *const *value = argument;
	++*(int32_t *)sim_where(sim, *value);
	return SIM_STEP_DONE;
}
static const struct sim_kernel __attribute__((unused)) increments = {"increment", add_one};

static inline enum sim_step fail_now(struct sim *sim, void *argument)
{
	(void)sim;
	(void)argument;
	return SIM_STEP_FAILED;
}
static const struct sim_kernel __attribute__((unused)) fails = {"fails", fail_now};

/* ---- a call that blocks ---- */

struct blocked {
	enum sim_error (*call)(void *data);
	void *data;
	pthread_t thread;
	_Atomic int tid;
	_Atomic bool returned;
	enum sim_error error;
};

static inline void *blocked_main(void *argument)
{
	struct blocked *blocked = argument;
	atomic_store(&blocked->tid, (int)gettid());
	blocked->error = blocked->call(blocked->data);
	atomic_store(&blocked->returned, true);
	return NULL;
}

static inline char state_of(int tid)
{
	char path[64], line[512] = "";
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	FILE *file = fopen(path, "re");
	if (!file)
		return 0;
	const char *end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
	fclose(file);
	return end && end[1] ? end[2] : 0;
}

/* Returns once that thread sleeps in the call. */
static inline void begin_blocked(struct blocked *blocked)
{
	int tid;
	assert_int_equal(pthread_create(&blocked->thread, NULL, blocked_main, blocked), 0);
	while ((tid = atomic_load(&blocked->tid)) == 0 || state_of(tid) != 'S')
		sched_yield();
	assert_false(atomic_load(&blocked->returned));
}

static inline enum sim_error end_blocked(struct blocked *blocked)
{
	pthread_join(blocked->thread, NULL);
	return blocked->error;
}

struct memory_of {
	struct sim *sim;
	void *address;
};

static inline enum sim_error call_free(void *data)
{
	const struct memory_of *memory = data;
	return sim_free(memory->sim, memory->address);
}

static inline enum sim_error call_sync(void *data)
{
	return sim_stream_sync(data);
}

static inline enum sim_error call_append(void *data)
{
	static struct list list;
	struct append append = {&list, 0};
	return sim_launch(data, &appends, &append, sizeof append);
}

/* Two kernels that wait for each other, perhaps in two processes. */
struct two_ranks {
	struct sim_board board;
	_Atomic uint64_t words[2];
};

static inline enum sim_step exchange(struct sim *sim, void *argument)
{
	struct two_ranks *two = ((void **)argument)[0];
	int rank = (int)(intptr_t)((void **)argument)[1];
	if (!atomic_load(&two->words[rank]))
		sim_board_store(sim, &two->words[rank], 1);
	return atomic_load(&two->words[!rank]) ? SIM_STEP_DONE : SIM_STEP_SPINS;
}
static const struct sim_kernel __attribute__((unused)) exchanges = {"exchange", exchange};

/* A call that waits only for the driver lock: begin it where another call must hold the lock. */
static inline enum sim_error call_alloc(void *data)
{
	void *address;
	return sim_alloc(data, 0, 1, &address);
}

static inline void begin_locked_out(struct blocked *blocked, struct sim *sim)
{
	*blocked = (struct blocked){.call = call_alloc, .data = sim};
	begin_blocked(blocked);
}

/* Returns once the device has had several turns. */
static inline void let_it_run(struct sim *sim, int device)
{
	static _Atomic uint64_t word;
	struct sim_stream *stream = open_stream(sim, device);
	for (int i = 0; i < 3; i++)
		OK(sim_store(stream, &word, 1, NULL));
	OK(sim_stream_close(stream));
}

#endif
