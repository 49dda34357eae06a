/* SPDX-License-Identifier: BSD-3-Clause
 * The progress thread of a rank: in all groups at once it makes progress on operations that no
 * thread of the program waits for. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "caught.h"
#include "process.h"
#include "tests.h"
#include "values.h"

static ls_group *split(ls_group *parent)
{
	ls_group *group;
	OK(ls_group_split(parent, 0, 0, &group));
	return group;
}

static void close_all(ls_group **groups, int count)
{
	for (int i = 0; i < count; i++)
		ls_group_close(groups[i]);
}

/* However many groups wait for something that no thread of the program waits for. */
void a_rank_has_one_progress_thread(struct runner_rank *self)
{
	enum { GROUPS = 100, COUNT = 20000 };
	ls_group *world = runner_open(self), *groups[GROUPS];
	int32_t(*values)[COUNT] = calloc(GROUPS, sizeof *values);
	ls_request *ops[GROUPS];
	struct ls_call_options beside = {.size = sizeof beside};
	CHECK(values);
	for (int i = 0; i < GROUPS; i++)
		groups[i] = split(world);
	if (self->rank != 0)
		runner_meet(self);
	for (int i = 0; i < GROUPS; i++) {
		beside.request = &ops[i];
		values_fill(values[i], COUNT, LS_INT32, LS_SUM, self->rank, (unsigned)i);
		OK(ls_allreduce(groups[i], values[i], values[i], COUNT, LS_INT32, LS_SUM, &beside));
	}
	if (self->rank == 0) {
		process_await_threads(self, 3);
		runner_meet(self);
	}
	for (int i = GROUPS - 1; i >= 0; i--) {
		OK(ls_wait(ops[i], 0));
		ls_request_free(ops[i]);
		values_check_reduced(values[i], COUNT, LS_INT32, LS_SUM, self->size, (unsigned)i);
	}
	close_all(groups, GROUPS);
	ls_group_close(world);
	free(values);
}

/* ---- several threads wait in one group ---- */

static void *call_in_vain(void *group)
{
	int32_t value = 1;
	GIVES(LS_DEADLOCK, ls_allreduce(group, &value, &value, 1, LS_INT32, LS_SUM, NULL));
	return NULL;
}

static void *wait_in_vain(void *op)
{
	GIVES(LS_DEADLOCK, ls_wait(op, 0));
	ls_request_free(op);
	return NULL;
}

static void beside_each_other(void *(*run)(void *), void *first, void *second)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, run, first) == 0);
	run(second);
	CHECK(pthread_join(thread, NULL) == 0);
}

/* One thread runs the group's first collective, and the other one rests until its own comes. */
void deadlock_of_threads_in_one_group(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group = split(world);
	int32_t value = 0;
	runner_ready(self, world);
	if (self->rank == 0)
		beside_each_other(call_in_vain, group, group);
	else
		GIVES(LS_DEADLOCK, ls_recv(world, &value, 1, LS_INT32, 0, NULL));
	runner_meet(self);
	ls_group_close(group);
	ls_group_close(world);
}

/* The same of handles, where either thread may come to run what the other one waits for. */
void deadlock_of_handles_in_one_group(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *groups[2] = {split(world), split(world)};
	int32_t values[2] = {1, 2};
	ls_request *ops[2];
	struct ls_call_options beside = {.size = sizeof beside};
	runner_ready(self, world);
	for (int i = 0; i < 2; i++) {
		beside.request = &ops[i];
		OK(ls_allreduce(groups[self->rank == 0], &values[i], &values[i], 1, LS_INT32,
				LS_SUM, &beside));
	}
	beside_each_other(wait_in_vain, ops[0], ops[1]);
	runner_meet(self);
	close_all(groups, 2);
	ls_group_close(world);
}

/* ---- waits in short turns ---- */

/* A thread that returns every 20 ms still gets the report that a rank does not come. */
void a_wait_in_short_turns_is_looked_at(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t value = 1;
	ls_request *op;
	struct ls_call_options beside = {.size = sizeof beside, .request = &op};
	struct caught caught;
	runner_ready(self, group);
	if (self->rank == 0) {
		bool told = false;
		caught_begin(&caught);
		OK(ls_allreduce(group, &value, &value, 1, LS_INT32, LS_SUM, &beside));
		while (!told) { /* or until this test's own time limit */
			GIVES(LS_PENDING, ls_wait(op, 20));
			told = strstr(caught_read(&caught), "LS-WAITING") != NULL;
		}
		SAYS(caught_end(&caught), "rank 1");
		runner_meet(self);
		OK(ls_wait(op, 0));
		ls_request_free(op);
	} else {
		runner_meet(self);
		OK(ls_allreduce(group, &value, &value, 1, LS_INT32, LS_SUM, NULL));
	}
	CHECK(value == self->size);
	ls_group_close(group);
}

/* ---- groups that it still holds ---- */

static void keep_thread(void *released, ls_status status)
{
	CHECK(status == LS_OK);
	while (!atomic_load((_Atomic bool *)released))
		sched_yield();
}

/* A callback keeps the thread from letting go of groups that are closed, until there is no room for
 * another one. */
void groups_that_wait_for_the_progress_thread(struct runner_rank *self)
{
	enum { ROOM = 513 - 3, CYCLES = 2 * ROOM }; /* three groups stay open */
	ls_group *world = runner_open(self), *kept = split(world), *parent = split(world);
	int32_t value = 1, values[5000] = {0};
	_Atomic bool released = false;
	struct ls_call_options keeps = {
		.size = sizeof keeps, .callback = keep_thread, .callback_data = &released};
	if (self->rank == 0)
		OK(ls_allreduce(kept, &value, &value, 1, LS_INT32, LS_SUM, &keeps));
	runner_meet(self);
	if (self->rank != 0)
		OK(ls_allreduce(kept, &value, &value, 1, LS_INT32, LS_SUM, NULL));
	for (int i = 0; i < CYCLES; i++) {
		ls_request *op;
		struct ls_call_options beside = {.size = sizeof beside, .request = &op};
		ls_group *group = split(parent);
		OK(ls_allreduce(group, values, values, 5000, LS_INT32, LS_SUM, &beside));
		OK(ls_wait(op, 0));
		ls_request_free(op);
		ls_group_close(group);
		if (i == ROOM - 1)
			atomic_store(&released, true);
	}
	OK(ls_barrier(kept, NULL));
	ls_group_close(parent);
	ls_group_close(kept);
	ls_group_close(world);
}

/* ---- failures in many groups ---- */

enum {
	FAILING = 20,
	REVOKE_MS = 250
}; /* so long a failed call waits for a peer that does not answer */

struct ends {
	_Atomic int count;
	uint64_t first_ns, last_ns;
	sem_t all;
};

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Threads that fail an operation may do so at the same time. */
static void note_end(void *data, ls_status status)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct ends *ends = data;
	CHECK(status == LS_TIMED_OUT);
	pthread_mutex_lock(&lock);
	ends->last_ns = now_ns();
	if (ends->count == 0)
		ends->first_ns = ends->last_ns;
	if (++ends->count == FAILING)
		CHECK(sem_post(&ends->all) == 0);
	pthread_mutex_unlock(&lock);
}

/* Rank 1 is stopped inside, and the last rank does not come. No group waits for the end of another
 * one's failure. */
void failures_do_not_wait_for_each_other(struct runner_rank *self)
{
	enum {
		COUNT = 2000
	}; /* too long for an entry, and short enough to be begun by the caller */
	static int64_t values[FAILING][COUNT];
	ls_group *world = runner_open(self), *groups[FAILING];
	ls_request *ops[FAILING];
	struct ends ends = {0};
	struct ls_call_options options = {.size = sizeof options, .timeout_ms = 300};
	_Atomic uint64_t *pid = &self->shared->words[0];
	CHECK(sem_init(&ends.all, 0, 0) == 0);
	for (int i = 0; i < FAILING; i++)
		groups[i] = split(world);
	runner_ready(self, world);
	if (self->rank == 0)
		while (atomic_load(pid) == 0 || process_state((int)atomic_load(pid)) != 'T')
			;
	for (int i = 0; i < FAILING && self->rank < 2; i++) {
		if (self->rank == 1)
			options.request = &ops[i];
		options.callback = self->rank == 0 ? note_end : NULL;
		options.callback_data = &ends;
		OK(ls_allreduce(groups[i], values[i], values[i], COUNT, LS_INT64, LS_SUM, &options));
	}
	if (self->rank == 0) {
		while (sem_wait(&ends.all) != 0)
			;
		CHECK(kill((pid_t)atomic_load(pid), SIGCONT) == 0);
		uint64_t ms = (ends.last_ns - ends.first_ns) / 1000000;
		CHECK_THAT(ms < FAILING * REVOKE_MS / 2, "the last one ends %d ms after the first",
			   (int)ms);
	} else if (self->rank == 1) {
		atomic_store(pid, (uint64_t)getpid());
		raise(SIGSTOP);
		for (int i = 0; i < FAILING; i++) {
			GIVES(LS_TIMED_OUT, ls_wait(ops[i], 0));
			ls_request_free(ops[i]);
		}
	}
	runner_meet(self);
	close_all(groups, FAILING);
	ls_group_close(world);
	sem_destroy(&ends.all);
}

/* ---- nobody but the progress thread waits ---- */

/* A rank has 32 wait slots. A lane that found none is shown as soon as others have ended, and only
 * then all that this rank waits for can be seen. */
enum { SLOTS = 32 };

struct receiver {
	pthread_t thread;
	ls_group *world;
	int tag;
	_Atomic int tid;
};

static void *receive_one(void *argument)
{
	struct receiver *receiver = argument;
	struct ls_call_options options = {.size = sizeof options, .tag = receiver->tag};
	int32_t value;
	atomic_store(&receiver->tid, gettid());
	OK(ls_recv(receiver->world, &value, 1, LS_INT32, 1, &options));
	return NULL;
}

void a_lane_is_shown_once_there_is_a_slot(struct runner_rank *self)
{
	struct receiver receivers[SLOTS] = {0};
	ls_group *world = runner_open(self), *group = split(world);
	int32_t value = 1, got;
	ls_request *op;
	struct ls_call_options beside = {.size = sizeof beside, .request = &op};
	for (int i = 0; i < SLOTS && self->rank == 0; i++) {
		struct receiver *receiver = &receivers[i];
		*receiver = (struct receiver){.world = world, .tag = i};
		CHECK(pthread_create(&receiver->thread, NULL, receive_one, receiver) == 0);
		while (!atomic_load(&receiver->tid) || process_state(receiver->tid) != 'S')
			sched_yield();
	}
	if (self->rank == 0)
		OK(ls_allreduce(group, &value, &value, 1, LS_INT32, LS_SUM, &beside));
	runner_ready(self, world);
	for (int i = 0; i < SLOTS; i++) {
		struct ls_call_options options = {.size = sizeof options, .tag = i};
		if (self->rank == 1)
			OK(ls_send(world, &value, 1, LS_INT32, 0, &options));
		else
			CHECK(pthread_join(receivers[i].thread, NULL) == 0);
	}
	GIVES(LS_DEADLOCK, ls_recv(world, &got, 1, LS_INT32, !self->rank, NULL));
	if (self->rank == 0)
		ls_request_free(op);
	runner_meet(self);
	ls_group_close(group);
	ls_group_close(world);
}

static void note_deadlock(void *told, ls_status status)
{
	CHECK(status == LS_DEADLOCK);
	CHECK(sem_post(told) == 0);
}

/* The threads of the program sleep outside until a callback comes. */
void deadlock_of_callbacks(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *groups[2] = {split(world), split(world)};
	int32_t value = 1;
	sem_t told;
	struct ls_call_options options = {
		.size = sizeof options, .callback = note_deadlock, .callback_data = &told};
	CHECK(sem_init(&told, 0, 0) == 0);
	runner_ready(self, world);
	OK(ls_allreduce(groups[self->rank], &value, &value, 1, LS_INT32, LS_SUM, &options));
	while (sem_wait(&told) != 0)
		;
	runner_meet(self);
	close_all(groups, 2);
	ls_group_close(world);
	sem_destroy(&told);
}

static void note_timeout(void *over, ls_status status)
{
	CHECK(status == LS_TIMED_OUT);
	atomic_store((_Atomic bool *)over, true);
}

/* No address space has room for the stack of the thread that would take over; all else has as much
 * memory as before. */
void a_failure_without_another_thread(struct runner_rank *self)
{
	ls_group *world = runner_open(self);
	int32_t value = 1;
	_Atomic bool over = false;
	struct ls_call_options options = {.size = sizeof options,
					  .timeout_ms = 100,
					  .callback = note_timeout,
					  .callback_data = (void *)&over};
	struct caught caught;
	runner_ready(self, world);
	if (self->rank == 0) {
		pthread_attr_t before, huge;
		CHECK(pthread_getattr_default_np(&before) == 0 &&
		      pthread_getattr_default_np(&huge) == 0 &&
		      pthread_attr_setstacksize(&huge, (size_t)1 << 60) == 0);
		OK(ls_allreduce(world, &value, &value, 1, LS_INT32, LS_SUM, &options));
		caught_begin(&caught);
		CHECK(pthread_setattr_default_np(&huge) == 0);
		while (!atomic_load(&over))
			sched_yield();
		CHECK(pthread_setattr_default_np(&before) == 0);
		SAYS(caught_end(&caught), "LS-GROUP-HAND-OVER");
		pthread_attr_destroy(&before);
		pthread_attr_destroy(&huge);
	}
	runner_meet(self);
	ls_group_close(world);
}

struct freed {
	ls_request *op;
	_Atomic int calls;
};

static void free_handle(void *data, ls_status status)
{
	struct freed *freed = data;
	if (status == LS_OK && freed->op)
		atomic_fetch_add(&freed->calls, 1);
	ls_request_free(freed->op);
	freed->op = NULL;
}

/* The callback runs while the call that stored the handle may still wait for the operation. */
void a_callback_frees_the_handle(struct runner_rank *self)
{
	enum { MANY = 20, LARGE = 50000 };
	ls_group *group = runner_open(self);
	/* a buffer for each operation, as several are under way */
	int64_t *values = calloc(2 * MANY * LARGE, sizeof *values);
	int64_t *sent = calloc(LARGE, sizeof *sent);
	struct freed freed[2 * MANY] = {0};
	int next = (self->rank + 1) % self->size, last = (self->rank + self->size - 1) % self->size;
	CHECK(values && sent);
	for (int i = 0; i < MANY; i++) {
		int64_t *own = values + i * LARGE;
		struct ls_call_options options = {.size = sizeof options,
						  .callback = free_handle,
						  .callback_data = &freed[i],
						  .request = &freed[i].op};
		OK(ls_allreduce(group, own, own, i % 2 ? LARGE : 1, LS_INT64, LS_SUM, &options));
	}
	OK(ls_barrier(group, NULL)); /* after all of them */
	for (int i = MANY; i < 2 * MANY; i++) {
		uint64_t count = i % 2 ? LARGE : 1;
		struct ls_call_options options = {.size = sizeof options,
						  .callback = free_handle,
						  .callback_data = &freed[i],
						  .request = &freed[i].op};
		OK(ls_recv(group, values + i * LARGE, count, LS_INT64, last, &options));
		OK(ls_send(group, sent, count, LS_INT64, next, NULL));
		while (!atomic_load(&freed[i].calls))
			;
	}
	for (int i = 0; i < 2 * MANY; i++)
		CHECK(atomic_load(&freed[i].calls) == 1);
	free(values);
	free(sent);
	ls_group_close(group);
}
