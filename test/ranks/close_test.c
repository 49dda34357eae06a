/* SPDX-License-Identifier: BSD-3-Clause
 * What happens beside a close: another thread closes another group, a peer copies a message. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "tests.h"
#include "values.h"

enum { ROUNDS = 40, LONG = 1000000 };

struct closing {
	ls_group *group;
	_Atomic int *there; /* threads that are about to close */
	pthread_t thread;
};

static void *close_at_once(void *argument)
{
	const struct closing *closing = argument;
	atomic_fetch_add(closing->there, 1);
	while (atomic_load(closing->there) < 2)
		sched_yield();
	ls_group_close(closing->group);
	return NULL;
}

/* Messages in both directions that nobody receives, of which the close takes back the buffers. */
static void leave_messages(const struct runner_rank *self, ls_group *group, int32_t *out,
			   int32_t *in)
{
	int peer = (self->rank + 1) % self->size;
	struct ls_call_options other = {.size = sizeof other, .tag = 1};
	ls_request *op;
	OK(ls_isend(group, out, LONG, LS_INT32, peer, NULL, &op));
	ls_request_free(op);
	OK(ls_irecv(group, in, LONG, LS_INT32, LS_ANY_SOURCE, &other, &op));
	ls_request_free(op);
}

/* Each rank closes two groups at the same moment, every other time with messages under way; of the
 * others only these two have a failure. */
void two_threads_close_two_groups(struct runner_rank *self)
{
	ls_group *world = runner_open(self);
	int32_t *buffers[4];
	for (int i = 0; i < 4; i++) {
		buffers[i] = values_alloc(world, LONG * 4, i < 2);
		values_blot(buffers[i], LONG, LS_INT32, 0);
	}
	runner_ready(self, world);
	for (int round = 0; round < ROUNDS; round++) {
		_Atomic int there = 0;
		struct closing closings[2];
		for (int i = 0; i < 2; i++) {
			closings[i].there = &there;
			OK(ls_group_split(world, 0, 0, &closings[i].group));
			if (round % 2)
				leave_messages(self, closings[i].group, buffers[i], buffers[2 + i]);
		}
		runner_meet(self);
		for (int i = 0; i < 2; i++)
			CHECK(pthread_create(&closings[i].thread, NULL, close_at_once,
					     &closings[i]) == 0);
		for (int i = 0; i < 2; i++) {
			CHECK(pthread_join(closings[i].thread, NULL) == 0);
			CHECK(ls_group_rank(closings[i].group) == -1);
		}
		for (int i = 0; i < 4; i++) /* no peer uses it any more */
			values_blot(buffers[i], LONG, LS_INT32, 1);
		OK(ls_barrier(world, NULL));
		for (int i = 0; i < 4; i++)
			for (int j = 0; j < LONG; j++)
				CHECK(buffers[i][j] == 0x01010101);
	}
	for (int i = 0; i < 4; i++)
		values_free(world, buffers[i], i < 2);
	ls_group_close(world);
}

/* Closes the group at some moment between the begin of the message and long after its end, and then
 * writes to the buffer. */
static void close_too_early(ls_group *group, int32_t *buffer, ls_request *op, int round)
{
	ls_request_free(op);
	for (int i = 0; i < round * round; i++)
		sched_yield();
	ls_group_close(group);
	values_blot(buffer, LONG, LS_INT32, 4);
}

/* Rank 1 closes the group while the message comes that it has posted a receive for: after the close
 * nobody writes to its buffer. Or it closes the group while its own message goes: what rank 0 gets,
 * if it gets something, is what was there before the close. */
void closed_before_a_message_is_over(struct runner_rank *self)
{
	ls_group *world = runner_open(self);
	int32_t *buffer = values_alloc(world, LONG * 4, false);
	ls_request *op;
	runner_ready(self, world);
	for (int round = 0; round < ROUNDS; round++) {
		bool sends = round % 2;
		ls_group *group;
		values_blot(buffer, LONG, LS_INT32, self->rank ? 3 : 2);
		OK(ls_group_split(world, 0, 0, &group));
		if (self->rank == 1)
			OK(sends ? ls_isend(group, buffer, LONG, LS_INT32, 0, NULL, &op)
				 : ls_irecv(group, buffer, LONG, LS_INT32, 0, NULL, &op));
		runner_meet(self);
		if (self->rank == 1) {
			close_too_early(group, buffer, op, round);
		} else {
			ls_status status = sends ? ls_recv(group, buffer, LONG, LS_INT32, 1, NULL)
						 : ls_send(group, buffer, LONG, LS_INT32, 1, NULL);
			CHECK_THAT(status == LS_OK || status == LS_ABORTED || status == LS_PEER_LEFT,
				   "%s", ls_status_name(status));
			for (int i = 0; i < LONG && status == LS_OK && sends; i++)
				CHECK(buffer[i] == 0x03030303);
		}
		runner_meet(self);
		for (int i = 0; i < LONG && self->rank == 1; i++)
			CHECK(buffer[i] == 0x04040404);
		if (self->rank == 0)
			ls_group_close(group);
		runner_meet(self);
	}
	values_free(world, buffer, false);
	ls_group_close(world);
}
