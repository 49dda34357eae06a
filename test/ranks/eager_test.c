/* SPDX-License-Identifier: BSD-3-Clause
 * Messages that are too long for a slot, and whose send is complete without a receive all the same:
 * when that holds, and that no message is lost if its sender has gone. */
#include <signal.h>
#include <stdlib.h>

#include "tests.h"
#include "values.h"

enum { EAGER = 4096, CELL = 2112, ROUNDS = 3, EACH = 20, PLACES = 64, AGAIN = 256, WINDOW = 8 };

static struct ls_call_options with_tag(int tag)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .tag = tag};
}

static ls_request *start(ls_group *group, uint64_t bytes, int to, int tag)
{
	/* One thread of each rank sends. */
	static unsigned char buffers[RUNNER_RANKS_MAX][2 * EAGER];
	unsigned char *buffer = buffers[ls_group_rank(group)];
	struct ls_call_options options = with_tag(tag);
	ls_request *op;
	values_fill(buffer, bytes, LS_UINT8, LS_SUM, ls_group_rank(group), (unsigned)tag);
	OK(ls_isend(group, buffer, bytes, LS_UINT8, to, &options, &op));
	return op;
}

static void send_at_once(ls_group *group, uint64_t bytes, int to, int tag)
{
	ls_request *op = start(group, bytes, to, tag);
	OK(ls_test(op));
	ls_request_free(op);
}

static void send_not_at_once(ls_group *group, uint64_t bytes, int to, int tag)
{
	ls_request *op = start(group, bytes, to, tag);
	GIVES(LS_PENDING, ls_test(op));
	OK(runner_cancel(op));
	ls_request_free(op);
}

static void receive(ls_group *group, uint64_t bytes, int from, int tag)
{
	unsigned char buffer[2 * EAGER];
	struct ls_call_options options = with_tag(tag);
	values_blot(buffer, bytes + 1, LS_UINT8, 0xdd);
	OK(ls_recv(group, buffer, bytes, LS_UINT8, from, &options));
	values_check_from(buffer, bytes, LS_UINT8, from, (unsigned)tag);
	CHECK(buffer[bytes] == 0xdd);
}

static uint64_t size_of(int i)
{
	static const uint64_t sizes[] = {193, 200, 1000, CELL, CELL + 1, 3000, EAGER - 1, EAGER};
	return sizes[i % 8];
}

/* Each sends to all before anybody receives; received in another order than sent. */
void eager_sends_need_no_receive(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	for (int round = 0; round < ROUNDS; round++) {
		int each = PLACES / 2 / self->size;
		for (int to = 0; to < self->size; to++)
			for (int i = 0; i < each; i++)
				send_at_once(group, size_of(i + to), to, i);
		send_not_at_once(group, EAGER + 1, (self->rank + 1) % self->size, 99);
		runner_meet(self);
		for (int from = self->size - 1; from >= 0; from--)
			for (int i = each - 1; i >= 0; i--)
				receive(group, size_of(i + self->rank), from, i);
	}
	ls_group_close(group);
}

/* Without free cells a send waits for its receive, to whichever rank. Once one message has been
 * received, sends are complete at once again. */
void eager_sends_use_up_cells(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	if (self->rank == 0) {
		for (int i = 0; i < PLACES; i++)
			send_at_once(group, EAGER, 1 + i % 2, i);
		send_not_at_once(group, 200, 1, 99);
		send_not_at_once(group, EAGER, 2, 99);
		send_at_once(group, 192, 2, 100);
		runner_meet(self);
		runner_meet(self);
		send_at_once(group, EAGER, 2, 101);
		send_not_at_once(group, EAGER, 2, 99);
		runner_meet(self);
	} else {
		runner_meet(self);
		if (self->rank == 1)
			receive(group, EAGER, 0, 42);
		runner_meet(self);
		runner_meet(self);
		for (int i = PLACES - 1; i >= 0; i--)
			if (i % 2 == self->rank - 1 && i != 42)
				receive(group, EAGER, 0, i);
		if (self->rank == 2) {
			receive(group, 192, 0, 100);
			receive(group, EAGER, 0, 101);
		}
	}
	ls_group_close(group);
}

static unsigned char passing[AGAIN][EAGER];

static void pass_all(ls_group *group)
{
	ls_request *ops[AGAIN];
	for (int i = 0; i < AGAIN; i++) {
		struct ls_call_options options = with_tag(i);
		values_fill(passing[i], size_of(i), LS_UINT8, LS_SUM, 0, (unsigned)i);
		OK(ls_isend(group, passing[i], size_of(i), LS_UINT8, 1 + i % 2, &options, &ops[i]));
	}
	for (int i = 0; i < AGAIN; i++) {
		OK(ls_wait(ops[i], 0));
		ls_request_free(ops[i]);
	}
}

static void take_window(ls_group *group, int first, bool before)
{
	unsigned char(*into)[EAGER] = calloc(WINDOW, sizeof *into);
	ls_request *ops[WINDOW];
	CHECK(into);
	for (int i = WINDOW - 1; i >= 0; i--) {
		int tag = first + 2 * i;
		struct ls_call_options options = with_tag(tag);
		if (!before)
			receive(group, size_of(tag), 0, tag);
		else
			OK(ls_irecv(group, into[i], size_of(tag), LS_UINT8, 0, &options, &ops[i]));
	}
	for (int i = 0; i < WINDOW && before; i++) {
		int tag = first + 2 * i;
		OK(ls_wait(ops[i], 0));
		ls_request_free(ops[i]);
		values_check_from(into[i], size_of(tag), LS_UINT8, 0, (unsigned)tag);
	}
	free(into);
}

/* More messages than there are cells: those that have been received are filled again while others
 * are still read, in another order than they were filled in. */
void eager_cells_are_filled_again(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	if (self->rank == 0)
		pass_all(group);
	for (int first = 0; first < AGAIN && self->rank > 0; first += 2 * WINDOW)
		take_window(group, first + self->rank - 1, first / WINDOW % 4 != 0);
	ls_group_close(group);
}

/* A message that found no cell is copied by its receiver's progress thread, although no thread of
 * the receiver is in a call. */
void eager_sends_without_a_cell_call_the_receiver(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	unsigned char buffer[EAGER];
	struct ls_call_options options = with_tag(99);
	ls_request *op = NULL;
	if (self->rank == 1)
		OK(ls_irecv(group, buffer, 200, LS_UINT8, 0, &options, &op));
	runner_meet(self);
	if (self->rank == 0) {
		for (int i = 0; i < PLACES; i++)
			send_at_once(group, EAGER, 2, i);
		values_fill(buffer, 200, LS_UINT8, LS_SUM, 0, 99);
		OK(ls_send(group, buffer, 200, LS_UINT8, 1, &options));
	}
	runner_meet(self);
	if (self->rank == 1) {
		OK(ls_wait(op, 0)); /* its sender may see a moment earlier that it is over */
		ls_request_free(op);
		values_check_from(buffer, 200, LS_UINT8, 0, 99);
	}
	for (int i = 0; i < PLACES && self->rank == 2; i++)
		receive(group, EAGER, 0, i);
	ls_group_close(group);
}

/* What a rank has sent lies in its own memory, which it does not use for another group before all
 * members have left this one. */
void eager_messages_outlast_their_sender(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	for (int round = 0; round < ROUNDS; round++) {
		OK(ls_group_split(world, 0, self->rank, &group));
		if (self->rank == 0) {
			for (int i = 0; i < EACH; i++)
				send_at_once(group, size_of(i), 1, 10 * round + i);
			ls_group_close(group);
			OK(ls_group_split(world, 0, self->rank, &group));
			for (int i = 0; i < PLACES; i++)
				send_at_once(group, EAGER, 0, i);
			for (int i = 0; i < PLACES; i++)
				receive(group, EAGER, 0, i);
			ls_group_close(group);
			runner_meet(self);
		} else {
			ls_group *other;
			OK(ls_group_split(world, 0, self->rank, &other));
			runner_meet(self);
			for (int i = EACH - 1; i >= 0; i--)
				receive(group, size_of(i), 0, 10 * round + i);
			ls_group_close(group);
			ls_group_close(other);
		}
	}
	ls_group_close(world);
}

/* Nor does its end take them away. */
void eager_messages_of_a_dead_rank(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	if (self->rank == 1) {
		for (int i = 0; i < EACH; i++)
			send_at_once(group, size_of(i), 0, i);
		runner_meet(self);
		raise(SIGKILL);
	}
	runner_meet(self);
	for (int i = EACH - 1; i > 0; i--)
		receive(group, size_of(i), 1, i);
	receive(group, size_of(0), 1, 0);
	ls_group_close(group);
}
