/* SPDX-License-Identifier: BSD-3-Clause
 * LOCKSTEP_P2P=serial: sends that wait for their turn behind a send to another peer, or in another
 * group, which has other members, or of which other members are gone. */
#include <sched.h>

#include "common.h"
#include "tests.h"
#include "values.h"

enum { LONG = 100000 };
static int32_t held[LONG]; /* by all that send it, and never changed */

static ls_request *start(ls_group *group, int32_t *buffer, uint64_t count, int peer, int tag,
			 bool sends)
{
	struct ls_call_options options = {.size = sizeof options, .tag = tag};
	ls_request *op;
	if (sends)
		OK(ls_isend(group, buffer, count, LS_INT32, peer, &options, &op));
	else
		OK(ls_irecv(group, buffer, count, LS_INT32, peer, &options, &op));
	return op;
}

/* Rank 0 waits for a send that waits for its turn behind one in another group, and for a receive.
 * The two groups number their members differently. */
static ls_request *begin_behind(ls_group *before, ls_group *group, int32_t *value, ls_request **ops)
{
	int sender = 1, receiver = 2;
	CHECK(ls_group_rank(group) == 0 && ls_group_rank(before) == 0);
	ls_request *first = start(before, held, LONG, ls_group_size(before) - 1, 1, true);
	ops[0] = start(group, held, LONG, receiver, 1, true);
	ops[1] = start(group, value, 1, sender, 2, false);
	return first;
}

static void receive_behind(ls_group *before, ls_group *group)
{
	int32_t *into = values_alloc(group, LONG * 4, true);
	finish(start(before, into, LONG, 0, 1, false), LS_OK);
	finish(start(group, into, LONG, 0, 1, false), LS_OK);
	values_free(group, into, true);
}

/* The sender has left the group. Its number is that of the receiver in the other group, which comes
 * late. */
void in_series_any_behind_another_group(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group, *before = NULL;
	int32_t value = 0, other, which;
	OK(ls_group_split(world, 0, 0, &group));
	GIVES(self->rank == 1 ? LS_NOT_MEMBER : LS_OK,
	      ls_group_split(world, self->rank == 1 ? -1 : 0, 0, &before));
	runner_ready(self, group);
	if (self->rank == 1)
		ls_group_close(group);
	runner_meet(self);
	if (self->rank == 0) {
		ls_request *ops[2], *first = begin_behind(before, group, &value, ops);
		/* Both orders: of which it is looked at first. */
		ls_request *turned[2] = {ops[1], ops[0]};
		ls_status status = ls_wait_any(turned, 2, 200, &which);
		CHECK_THAT(status == LS_PENDING, "%s", ls_status_name(status));
		GIVES(LS_PENDING, ls_wait_any(ops, 2, 200, &which));
		finish(start(world, &other, 1, 2, 3, false), LS_OK);
		OK(ls_wait_any(turned, 2, 0, &which));
		CHECK(which == 1);
		OK(runner_cancel(ops[1]));
		finish(ops[1], LS_CANCELLED);
		ls_request_free(ops[0]);
		finish(first, LS_OK);
	} else if (self->rank == 2) {
		struct ls_call_options late = {.size = sizeof late, .tag = 3};
		ls_request *never = start(world, &value, 1, 1, 4, false);
		GIVES(LS_PENDING, ls_wait(never, 500));
		OK(runner_cancel(never));
		finish(never, LS_CANCELLED);
		value = 1;
		OK(ls_send(world, &value, 1, LS_INT32, 0, &late));
		receive_behind(before, group);
	}
	if (self->rank != 1)
		ls_group_close(group);
	ls_group_close(before);
	runner_meet(self);
	ls_group_close(world);
}

/* With LOOK_MS=10. The sender has left only the other group; the two others wait for nothing
 * else. */
void in_series_any_of_one_that_left_another(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group, *before;
	struct ls_call_options late = {.size = sizeof late, .tag = 2};
	int32_t value = 0, which;
	OK(ls_group_split(world, 0, 0, &group));
	OK(ls_group_split(world, 0, 0, &before));
	runner_ready(self, before);
	if (self->rank == 1) {
		ls_group_close(before);
		before = NULL;
	}
	runner_meet(self);
	if (self->rank == 0) {
		ls_request *ops[2], *first = begin_behind(before, group, &value, ops);
		OK(ls_wait_any(ops, 2, 0, &which));
		CHECK(which == 1 && value == 5);
		ls_request_free(ops[1]);
		value = 6;
		OK(ls_barrier(world, NULL));
		finish(first, LS_OK);
		finish(ops[0], LS_OK);
	} else {
		ls_request *never = start(world, &value, 1, 3 - self->rank, 4, false);
		if (self->rank == 1) {
			GIVES(LS_PENDING, ls_wait(never, 200));
			int32_t five = 5;
			OK(ls_send(group, &five, 1, LS_INT32, 0, &late));
		}
		OK(runner_cancel(never));
		finish(never, LS_CANCELLED);
		OK(ls_barrier(world, NULL));
		if (self->rank == 2)
			receive_behind(before, group);
	}
	runner_meet(self);
	ls_group_close(before);
	ls_group_close(group);
	ls_group_close(world);
}

/* Rank 0 waits for a send to rank 1, which leaves its group, behind one that the last rank takes
 * only afterwards. */
void in_series_behind_and_left(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	int32_t *into = values_alloc(world, LONG * 4, true);
	int last = self->size - 1;
	OK(ls_group_split(world, 0, 0, &group));
	runner_ready(self, group);
	if (self->rank == 0) {
		ls_request *first = start(world, held, LONG, last, 1, true);
		ls_request *waits = start(group, held, LONG, 1, 1, true);
		bool polls = self->turn % 2;
		ls_status status = LS_PENDING;
		runner_meet(self);
		while (polls && status == LS_PENDING)
			status = ls_test(waits);
		GIVES(LS_PEER_LEFT, ls_wait(waits, 0));
		ls_request_free(waits);
		GIVES(LS_PENDING, ls_test(first));
		runner_meet(self);
		finish(first, LS_OK);
	} else {
		runner_meet(self);
		if (self->rank == 1)
			ls_group_close(group);
		runner_meet(self);
	}
	if (self->rank == last)
		finish(start(world, into, LONG, 0, 1, false), LS_OK);
	runner_meet(self);
	OK(ls_barrier(world, NULL));
	if (self->rank != 1)
		ls_group_close(group);
	values_free(world, into, true);
	ls_group_close(world);
}

/* Ranks 1 and 2 wait for each other, but what rank 2 waits for waits for its turn behind a send to
 * rank 0, which comes. */
void in_series_behind_who_comes(struct runner_rank *self)
{
	ls_group *world = runner_open(self);
	int32_t *into = values_alloc(world, LONG * 4, true), value = 0;
	runner_ready(self, world);
	if (self->rank == 0) {
		ls_request *never = start(world, &value, 1, 1, 4, false);
		GIVES(LS_PENDING, ls_wait(never, 300));
		OK(runner_cancel(never));
		finish(never, LS_CANCELLED);
		finish(start(world, into, LONG, 1, 1, false), LS_OK);
	} else if (self->rank == 1) {
		ls_request *first = start(world, held, LONG, 0, 1, true);
		ls_request *second = start(world, held, LONG, 2, 1, true);
		finish(start(world, &value, 1, 2, 2, false), LS_OK);
		finish(first, LS_OK);
		finish(second, LS_OK);
	} else {
		finish(start(world, into, LONG, 1, 1, false), LS_OK);
		finish(start(world, &value, 1, 1, 2, true), LS_OK);
	}
	runner_meet(self);
	values_free(world, into, true);
	ls_group_close(world);
}
