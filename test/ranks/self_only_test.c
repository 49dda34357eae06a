/* SPDX-License-Identifier: BSD-3-Clause
 * A receive or probe of any source when all other ranks have left: it ends, unless another thread
 * of the rank that has called Lockstep, or runs, may still send to it. */
#include <semaphore.h>
#include <time.h>

#include "base/wait.h"
#include "common.h"
#include "message_ways.h"
#include "tests.h"

enum {
	LONELY_MS = 400, /* some looks fall into this time, which the clock rules */
	PROBES = 3,
	WAYS, /* in which the thread waits in Lockstep, and so sends nothing itself */
	WITH_CALLBACK = WAYS,
};

/* The other thread. */
struct other {
	ls_group *group;
	_Atomic bool known, goes; /* it is there; it may do what it is there for */
	ls_status status;         /* of its own receive */
	pthread_t thread;
};

/* Computes while the first thread looks what has become of all. */
static void be_elsewhere(struct other *other)
{
	atomic_store(&other->known, true);
	while (!atomic_load(&other->goes))
		sched_yield();
	uint64_t end_ms = now_ms() + LONELY_MS;
	while (now_ms() < end_ms)
		sched_yield();
}

/* Has called before. */
static void be_known(struct other *other)
{
	struct ls_call_options options = {.size = sizeof options, .tag = 99};
	struct ls_message found = {.size = sizeof found};
	GIVES(LS_PENDING, ls_iprobe(other->group, 0, &options, &found));
	be_elsewhere(other);
}

static void *send_late(void *argument)
{
	struct other *other = argument;
	int32_t value = 7;
	be_known(other);
	OK(ls_send(other->group, &value, 1, LS_INT32, 0, NULL));
	return NULL;
}

/* Its first call. */
static void *send_first(void *argument)
{
	struct other *other = argument;
	int32_t value = 7;
	be_elsewhere(other);
	OK(ls_send(other->group, &value, 1, LS_INT32, 0, NULL));
	return NULL;
}

/* Asks itself for what nobody sends. */
static void *block_late(void *argument)
{
	struct other *other = argument;
	struct ls_call_options options = {.size = sizeof options, .tag = 5};
	int32_t value;
	be_known(other);
	other->status = ls_recv(other->group, &value, 1, LS_INT32, 0, &options);
	return NULL;
}

static void *end_late(void *argument)
{
	be_known(argument);
	return NULL;
}

/* Rank 0 alone is left. */
static ls_status receive(ls_group *group, int way, int32_t *value)
{
	struct message message = {.group = group, .buffer = value, .count = 1, .peer = LS_ANY_SOURCE};
	static const enum way ways[] = {[0] = BLOCKING, HANDLE, BATCH, [WITH_CALLBACK] = CALLBACK};
	struct ls_message found = {.size = sizeof found};
	if (way != PROBES)
		return message_pass(&message, ways[way], 0);
	ls_status status = ls_probe(group, LS_ANY_SOURCE, NULL, &found);
	return status == LS_OK ? ls_recv(group, value, 1, LS_INT32, LS_ANY_SOURCE, NULL) : status;
}

/* What the receive of any source ends with, in every way; and then the other thread's, if it has
 * one. */
static void receive_alone(struct runner_rank *self, void *(*run)(void *), ls_status status,
			  ls_status others)
{
	int ways = status == LS_OK ? WITH_CALLBACK + 1 : WAYS;
	for (int way = 0; way < ways; way++) {
		ls_group *group = runner_open(self);
		struct other other = {.group = group, .status = others};
		int32_t value = 0;
		runner_ready(self, group);
		if (self->rank == 0) {
			runner_note(self, "way %d", way);
			if (run)
				CHECK(pthread_create(&other.thread, NULL, run, &other) == 0);
			while (run && !atomic_load(&other.known))
				sched_yield();
			atomic_store(&other.goes, true);
			GIVES(status, receive(group, way, &value));
			CHECK(value == (status == LS_OK ? 7 : 0));
			if (run)
				pthread_join(other.thread, NULL);
			GIVES(others, other.status);
		}
		ls_group_close(group);
		runner_meet(self);
	}
}

void self_only_receive_of_a_thread(struct runner_rank *self)
{
	receive_alone(self, send_late, LS_OK, LS_OK);
}

void self_only_receive_of_a_newcomer(struct runner_rank *self)
{
	receive_alone(self, send_first, LS_OK, LS_OK);
}

void self_only_receive_blocks_both(struct runner_rank *self)
{
	receive_alone(self, block_late, LS_DEADLOCK, LS_DEADLOCK);
}

void self_only_receive_and_no_more_threads(struct runner_rank *self)
{
	receive_alone(self, end_late, LS_PEER_LEFT, LS_OK);
}

void self_only_receive_is_alone(struct runner_rank *self)
{
	receive_alone(self, NULL, LS_PEER_LEFT, LS_OK);
}

/* ---- more threads than slots ---- */

struct crowd {
	ls_group *group;
	sem_t here, go; /* each of those that fill the wait table is there; it may end */
};

static void probe(ls_group *group)
{
	struct ls_call_options options = {.size = sizeof options, .tag = 99};
	struct ls_message found = {.size = sizeof found};
	GIVES(LS_PENDING, ls_iprobe(group, 0, &options, &found));
}

static void await_post(sem_t *semaphore)
{
	while (sem_wait(semaphore) != 0)
		;
}

static void *fill_slot(void *argument)
{
	struct crowd *crowd = argument;
	probe(crowd->group);
	sem_post(&crowd->here);
	await_post(&crowd->go);
	return NULL;
}

/* Sleeps, and then sends. */
static void *send_without_a_slot(void *argument)
{
	struct crowd *crowd = argument;
	struct timespec end;
	sem_t never;
	int32_t value = 7;
	probe(crowd->group);
	sem_post(&crowd->here);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 1 + LONELY_MS / 1000;
	CHECK(sem_init(&never, 0, 0) == 0);
	CHECK(sem_timedwait(&never, &end) != 0);
	sem_destroy(&never);
	OK(ls_send(crowd->group, &value, 1, LS_INT32, 0, NULL));
	return NULL;
}

/* It made its first call when all slots were taken, and has none although they are free by now. */
void self_only_receive_of_one_without_a_slot(struct runner_rank *self)
{
	enum { OTHERS = WAIT_SLOT_MAX - 1 };
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank == 0) {
		struct crowd crowd = {.group = group};
		pthread_t threads[OTHERS], last;
		int32_t value = 0;
		CHECK(sem_init(&crowd.here, 0, 0) == 0 && sem_init(&crowd.go, 0, 0) == 0);
		for (int i = 0; i < OTHERS; i++) {
			CHECK(pthread_create(&threads[i], NULL, fill_slot, &crowd) == 0);
			await_post(&crowd.here);
		}
		CHECK(pthread_create(&last, NULL, send_without_a_slot, &crowd) == 0);
		await_post(&crowd.here);
		for (int i = 0; i < OTHERS; i++)
			sem_post(&crowd.go);
		for (int i = 0; i < OTHERS; i++)
			pthread_join(threads[i], NULL);
		OK(ls_recv(group, &value, 1, LS_INT32, LS_ANY_SOURCE, NULL));
		CHECK(value == 7);
		pthread_join(last, NULL);
		sem_destroy(&crowd.here);
		sem_destroy(&crowd.go);
	}
	ls_group_close(group);
}
