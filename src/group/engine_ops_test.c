/* SPDX-License-Identifier: BSD-3-Clause
 * An engine that is not the processor, below groups that know nothing of it: a thread for each rank
 * plays a device, which adds up when the test lets it, and takes its time to abort. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/must_fixture.h"
#include "engine/engine_ops.h"
#include "world/ls_group.h"

enum { RANKS = 2, COUNT = 1000, LIMIT_MS = 60000, CUTS = 5 };

/* The device of one rank. It adds what both ranks have enqueued, in the order of the numbers. */
struct device {
	struct devices *all;
	int rank;
	ls_group *group;
	int64_t results[COUNT];
	uint64_t running;           /* number of the operation that is enqueued; 0: none */
	_Atomic uint64_t done, cut; /* numbers of operations: foreign words */
	int cuts;                   /* how often abandon has been asked */
	_Atomic int submitted, enqueued, abandoned;
	pthread_t thread;
};

struct devices {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool held;   /* nothing is completed */
	bool closed; /* the threads end */
	/* Copies, as a rank is done as soon as its own device is, and changes its buffer while the
	 * other's still reads; of two operations, as no rank is further ahead than that. */
	int64_t input[2][RANKS][COUNT];
	uint64_t count;
	uint64_t enqueued[RANKS], completed[RANKS], cut[RANKS];
	struct device devices[RANKS];
	char rendezvous[64];
};

/* ---- the engine ---- */

static void device_submit(void *state, struct op *op)
{
	struct device *device = state;
	MUST(op->call.kind == TRACE_ALLREDUCE && op->call.dtype == LS_INT64);
	atomic_fetch_add(&device->submitted, 1);
}

static enum op_progress device_advance(void *state, struct op *op)
{
	struct device *device = state;
	struct devices *all = device->all;
	if (device->running != op->seq) {
		pthread_mutex_lock(&all->lock);
		device->running = op->seq;
		all->count = op->call.count;
		memcpy(all->input[op->seq % 2][device->rank], op->call.send.address,
		       all->count * sizeof(int64_t));
		all->enqueued[device->rank] = op->seq;
		pthread_cond_broadcast(&all->changed);
		pthread_mutex_unlock(&all->lock);
		atomic_fetch_add(&device->enqueued, 1);
	}
	if (atomic_load(&device->done) < op->seq) {
		op_add_private_word(op, &device->done, op->seq);
		return OP_BLOCKED;
	}
	memcpy(op->call.recv.address, device->results, op->call.count * sizeof(int64_t));
	return OP_DONE;
}

/* Takes longer than the caller's own limit: it is asked again and again. */
static enum op_progress device_abandon(void *state, struct op *op, bool force)
{
	struct device *device = state;
	struct devices *all = device->all;
	device->cuts += force;
	if (device->cuts >= CUTS) {
		pthread_mutex_lock(&all->lock);
		all->cut[device->rank] = op->seq;
		pthread_cond_broadcast(&all->changed);
		pthread_mutex_unlock(&all->lock);
	}
	if (atomic_load(&device->cut) < op->seq) {
		op_add_private_word(op, &device->cut, op->seq);
		return OP_BLOCKED;
	}
	atomic_fetch_add(&device->abandoned, 1);
	return OP_DONE;
}

static const struct engine_ops device_ops = {
	.submit = device_submit, .advance = device_advance, .abandon = device_abandon};

/* ---- the device ---- */

static bool is_ready(const struct devices *all, int rank)
{
	uint64_t next = all->completed[rank] + 1;
	bool ready = !all->held;
	for (int r = 0; r < RANKS; r++)
		ready = ready && all->enqueued[r] >= next;
	return ready;
}

static void *device_main(void *argument)
{
	struct device *device = argument;
	struct devices *all = device->all;
	pthread_mutex_lock(&all->lock);
	while (!all->closed) {
		int me = device->rank;
		if (is_ready(all, me)) {
			const int64_t(*input)[COUNT] = all->input[(all->completed[me] + 1) % 2];
			for (uint64_t i = 0; i < all->count; i++)
				device->results[i] = input[0][i] + input[1][i];
			atomic_store(&device->done, ++all->completed[me]);
		} else if (all->cut[me] > atomic_load(&device->cut)) {
			atomic_store(&device->cut, all->cut[me]);
		} else {
			pthread_cond_wait(&all->changed, &all->lock);
			continue;
		}
		transport_notify(&device->group->team, me);
	}
	pthread_mutex_unlock(&all->lock);
	return NULL;
}

static void hold(struct devices *all, bool held)
{
	pthread_mutex_lock(&all->lock);
	all->held = held;
	pthread_cond_broadcast(&all->changed);
	pthread_mutex_unlock(&all->lock);
}

/* ---- ranks ---- */

typedef void rank_function(struct device *device, ls_group *group);

struct rank {
	struct device *device;
	rank_function *program;
	pthread_t thread;
};

static void *rank_main(void *argument)
{
	struct rank *rank = argument;
	struct device *device = rank->device;
	struct ls_group_options options = {.size = sizeof options,
					   .timeout_ms = LIMIT_MS,
					   .rank = device->rank,
					   .world_size = RANKS,
					   .rendezvous = device->all->rendezvous};
	ls_group *world;
	MUST(ls_group_open(&options, &world) == LS_OK);
	MUST(ls_group_split(world, 0, device->rank, &device->group) == LS_OK);
	engine_use(&device->group->engine, &device_ops, device);
	MUST(ls_barrier(world, NULL) == LS_OK);
	MUST(pthread_create(&device->thread, NULL, device_main, device) == 0);
	rank->program(device, device->group);
	MUST(ls_barrier(world, NULL) == LS_OK);
	hold(device->all, true);
	pthread_mutex_lock(&device->all->lock);
	device->all->closed = true;
	pthread_cond_broadcast(&device->all->changed);
	pthread_mutex_unlock(&device->all->lock);
	pthread_join(device->thread, NULL);
	ls_group_close(device->group);
	ls_group_close(world);
	return NULL;
}

static void run(struct devices *all, rank_function *program)
{
	static unsigned serial;
	struct rank ranks[RANKS];
	*all = (struct devices){.lock = PTHREAD_MUTEX_INITIALIZER,
				.changed = PTHREAD_COND_INITIALIZER};
	snprintf(all->rendezvous, sizeof all->rendezvous, "unix:engine-ops-test-%d-%u",
		 (int)getpid(), serial++);
	for (int r = 0; r < RANKS; r++) {
		all->devices[r].all = all;
		all->devices[r].rank = r;
		ranks[r] = (struct rank){.device = &all->devices[r], .program = program};
		MUST(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]) == 0);
	}
	for (int r = 0; r < RANKS; r++)
		pthread_join(ranks[r].thread, NULL);
}

static void fill(int64_t *values, int rank, int round)
{
	for (int i = 0; i < COUNT; i++)
		values[i] = rank * 1000 + round + i;
}

static void check(const int64_t *values, int round)
{
	for (int i = 0; i < COUNT; i++)
		MUST(values[i] == 1000 + 2 * (round + i));
}

/* ---- tests ---- */

static void note(void *told, ls_status status)
{
	MUST(status == LS_OK);
	atomic_fetch_add((_Atomic int *)told, 1);
}

/* Calls that block, handles, and callbacks that the progress thread brings. */
static void add_up(struct device *device, ls_group *group)
{
	enum { ROUNDS = 50 };
	int64_t values[3][COUNT];
	for (int round = 0; round < ROUNDS; round++) {
		_Atomic int told = 0;
		ls_request *op;
		struct ls_call_options beside = {.size = sizeof beside, .request = &op};
		struct ls_call_options tells = {
			.size = sizeof tells, .callback = note, .callback_data = (void *)&told};
		for (int i = 0; i < 3; i++)
			fill(values[i], device->rank, round + i);
		MUST(ls_allreduce(group, values[0], values[0], COUNT, LS_INT64, LS_SUM, NULL) ==
		     LS_OK);
		MUST(ls_allreduce(group, values[1], values[1], COUNT, LS_INT64, LS_SUM, &beside) ==
		     LS_OK);
		MUST(ls_allreduce(group, values[2], values[2], COUNT, LS_INT64, LS_SUM, &tells) ==
		     LS_OK);
		MUST(ls_wait(op, 0) == LS_OK);
		ls_request_free(op);
		while (!atomic_load(&told))
			sched_yield();
		for (int i = 0; i < 3; i++)
			check(values[i], round + i);
	}
	MUST(atomic_load(&device->enqueued) == 3 * ROUNDS);
}

static void it_runs_collectives(void **state)
{
	(void)state;
	struct devices all;
	run(&all, add_up);
}

/* Entries are compared before anything is enqueued. */
static void differ(struct device *device, ls_group *group)
{
	int64_t values[COUNT] = {0};
	uint64_t count = device->rank == 0 ? COUNT : COUNT / 2;
	MUST(ls_allreduce(group, values, values, count, LS_INT64, LS_SUM, NULL) == LS_MISMATCH);
	MUST(atomic_load(&device->submitted) == 1 && atomic_load(&device->enqueued) == 0);
	MUST(atomic_load(&device->abandoned) == 0);
}

static void ranks_that_differ_enqueue_nothing(void **state)
{
	(void)state;
	struct devices all;
	run(&all, differ);
}

/* Both ranks wait for words of devices that nobody else can read: that is no deadlock, however long
 * it lasts. The time limit ends it, and the call returns once the device has let go, which takes
 * longer than a peer would be given. */
static void stand_still(struct device *device, ls_group *group)
{
	int64_t values[COUNT] = {0};
	struct ls_call_options options = {.size = sizeof options, .timeout_ms = 2500};
	hold(device->all, true);
	ls_status status = ls_allreduce(group, values, values, COUNT, LS_INT64, LS_SUM, &options);
	MUST(status == LS_TIMED_OUT);
	MUST(device->cuts >= CUTS && atomic_load(&device->abandoned) == 1);
	MUST(atomic_load(&device->cut) == 1);
	struct ls_failure failure = {.size = sizeof failure};
	MUST(ls_group_failure(group, &failure) == LS_OK);
	MUST(strstr(failure.text, "engine_ops_test.c"));
}

static void it_is_waited_for(void **state)
{
	(void)state;
	struct devices all;
	setenv("LOCKSTEP_PATIENCE_MS", "100", 1);
	run(&all, stand_still);
	unsetenv("LOCKSTEP_PATIENCE_MS");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_runs_collectives),
		cmocka_unit_test(ranks_that_differ_enqueue_nothing),
		cmocka_unit_test(it_is_waited_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
