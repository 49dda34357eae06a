/* SPDX-License-Identifier: BSD-3-Clause
 * What a proof of deadlock has to see: waits with more words than any table has, peers of which
 * some are gone, and threads that have made no call yet. */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests.h"

enum {
	LONG = 2000,     /* elements that nobody copies before they are received */
	LOOKS_MS = 1000, /* some looks fall into this time, 200 ms apart */
	OPS_MAX = 1000,
};

/* Asleep, in what only time ends. */
static void outlast_looks(void)
{
	struct timespec end;
	sem_t never;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += LOOKS_MS / 1000;
	CHECK(sem_init(&never, 0, 0) == 0);
	CHECK(sem_timedwait(&never, &end) != 0);
	sem_destroy(&never);
}

/* ---- more words than any table has ---- */

static const int counts[] = {20, 40, 64, 100, OPS_MAX};

/* Long sends to the next rank, which nobody receives. */
static ls_request **begin_sends(ls_group *group, int to, int count)
{
	static const int32_t values[LONG];
	ls_request **ops = calloc((size_t)count, sizeof *ops);
	struct ls_call_options options = {.size = sizeof options, .tag = 1};
	CHECK(ops);
	for (int i = 0; i < count; i++)
		OK(ls_isend(group, values, LONG, LS_INT32, to, &options, &ops[i]));
	return ops;
}

static void end_sends(ls_request **ops, int count)
{
	for (int i = 0; i < count; i++)
		ls_request_free(ops[i]);
	free(ops);
}

/* Each waits for a send that the next one never receives: by itself, which makes progress on all of
 * them, or in a receive, beside which they are left to the rank. */
void deadlock_behind_many_sends(struct runner_rank *self)
{
	int32_t value;
	for (int i = 0; i < (int)(sizeof counts / sizeof counts[0]); i++)
		for (int receives = 0; receives < 2; receives++) {
			ls_group *group = runner_open(self);
			int next = (self->rank + 1) % self->size;
			runner_note(self, "%d sends, %d", counts[i], receives);
			runner_ready(self, group);
			ls_request **ops = begin_sends(group, next, counts[i]);
			struct ls_call_options other = {.size = sizeof other, .tag = 2};
			GIVES(LS_DEADLOCK,
			      receives ? ls_recv(group, &value, 1, LS_INT32, next, &other)
				       : ls_wait(ops[0], 0));
			end_sends(ops, counts[i]);
			ls_group_close(group);
			runner_meet(self);
		}
}

static void take_all(ls_group *group, int count)
{
	int32_t values[LONG]; /* of this rank: others may receive beside it */
	struct ls_call_options options = {.size = sizeof options, .tag = 1};
	for (int i = 0; i < count; i++)
		OK(ls_recv(group, values, LONG, LS_INT32, 0, &options));
}

/* Rank 0 waits for the first of many sends to rank 1 and of a receive of rank 2, which comes late;
 * rank 1 waits for rank 0. */
void any_of_many_goes_on(struct runner_rank *self)
{
	enum { SENDS = 63 };
	struct ls_call_options asked = {.size = sizeof asked, .tag = 1},
			       last = {.size = sizeof last};
	int32_t value = 0;
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank == 0) {
		ls_request **sends = begin_sends(group, 1, SENDS), *ops[SENDS + 1];
		ls_request **others = begin_sends(group, 2, OPS_MAX);
		int which;
		for (int i = 0; i < SENDS; i++)
			ops[i] = sends[i];
		OK(ls_irecv(group, &value, 1, LS_INT32, 2, &asked, &ops[SENDS]));
		OK(ls_wait_any(ops, SENDS + 1, 0, &which));
		CHECK(which == SENDS);
		ls_request_free(ops[SENDS]);
		OK(ls_send(group, &value, 1, LS_INT32, 1, &last));
		for (int i = 0; i < SENDS; i++)
			OK(ls_wait(sends[i], 0));
		for (int i = 0; i < OPS_MAX; i++)
			OK(ls_wait(others[i], 0));
		end_sends(sends, SENDS);
		end_sends(others, OPS_MAX);
	} else if (self->rank == 1) {
		OK(ls_recv(group, &value, 1, LS_INT32, 0, &last));
		take_all(group, SENDS);
	} else {
		outlast_looks();
		OK(ls_send(group, &value, 1, LS_INT32, 0, &asked));
		take_all(group, OPS_MAX);
	}
	runner_meet(self);
	ls_group_close(group);
}

/* ---- beside what could go on ---- */

/* A message has come for rank 0 that nobody there waits for, so nobody takes it in; then all wait
 * for each other. */
void deadlock_beside_a_message(struct runner_rank *self)
{
	int32_t value = 1, got = 0;
	ls_request *op = NULL;
	ls_group *group = runner_open(self), *two[2];
	OK(ls_group_split(group, 0, 0, &two[0]));
	OK(ls_group_split(group, 0, 0, &two[1]));
	if (self->rank == 0)
		OK(ls_irecv(group, &got, 1, LS_INT32, 1, NULL, &op));
	runner_meet(self);
	if (self->rank == 1)
		OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
	GIVES(LS_DEADLOCK, ls_barrier(two[self->rank == 0], NULL));
	if (self->rank == 0) {
		OK(ls_wait(op, 0));
		CHECK(got == value);
		ls_request_free(op);
	}
	runner_meet(self);
	ls_group_close(two[0]);
	ls_group_close(two[1]);
	ls_group_close(group);
}

/* ---- some are gone, some are stuck ---- */

/* The last rank sends once, and leaves. */
void any_source_is_stuck_without_who_left(struct runner_rank *self)
{
	struct ls_failure failure = {.size = sizeof failure};
	int32_t value = 0;
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank == 0) {
		OK(ls_recv(group, &value, 1, LS_INT32, LS_ANY_SOURCE, NULL));
		GIVES(LS_DEADLOCK, ls_recv(group, &value, 1, LS_INT32, LS_ANY_SOURCE, NULL));
	} else if (self->rank < self->size - 1) {
		GIVES(LS_DEADLOCK, ls_recv(group, &value, 1, LS_INT32, 0, NULL));
	} else {
		OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
	}
	if (self->rank < self->size - 1) {
		OK(ls_group_failure(group, &failure));
		CHECK_THAT(strstr(failure.text, "rank 0 waits for any rank"), "%s", failure.text);
		CHECK_THAT(strstr(failure.text,
				  self->size == 3 ? "; rank 2 has left" : "; rank 3 has left"),
			   "%s", failure.text);
	}
	ls_group_close(group);
}

/* ---- the main thread ---- */

struct opener {
	struct runner_rank *self;
	ls_group *group;
};

static void *open_here(void *argument)
{
	struct opener *opener = argument;
	opener->group = runner_open(opener->self);
	return NULL;
}

/* The main thread has made no call then. */
static ls_group *open_in_a_thread(struct runner_rank *self)
{
	struct opener opener = {.self = self};
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, open_here, &opener) == 0);
	pthread_join(thread, NULL);
	return opener.group;
}

struct asking {
	ls_group *group;
	ls_status status;
};

static void *ask_of_rank_1(void *argument)
{
	const struct asking *asking = argument;
	int32_t value;
	GIVES(asking->status, ls_recv(asking->group, &value, 1, LS_INT32, 1, NULL));
	return NULL;
}

/* It is about to send what rank 1 waits for, and is asleep until then; another thread waits for
 * rank 1. */
void the_main_thread_may_call(struct runner_rank *self)
{
	struct ls_call_options first = {.size = sizeof first, .tag = 2};
	int32_t value = 0;
	ls_group *group = open_in_a_thread(self);
	if (self->rank == 0) {
		struct asking asking = {group, LS_OK};
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, ask_of_rank_1, &asking) == 0);
		outlast_looks();
		OK(ls_send(group, &value, 1, LS_INT32, 1, &first));
		pthread_join(thread, NULL);
	} else {
		OK(ls_recv(group, &value, 1, LS_INT32, 0, &first));
		OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
	}
	runner_meet(self);
	ls_group_close(group);
}

/* Rank 0's main thread waits for the end of a thread that waits for rank 1, which waits for rank 0.
 * Closes the group. */
static void wait_in_a_cycle(struct runner_rank *self, ls_group *group)
{
	int32_t value;
	if (self->rank == 0) {
		struct asking asking = {group, LS_DEADLOCK};
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, ask_of_rank_1, &asking) == 0);
		pthread_join(thread, NULL);
	} else {
		GIVES(LS_DEADLOCK, ls_recv(group, &value, 1, LS_INT32, 0, NULL));
	}
	runner_meet(self);
	ls_group_close(group);
}

/* It waits for the other thread's end, and nothing but that can wake it. */
void the_main_thread_is_dormant(struct runner_rank *self)
{
	wait_in_a_cycle(self, open_in_a_thread(self));
}

static void *compute_and_send(void *argument)
{
	struct ls_call_options first = {.size = sizeof first, .tag = 2};
	struct timespec now, end;
	int32_t value = 0;
	clock_gettime(CLOCK_MONOTONIC, &end);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while (now.tv_sec <= end.tv_sec + LOOKS_MS / 1000);
	OK(ls_send(argument, &value, 1, LS_INT32, 1, &first));
	return NULL;
}

/* So may another thread that has made no call yet, as long as it runs. */
void a_thread_that_runs_may_call(struct runner_rank *self)
{
	struct ls_call_options first = {.size = sizeof first, .tag = 2};
	int32_t value = 0;
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank == 0) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, compute_and_send, group) == 0);
		OK(ls_recv(group, &value, 1, LS_INT32, 1, NULL));
		pthread_join(thread, NULL);
	} else {
		OK(ls_recv(group, &value, 1, LS_INT32, 0, &first));
		OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
	}
	runner_meet(self);
	ls_group_close(group);
}

/* ---- threads that have called before ---- */

/* It is outside, and can only be woken by the end of a thread that waits for rank 1. */
void who_joins_is_dormant(struct runner_rank *self)
{
	wait_in_a_cycle(self, runner_open(self));
}

static void *ask_any(void *argument)
{
	const struct asking *asking = argument;
	int32_t value;
	GIVES(asking->status, ls_recv(asking->group, &value, 1, LS_INT32, LS_ANY_SOURCE, NULL));
	return NULL;
}

/* So nobody but the others could send. */
void who_joins_sends_nothing(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank == 0) {
		struct asking asking = {group, LS_PEER_LEFT};
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, ask_any, &asking) == 0);
		pthread_join(thread, NULL);
	}
	ls_group_close(group);
}

static void *wake_late(void *wakes)
{
	outlast_looks();
	CHECK(sem_post(wakes) == 0);
	return NULL;
}

static void wake(void *wakes, ls_status status)
{
	OK(status);
	CHECK(sem_post(wakes) == 0);
}

static void await_post(sem_t *wakes)
{
	while (sem_wait(wakes) != 0)
		;
}

/* Rank 1 waits for what the main thread of rank 0 sends when it has been woken: by a thread that
 * makes no call, or by a callback when rank 2 has sent. Another thread of rank 0 waits for rank
 * 1. */
static void wake_main_thread(struct runner_rank *self, bool by_callback)
{
	struct ls_call_options first = {.size = sizeof first, .tag = 2},
			       other = {.size = sizeof other};
	int32_t value = 0, told;
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank == 0) {
		struct asking asking = {group, LS_OK};
		pthread_t thread, waker;
		sem_t wakes;
		CHECK(sem_init(&wakes, 0, 0) == 0);
		other = (struct ls_call_options){
			.size = sizeof other, .tag = 3, .callback = wake, .callback_data = &wakes};
		if (by_callback)
			OK(ls_recv(group, &told, 1, LS_INT32, 2, &other));
		else
			CHECK(pthread_create(&waker, NULL, wake_late, &wakes) == 0);
		CHECK(pthread_create(&thread, NULL, ask_of_rank_1, &asking) == 0);
		await_post(&wakes);
		OK(ls_send(group, &value, 1, LS_INT32, 1, &first));
		pthread_join(thread, NULL);
		if (!by_callback)
			pthread_join(waker, NULL);
		sem_destroy(&wakes);
	} else if (self->rank == 1) {
		OK(ls_recv(group, &value, 1, LS_INT32, 0, &first));
		OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
	} else if (by_callback) {
		other.tag = 3;
		outlast_looks();
		OK(ls_send(group, &value, 1, LS_INT32, 0, &other));
	}
	runner_meet(self);
	ls_group_close(group);
}

void who_sleeps_may_be_woken(struct runner_rank *self)
{
	wake_main_thread(self, false);
}

void who_sleeps_may_be_called_back(struct runner_rank *self)
{
	wake_main_thread(self, true);
}

static void *wait_for_first(void *argument)
{
	OK(ls_wait(*(ls_request **)argument, 0));
	return NULL;
}

/* So may a thread whose callback is behind more words than any table has: a thread waits for the
 * first of many sends to rank 1, which receives none of them before the main thread has sent. */
void who_sleeps_may_be_called_back_behind_many(struct runner_rank *self)
{
	enum { SENDS = 50 }; /* of two words each */
	struct ls_call_options first = {.size = sizeof first, .tag = 2},
			       other = {.size = sizeof other, .tag = 3},
			       last = {.size = sizeof last, .tag = 4};
	int32_t value = 0, told, got;
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank == 0) {
		pthread_t thread;
		sem_t wakes;
		ls_request *op;
		CHECK(sem_init(&wakes, 0, 0) == 0);
		OK(ls_irecv(group, &got, 1, LS_INT32, 1, &last, &op));
		other.callback = wake;
		other.callback_data = &wakes;
		OK(ls_recv(group, &told, 1, LS_INT32, 2, &other));
		ls_request **ops = begin_sends(group, 1, SENDS);
		CHECK(pthread_create(&thread, NULL, wait_for_first, &ops[0]) == 0);
		await_post(&wakes);
		OK(ls_send(group, &value, 1, LS_INT32, 1, &first));
		pthread_join(thread, NULL);
		for (int i = 0; i < SENDS; i++)
			OK(ls_wait(ops[i], 0));
		OK(ls_wait(op, 0));
		end_sends(ops, SENDS);
		ls_request_free(op);
		sem_destroy(&wakes);
	} else if (self->rank == 1) {
		OK(ls_recv(group, &value, 1, LS_INT32, 0, &first));
		take_all(group, SENDS);
		OK(ls_send(group, &value, 1, LS_INT32, 0, &last));
	} else {
		outlast_looks();
		OK(ls_send(group, &value, 1, LS_INT32, 0, &other));
	}
	runner_meet(self);
	ls_group_close(group);
}

/* The only one left; the main thread is woken late, and sends to it. */
void who_is_woken_sends_to_any(struct runner_rank *self)
{
	int32_t value = 0;
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank == 0) {
		struct asking asking = {group, LS_OK};
		pthread_t thread, waker;
		sem_t wakes;
		CHECK(sem_init(&wakes, 0, 0) == 0);
		CHECK(pthread_create(&thread, NULL, ask_any, &asking) == 0);
		CHECK(pthread_create(&waker, NULL, wake_late, &wakes) == 0);
		await_post(&wakes);
		OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
		pthread_join(thread, NULL);
		pthread_join(waker, NULL);
		sem_destroy(&wakes);
	}
	ls_group_close(group);
}

/* ---- a message that nobody wants yet ---- */

/* It has come to a rank that has a receive for its sleeping progress thread, and holds up nobody,
 * so it wakes nobody. But as long as it lies there, that thread may act at any time. So the watch
 * calls the thread, which takes the message in; else nothing could be proved. */
void deadlock_behind_a_message(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t values[LONG], value = 1;
	struct ls_call_options first = {.size = sizeof first, .tag = 1}, second = first,
			       third = first;
	second.tag = 2;
	third.tag = 3;
	ls_request *op = NULL;
	if (self->rank == 0)
		OK(ls_irecv(group, values, LONG, LS_INT32, 1, &first, &op));
	OK(ls_barrier(group, NULL));
	if (self->rank == 0) {
		GIVES(LS_DEADLOCK, ls_barrier(group, NULL));
		ls_request_free(op);
	} else {
		OK(ls_send(group, &value, 1, LS_INT32, 0, &second));
		GIVES(LS_DEADLOCK, ls_recv(group, &value, 1, LS_INT32, 0, &third));
	}
	ls_group_close(group);
}
