/* SPDX-License-Identifier: BSD-3-Clause
 * How sends and receives end that have not been matched: time limits, signals, a group that is
 * closed or aborted too early, a forked child. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "caught.h"
#include "common.h"
#include "message_ways.h"
#include "tests.h"
#include "values.h"

enum { LONG = 300000, LIMIT_MS = 300 };

/* ---- time-outs ---- */

/* Rank 0's message does not come, though rank 1 lives: it goes at its limit, and not before; and
 * then the buffer is the caller's. */
static void time_out(struct runner_rank *self, struct message *message, enum way way)
{
	ls_group *group = runner_open(self);
	int32_t *buffer = values_alloc(group, LONG * 4, false);
	runner_ready(self, group);
	if (self->rank == 0) {
		values_blot(buffer, LONG, LS_INT32, 1);
		message->group = group;
		message->buffer = buffer;
		message->peer = 1;
		if (message->sends && message->count == 1)
			OK(message_pass(message, BLOCKING, 0)); /* there is room for one */
		double begin_s = now_s();
		GIVES(LS_TIMED_OUT, message_pass(message, way, LIMIT_MS));
		double took_s = now_s() - begin_s;
		CHECK_THAT(took_s > LIMIT_MS * 0.9e-3 && took_s < 10, "it took %.3f s", took_s);
		values_blot(buffer, LONG, LS_INT32, 2);
	}
	runner_meet(self);
	if (self->rank == 1) {
		GIVES(LS_TIMED_OUT, ls_recv(group, buffer, LONG, LS_INT32, 0, NULL));
		GIVES(LS_TIMED_OUT, ls_send(group, buffer, LONG, LS_INT32, 0, NULL));
	}
	runner_meet(self);
	for (int i = 0; i < LONG && self->rank == 0; i++)
		CHECK(buffer[i] == 0x02020202);
	message_is_closed(group, LS_TIMED_OUT, 1, "timed out");
	values_free(group, buffer, false);
	ls_group_close(group);
}

/* The message has gone through long before its limit, and its handle is waited for long after. */
static void goes_in_time(struct runner_rank *self, bool sends)
{
	enum { SOON_MS = 1500 };
	ls_group *group = runner_open(self);
	int32_t *buffer = values_alloc(group, LONG * 4, false);
	struct ls_call_options soon = {.size = sizeof soon, .timeout_ms = SOON_MS};
	int count = sends ? LONG : 1;
	ls_request *op;
	runner_ready(self, group);
	if (self->rank == 0) {
		double begin_s = now_s();
		OK(sends ? ls_isend(group, buffer, count, LS_INT32, 1, &soon, &op)
			 : ls_irecv(group, buffer, count, LS_INT32, 1, &soon, &op));
		runner_meet(self);
		while (now_s() < begin_s + 1.2e-3 * SOON_MS)
			sched_yield();
		OK(ls_wait(op, 0));
		ls_request_free(op);
	} else if (self->rank == 1) {
		OK(sends ? ls_recv(group, buffer, count, LS_INT32, 0, NULL)
			 : ls_send(group, buffer, count, LS_INT32, 0, NULL));
		runner_meet(self);
	} else {
		runner_meet(self);
	}
	OK(ls_barrier(group, NULL));
	values_free(group, buffer, false);
	ls_group_close(group);
	runner_meet(self);
}

void timeout_of_a_receive_handle(struct runner_rank *self)
{
	goes_in_time(self, false);
	time_out(self, &(struct message){.count = LONG}, HANDLE);
}

void timeout_of_a_receive_callback(struct runner_rank *self)
{
	time_out(self, &(struct message){.count = LONG}, CALLBACK);
}

void timeout_of_a_receive_batch(struct runner_rank *self)
{
	time_out(self, &(struct message){.count = LONG}, BATCH);
}

void timeout_of_a_send_handle(struct runner_rank *self)
{
	goes_in_time(self, true);
	time_out(self, &(struct message){.count = LONG, .sends = true}, HANDLE);
}

void timeout_of_a_send_callback(struct runner_rank *self)
{
	time_out(self, &(struct message){.count = LONG, .sends = true}, CALLBACK);
}

/* With LOCKSTEP_MESSAGES=1: the second of two short messages that nobody receives. */
void timeout_without_room(struct runner_rank *self)
{
	time_out(self, &(struct message){.count = 1, .sends = true}, BLOCKING);
}

void timeout_without_room_handle(struct runner_rank *self)
{
	time_out(self, &(struct message){.count = 1, .sends = true}, HANDLE);
}

void timeout_without_room_callback(struct runner_rank *self)
{
	time_out(self, &(struct message){.count = 1, .sends = true}, CALLBACK);
}

/* A limit of the wait alone changes nothing. */
void a_wait_that_gives_up_is_no_time_out(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t value = self->rank + 5;
	ls_request *op;
	int index;
	if (self->rank == 0) {
		OK(ls_irecv(group, &value, 1, LS_INT32, 1, NULL, &op));
		GIVES(LS_PENDING, ls_wait(op, 20));
		GIVES(LS_PENDING, ls_wait_any(&op, 1, 20, &index));
		CHECK(index == -1);
		GIVES(LS_PENDING, ls_test(op));
	}
	runner_meet(self);
	if (self->rank == 1)
		OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
	if (self->rank == 0) {
		OK(ls_wait(op, 0));
		CHECK(value == 6);
		ls_request_free(op);
	}
	ls_group_close(group);
}

void timeout_of_a_probe(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct ls_message found = {.size = sizeof found};
	runner_ready(self, group);
	if (self->rank == 0) {
		struct ls_call_options options = {.size = sizeof options, .timeout_ms = LIMIT_MS};
		int source = self->turn % 2 ? 1 : LS_ANY_SOURCE;
		double begin_s = now_s();
		GIVES(LS_TIMED_OUT, ls_probe(group, source, &options, &found));
		CHECK(now_s() - begin_s > LIMIT_MS * 0.9e-3);
	}
	runner_meet(self);
	GIVES(LS_TIMED_OUT, ls_probe(group, 0, NULL, &found));
	ls_group_close(group);
}

/* ---- signals ---- */

static void ignore(int number)
{
	(void)number;
}

static ls_status wait_any(ls_group *group, int32_t *value)
{
	ls_request *ops[2];
	int index;
	OK(ls_irecv(group, value, 1, LS_INT32, 1, NULL, &ops[0]));
	OK(ls_irecv(group, value + 1, 1, LS_INT32, LS_ANY_SOURCE, NULL, &ops[1]));
	ls_status status = ls_wait_any(ops, 2, 0, &index);
	CHECK(index == 0 || index == 1);
	GIVES(LS_INTERRUPTED, ls_wait(ops[1 - index], 0));
	ls_request_free(ops[0]);
	ls_request_free(ops[1]);
	return status;
}

enum { INTERRUPTIONS = 9 };

/* Every call on messages that can wait. */
static ls_status wait_in_vain(ls_group *group, int which, int32_t *buffer)
{
	struct message message = {.group = group,
				  .buffer = buffer,
				  .count = which == 2 ? 1 : LONG,
				  .peer = 1,
				  .sends = which == 5 || which == 6};
	struct ls_message found = {.size = sizeof found};
	static const enum way ways[] = {BLOCKING, HANDLE, ANY, BATCH, HANDLE, BLOCKING, HANDLE};
	if (which < 7)
		return message_pass(&message, ways[which], 0);
	return which == 7 ? ls_probe(group, 1, NULL, &found) : wait_any(group, buffer);
}

/* The waiting call returns the error, and so do the calls of all other ranks. */
void a_signal_ends_a_wait(struct runner_rank *self)
{
	struct sigaction action = {.sa_handler = ignore};
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	for (int i = 0; i < INTERRUPTIONS; i++) {
		ls_group *group = runner_open(self);
		int32_t *buffer = values_alloc(group, LONG * 4, i & 1);
		values_blot(buffer, LONG, LS_INT32, 0);
		runner_ready(self, group);
		if (self->rank == 0) {
			struct nagging nagging = {.whom = pthread_self()};
			pthread_t thread;
			CHECK(pthread_create(&thread, NULL, nag, &nagging) == 0);
			ls_status status = wait_in_vain(group, i, buffer);
			atomic_store(&nagging.over, true);
			pthread_join(thread, NULL);
			CHECK_THAT(status == LS_INTERRUPTED, "call %d gave %s", i,
				   ls_status_name(status));
		}
		runner_meet(self);
		message_is_closed(group, LS_INTERRUPTED, 0, "interrupted");
		values_free(group, buffer, i & 1);
		ls_group_close(group);
		runner_meet(self);
	}
}

/* ---- closed and aborted ---- */

/* Closing a group with messages under way fails it for all ranks, with a message; callbacks are
 * called first. */
void closed_with_messages(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t *buffer = values_alloc(group, LONG * 4, true), value = 0;
	_Atomic int kept = LS_PENDING;
	runner_ready(self, group);
	if (self->rank == 1) {
		struct ls_call_options options = {.size = sizeof options,
						  .callback = message_keep_status,
						  .callback_data = &kept};
		struct caught caught;
		int32_t second;
		ls_request *ops[2];
		OK(ls_isend(group, buffer, LONG, LS_INT32, 0, NULL, &ops[0]));
		OK(ls_irecv(group, &value, 1, LS_INT32, LS_ANY_SOURCE, NULL, &ops[1]));
		OK(ls_recv(group, &second, 1, LS_INT32, 0, &options));
		caught_begin(&caught);
		ls_group_close(group);
		SAYS(caught_end(&caught),
		     "while 3 operations are under way: send #1 to rank 0 (tag 0), called from message_end_");
		SAYS(caught.text, ", and 2 more; they are given up");
		SAYS(caught.text, "LS-GROUP-CLOSE-PENDING");
		CHECK(atomic_load(&kept) == LS_ABORTED);
	} else {
		struct ls_call_options other = {.size = sizeof other, .tag = 7};
		GIVES(LS_ABORTED, ls_recv(group, &value, 1, LS_INT32, 1, &other));
		message_is_closed(group, LS_ABORTED, 1, "under way");
		ls_group_close(group);
	}
	free(buffer);
}

/* A send that was received is not under way, even if no call has looked at it since. */
void closed_after_a_send_was_received(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t *buffer = values_alloc(group, LONG * 4, true);
	struct caught caught;
	runner_ready(self, group);
	caught_begin(&caught);
	if (self->rank == 0) {
		ls_request *op;
		OK(ls_isend(group, buffer, LONG, LS_INT32, 1, NULL, &op));
		ls_request_free(op);
	} else {
		OK(ls_recv(group, buffer, LONG, LS_INT32, 0, NULL));
	}
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
	CHECK_THAT(!strstr(caught_end(&caught), "LS-GROUP-CLOSE-PENDING"), "it says: %s",
		   caught.text);
	free(buffer);
}

/* Of one operation. */
void closed_with_a_collective(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct caught caught;
	int32_t value = 0;
	runner_ready(self, group);
	if (self->rank == 1) {
		struct ls_call_options options = {.size = sizeof options};
		ls_request *op;
		options.request = &op;
		OK(ls_allreduce(group, &value, &value, 1, LS_INT32, LS_SUM, &options));
		caught_begin(&caught);
		ls_group_close(group);
		SAYS(caught_end(&caught),
		     "while 1 operation is under way: all-reduce #2, called from message_end_test.c:");
		SAYS(caught.text, "; it is given up");
	} else {
		runner_meet(self);
		ls_group_close(group);
	}
	if (self->rank == 1)
		runner_meet(self);
}

struct waiter {
	struct message message;
	enum way way;
	ls_status status;
	pthread_t thread;
};

static void *wait_in_thread(void *argument)
{
	struct waiter *waiter = argument;
	waiter->status = message_pass(&waiter->message, waiter->way, 0);
	return NULL;
}

/* All send, and nobody receives, or the other way round, in every way and at once: all return when
 * one aborts. */
static void abort_all(struct runner_rank *self, bool sends)
{
	enum { WAITERS = 10 };
	static const enum way ways[] = {BLOCKING, HANDLE, ANY, CALLBACK, BATCH};
	ls_group *group = runner_open(self);
	struct waiter waiters[WAITERS];
	for (int i = 0; i < WAITERS; i++) {
		waiters[i] =
			(struct waiter){.way = ways[i / 2],
					.message = {.group = group,
						    .buffer = values_alloc(group, LONG * 4, i & 1),
						    .count = LONG,
						    .peer = (self->rank + 1) % self->size,
						    .sends = sends}};
		values_blot(waiters[i].message.buffer, LONG, LS_INT32, 1);
		CHECK(pthread_create(&waiters[i].thread, NULL, wait_in_thread, &waiters[i]) == 0);
	}
	runner_meet(self);
	if (self->rank == 1)
		OK(ls_group_abort(group, "enough"));
	for (int i = 0; i < WAITERS; i++) {
		pthread_join(waiters[i].thread, NULL);
		CHECK_THAT(waiters[i].status == LS_ABORTED, "waiter %d got %s", i,
			   ls_status_name(waiters[i].status));
		values_free(group, waiters[i].message.buffer, i & 1);
	}
	message_is_closed(group, LS_ABORTED, 1, "enough");
	ls_group_close(group);
}

void an_abort_ends_all_sends(struct runner_rank *self)
{
	abort_all(self, true);
}

void an_abort_ends_all_receives(struct runner_rank *self)
{
	abort_all(self, false);
}

/* ---- a forked child ---- */

static void in_child(ls_group *group, ls_request *pending)
{
	int32_t value = 0;
	void *block = &value;
	struct ls_message found = {.size = sizeof found};
	ls_request *op = pending;
	GIVES(LS_FORKED, ls_isend(group, &value, 1, LS_INT32, 0, NULL, &op));
	CHECK(!op);
	GIVES(LS_FORKED, ls_irecv(group, &value, 1, LS_INT32, 0, NULL, &op));
	GIVES(LS_FORKED, ls_probe(group, 0, NULL, &found));
	GIVES(LS_FORKED, ls_iprobe(group, 0, NULL, &found));
	GIVES(LS_FORKED, ls_send_block(group, &value, 1, LS_INT32, 0, NULL));
	GIVES(LS_FORKED, ls_recv_block(group, &block, 1, LS_INT32, 0, NULL));
	CHECK(!block);
	GIVES(LS_FORKED, ls_batch_begin(group));
	GIVES(LS_FORKED, ls_batch_end(group, &op));
	GIVES(LS_FORKED, ls_cancel(pending));
	GIVES(LS_FORKED, ls_wait(pending, 0));
	ls_request_free(pending);
	ls_group_close(group);
}

/* In the child every call fails; the parent's messages, under way meanwhile, arrive whole. */
void a_forked_child_has_no_messages(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int other = 1 - self->rank, status;
	int32_t *from = values_alloc(group, LONG * 4, true),
		*to = values_alloc(group, LONG * 4, false);
	ls_request *send, *receive;
	values_fill(from, LONG, LS_INT32, LS_SUM, self->rank, 3);
	OK(ls_isend(group, from, LONG, LS_INT32, other, NULL, &send));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		in_child(group, send);
		_exit(0);
	}
	OK(ls_irecv(group, to, LONG, LS_INT32, other, NULL, &receive));
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	OK(ls_wait(receive, 0));
	OK(ls_wait(send, 0));
	values_check_from(to, LONG, LS_INT32, other, 3);
	ls_request_free(receive);
	ls_request_free(send);
	OK(ls_barrier(group, NULL));
	values_free(group, from, true);
	values_free(group, to, false);
	ls_group_close(group);
}
