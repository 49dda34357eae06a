/* SPDX-License-Identifier: BSD-3-Clause
 * Sends and receives with a peer that dies, leaves, is too late or gives up. The rank waits for
 * them in every way: in the call, by a handle, of any source, by a callback, for room. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "message_ways.h"
#include "process.h"
#include "tests.h"
#include "values.h"

enum {
	LONG = 300000,
	HUGE = 8000000, /* takes longer than it takes to wake its sender, which then helps */
	PAGE = 4096,
};

/* Of ranks that only look on. */
static void look_on(ls_group *group, ls_status status)
{
	int32_t value;
	GIVES(status, ls_recv(group, &value, 1, LS_INT32, 0, NULL));
}

/* ---- a rank that dies ---- */

static void die(int number)
{
	(void)number;
	raise(SIGKILL);
}

/* From now on this process dies as soon as it touches the buffer, in the middle of a message. */
static void set_trap(const void *buffer, size_t bytes)
{
	uintptr_t first = ((uintptr_t)buffer + PAGE - 1) / PAGE * PAGE;
	uintptr_t end = ((uintptr_t)buffer + bytes) / PAGE * PAGE;
	struct sigaction action = {.sa_handler = die};
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	CHECK(mprotect((void *)first, end - first, PROT_NONE) == 0);
}

/* Rank 1 dies with pieces in its hands that it has begun to copy for rank 0. What is received
 * before is whole. */
static void sender_dies(struct runner_rank *self, enum way way)
{
	ls_group *group = runner_open(self);
	struct message message = {.group = group,
				  .buffer = values_alloc(group, HUGE * 4, false),
				  .count = HUGE,
				  .peer = 1 - self->rank,
				  .sends = self->rank == 1};
	ls_status status = LS_OK;
	if (self->rank == 1) {
		values_fill(message.buffer, HUGE, LS_INT32, LS_SUM, 1, 7);
		set_trap(message.buffer, HUGE * 4);
	}
	runner_ready(self, group);
	while (self->rank <= 1 && status == LS_OK) {
		values_blot(message.buffer, self->rank == 0 ? HUGE : 0, LS_INT32, 0x55);
		status = message_pass(&message, self->rank == 0 ? way : BLOCKING, 0);
		if (status == LS_OK && self->rank == 0)
			values_check_from(message.buffer, HUGE, LS_INT32, 1, 7);
	}
	if (self->rank == 0)
		CHECK_THAT(status == LS_PEER_DIED, "%s", ls_status_name(status));
	else
		look_on(group, LS_PEER_DIED);
	message_is_closed(group, LS_PEER_DIED, 1, "was killed by SIGKILL");
	values_free(group, message.buffer, false);
	ls_group_close(group);
}

void sender_dies_in_a_message(struct runner_rank *self)
{
	sender_dies(self, BLOCKING);
}

void sender_dies_in_a_message_handle(struct runner_rank *self)
{
	sender_dies(self, HANDLE);
}

void sender_dies_in_a_message_any(struct runner_rank *self)
{
	sender_dies(self, ANY);
}

void sender_dies_in_a_message_callback(struct runner_rank *self)
{
	sender_dies(self, CALLBACK);
}

static void *send_for_ever(void *argument)
{
	while (message_pass(argument, BLOCKING, 0) == LS_OK)
		;
	return NULL;
}

/* Plain memory vanishes with its owner, whatever has been read of it by then. */
void sender_dies_while_it_is_read(struct runner_rank *self)
{
	enum { BEFORE = 5 };
	ls_group *group = runner_open(self);
	struct message message = {.group = group,
				  .buffer = values_alloc(group, LONG * 4, true),
				  .count = LONG,
				  .peer = 1 - self->rank,
				  .sends = self->rank == 1};
	if (self->rank == 1) {
		pthread_t thread;
		values_fill(message.buffer, LONG, LS_INT32, LS_SUM, 1, 7);
		CHECK(pthread_create(&thread, NULL, send_for_ever, &message) == 0);
		while (atomic_load(&self->shared->words[0]) < BEFORE)
			sched_yield();
		raise(SIGKILL);
	}
	for (ls_status status = LS_OK; self->rank == 0 && status == LS_OK;) {
		values_blot(message.buffer, LONG, LS_INT32, 0x55);
		status = message_pass(&message, BLOCKING, 0);
		if (status == LS_OK)
			values_check_from(message.buffer, LONG, LS_INT32, 1, 7);
		else
			CHECK_THAT(status == LS_PEER_DIED, "%s", ls_status_name(status));
		atomic_fetch_add(&self->shared->words[0], 1);
	}
	if (self->rank == 2)
		look_on(group, LS_PEER_DIED);
	message_is_closed(group, LS_PEER_DIED, 1, "was killed by SIGKILL");
	values_free(group, message.buffer, true);
	ls_group_close(group);
}

/* Rank 1 dies before it receives, or in the middle of it. */
static void receiver_dies(struct runner_rank *self, enum way way, bool inside)
{
	ls_group *group = runner_open(self);
	struct message message = {.group = group,
				  .buffer = values_alloc(group, LONG * 4, false),
				  .count = LONG,
				  .peer = 1 - self->rank,
				  .sends = self->rank == 0};
	values_blot(message.buffer, LONG, LS_INT32, 0);
	runner_ready(self, group);
	if (self->rank == 1 && !inside)
		raise(SIGKILL);
	if (self->rank == 1)
		set_trap(message.buffer, LONG * 4);
	/* Now and then the sender copies all of it, and then the receiver does not touch its
	 * buffer. */
	ls_status status = LS_OK;
	while (self->rank <= 1 && status == LS_OK)
		status = message_pass(&message, self->rank == 0 ? way : BLOCKING, 0);
	if (self->rank == 0)
		CHECK_THAT(status == LS_PEER_DIED, "%s", ls_status_name(status));
	else
		look_on(group, LS_PEER_DIED);
	message_is_closed(group, LS_PEER_DIED, 1, "was killed by SIGKILL");
	values_free(group, message.buffer, false);
	ls_group_close(group);
}

void receiver_dies_before(struct runner_rank *self)
{
	receiver_dies(self, BLOCKING, false);
}

void receiver_dies_before_handle(struct runner_rank *self)
{
	receiver_dies(self, HANDLE, false);
}

void receiver_dies_in_a_message(struct runner_rank *self)
{
	receiver_dies(self, BLOCKING, true);
}

void receiver_dies_in_a_message_handle(struct runner_rank *self)
{
	receiver_dies(self, HANDLE, true);
}

void receiver_dies_in_a_message_callback(struct runner_rank *self)
{
	receiver_dies(self, CALLBACK, true);
}

/* A short message that has no room, as nobody receives: rank 1 dies, or leaves. */
static void room_never_comes(struct runner_rank *self, enum way way, ls_status status)
{
	ls_group *group = runner_open(self);
	int32_t value = 0;
	struct message message = {
		.group = group, .buffer = &value, .count = 1, .peer = 1, .sends = true};
	runner_ready(self, group);
	if (self->rank == 0)
		message_fill_room(group, 1);
	if (self->rank == 1)
		while (atomic_load(&self->shared->words[0]) == 0)
			sched_yield();
	if (self->rank == 1 && status == LS_PEER_DIED)
		raise(SIGKILL);
	if (self->rank == 1) {
		ls_group_close(group);
		return;
	}
	if (self->rank == 0) {
		atomic_store(&self->shared->words[0], 1);
		GIVES(status, message_pass(&message, way, 0));
	} else {
		look_on(group, status);
	}
	message_is_closed(group, status, 1, "rank 1");
	ls_group_close(group);
}

void room_of_a_dead_rank(struct runner_rank *self)
{
	room_never_comes(self, BLOCKING, LS_PEER_DIED);
}

void room_of_a_dead_rank_handle(struct runner_rank *self)
{
	room_never_comes(self, HANDLE, LS_PEER_DIED);
}

void room_of_a_dead_rank_callback(struct runner_rank *self)
{
	room_never_comes(self, CALLBACK, LS_PEER_DIED);
}

void room_of_a_rank_that_left(struct runner_rank *self)
{
	room_never_comes(self, BLOCKING, LS_PEER_LEFT);
}

void room_of_a_rank_that_left_handle(struct runner_rank *self)
{
	room_never_comes(self, HANDLE, LS_PEER_LEFT);
}

/* ---- a rank that leaves ---- */

/* All but rank 0 leave; it waits for rank 1, or for anybody. */
static void peer_leaves(struct runner_rank *self, enum way way, bool sends)
{
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank != 0) {
		ls_group_close(group);
		return;
	}
	struct message message = {.group = group,
				  .buffer = values_alloc(group, LONG * 4, false),
				  .count = LONG,
				  .peer = 1,
				  .sends = sends};
	struct ls_failure failure = {.size = sizeof failure};
	values_blot(message.buffer, LONG, LS_INT32, 0);
	GIVES(LS_PEER_LEFT, message_pass(&message, way, 0));
	OK(ls_group_failure(group, &failure));
	CHECK_THAT(failure.rank == 1 || (way == ANY && failure.rank > 0), "rank %d is blamed: %s",
		   failure.rank, failure.text);
	message_is_closed(group, LS_PEER_LEFT, failure.rank, "rank ");
	values_free(group, message.buffer, false);
	ls_group_close(group);
}

void peer_leaves_a_receive(struct runner_rank *self)
{
	peer_leaves(self, BLOCKING, false);
}

void peer_leaves_a_receive_handle(struct runner_rank *self)
{
	peer_leaves(self, HANDLE, false);
}

void peer_leaves_a_receive_callback(struct runner_rank *self)
{
	peer_leaves(self, CALLBACK, false);
}

void peer_leaves_a_batch(struct runner_rank *self)
{
	peer_leaves(self, BATCH, false);
}

/* Rank 1 leaves while rank 0 waits for a batch of a message from it and of one from rank 2, which
 * comes only when that is over; the part that needs rank 1 is the first one, or the last one. */
void peer_leaves_a_part_of_a_batch(struct runner_rank *self)
{
	for (int first = 1; first <= 2; first++) {
		ls_group *group = runner_open(self);
		int32_t values[2];
		runner_ready(self, group);
		if (self->rank == 0) {
			OK(ls_batch_begin(group));
			OK(ls_recv(group, &values[0], 1, LS_INT32, first, NULL));
			OK(ls_recv(group, &values[1], 1, LS_INT32, 3 - first, NULL));
			GIVES(LS_PEER_LEFT, ls_batch_end(group, NULL));
			message_is_closed(group, LS_PEER_LEFT, 1, "message_failure_test.c");
		}
		if (self->rank == 1)
			ls_group_close(group);
		runner_meet(self);
		if (self->rank != 1)
			ls_group_close(group);
		runner_meet(self);
	}
}

void all_leave_a_receive_of_any(struct runner_rank *self)
{
	peer_leaves(self, ANY, false);
}

/* Each sends one message, and leaves at once: rank 0 gets them all, in each way to wait. */
void all_send_and_leave(struct runner_rank *self)
{
	static const enum way ways[] = {BLOCKING, HANDLE, BATCH, CALLBACK};
	for (int i = 0; i < 12; i++) {
		ls_group *group = runner_open(self);
		int32_t value = self->rank;
		struct message message = {
			.group = group, .buffer = &value, .count = 1, .peer = LS_ANY_SOURCE};
		runner_ready(self, group);
		if (self->rank != 0)
			OK(ls_send(group, &value, 1, LS_INT32, 0, NULL));
		for (int q = 1; self->rank == 0 && q < self->size; q++)
			OK(message_pass(&message, ways[i % 4], 0));
		ls_group_close(group);
		runner_meet(self);
	}
}

struct feeder {
	ls_group *group;
	int32_t value;
	_Atomic int tid;
};

/* What comes from rank 1, which then leaves, it passes on to another thread of its own rank. */
static void *pass_on(void *argument)
{
	struct feeder *feeder = argument;
	struct ls_call_options first = {.size = sizeof first, .tag = 2};
	atomic_store(&feeder->tid, gettid());
	OK(ls_recv(feeder->group, &feeder->value, 1, LS_INT32, 1, &first));
	OK(ls_send(feeder->group, &feeder->value, 1, LS_INT32, 0, NULL));
	return NULL;
}

/* One thread of rank 0 waits for any rank, and all the others have left: the last message of one of
 * them is for another thread of rank 0, which is still about to do what the first waits for. */
void what_came_last_is_passed_on(struct runner_rank *self)
{
	for (int i = 0; i < 12; i++) {
		ls_group *group = runner_open(self);
		struct ls_call_options first = {.size = sizeof first, .tag = 2};
		struct feeder feeder = {.group = group};
		int32_t value = 7, got = 0;
		pthread_t thread;
		runner_ready(self, group);
		if (self->rank == 0)
			CHECK(pthread_create(&thread, NULL, pass_on, &feeder) == 0);
		while (self->rank == 0 && (!atomic_load(&feeder.tid) ||
					   process_state(atomic_load(&feeder.tid)) != 'S'))
			sched_yield();
		runner_meet(self);
		if (self->rank == 1)
			OK(ls_send(group, &value, 1, LS_INT32, 0, &first));
		if (self->rank == 0) {
			OK(ls_recv(group, &got, 1, LS_INT32, LS_ANY_SOURCE, NULL));
			CHECK(got == value);
			pthread_join(thread, NULL);
		}
		ls_group_close(group);
		runner_meet(self);
	}
}

void peer_leaves_a_send(struct runner_rank *self)
{
	peer_leaves(self, BLOCKING, true);
}

void peer_leaves_a_send_handle(struct runner_rank *self)
{
	peer_leaves(self, HANDLE, true);
}

void peer_leaves_a_send_callback(struct runner_rank *self)
{
	peer_leaves(self, CALLBACK, true);
}

/* A receive from a rank that has left since can still be cancelled, and the group continues. */
void cancel_what_left(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t value = 5;
	ls_request *receive = NULL, *send = NULL;
	int32_t *buffer = values_alloc(group, LONG * 4, true);
	values_blot(buffer, LONG, LS_INT32, 0);
	if (self->rank == 0) {
		OK(ls_irecv(group, &value, 1, LS_INT32, 1, NULL, &receive));
		OK(ls_isend(group, buffer, LONG, LS_INT32, 1, NULL, &send));
	}
	OK(ls_barrier(group, NULL));
	if (self->rank == 1)
		ls_group_close(group); /* with the buffer of ls_alloc */
	runner_meet(self);
	if (self->rank == 1) {
		free(buffer);
		return;
	}
	if (self->rank == 0) {
		OK(runner_cancel(receive));
		OK(runner_cancel(send));
		GIVES(LS_CANCELLED, ls_wait(receive, 0));
		GIVES(LS_CANCELLED, ls_wait(send, 0));
		ls_request_free(receive);
		ls_request_free(send);
		OK(ls_send(group, &value, 1, LS_INT32, self->size - 1, NULL));
		OK(ls_recv(group, buffer, LONG, LS_INT32, self->size - 1, NULL));
	} else if (self->rank == self->size - 1) {
		OK(ls_recv(group, &value, 1, LS_INT32, 0, NULL));
		OK(ls_send(group, buffer, LONG, LS_INT32, 0, NULL));
	}
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK(failure.status == LS_OK);
	values_free(group, buffer, true);
	ls_group_close(group);
}

/* Two ranks wait for each other in a group of their own. The other two work in theirs: they call,
 * and do something else for a moment. What a rank does in one group must hide nothing in another,
 * not even from other hosts. */
void deadlock_beside_a_busy_group(struct runner_rank *self)
{
	const struct timespec moment = {.tv_nsec = 20000000};
	ls_group *group = runner_open(self), *own;
	int32_t value = 1, is_over = 0, are_over = 0;
	bool is_stuck = self->rank % 2 == 0;
	OK(ls_group_split(group, is_stuck, self->rank, &own));
	if (is_stuck) {
		GIVES(LS_DEADLOCK, ls_recv(own, &value, 1, LS_INT32, 1 - ls_group_rank(own), NULL));
		OK(ls_send(group, &value, 1, LS_INT32, self->rank + 1, NULL));
	} else {
		ls_request *over;
		OK(ls_irecv(group, &value, 1, LS_INT32, self->rank - 1, NULL, &over));
		while (!are_over) {
			is_over = ls_test(over) != LS_PENDING;
			OK(ls_allreduce(own, &is_over, &are_over, 1, LS_INT32, LS_MIN, NULL));
			nanosleep(&moment, NULL); /* its work */
		}
		OK(ls_wait(over, 0));
		ls_request_free(over);
	}
	runner_meet(self);
	ls_group_close(own);
	ls_group_close(group);
}
