/* SPDX-License-Identifier: BSD-3-Clause
 * There is no deadlock, because something outside the waits ends by itself: a message with a time
 * limit of its own, or one that needs a member that has left, whose callback then wakes a thread or
 * whose group then fails; a signal; a thread that wakes without a call. Also: what the report says
 * of a deadlock that was proved while such a thread slept. */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests.h"

enum {
	LIMIT_MS = 1000, /* some looks fall into this time, 200 ms apart */
};

struct called {
	sem_t wakes;
	ls_status status;
};

static void wake(void *data, ls_status status)
{
	struct called *called = data;
	called->status = status;
	CHECK(sem_post(&called->wakes) == 0);
}

struct asking {
	ls_group *group;
	bool beside; /* it waits for a handle, and so for all that is under way */
};

static void *ask_of_rank_1(void *argument)
{
	const struct asking *asking = argument;
	int32_t value;
	ls_request *op = NULL;
	if (!asking->beside) {
		OK(ls_recv(asking->group, &value, 1, LS_INT32, 1, NULL));
		return NULL;
	}
	OK(ls_irecv(asking->group, &value, 1, LS_INT32, 1, NULL, &op));
	OK(ls_wait(op, 0));
	ls_request_free(op);
	return NULL;
}

/* Sleeps until the callback of a receive of another group has come, and then sends what the others
 * wait for; a thread waits for rank 1 meanwhile. */
static void wait_for_call(ls_group *group, ls_group *other, uint32_t limit_ms, bool beside,
			  ls_status expected)
{
	struct called called = {.status = LS_OK};
	struct asking asking = {.group = group, .beside = beside};
	struct ls_call_options options = {.size = sizeof options,
					  .timeout_ms = limit_ms,
					  .callback = wake,
					  .callback_data = &called};
	int32_t value = 0, never;
	pthread_t thread;
	CHECK(sem_init(&called.wakes, 0, 0) == 0);
	OK(ls_recv(other, &never, 1, LS_INT32, 1, &options));
	CHECK(pthread_create(&thread, NULL, ask_of_rank_1, &asking) == 0);
	while (sem_wait(&called.wakes) != 0)
		;
	CHECK(called.status == expected);
	for (int q = 1; q < ls_group_size(group); q++)
		OK(ls_send(group, &value, 1, LS_INT32, q, NULL));
	pthread_join(thread, NULL);
	sem_destroy(&called.wakes);
}

void who_sleeps_may_be_called_back_in_time(struct runner_rank *self)
{
	int32_t value = 0;
	for (int beside = 0; beside < 2; beside++) {
		ls_group *group = runner_open(self), *other;
		OK(ls_group_split(group, 0, 0, &other));
		runner_ready(self, group);
		if (self->rank == 0) {
			wait_for_call(group, other, LIMIT_MS, beside, LS_TIMED_OUT);
		} else {
			OK(ls_recv(group, &value, 1, LS_INT32, 0, NULL));
			OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
		}
		runner_meet(self);
		ls_group_close(other);
		ls_group_close(group);
		runner_meet(self);
	}
}

/* The others look for the cause of their waits whenever they like: also just when rank 1 has
 * left. */
void who_sleeps_may_be_called_back_by_who_leaves(struct runner_rank *self)
{
	int32_t value = 0;
	ls_group *group = runner_open(self), *other;
	OK(ls_group_split(group, 0, 0, &other));
	runner_ready(self, group);
	if (self->rank == 0) {
		wait_for_call(group, other, 0, true, LS_PEER_LEFT);
	} else {
		sem_t never;
		struct timespec end;
		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_sec++;
		CHECK(sem_init(&never, 0, 0) == 0);
		if (self->rank == 1) {
			CHECK(sem_timedwait(&never, &end) != 0);
			ls_group_close(other);
		}
		OK(ls_recv(group, &value, 1, LS_INT32, 0, NULL));
		if (self->rank == 1)
			OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
		sem_destroy(&never);
	}
	runner_meet(self);
	if (self->rank != 1)
		ls_group_close(other);
	ls_group_close(group);
}

struct stuck {
	ls_group *group;
	sem_t wakes;
};

static void fails(void *data, ls_status status)
{
	struct stuck *stuck = data;
	CHECK(status == LS_DEADLOCK);
	CHECK(sem_post(&stuck->wakes) == 0);
}

static void *is_stuck(void *argument)
{
	const struct stuck *stuck = argument;
	int32_t value;
	GIVES(LS_DEADLOCK, ls_recv(stuck->group, &value, 1, LS_INT32, 1, NULL));
	return NULL;
}

/* Nor does a callback come because rank 2 is missing, if its operation does not need rank 2. */
void who_sleeps_is_stuck_without_who_left(struct runner_rank *self)
{
	int32_t value;
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank == 0) {
		struct stuck stuck = {.group = group};
		struct ls_call_options options = {
			.size = sizeof options, .tag = 1, .callback = fails, .callback_data = &stuck};
		pthread_t thread;
		CHECK(sem_init(&stuck.wakes, 0, 0) == 0);
		OK(ls_recv(group, &value, 1, LS_INT32, 1, &options));
		CHECK(pthread_create(&thread, NULL, is_stuck, &stuck) == 0);
		while (sem_wait(&stuck.wakes) != 0)
			;
		pthread_join(thread, NULL);
		sem_destroy(&stuck.wakes);
	} else if (self->rank == 1) {
		GIVES(LS_DEADLOCK, ls_recv(group, &value, 1, LS_INT32, 0, NULL));
	}
	ls_group_close(group);
}

/* Rank 1 waits for rank 0, which waits for rank 1 in another group, where the wait ends in time. */
void who_waits_goes_on_when_another_is_late(struct runner_rank *self)
{
	struct ls_call_options late = {.size = sizeof late, .tag = 1, .timeout_ms = LIMIT_MS};
	int32_t value = 0, never;
	ls_group *group = runner_open(self), *other;
	OK(ls_group_split(group, 0, 0, &other));
	runner_ready(self, group);
	if (self->rank == 0) {
		ls_request *op;
		OK(ls_irecv(other, &never, 1, LS_INT32, 1, &late, &op));
		GIVES(LS_TIMED_OUT, ls_recv(other, &value, 1, LS_INT32, 1, NULL));
		GIVES(LS_TIMED_OUT, ls_wait(op, 0));
		ls_request_free(op);
		OK(ls_send(group, &value, 1, LS_INT32, 1, NULL));
	} else {
		OK(ls_recv(group, &value, 1, LS_INT32, 0, NULL));
	}
	runner_meet(self);
	ls_group_close(other);
	ls_group_close(group);
}

/* ---- by others than Lockstep ---- */

static void *open_here(void *self)
{
	return runner_open(self);
}

static sem_t woken; /* for a handler */

static void *wake_late(void *argument)
{
	struct timespec end;
	sem_t never;
	(void)argument;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += LIMIT_MS / 1000;
	CHECK(sem_init(&never, 0, 0) == 0);
	CHECK(sem_timedwait(&never, &end) != 0);
	sem_destroy(&never);
	sem_post(&woken);
	return NULL;
}

static void handle(int number)
{
	(void)number;
	sem_post(&woken);
}

static void set_blocked(int how)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(how, &set, NULL);
}

static void *ask_and_handle(void *asking)
{
	set_blocked(SIG_UNBLOCK);
	return ask_of_rank_1(asking);
}

/* Rank 1 waits for what the main thread of rank 0 sends once it has been woken, and which has made
 * no call before. */
static void wake_main_thread(struct runner_rank *self, bool by_signal)
{
	int32_t value = 0;
	pthread_t opener, thread, waker;
	void *group;
	CHECK(pthread_create(&opener, NULL, open_here, self) == 0);
	pthread_join(opener, &group);
	if (self->rank == 0) {
		struct asking asking = {.group = group};
		struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
		CHECK(sem_init(&woken, 0, 0) == 0);
		CHECK(!by_signal || sigaction(SIGALRM, &action, NULL) == 0);
		set_blocked(SIG_BLOCK);
		CHECK(pthread_create(&thread, NULL, ask_and_handle, &asking) == 0);
		if (by_signal)
			alarm(LIMIT_MS / 1000);
		else
			CHECK(pthread_create(&waker, NULL, wake_late, NULL) == 0);
		while (sem_wait(&woken) != 0)
			;
		OK(ls_send(group, &value, 1, LS_INT32, 1, NULL));
		pthread_join(thread, NULL);
		if (!by_signal)
			pthread_join(waker, NULL);
	} else {
		OK(ls_recv(group, &value, 1, LS_INT32, 0, NULL));
		OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
	}
	runner_meet(self);
	ls_group_close(group);
}

void who_has_not_called_may_be_woken(struct runner_rank *self)
{
	wake_main_thread(self, false);
}

void who_has_not_called_may_be_woken_by_a_handler(struct runner_rank *self)
{
	wake_main_thread(self, true);
}

/* ---- proved between two moments in which something ran ---- */

enum {
	PROOFS = 15,
	PAUSE_NS = 1000000, /* about as long as two looks, one behind the other */
};

static void *wake_now_and_then(void *argument)
{
	sem_t *ends = argument;
	struct timespec end;
	do {
		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_nsec += PAUSE_NS;
		if (end.tv_nsec >= 1000000000) {
			end.tv_nsec -= 1000000000;
			end.tv_sec++;
		}
	} while (sem_timedwait(ends, &end) != 0);
	return NULL;
}

/* While that thread runs nothing is proved. It sleeps most of the time, so there is a proof; and
 * then the report names the calls, also if the thread runs again meanwhile. */
void a_proof_is_told_as_it_was_found(struct runner_rank *self)
{
	pthread_t thread;
	sem_t ends;
	CHECK(sem_init(&ends, 0, 0) == 0);
	CHECK(pthread_create(&thread, NULL, wake_now_and_then, &ends) == 0);
	for (int i = 0; i < PROOFS; i++) {
		struct ls_failure failure = {.size = sizeof failure};
		int32_t value;
		ls_group *group = runner_open(self);
		runner_ready(self, group);
		GIVES(LS_DEADLOCK, ls_recv(group, &value, 1, LS_INT32, 1 - self->rank, NULL));
		OK(ls_group_failure(group, &failure));
		CHECK_THAT(strstr(failure.text, "rank 0 waits for rank 1 (receive"), "%s",
			   failure.text);
		ls_group_close(group);
		runner_meet(self);
	}
	CHECK(sem_post(&ends) == 0);
	pthread_join(thread, NULL);
	sem_destroy(&ends);
}
