/* SPDX-License-Identifier: BSD-3-Clause
 * The warning of ranks that all send before they receive, which works only with short messages. It
 * comes where that is certain, once for each call site, and nowhere else. */
#include <string.h>

#include "buffered.h"
#include "caught.h"
#include "common.h"
#include "tests.h"

/* Both send, and when both have sent, both receive, by turns the one and the other last; at two
 * places. */
static void both_send_first(struct runner_rank *self, ls_group *group, int turns)
{
	struct ls_call_options three = with_tag(3), four = with_tag(4);
	int other = 1 - self->rank;
	for (int i = 0; i < turns; i++) {
		bool last = i % 2 == self->rank;
		int32_t value;
		send_one(group, i, other, 3);
		runner_meet(self);
		if (last)
			runner_meet(self);
		OK(ls_recv(group, &value, 1, LS_INT32, other, &three));
		if (!last)
			runner_meet(self);
		send_one(group, i, other, 4);
		runner_meet(self);
		if (last)
			runner_meet(self);
		OK(ls_recv(group, &value, 1, LS_INT32, other, &four));
		if (!last)
			runner_meet(self);
	}
}

/* Each rank tells each of the two places exactly once. */
void both_send_first_is_told(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct caught caught;
	caught_begin(&caught);
	both_send_first(self, group, 20);
	const char *text = caught_end(&caught);
	int told = times(text, "LS-GROUP-BUFFERED");
	CHECK_THAT(told == 2, "it was told %d times: %s", told, text);
	CHECK_THAT(times(text, "(tag 3, received at buffered_test.c:") == 1 &&
			   times(text, "(tag 4, received at buffered_test.c:") == 1,
		   "%s", text);
	SAYS(text, "both send to each other before they receive");
	ls_group_close(group);
}

/* Nothing was said since caught_begin. */
static void close_untold(ls_group *group, struct caught *caught)
{
	const char *text = caught_end(caught);
	CHECK_THAT(!*text, "this was said: %s", text);
	ls_group_close(group);
}

/* What is in order, in every way to write it. */
static void one_receives_first(struct runner_rank *self, ls_group *group, int other)
{
	for (int i = 0; i < 50; i++) {
		if (self->rank == 0)
			receive_one(group, other, 3);
		send_one(group, i, other, 3);
		if (self->rank == 1)
			receive_one(group, other, 3);
	}
}

static void begin_both(struct runner_rank *self, ls_group *group, int other)
{
	for (int i = 0; i < 50; i++) {
		int32_t from = i, to;
		ls_request *op;
		if (i % 2)
			OK(ls_isend(group, &from, 1, LS_INT32, other, NULL, &op));
		else
			OK(ls_irecv(group, &to, 1, LS_INT32, other, NULL, &op));
		runner_meet(self);
		if (i % 2)
			OK(ls_recv(group, &to, 1, LS_INT32, other, NULL));
		else
			OK(ls_send(group, &from, 1, LS_INT32, other, NULL));
		OK(ls_wait(op, 0));
		ls_request_free(op);
	}
}

/* Rank 1 can receive while its send waits, so rank 0 may block in its own. */
static void begin_one(struct runner_rank *self, ls_group *group, int other)
{
	for (int i = 0; i < 50; i++) {
		int32_t from = i, to;
		ls_request *op = NULL;
		if (self->rank == 0)
			OK(ls_send(group, &from, 1, LS_INT32, other, NULL));
		else
			OK(ls_isend(group, &from, 1, LS_INT32, other, NULL, &op));
		runner_meet(self);
		OK(ls_recv(group, &to, 1, LS_INT32, other, NULL));
		if (op)
			OK(ls_wait(op, 0));
		ls_request_free(op);
	}
}

/* Both messages meet receives of any source that have been begun before, so both could have been
 * long. */
static void begin_any(struct runner_rank *self, ls_group *group, int other)
{
	for (int i = 0; i < 50; i++) {
		struct ls_call_options three = with_tag(3);
		int32_t to;
		ls_request *op;
		OK(ls_irecv(group, &to, 1, LS_INT32, LS_ANY_SOURCE, &three, &op));
		runner_meet(self);
		send_one(group, i, other, 3);
		if (self->rank == 0)
			send_one(group, i, other, 4);
		else
			receive_one(group, other, 4);
		OK(ls_wait(op, 0));
		ls_request_free(op);
	}
}

/* Rank 1 receives the message of rank 0 with a call that it makes after its send; but only because
 * its own message has met the receive that it had begun before. If sends waited for their receives,
 * rank 0's message would have met that one. */
static void begin_any_for_another(struct runner_rank *self, ls_group *group, int other, bool begins)
{
	struct ls_call_options three = with_tag(3);
	int32_t to[2], from = 1;
	ls_request *op, *sent;
	if (self->rank == 0) {
		runner_meet(self);
		send_one(group, 1, other, 3);
		receive_one(group, other, 4);
		runner_meet(self);
		return;
	}
	OK(ls_irecv(group, &to[0], 1, LS_INT32, LS_ANY_SOURCE, &three, &op));
	if (begins)
		isend_one(group, other, 4, true);
	else
		send_one(group, 1, other, 4);
	OK(ls_isend(group, &from, 1, LS_INT32, self->rank, &three, &sent));
	OK(ls_wait(op, 0));
	runner_meet(self);
	runner_meet(self);
	receive_one(group, other, 3);
	OK(ls_wait(sent, 0));
	ls_request_free(op);
	ls_request_free(sent);
}

static void batch_both(struct runner_rank *self, ls_group *group, int other)
{
	for (int i = 0; i < 50; i++) {
		int32_t from = i, to;
		OK(ls_batch_begin(group));
		OK(ls_send(group, &from, 1, LS_INT32, other, NULL));
		runner_meet(self);
		OK(ls_recv(group, &to, 1, LS_INT32, other, NULL));
		OK(ls_batch_end(group, NULL));
	}
}

/* Rank 0's receive of any source takes rank 1's message at once; but it might have taken the one of
 * rank 0 itself, if that had come first. From another host it has come when the next one has. */
static void any_takes_at_once(struct runner_rank *self, ls_group *group, int other)
{
	struct ls_call_options three = with_tag(3);
	int32_t to;
	ls_request *op;
	if (self->rank == 1) {
		send_one(group, 1, other, 3);
		send_one(group, 1, other, 4);
		return;
	}
	receive_one(group, other, 4);
	OK(ls_irecv(group, &to, 1, LS_INT32, LS_ANY_SOURCE, &three, &op));
	isend_one(group, self->rank, 3, true);
	receive_one(group, self->rank, 3);
	OK(ls_wait(op, 0));
	ls_request_free(op);
}

static void begin_any_and_isend(struct runner_rank *self, ls_group *group, int other)
{
	begin_any_for_another(self, group, other, true);
}

static void begin_any_and_send(struct runner_rank *self, ls_group *group, int other)
{
	begin_any_for_another(self, group, other, false);
}

static void send_to_own_receive(struct runner_rank *self, ls_group *group, int other)
{
	(void)other;
	struct ls_call_options five = with_tag(5);
	int32_t to;
	ls_request *op;
	OK(ls_irecv(group, &to, 1, LS_INT32, self->rank, &five, &op));
	send_one(group, 1, self->rank, 5);
	OK(ls_wait(op, 0));
	ls_request_free(op);
}

void what_is_in_order_is_not_told(struct runner_rank *self)
{
	static void (*const parts[])(struct runner_rank *, ls_group *, int) = {
		begin_any_and_isend, begin_any_and_send, any_takes_at_once,
		begin_any,           begin_one,          one_receives_first,
		begin_both,          batch_both,         send_to_own_receive,
	};
	ls_group *group = runner_open(self);
	struct caught caught;
	caught_begin(&caught);
	/* A group for each, as receives that do not block make it less sure. */
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		ls_group *own;
		OK(ls_group_split(group, 0, self->rank, &own));
		parts[i](self, own, 1 - self->rank);
		OK(ls_barrier(own, NULL));
		ls_group_close(own);
	}
	close_untold(group, &caught);
}

static void *receive_in_thread(void *argument)
{
	ls_group *group = argument;
	receive_one(group, 1 - ls_group_rank(group), 9);
	return NULL;
}

/* A rank with several threads may have a thread that receives. */
void several_threads_are_not_told(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct caught caught;
	int other = 1 - self->rank;
	pthread_t thread;
	caught_begin(&caught);
	CHECK(pthread_create(&thread, NULL, receive_in_thread, group) == 0);
	send_one(group, 1, other, 9);
	CHECK(pthread_join(thread, NULL) == 0);
	runner_meet(self);
	both_send_first(self, group, 5);
	close_untold(group, &caught);
}

static void run_in_thread(void *(*run)(void *), ls_group *group)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, run, group) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

/* Rank 0's other thread has done nothing but receive a message that was there. */
void a_thread_that_received_is_not_told(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct caught caught;
	caught_begin(&caught);
	if (self->rank == 1)
		send_one(group, 1, 0, 9);
	runner_meet(self);
	if (self->rank == 0)
		run_in_thread(receive_in_thread, group);
	runner_meet(self);
	send_one(group, 1, 1 - self->rank, 3);
	runner_meet(self);
	receive_one(group, 1 - self->rank, 3);
	close_untold(group, &caught);
}

static void *probe_in_thread(void *argument)
{
	struct ls_call_options options = with_tag(9);
	struct ls_message message = {.size = sizeof message};
	GIVES(LS_PENDING, ls_iprobe(argument, LS_ANY_SOURCE, &options, &message));
	return NULL;
}

/* Rank 0's other thread has done nothing but look for messages, which it may be about to
 * receive. */
void a_thread_that_probed_is_not_told(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct caught caught;
	caught_begin(&caught);
	if (self->rank == 0)
		run_in_thread(probe_in_thread, group);
	runner_meet(self);
	send_one(group, 1, 1 - self->rank, 3);
	runner_meet(self);
	receive_one(group, 1 - self->rank, 3);
	close_untold(group, &caught);
}

static void *send_in_thread(void *argument)
{
	send_one(argument, 1, 1, 3);
	return NULL;
}

/* The main thread of rank 0 receives what rank 1 sends first, so both could wait for it. */
void a_thread_beside_the_main_one_is_not_told(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct caught caught;
	caught_begin(&caught);
	if (self->rank == 0) {
		run_in_thread(send_in_thread, group);
	} else {
		send_one(group, 1, 0, 9);
	}
	runner_meet(self);
	receive_one(group, 1 - self->rank, self->rank == 0 ? 9 : 3);
	close_untold(group, &caught);
}

/* Nobody has heard of rank 0's other thread yet when rank 1 receives; what rank 1 has sent is for
 * it. */
void a_thread_that_comes_later_is_not_told(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct caught caught;
	caught_begin(&caught);
	send_one(group, 1, 1 - self->rank, self->rank == 0 ? 3 : 9);
	runner_meet(self);
	if (self->rank == 1)
		receive_one(group, 0, 3);
	runner_meet(self);
	if (self->rank == 0)
		run_in_thread(receive_in_thread, group);
	close_untold(group, &caught);
}

/* Both send several, and then receive as many. Rank 0 is the last that receives its first. */
void both_send_several_first_is_told(struct runner_rank *self)
{
	enum { SEVERAL = 5 };
	ls_group *group = runner_open(self);
	struct caught caught;
	caught_begin(&caught);
	for (int i = 0; i < SEVERAL; i++)
		send_one(group, i, 1 - self->rank, 3);
	runner_meet(self);
	if (self->rank == 0)
		runner_meet(self);
	for (int i = 0; i < SEVERAL; i++)
		receive_one(group, 1 - self->rank, 3);
	if (self->rank == 1)
		runner_meet(self);
	const char *text = caught_end(&caught);
	if (self->rank == 0)
		SAYS(text, "ranks 0 and 1 both send to each other before they receive (tag 3, ");
	ls_group_close(group);
}

/* Whatever ranks they are of the group, they are named as everywhere else. */
void both_send_first_in_a_group_is_told(struct runner_rank *self)
{
	static const int ranks[] = {1, 2};
	ls_group *world = runner_open(self), *group = NULL;
	struct caught caught;
	if (self->rank > 0)
		OK(ls_group_from_ranks(world, ranks, 2, &group));
	else
		GIVES(LS_NOT_MEMBER, ls_group_from_ranks(world, ranks, 2, &group));
	caught_begin(&caught);
	if (group)
		send_one(group, 1, 1 - ls_group_rank(group), 3);
	runner_meet(self);
	if (self->rank == 1)
		receive_one(group, 1, 3);
	runner_meet(self);
	if (self->rank == 2)
		receive_one(group, 0, 3);
	const char *text = caught_end(&caught);
	if (self->rank == 2)
		SAYS(text, "ranks 1 and 2 both send to each other before they receive (tag 3, ");
	ls_group_close(group);
	ls_group_close(world);
}
