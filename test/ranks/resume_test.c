/* SPDX-License-Identifier: BSD-3-Clause
 * Groups in which a wait ends for a signal and is resumed, as languages need whose handlers run
 * between calls. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "caught.h"
#include "common.h"
#include "model.h"
#include "process.h"
#include "tests.h"

/* More signals than fit into the time that a wait spins before it sleeps. */
enum { SIGNALS = 2000, RETURNS = 3, CALLS = 7, LONG = 1 << 16 };

static _Atomic uint64_t *handled;

static void count(int number)
{
	(void)number;
	atomic_fetch_add(handled, 1);
}

/* Until it is over; then the handle is given back. */
static ls_status wait_again(ls_request *op, _Atomic uint64_t *returns)
{
	ls_status status;
	while ((status = ls_wait(op, 0)) == LS_PENDING)
		atomic_fetch_add(returns, 1);
	ls_request_free(op);
	return status;
}

/* The same of a call that waits itself. */
static ls_status await_left(ls_status status, ls_request *op, _Atomic uint64_t *returns)
{
	CHECK((status == LS_PENDING) == (op != NULL));
	if (!op)
		return status;
	atomic_fetch_add(returns, 1);
	return wait_again(op, returns);
}

/* ---- the C library's own signals ---- */

/* When a thread changes the group or the user of the process, the C library interrupts all threads,
 * also those that block all signals. They go on: what looks for hangs, what makes progress on the
 * link to other hosts, and what sends heartbeats. */
void a_change_of_group_ends_no_thread(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t word;
	runner_ready(self, group);
	CHECK(setgid(getgid()) == 0);
	runner_ready(self, group);
	GIVES(LS_DEADLOCK, ls_recv(group, &word, 1, LS_INT32, (self->rank + 1) % self->size, NULL));
	ls_group_close(group);
}

/* ---- signals ---- */

/* Every call that can wait; `returns` counts how often it came back before the end. */
static void wait_through(ls_group *group, int which, int32_t *value, _Atomic uint64_t *returns)
{
	struct ls_call_options asked = {.size = sizeof asked, .resumable = 1};
	struct ls_message found = {.size = sizeof found};
	int index = -1;
	ls_status status;
	ls_request *op = NULL, *ops[2] = {NULL, NULL};
	switch (which) {
	case 0:
		OK(ls_allreduce(group, value, value, LONG, LS_INT32, LS_SUM, NULL));
		break;
	case 1:
		asked.request = &op;
		status = ls_allreduce(group, value, value, LONG, LS_INT32, LS_SUM, &asked);
		OK(await_left(status, op, returns));
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
		ls_request_free(ops[1]);
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
	ls_group *world = runner_open_resuming(self), *group;
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

/* Rank 1 has its gradients when rank 0, which waits for the averages, has been interrupted. */
void averages_under_signals(struct runner_rank *self)
{
	struct sigaction action = {.sa_handler = count};
	ls_group *group = runner_open_resuming(self);
	struct model model;
	ls_ddp *ddp;
	model_init(&model, 5, false, 3, self->rank);
	OK(ls_ddp_open(group, model.parameters, model.count, NULL, &ddp));
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	for (unsigned pass = 0; pass < 2; pass++) { /* the numbers of the passes are checked, too */
		_Atomic uint64_t *word = &self->shared->words[pass];
		struct nagging nagging = {.whom = pthread_self()};
		pthread_t thread;
		runner_meet(self);
		if (self->rank == 0) {
			handled = word;
			CHECK(pthread_create(&thread, NULL, nag, &nagging) == 0);
		}
		while (self->rank == 1 && atomic_load(word) < SIGNALS)
			sched_yield();
		OK(ls_ddp_zero_gradients(ddp));
		for (int p = 0; p < model.count; p++) {
			model_add(&model, ddp, p, self->rank, pass, 1);
			OK(ls_ddp_ready(ddp, p));
		}
		OK(ls_ddp_finish(ddp));
		atomic_store(&nagging.over, true);
		if (self->rank == 0)
			pthread_join(thread, NULL);
		model_check_averages(&model, ddp, self->size, pass);
	}
	runner_meet(self);
	ls_ddp_close(ddp);
	model_free(&model);
	ls_group_close(group);
}

/* The report says what the other rank did last, wherever that rank is. */
void a_timeout_under_signals(struct runner_rank *self)
{
	struct sigaction action = {.sa_handler = count};
	struct ls_failure failure = {.size = sizeof failure};
	struct ls_call_options briefly = {.size = sizeof briefly, .timeout_ms = 300};
	ls_group *group = runner_open_resuming(self);
	OK(ls_barrier(group, NULL));
	if (self->rank == 0) {
		struct nagging nagging = {.whom = pthread_self()};
		pthread_t thread;
		int32_t value;
		handled = &self->shared->words[0];
		CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
		CHECK(pthread_create(&thread, NULL, nag, &nagging) == 0);
		GIVES(LS_TIMED_OUT, ls_recv(group, &value, 1, LS_INT32, 1, &briefly));
		atomic_store(&nagging.over, true);
		pthread_join(thread, NULL);
		OK(ls_group_failure(group, &failure));
		SAYS(failure.text, "rank 1: elsewhere, last was barrier #1");
	}
	runner_meet(self);
	ls_group_close(group);
}

/* ---- deadlocks ---- */

/* Between two turns they are seen to wait for nobody. */
static void names_both(ls_group *group)
{
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK_THAT(strstr(failure.text, "ranks 0 and 1 wait for each other"), "%s", failure.text);
}

/* A wait in short turns is proved as if it were one wait. */
void a_resumed_deadlock_is_proved(struct runner_rank *self)
{
	ls_group *group = runner_open_resuming(self);
	_Atomic uint64_t returns = 0;
	int32_t value = 0;
	ls_request *op;
	OK(ls_irecv(group, &value, 1, LS_INT32, 1 - self->rank, NULL, &op));
	GIVES(LS_DEADLOCK, wait_again(op, &returns));
	CHECK(atomic_load(&returns) > 0);
	names_both(group);
	runner_meet(self);
	ls_group_close(group);
}

/* One in a collective, which its progress thread has gone on with meanwhile, the other in a
 * receive. */
void a_resumed_collective_is_proved(struct runner_rank *self)
{
	ls_group *group = runner_open_resuming(self);
	_Atomic uint64_t returns = 0;
	int32_t value = 0;
	ls_request *op;
	struct ls_call_options asked = {
		.size = sizeof asked, .resumable = 1, .request = self->rank == 0 ? &op : NULL};
	ls_status status = self->rank == 0 ? ls_barrier(group, &asked)
					   : ls_irecv(group, &value, 1, LS_INT32, 0, &asked, &op);
	GIVES(LS_DEADLOCK, await_left(status, op, &returns));
	names_both(group);
	runner_meet(self);
	ls_group_close(group);
}

/* ---- calls that are left ---- */

/* So many elements that each rank has to go on for the other to. */
enum { ROUNDS = 6, BEHIND = 3, MANY = 20000 };

struct leaving {
	ls_group *group;
	int32_t (*values)[BEHIND * MANY];
	ls_request *ops[BEHIND];
	_Atomic int tid; /* of the thread that is left by its wait */
	_Atomic bool left;
	bool in_time; /* the others were queued before that */
	pthread_t other;
};

/* While the first sleeps in its call: operation i has i + 1 times as many elements, so ranks that
 * took them in another order would not match. */
static void *queue_others(void *argument)
{
	struct leaving *leaving = argument;
	struct ls_call_options queued = {.size = sizeof queued};
	while (!atomic_load(&leaving->tid) || process_state(atomic_load(&leaving->tid)) != 'S')
		sched_yield();
	for (int i = 1; i < BEHIND; i++) {
		int32_t *values = leaving->values[i];
		queued.request = &leaving->ops[i];
		OK(ls_allreduce(leaving->group, values, values, (uint64_t)(i + 1) * MANY, LS_INT32,
				LS_SUM, &queued));
	}
	leaving->in_time = !atomic_load(&leaving->left);
	return NULL;
}

static void leave(struct leaving *leaving)
{
	int32_t *values = leaving->values[0];
	struct ls_call_options asked = {
		.size = sizeof asked, .resumable = 1, .request = &leaving->ops[0]};
	CHECK(pthread_create(&leaving->other, NULL, queue_others, leaving) == 0);
	atomic_store(&leaving->tid, gettid());
	GIVES(LS_PENDING,
	      ls_allreduce(leaving->group, values, values, MANY, LS_INT32, LS_SUM, &asked));
	atomic_store(&leaving->left, true);
	pthread_join(leaving->other, NULL);
}

static void come_for_all(ls_group *group, int32_t (*values)[BEHIND * MANY])
{
	for (int i = 0; i < BEHIND; i++)
		OK(ls_allreduce(group, values[i], values[i], (uint64_t)(i + 1) * MANY, LS_INT32,
				LS_SUM, NULL));
}

/* The other rank comes only once the wait has ended without it, by itself, and what is left goes on
 * by itself. */
void left_calls_keep_the_order(struct runner_rank *self)
{
	ls_group *group = runner_open_resuming(self);
	int32_t(*values)[BEHIND * MANY] = malloc(BEHIND * sizeof *values);
	CHECK(values);
	_Atomic uint64_t *in_time = &self->shared->words[2];
	ls_request *op;
	struct ls_call_options queued = {.size = sizeof queued, .request = &op};
	OK(ls_barrier(group, &queued)); /* with a progress thread */
	OK(wait_again(op, &self->shared->words[1]));
	/* On a busy machine the other thread may come too late, for any number of rounds. */
	for (int round = 0; round < ROUNDS || atomic_load(in_time) == 0; round++) {
		struct leaving leaving = {.group = group, .values = values};
		for (int i = 0; i < BEHIND; i++)
			for (int j = 0; j < BEHIND * MANY; j++)
				values[i][j] = (1 + self->rank) * (i + j);
		if (self->rank == 0)
			leave(&leaving);
		if (leaving.in_time)
			atomic_store(in_time, 1);
		runner_meet(self);
		if (self->rank == 1)
			come_for_all(group, values);
		runner_meet(self);
		for (int i = 0; self->rank == 0 && i < BEHIND; i++)
			OK(wait_again(leaving.ops[i], &self->shared->words[1]));
		for (int i = 0; i < BEHIND; i++)
			for (int j = 0; j < (i + 1) * MANY; j++)
				CHECK(values[i][j] == 3 * (i + j));
	}
	free(values);
	ls_group_close(group);
}

/* It has returned before it could begin, as what was called before is not over; its list of counts
 * is the caller's. */
void left_calls_keep_their_counts(struct runner_rank *self)
{
	ls_group *group = runner_open_resuming(self);
	int32_t first = 1, values[] = {1, 2, 3}, sums[2] = {0};
	uint64_t counts[] = {1, 2}, mine = counts[self->rank];
	ls_request *before, *op;
	struct ls_call_options queued = {.size = sizeof queued, .request = &before};
	struct ls_call_options asked = {.size = sizeof asked, .resumable = 1, .request = &op};
	if (self->rank == 0) {
		OK(ls_allreduce(group, &first, &first, 1, LS_INT32, LS_SUM, &queued));
		GIVES(LS_PENDING,
		      ls_reduce_scatterv(group, values, sums, counts, LS_INT32, LS_SUM, &asked));
		counts[0] = counts[1] = 77;
	}
	runner_meet(self);
	if (self->rank == 1) {
		OK(ls_allreduce(group, &first, &first, 1, LS_INT32, LS_SUM, NULL));
		OK(ls_reduce_scatterv(group, values, sums, counts, LS_INT32, LS_SUM, NULL));
	} else {
		OK(wait_again(before, &self->shared->words[1]));
		OK(wait_again(op, &self->shared->words[1]));
	}
	for (uint64_t i = 0; i < mine; i++)
		CHECK(first == 2 && sums[i] == 2 * values[(uint64_t)self->rank + i]);
	ls_group_close(group);
}

/* In groups that do not resume there never is a handle. */
void resumable_calls_keep_nothing(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t *value = calloc(2 * LONG, sizeof *value);
	CHECK(value);
	struct ls_buffers buffers[] = {{value, value, 1}, {value + 1, value + 1, 1}};
	for (uint64_t count = 2; count <= LONG; count *= LONG / 2) {
		ls_request *op = (ls_request *)value;
		struct ls_call_options asked = {.size = sizeof asked, .resumable = 1, .request = &op};
		value[0] = value[1] = 1 + self->rank;
		OK(ls_allreduce_many(group, buffers, 2, LS_INT32, LS_SUM, &asked));
		CHECK(!op && value[0] == 3 && value[1] == 3);
		if (self->rank == 0)
			OK(ls_send(group, value, count, LS_INT32, 1, &asked));
		else
			OK(ls_recv(group, value + LONG, count, LS_INT32, 0, &asked));
		CHECK(!op && (self->rank == 0 || value[LONG] == 3));
	}
	free(value);
	ls_group_close(group);
}

/* Nor anything that the next one would need; at its close a group says what handles were not
 * freed. */
void resumable_calls_are_many(struct runner_rank *self)
{
	enum { HANDLES = 1 << 16 };
	ls_group *group = runner_open(self);
	struct caught caught;
	ls_request *op;
	struct ls_call_options asked = {.size = sizeof asked, .resumable = 1, .request = &op};
	for (int i = 0; i <= HANDLES; i++)
		OK(ls_barrier(group, &asked));
	caught_begin(&caught);
	ls_group_close(group);
	const char *said = caught_end(&caught);
	CHECK_THAT(*said == '\0', "%s", said);
}
