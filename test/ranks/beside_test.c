/* SPDX-License-Identifier: BSD-3-Clause
 * Two threads of rank 0 that wait for messages: one already sleeps, until rank 1 sends, when the
 * other begins. The first makes progress on the messages of both. The second still learns of each
 * event that ends its own wait. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message_ways.h"
#include "process.h"
#include "tests.h"

enum { LIMIT_MS = 300 };

/* The thread that waits first. */
struct sleeper {
	ls_group *group;
	ls_request *op;
	int32_t value;
	_Atomic int tid;
	ls_status status;
	pthread_t thread;
};

static void *sleep_in_wait(void *argument)
{
	struct sleeper *sleeper = argument;
	OK(ls_irecv(sleeper->group, &sleeper->value, 1, LS_INT32, 1, NULL, &sleeper->op));
	atomic_store(&sleeper->tid, gettid());
	sleeper->status = ls_wait(sleeper->op, 0);
	return NULL;
}

/* All threads of this process but the caller: those of the library have nothing to do. */
static void await_rest(void)
{
	for (bool awake = true; awake;) {
		DIR *folder = opendir("/proc/self/task");
		struct dirent *entry;
		CHECK(folder);
		awake = false;
		while ((entry = readdir(folder))) {
			int tid = (int)strtol(entry->d_name, NULL, 10);
			awake = awake || (tid > 0 && tid != gettid() && process_state(tid) != 'S');
		}
		closedir(folder);
		sched_yield();
	}
}

static void begin(struct sleeper *sleeper, ls_group *group, void *(*run)(void *))
{
	*sleeper = (struct sleeper){.group = group};
	CHECK(pthread_create(&sleeper->thread, NULL, run, sleeper) == 0);
	while (!atomic_load(&sleeper->tid) || process_state(atomic_load(&sleeper->tid)) != 'S')
		sched_yield();
}

static void end(struct sleeper *sleeper, ls_status status)
{
	pthread_join(sleeper->thread, NULL);
	CHECK_THAT(sleeper->status == status, "the first thread got %s, not %s",
		   ls_status_name(sleeper->status), ls_status_name(status));
	ls_request_free(sleeper->op);
}

/* The message of the second thread. */
static struct message second(ls_group *group, int32_t *value, int peer)
{
	return (struct message){.group = group, .buffer = value, .count = 1, .peer = peer, .tag = 2};
}

/* A message that comes late, or a collective that the rank's progress thread goes on with. */
static void *sleep_for_either(void *argument)
{
	enum { LONG = 3000 };
	int64_t values[LONG] = {0};
	struct sleeper *sleeper = argument;
	ls_request *ops[2];
	struct ls_call_options options = {.size = sizeof options, .request = &ops[1]};
	int which = -1;
	OK(ls_irecv(sleeper->group, &sleeper->value, 1, LS_INT32, 1, NULL, &ops[0]));
	OK(ls_allreduce(sleeper->group, values, values, LONG, LS_INT64, LS_SUM, &options));
	atomic_store(&sleeper->tid, gettid());
	sleeper->status = ls_wait_any(ops, 2, 0, &which);
	CHECK(which == 1);
	ls_request_free(ops[1]);
	sleeper->op = ops[0];
	return NULL;
}

void beside_a_collective(struct runner_rank *self)
{
	enum { LONG = 3000, TURNS = 8 };
	int64_t values[LONG] = {0};
	ls_group *group = runner_open(self);
	for (int turn = 0; turn < TURNS; turn++) {
		struct sleeper sleeper;
		int32_t value = 0;
		if (self->rank == 0)
			begin(&sleeper, group, sleep_for_either);
		runner_meet(self);
		if (self->rank != 0)
			OK(ls_allreduce(group, values, values, LONG, LS_INT64, LS_SUM, NULL));
		else
			pthread_join(sleeper.thread, NULL);
		OK(ls_barrier(group, NULL));
		if (self->rank == 1)
			OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
		if (self->rank != 0)
			continue;
		OK(sleeper.status);
		OK(ls_wait(sleeper.op, 0));
		ls_request_free(sleeper.op);
	}
	ls_group_close(group);
}

/* Taken back by one thread while the other waits for it. */
void beside_a_cancel(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct sleeper sleeper;
	if (self->rank == 0) {
		begin(&sleeper, group, sleep_in_wait);
		OK(runner_cancel(sleeper.op));
		end(&sleeper, LS_CANCELLED);
	}
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

/* What the second takes back is not what the first waits for: it is over at once, and then does
 * what the first waits for. */
void beside_a_cancel_of_another(struct runner_rank *self)
{
	enum { LONG = 5000, TIMES = 20 };
	static int32_t buffer[LONG];
	ls_group *group = runner_open(self);
	struct ls_call_options options = {.size = sizeof options, .tag = 2};
	struct sleeper sleeper;
	int32_t value = 0;
	ls_request *op;
	if (self->rank == 0) {
		begin(&sleeper, group, sleep_in_wait);
		for (int i = 0; i < TIMES; i++) {
			OK(ls_isend(group, buffer, LONG, LS_INT32, 1, NULL, &op));
			OK(runner_cancel(op));
			GIVES(LS_CANCELLED, ls_test(op));
			ls_request_free(op);
		}
		OK(ls_irecv(group, &value, 1, LS_INT32, 1, &options, &op));
		OK(runner_cancel(op));
		GIVES(LS_CANCELLED, ls_test(op));
		ls_request_free(op);
		OK(ls_send(group, &value, 1, LS_INT32, 1, &options));
		end(&sleeper, LS_OK);
	} else {
		OK(ls_recv(group, &value, 1, LS_INT32, 0, &options));
		OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
	}
	ls_group_close(group);
}

/* The second closes a group, and then does what the first, which goes on with the messages of all
 * groups, waits for. */
void beside_a_close(struct runner_rank *self)
{
	enum { TIMES = 10 };
	ls_group *world = runner_open(self), *group;
	struct ls_call_options options = {.size = sizeof options, .tag = 2};
	struct sleeper sleeper;
	int32_t value = 0, got;
	ls_request *op;
	for (int i = 0; i < TIMES; i++) {
		OK(ls_group_split(world, 0, 0, &group));
		OK(ls_irecv(group, &got, 1, LS_INT32, 1 - self->rank, NULL, &op));
		OK(ls_send(group, &value, 1, LS_INT32, 1 - self->rank, NULL));
		OK(ls_wait(op, 0));
		ls_request_free(op);
		if (self->rank == 0) {
			begin(&sleeper, world, sleep_in_wait);
			ls_group_close(group);
			OK(ls_send(world, &value, 1, LS_INT32, 1, &options));
			end(&sleeper, LS_OK);
		} else {
			OK(ls_recv(world, &value, 1, LS_INT32, 0, &options));
			OK(ls_send(world, &value, 1, LS_INT32, 0, NULL));
			ls_group_close(group);
		}
	}
	ls_group_close(world);
}

/* The second has less time than the first. */
static void limit(struct runner_rank *self, enum way way)
{
	ls_group *group = runner_open(self);
	struct sleeper sleeper;
	int32_t value;
	if (self->rank == 0) {
		struct message message = second(group, &value, 1);
		begin(&sleeper, group, sleep_in_wait);
		GIVES(LS_TIMED_OUT, message_pass(&message, way, LIMIT_MS));
		end(&sleeper, LS_TIMED_OUT);
	}
	runner_meet(self);
	message_is_closed(group, LS_TIMED_OUT, 1, "timed out in receive #2");
	ls_group_close(group);
}

void beside_a_limit(struct runner_rank *self)
{
	limit(self, HANDLE);
}

void beside_a_limit_callback(struct runner_rank *self)
{
	limit(self, CALLBACK);
}

/* The last rank, for which the second waits, dies or leaves. */
static void peer_goes(struct runner_rank *self, enum way way, ls_status status)
{
	ls_group *group = runner_open(self);
	struct sleeper sleeper;
	int32_t value;
	int last = self->size - 1;
	runner_ready(self, group);
	if (self->rank == 0) {
		struct message message = second(group, &value, last);
		begin(&sleeper, group, sleep_in_wait);
		atomic_store(&self->shared->words[0], 1);
		GIVES(status, message_pass(&message, way, 0));
		end(&sleeper, status);
	} else if (self->rank == last) {
		while (atomic_load(&self->shared->words[0]) == 0)
			sched_yield();
		if (status == LS_PEER_DIED)
			raise(SIGKILL);
		ls_group_close(group);
		return;
	} else {
		GIVES(status, ls_recv(group, &value, 1, LS_INT32, 0, NULL));
	}
	message_is_closed(group, status, last, "rank 2");
	ls_group_close(group);
}

void beside_a_death(struct runner_rank *self)
{
	peer_goes(self, HANDLE, LS_PEER_DIED);
}

void beside_a_death_callback(struct runner_rank *self)
{
	peer_goes(self, CALLBACK, LS_PEER_DIED);
}

void beside_a_leaving(struct runner_rank *self)
{
	peer_goes(self, HANDLE, LS_PEER_LEFT);
}

/* It had left before the second began to wait. */
static void peer_has_gone(struct runner_rank *self, enum way way)
{
	ls_group *group = runner_open(self);
	struct sleeper sleeper;
	int32_t value;
	int last = self->size - 1;
	runner_ready(self, group);
	if (self->rank == last) {
		ls_group_close(group);
		atomic_store(&self->shared->words[0], 1);
		return;
	}
	if (self->rank == 0) {
		struct message message = second(group, &value, last);
		begin(&sleeper, group, sleep_in_wait);
		while (atomic_load(&self->shared->words[0]) == 0)
			sched_yield();
		GIVES(LS_PEER_LEFT, message_pass(&message, way, 0));
		end(&sleeper, LS_PEER_LEFT);
	} else {
		GIVES(LS_PEER_LEFT, ls_recv(group, &value, 1, LS_INT32, 0, NULL));
	}
	message_is_closed(group, LS_PEER_LEFT, last, "rank 2");
	ls_group_close(group);
}

void beside_who_has_left(struct runner_rank *self)
{
	peer_has_gone(self, HANDLE);
}

void beside_who_has_left_callback(struct runner_rank *self)
{
	peer_has_gone(self, CALLBACK);
}

/* The second waits in another group, which is aborted; the first's goes on. */
void beside_an_abort(struct runner_rank *self)
{
	ls_group *group = runner_open(self), *other;
	struct sleeper sleeper;
	int32_t value = 7;
	OK(ls_group_split(group, 0, self->rank, &other));
	if (self->rank == 0) {
		struct message message = second(other, &value, 1);
		begin(&sleeper, group, sleep_in_wait);
		atomic_store(&self->shared->words[0], 1);
		GIVES(LS_ABORTED, message_pass(&message, HANDLE, 0));
		atomic_store(&self->shared->words[1], 1);
		end(&sleeper, LS_OK);
		CHECK(sleeper.value == 7);
	} else if (self->rank == 1) {
		while (atomic_load(&self->shared->words[0]) == 0)
			sched_yield();
		OK(ls_group_abort(other, "of this group alone"));
		while (atomic_load(&self->shared->words[1]) == 0)
			sched_yield();
		OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
	}
	ls_group_close(other);
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

/* The second only asks, for what goes on in another group, which rank 1 leaves; before it asks for
 * a send, another call has told of that. */
static void only_asks(struct runner_rank *self, bool sends)
{
	enum { LONG = 5000 };
	static int32_t buffer[LONG];
	ls_group *world = runner_open(self), *group;
	struct sleeper sleeper;
	int32_t value = 7;
	ls_request *op;
	OK(ls_group_split(world, 0, self->rank, &group));
	if (self->rank == 1) {
		runner_meet(self);
		ls_group_close(group);
		runner_meet(self);
		runner_meet(self);
		OK(ls_send(world, &value, 1, LS_INT32, 0, NULL));
	} else {
		ls_status status = LS_PENDING;
		if (sends)
			OK(ls_isend(group, buffer, LONG, LS_INT32, 1, NULL, &op));
		else
			OK(ls_irecv(group, &value, 1, LS_INT32, 1, NULL, &op));
		begin(&sleeper, world, sleep_in_wait);
		runner_meet(self);
		runner_meet(self);
		if (sends)
			GIVES(LS_PEER_LEFT, ls_barrier(group, NULL));
		while (status == LS_PENDING)
			status = ls_test(op);
		CHECK(status == LS_PEER_LEFT);
		ls_request_free(op);
		runner_meet(self);
		end(&sleeper, LS_OK);
		ls_group_close(group);
	}
	ls_group_close(world);
}

void beside_who_only_asks(struct runner_rank *self)
{
	only_asks(self, false);
}

void beside_a_send_that_is_lost(struct runner_rank *self)
{
	only_asks(self, true);
}

/* Nobody waits, but one callback is still to come when another call is made; the progress thread
 * sleeps. */
static void *wait_for_callback(ls_group *group, int32_t *value, _Atomic int *kept)
{
	struct ls_call_options options = {
		.size = sizeof options, .callback = message_keep_status, .callback_data = kept};
	OK(ls_recv(group, value, 1, LS_INT32, 1, &options));
	await_rest();
	return value + 1;
}

static void await_callback(const _Atomic int *kept, ls_status status)
{
	while (atomic_load(kept) == LS_PENDING)
		sched_yield();
	CHECK(atomic_load(kept) == (int)status);
}

/* It is told of a rank that had gone before. */
void a_callback_of_a_rank_long_gone(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t values[2];
	_Atomic int kept = LS_PENDING;
	OK(ls_barrier(group, NULL));
	if (self->rank == 2)
		ls_group_close(group);
	runner_meet(self);
	if (self->rank == 2)
		return;
	if (self->rank == 0) {
		struct message message = second(group, wait_for_callback(group, values, &kept), 2);
		GIVES(LS_PEER_LEFT, message_pass(&message, CALLBACK, 0));
		await_callback(&kept, LS_PEER_LEFT);
	} else {
		GIVES(LS_PEER_LEFT, ls_recv(group, &values[0], 1, LS_INT32, 0, NULL));
	}
	message_is_closed(group, LS_PEER_LEFT, 2, "rank 2");
	ls_group_close(group);
}

/* It is told of a rank that goes meanwhile, and whose process has not ended. */
void a_callback_of_a_rank_that_leaves(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	_Atomic int kept = LS_PENDING;
	int32_t values[2];
	if (self->rank == 0)
		wait_for_callback(group, values, &kept);
	runner_meet(self);
	if (self->rank == 0) {
		await_callback(&kept, LS_PEER_LEFT);
		message_is_closed(group, LS_PEER_LEFT, 1, "rank 1");
	}
	ls_group_close(group);
	runner_meet(self);
}

/* It has less time than the other. */
void a_callback_with_less_time(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t values[2];
	_Atomic int kept = LS_PENDING;
	if (self->rank == 0) {
		struct message message = second(group, wait_for_callback(group, values, &kept), 1);
		GIVES(LS_TIMED_OUT, message_pass(&message, CALLBACK, LIMIT_MS));
		await_callback(&kept, LS_TIMED_OUT);
	}
	runner_meet(self);
	message_is_closed(group, LS_TIMED_OUT, 1, "timed out in receive #2");
	ls_group_close(group);
}
