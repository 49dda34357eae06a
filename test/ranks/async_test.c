/* SPDX-License-Identifier: BSD-3-Clause
 * Nonblocking operations: handles, callbacks, many in flight, several threads; and how they end if
 * a rank fails or the group is closed. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "caught.h"
#include "tests.h"
#include "values.h"

static struct ls_call_options with_handle(ls_request **op)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .request = op};
}

static void start_sum(ls_group *group, int64_t *value, ls_request **op)
{
	struct ls_call_options options = with_handle(op);
	OK(ls_allreduce(group, value, value, 1, LS_INT64, LS_SUM, &options));
	CHECK(*op);
}

/* Thousands in flight, waited for in an order of each rank's own. */
void async_many_in_flight(struct runner_rank *self)
{
	enum { MANY = 3000 };
	ls_group *group = runner_open(self);
	int64_t *values = calloc(MANY, sizeof *values);
	ls_request **ops = calloc(MANY, sizeof *ops);
	CHECK(values && ops);
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < MANY; i++) {
			values[i] = i + self->rank;
			start_sum(group, &values[i], &ops[i]);
		}
		for (int i = 0; i < MANY; i++) {
			int k = self->rank % 2 ? MANY - 1 - i : (int)((i * 7919LL) % MANY);
			OK(ls_wait(ops[k], 0));
			OK(ls_test(ops[k]));
			int64_t want = (int64_t)self->size * k + self->size * (self->size - 1) / 2;
			CHECK_THAT(values[k] == want, "#%d is %lld, not %lld", k,
				   (long long)values[k], (long long)want);
		}
		for (int i = 0; i < MANY; i++)
			ls_request_free(ops[i]);
	}
	free(values);
	free(ops);
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

/* Large ones run on by themselves, and blocking calls among them keep the order. */
void async_large_and_blocking(struct runner_rank *self)
{
	enum { COUNT = 300000, OPS = 6 };
	ls_group *group = runner_open(self);
	for (int turn = 0; turn < 4; turn++) {
		bool plain = turn % 2;
		float *buffers[OPS];
		ls_request *ops[OPS];
		for (int i = 0; i < OPS; i++) {
			buffers[i] = values_alloc(group, COUNT * sizeof(float), plain);
			for (int k = 0; k < COUNT; k++)
				buffers[i][k] = (float)(k % 100 + i + self->rank);
			struct ls_call_options options = with_handle(&ops[i]);
			OK(ls_allreduce(group, buffers[i], buffers[i], COUNT, LS_FLOAT32, LS_MAX,
					&options));
			if (i == 2)
				OK(ls_barrier(group, NULL));
		}
		CHECK(ls_test(ops[0]) == LS_OK); /* before the barrier, so it is over */
		for (int i = 0; i < OPS; i++) {
			OK(ls_wait(ops[i], 0));
			ls_request_free(ops[i]);
			for (int k = 0; k < COUNT; k++)
				CHECK(buffers[i][k] == (float)(k % 100 + i + self->size - 1));
			values_free(group, buffers[i], plain);
		}
	}
	ls_group_close(group);
}

/* Nobody has to wait for it to go on: rank 0 only looks, beside the library, whether it is over. */
void async_goes_on_by_itself(struct runner_rank *self)
{
	enum { COUNT = 100000 };
	ls_group *group = runner_open(self);
	int32_t *buffer = values_alloc(group, COUNT * sizeof *buffer, false);
	for (int k = 0; k < COUNT; k++)
		buffer[k] = self->rank;
	ls_request *op;
	struct ls_call_options options = with_handle(&op);
	OK(ls_allreduce(group, buffer, buffer, COUNT, LS_INT32, LS_SUM, &options));
	while (ls_test(op) == LS_PENDING)
		;
	OK(ls_test(op));
	ls_request_free(op);
	CHECK(buffer[COUNT - 1] == self->size * (self->size - 1) / 2);
	values_free(group, buffer, false);
	ls_group_close(group);
}

struct counted {
	_Atomic int calls;
	_Atomic int status;
};

static void count_call(void *data, ls_status status)
{
	struct counted *counted = data;
	atomic_store(&counted->status, (int)status);
	atomic_fetch_add(&counted->calls, 1);
}

void async_callbacks(struct runner_rank *self)
{
	enum { MANY = 200 };
	ls_group *group = runner_open(self);
	struct counted counted[MANY];
	int64_t values[MANY];
	memset(counted, 0, sizeof counted);
	for (int i = 0; i < MANY; i++) {
		ls_request *op = NULL;
		values[i] = i;
		struct ls_call_options options = {.size = sizeof options,
						  .callback = count_call,
						  .callback_data = &counted[i],
						  .request = i % 2 ? &op : NULL};
		OK(ls_allreduce(group, &values[i], &values[i], 1, LS_INT64, LS_SUM, &options));
		ls_request_free(op); /* a callback tells, so nobody needs to wait */
	}
	OK(ls_barrier(group, NULL)); /* after all of them */
	for (int i = 0; i < MANY; i++) {
		CHECK(atomic_load(&counted[i].calls) == 1);
		CHECK(atomic_load(&counted[i].status) == LS_OK);
		CHECK(values[i] == (int64_t)i * self->size);
	}
	ls_group_close(group);
}

/* A handle that is freed before its status was read is reported once; not if it has a callback. */
void async_dropped_handles(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct caught caught;
	int64_t values[2] = {1, 2};
	ls_request *op;
	struct counted counted = {0};
	struct ls_call_options options = {.size = sizeof options,
					  .callback = count_call,
					  .callback_data = &counted,
					  .request = &op};
	if (self->rank == 0) /* so that the others' cannot be over when they give it back */
		runner_meet(self);
	caught_begin(&caught);
	OK(ls_allreduce(group, &values[0], &values[0], 1, LS_INT64, LS_SUM, &options));
	ls_request_free(op);
	const char *text = caught_end(&caught);
	CHECK_THAT(!*text, "printed: %s", text);
	caught_begin(&caught);
	start_sum(group, &values[1], &op);
	ls_request_free(op);
	text = caught_end(&caught);
	SAYS(text, "LS-GROUP-DROPPED");
	SAYS(text, "the handle of all-reduce #2, called from async_test.c:");
	if (self->rank != 0)
		runner_meet(self);
	OK(ls_barrier(group, NULL));
	CHECK(atomic_load(&counted.calls) == 1);
	CHECK(values[0] == self->size && values[1] == 2 * (int64_t)self->size);
	ls_group_close(group);
}

/* While rank 0 stays away nothing ends, and a wait with a limit says so and changes nothing. */
void async_wait_has_a_limit(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int64_t values[3] = {1, 2, 3};
	ls_request *ops[4] = {NULL};
	int index = 5;
	if (self->rank != 0) {
		for (int i = 0; i < 3; i++)
			start_sum(group, &values[i], &ops[1 + i]);
		GIVES(LS_PENDING, ls_wait(ops[1], 20));
		GIVES(LS_PENDING, ls_wait(ops[3], 20));
		GIVES(LS_PENDING, ls_wait_any(ops, 4, 20, &index));
		CHECK(index == -1);
		GIVES(LS_PENDING, ls_test(ops[2]));
	}
	runner_meet(self);
	if (self->rank == 0)
		for (int i = 0; i < 3; i++)
			start_sum(group, &values[i], &ops[1 + i]);
	for (int i = 1; i <= 3; i++) {
		OK(ls_wait_any(ops, 4, 0, &index));
		CHECK(index == i);
		CHECK(values[i - 1] == (int64_t)i * self->size);
		ls_request_free(ops[i]);
		ops[i] = NULL;
	}
	GIVES(LS_BAD_ARGUMENT, ls_wait_any(ops, 4, 0, &index));
	GIVES(LS_BAD_ARGUMENT, ls_wait(NULL, 0));
	GIVES(LS_BAD_ARGUMENT, ls_test(NULL));
	ls_request_free(NULL);
	ls_group_close(group);
}

/* A message does not wait for a collective that cannot go on yet. */
void async_does_not_hold_messages(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int64_t sum = 1, token = self->rank;
	ls_request *op;
	int next = (self->rank + 1) % self->size, last = self->size - 1;
	if (self->rank != last)
		start_sum(group, &sum, &op);
	/* The last one enters only after the token has gone round. */
	if (self->rank == 0)
		OK(ls_send(group, &token, 1, LS_INT64, next, NULL));
	OK(ls_recv(group, &token, 1, LS_INT64, (self->rank + last) % self->size, NULL));
	if (self->rank != 0)
		OK(ls_send(group, &token, 1, LS_INT64, next, NULL));
	CHECK(token == 0);
	if (self->rank == last)
		start_sum(group, &sum, &op);
	OK(ls_wait(op, 0));
	ls_request_free(op);
	CHECK(sum == self->size);
	ls_group_close(group);
}

struct waiter_thread {
	ls_request *op;
	ls_status status;
};

static void *wait_for_it(void *argument)
{
	struct waiter_thread *thread = argument;
	thread->status = ls_wait(thread->op, 0);
	return NULL;
}

/* Several threads wait for several operations, and one of them for the same as another. */
void async_many_waiters(struct runner_rank *self)
{
	enum { OPS = 8, THREADS = 2 * OPS, TURNS = 20 };
	ls_group *group = runner_open(self);
	for (int turn = 0; turn < TURNS; turn++) {
		pthread_t ids[THREADS];
		struct waiter_thread threads[THREADS];
		int64_t values[OPS];
		ls_request *ops[OPS];
		for (int i = 0; i < OPS; i++) {
			values[i] = i;
			start_sum(group, &values[i], &ops[i]);
			for (int k = 0; k < 2; k++) {
				threads[2 * i + k] = (struct waiter_thread){.op = ops[i]};
				CHECK(pthread_create(&ids[2 * i + k], NULL, wait_for_it,
						     &threads[2 * i + k]) == 0);
			}
		}
		for (int i = 0; i < THREADS; i++) {
			pthread_join(ids[i], NULL);
			CHECK(threads[i].status == LS_OK);
		}
		for (int i = 0; i < OPS; i++) {
			CHECK(values[i] == (int64_t)i * self->size);
			ls_request_free(ops[i]);
		}
	}
	ls_group_close(group);
}

void many_buffers_in_one_call(struct runner_rank *self)
{
	enum { MANY = 20 };
	ls_group *group = runner_open(self);
	for (int turn = 0; turn < 4; turn++) {
		struct ls_buffers buffers[MANY];
		int64_t *memory[MANY];
		for (int i = 0; i < MANY; i++) {
			uint64_t count = (uint64_t)i * (turn % 2 ? 1 : 999);
			memory[i] = calloc(count + 1, sizeof(int64_t));
			CHECK(memory[i]);
			for (uint64_t k = 0; k < count; k++)
				memory[i][k] = (int64_t)k + self->rank;
			buffers[i] = (struct ls_buffers){memory[i], memory[i], count};
		}
		ls_request *op = NULL;
		struct ls_call_options options = with_handle(turn < 2 ? NULL : &op);
		OK(ls_allreduce_many(group, buffers, MANY, LS_INT64, LS_SUM, &options));
		if (op)
			OK(ls_wait(op, 0));
		ls_request_free(op);
		for (int i = 0; i < MANY; i++) {
			for (uint64_t k = 0; k < buffers[i].count; k++)
				CHECK(memory[i][k] ==
				      (int64_t)k * self->size + self->size * (self->size - 1) / 2);
			free(memory[i]);
		}
	}
	GIVES(LS_BAD_ARGUMENT, ls_allreduce_many(group, NULL, 1, LS_INT64, LS_SUM, NULL));
	ls_group_close(group);
}

/* More than can be under way at once: only a call that blocks can do it, and no rank does a part of
 * it. */
void more_buffers_than_handles(struct runner_rank *self)
{
	enum { MANY = 70000 };
	ls_group *group = runner_open(self);
	int64_t *values = calloc(MANY, sizeof *values);
	struct ls_buffers *buffers = calloc(MANY, sizeof *buffers);
	ls_request *op;
	struct ls_call_options options = with_handle(&op);
	CHECK(values && buffers);
	for (int i = 0; i < MANY; i++) {
		values[i] = i + self->rank;
		buffers[i] = (struct ls_buffers){&values[i], &values[i], 1};
	}
	OK(ls_allreduce_many(group, buffers, MANY, LS_INT64, LS_MAX, NULL));
	for (int i = 0; i < MANY; i++)
		CHECK(values[i] == i + self->size - 1);
	GIVES(LS_BAD_ARGUMENT, ls_allreduce_many(group, buffers, MANY, LS_INT64, LS_MAX, &options));
	OK(ls_barrier(group, NULL));
	free(buffers);
	free(values);
	ls_group_close(group);
}

/* A rank dies: whatever was under way ends with that cause, and so does what comes later. */
void async_ends_when_a_rank_dies(struct runner_rank *self)
{
	enum { OPS = 50 };
	struct counted counted = {0};
	int64_t values[OPS];
	ls_request *ops[OPS];
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank == 1)
		raise(SIGKILL);
	for (int i = 0; i < OPS; i++) {
		values[i] = 1;
		struct ls_call_options options = {.size = sizeof options,
						  .request = &ops[i],
						  .callback = count_call,
						  .callback_data = &counted};
		ls_status status =
			ls_allreduce(group, &values[i], &values[i], 1, LS_INT64, LS_SUM, &options);
		CHECK(status == LS_OK || status == LS_PEER_DIED);
		CHECK((status == LS_OK) == (ops[i] != NULL));
	}
	for (int i = 0; i < OPS; i++)
		if (ops[i])
			GIVES(LS_PEER_DIED, ls_wait(ops[i], 0));
	CHECK(atomic_load(&counted.status) == (ops[0] ? LS_PEER_DIED : LS_OK)); /* none has begun */
	for (int i = 0; i < OPS; i++)
		ls_request_free(ops[i]);
	GIVES(LS_PEER_DIED, ls_barrier(group, NULL));
	ls_group_close(group);
}

/* An operation's own limit holds although nobody waits for it. */
void async_times_out(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int64_t value = 1;
	ls_request *op;
	struct ls_call_options options = {.size = sizeof options, .request = &op, .timeout_ms = 200};
	runner_ready(self, group);
	if (self->rank != 0) {
		OK(ls_allreduce(group, &value, &value, 1, LS_INT64, LS_SUM, &options));
		GIVES(LS_TIMED_OUT, ls_wait(op, 0));
		ls_request_free(op);
	}
	runner_meet(self);
	runner_await_failure(group);
	if (self->rank == 0)
		GIVES(LS_TIMED_OUT, ls_barrier(group, NULL));
	ls_group_close(group);
}

/* Closing a group with operations under way fails it on all ranks. */
void async_closed_too_early(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int64_t value = 1;
	ls_request *op;
	runner_meet(self);
	if (self->rank == 1) {
		start_sum(group, &value, &op);
		start_sum(group, &value, &op);
		ls_group_close(group);
		runner_meet(self);
		return;
	}
	runner_meet(self);
	GIVES(LS_ABORTED, ls_barrier(group, NULL));
	ls_group_close(group);
}

static void ping_pong(const struct runner_rank *self, ls_group *group, int rounds)
{
	int64_t token = 0;
	for (int i = 0; i < rounds; i++) {
		if (self->rank == 0)
			OK(ls_send(group, &token, 1, LS_INT64, 1, NULL));
		OK(ls_recv(group, &token, 1, LS_INT64, 1 - self->rank, NULL));
		if (self->rank == 1)
			OK(ls_send(group, &token, 1, LS_INT64, 0, NULL));
	}
}

/* The progress thread is given more while it is in an operation that waits for rank 1, and then has
 * nothing to do any more. */
static void call_it_while_it_makes_progress(const struct runner_rank *self, ls_group *group)
{
	int64_t values[2] = {0};
	ls_request *ops[2];
	for (int i = 0; i < 2; i++) {
		if (self->rank == 0)
			start_sum(group, &values[i], &ops[i]);
		ping_pong(self, group, 300);
	}
	for (int i = 0; i < 2; i++) {
		if (self->rank == 1)
			start_sum(group, &values[i], &ops[i]);
		OK(ls_wait(ops[i], 0));
		ls_request_free(ops[i]);
	}
}

/* A cycle is proved although a progress thread waits, too, and although more is queued behind what
 * it waits in: meanwhile, so that it has gone to wait before that. */
void async_cycle_is_proved(struct runner_rank *self)
{
	enum { OPS = 3 };
	ls_group *group = runner_open(self);
	int64_t values[OPS] = {0}, other = 0;
	ls_request *ops[OPS];
	call_it_while_it_makes_progress(self, group);
	if (self->rank == 0)
		start_sum(group, &values[0], &ops[0]);
	ping_pong(self, group, 300);
	if (self->rank == 0) {
		for (int i = 1; i < OPS; i++)
			start_sum(group, &values[i], &ops[i]);
		for (int i = 0; i < OPS; i++) {
			GIVES(LS_DEADLOCK, ls_wait(ops[i], 0));
			ls_request_free(ops[i]);
		}
	} else {
		GIVES(LS_DEADLOCK, ls_recv(group, &other, 1, LS_INT64, 0, NULL));
	}
	ls_group_close(group);
}

/* What the rank does in a while in which nothing is asked of it: wake-ups, and *used_ms. */
enum { IDLE_MS = 1500 };
static int idle_for_a_while(double *used_ms)
{
	struct timespec idle = {.tv_sec = 1, .tv_nsec = (IDLE_MS - 1000) * 1000000L};
	struct rusage before, after;
	clock_t start = clock();
	getrusage(RUSAGE_SELF, &before);
	nanosleep(&idle, NULL); /* what is measured is what goes on meanwhile */
	getrusage(RUSAGE_SELF, &after);
	*used_ms = (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC;
	return (int)(after.ru_nvcsw - before.ru_nvcsw);
}

/* With nothing under way the rank's threads sleep. Its wake-ups are counted, because their time
 * depends on the machine; a thread that polls would take all the time. On several hosts a rank
 * wakes for each heartbeat, every 50 ms, and every 100 ms for the network. On a busy machine
 * threads may still be on their way to sleep in the first while. */
void async_idle_costs_nothing(struct runner_rank *self)
{
	enum { POLLING_MS = IDLE_MS / 10, WHILES = 3 };
	int allowed = runner_is_on_hosts ? 2 * IDLE_MS / 50 + IDLE_MS / 100 + 30 : 3;
	ls_group *group = runner_open(self);
	int64_t value = 1;
	ls_request *op;
	start_sum(group, &value, &op);
	OK(ls_wait(op, 0));
	ls_request_free(op);
	OK(ls_barrier(group, NULL));
	double used_ms = POLLING_MS;
	int wakeups = 0;
	for (int i = 0; i < WHILES && (wakeups > allowed || used_ms >= POLLING_MS); i++)
		wakeups = idle_for_a_while(&used_ms);
	CHECK_THAT(used_ms < POLLING_MS, "%.2f ms of processor time in %d ms", used_ms, IDLE_MS);
	CHECK_THAT(wakeups <= allowed, "%d wake-ups in %d ms", wakeups, IDLE_MS);
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}
