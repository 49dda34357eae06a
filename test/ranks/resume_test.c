/* SPDX-License-Identifier: BSD-3-Clause
 * Groups whose waits are taken up again after a signal, as a language needs whose handlers run between calls. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "tests.h"

/* More signals than fit into the time that a wait spins before it sleeps. */
enum { SIGNALS = 2000, RETURNS = 3, CALLS = 7, LONG = 1 << 16 };

static _Atomic uint64_t *handled;

static void count(int number)
{
	(void)number;
	atomic_fetch_add(handled, 1);
}

static ls_group *open_resuming(const struct runner_rank *self)
{
	struct ls_group_options options = {.size = sizeof options,
					   .timeout_ms = RUNNER_TIMEOUT_MS,
					   .rank = self->rank,
					   .world_size = self->size,
					   .resume_after_signals = 1,
					   .rendezvous = self->rendezvous};
	ls_group *group;
	OK(ls_group_open(&options, &group));
	return group;
}

static ls_status wait_again(ls_op *op, _Atomic uint64_t *returns)
{
	ls_status status;
	while ((status = ls_wait(op, 0)) == LS_PENDING)
		atomic_fetch_add(returns, 1);
	ls_op_free(op);
	return status;
}

/* ---- signals ---- */

struct nagging {
	pthread_t whom;
	_Atomic bool over;
};

static void *nag(void *argument)
{
	struct nagging *nagging = argument;
	while (!atomic_load(&nagging->over)) {
		CHECK(pthread_kill(nagging->whom, SIGUSR1) == 0);
		sched_yield();
	}
	return NULL;
}

/* Every call that can wait; `returns` counts how often it came back before the end. */
static void wait_through(ls_group *group, int which, int32_t *value, _Atomic uint64_t *returns)
{
	struct ls_op_options asked = {.size = sizeof asked, .awaited = 1};
	struct ls_message found = {.size = sizeof found};
	int index = -1;
	ls_op *op = NULL, *ops[2] = {NULL, NULL};
	switch (which) {
	case 0:
		OK(ls_allreduce(group, value, value, LONG, LS_INT32, LS_SUM, NULL));
		break;
	case 1:
		asked.op = &op;
		OK(ls_allreduce(group, value, value, LONG, LS_INT32, LS_SUM, &asked));
		OK(wait_again(op, returns));
		break;
	case 2:
		OK(ls_recv(group, value, LONG, LS_INT32, 1, NULL));
		break;
	case 3:
		OK(ls_irecv(group, value, LONG, LS_INT32, 1, NULL, &op));
		OK(wait_again(op, returns));
		break;
	case 4:
		OK(ls_batch_begin(group));
		OK(ls_recv(group, value, LONG, LS_INT32, 1, NULL));
		OK(ls_batch_end(group, NULL));
		break;
	case 5:
		OK(ls_probe(group, 1, NULL, &found));
		OK(ls_recv(group, value, LONG, LS_INT32, 1, NULL));
		break;
	default:
		OK(ls_irecv(group, value, LONG, LS_INT32, 1, NULL, &ops[1]));
		while (ls_wait_any(ops, 2, 0, &index) == LS_PENDING)
			atomic_fetch_add(returns, 1);
		CHECK(index == 1);
		OK(ls_test(ops[1]));
		ls_op_free(ops[1]);
	}
}

static void nagged(ls_group *group, int which, int32_t *value, _Atomic uint64_t *words)
{
	struct nagging nagging = {.whom = pthread_self()};
	pthread_t thread;
	handled = &words[which];
	CHECK(pthread_create(&thread, NULL, nag, &nagging) == 0);
	wait_through(group, which, value, &words[CALLS + which]);
	atomic_store(&nagging.over, true);
	pthread_join(thread, NULL);
}

/* Comes when rank 0 has been interrupted. */
static void come_late(ls_group *group, int which, int32_t *value, _Atomic uint64_t *words)
{
	bool comes_back = which == 1 || which == 3 || which == 6;
	while (atomic_load(&words[which]) < SIGNALS ||
	       (comes_back && atomic_load(&words[CALLS + which]) < RETURNS))
		sched_yield();
	if (which < 2)
		OK(ls_allreduce(group, value, value, LONG, LS_INT32, LS_SUM, NULL));
	else
		OK(ls_send(group, value, LONG, LS_INT32, 0, NULL));
}

void signals_end_no_wait(struct runner_rank *self)
{
	struct sigaction action = {.sa_handler = count};
	ls_group *world = open_resuming(self), *group;
	int32_t *value = malloc(LONG * sizeof *value);
	CHECK(value && sigaction(SIGUSR1, &action, NULL) == 0);
	OK(ls_group_split(world, 0, self->rank, &group));
	for (int i = 0; i < CALLS; i++) {
		for (int j = 0; j < LONG; j++)
			value[j] = self->rank + j;
		runner_meet(self);
		if (self->rank == 0)
			nagged(group, i, value, self->shared->words);
		else
			come_late(group, i, value, self->shared->words);
		for (int j = 0; self->rank == 0 && j < LONG; j++)
			CHECK(value[j] == (i < 2 ? 1 + 2 * j : 1 + j));
		runner_meet(self);
	}
	free(value);
	ls_group_close(group);
	ls_group_close(world);
}

/* ---- deadlocks ---- */

/* Who waits in short turns is proved to wait as if in one. */
void a_resumed_deadlock_is_proved(struct runner_rank *self)
{
	ls_group *group = open_resuming(self);
	_Atomic uint64_t returns = 0;
	int32_t value = 0;
	ls_op *op;
	OK(ls_irecv(group, &value, 1, LS_INT32, 1 - self->rank, NULL, &op));
	GIVES(LS_DEADLOCK, wait_again(op, &returns));
	CHECK(atomic_load(&returns) > 0);
	runner_meet(self);
	ls_group_close(group);
}

/* One in a collective, which its progress thread has gone on with meanwhile, the other in a receive. */
void a_resumed_collective_is_proved(struct runner_rank *self)
{
	ls_group *group = open_resuming(self);
	_Atomic uint64_t returns = 0;
	int32_t value = 0;
	ls_op *op;
	struct ls_op_options asked = {.size = sizeof asked, .awaited = 1, .op = &op};
	if (self->rank == 0)
		OK(ls_barrier(group, &asked));
	else
		OK(ls_irecv(group, &value, 1, LS_INT32, 0, NULL, &op));
	GIVES(LS_DEADLOCK, wait_again(op, &returns));
	runner_meet(self);
	ls_group_close(group);
}
