/* SPDX-License-Identifier: BSD-3-Clause
 * Nonblocking sends and receives: any source and tag, many at once, batches, probes, cancels,
 * blocks, and progress while no thread waits. */
#include <stdlib.h>
#include <string.h>

#include "tests.h"
#include "values.h"

enum { LONG = 300000, SHORT = 5 };

static struct ls_call_options tagged(int tag)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .tag = tag};
}

static ls_request *start_send(ls_group *group, const void *buffer, uint64_t count, int to, int tag)
{
	struct ls_call_options options = tagged(tag);
	ls_request *op;
	OK(ls_isend(group, buffer, count, LS_INT32, to, &options, &op));
	CHECK(op);
	return op;
}

static ls_request *start_receive(ls_group *group, void *buffer, uint64_t count, int from, int tag)
{
	struct ls_call_options options = tagged(tag);
	ls_request *op;
	OK(ls_irecv(group, buffer, count, LS_INT32, from, &options, &op));
	CHECK(op);
	return op;
}

static void finish(ls_request *op)
{
	OK(ls_wait(op, 0));
	OK(ls_test(op));
	ls_request_free(op);
}

/* All to all, everything under way at once, lengths mixed, receives before and after the sends. */
void messages_all_at_once(struct runner_rank *self)
{
	enum { EACH = 6 };
	static const uint64_t counts[EACH] = {0, 1, SHORT, 49, 1024, LONG};
	ls_group *group = runner_open(self);
	for (int turn = 0; turn < 4; turn++) {
		ls_request *sends[RUNNER_RANKS_MAX][EACH], *receives[RUNNER_RANKS_MAX][EACH];
		int32_t *from[EACH], *to[RUNNER_RANKS_MAX][EACH];
		bool plain = turn & 1, late = turn & 2;
		for (int i = 0; i < EACH; i++) {
			from[i] = values_alloc(group, counts[i] * 4 + 4, plain);
			values_fill(from[i], counts[i], LS_INT32, LS_SUM, self->rank, i);
		}
		for (int pass = 0; pass < 2; pass++)
			for (int q = 0; q < self->size; q++)
				for (int i = 0; i < EACH; i++) {
					if ((pass == 0) == late) {
						sends[q][i] =
							start_send(group, from[i], counts[i], q, i);
						continue;
					}
					to[q][i] = values_alloc(group, counts[i] * 4 + 4, plain);
					receives[q][i] =
						start_receive(group, to[q][i], counts[i], q, i);
				}
		for (int q = self->size - 1; q >= 0; q--)
			for (int i = EACH - 1; i >= 0; i--) {
				finish(receives[q][i]);
				values_check_from(to[q][i], counts[i], LS_INT32, q, i);
				values_free(group, to[q][i], plain);
			}
		for (int i = 0; i < EACH; i++) {
			for (int q = 0; q < self->size; q++)
				finish(sends[q][i]);
			values_free(group, from[i], plain);
		}
	}
	ls_group_close(group);
}

/* Far more than there is room for, with tags received in another order within what there is room
 * for. */
void messages_beyond_the_limit(struct runner_rank *self)
{
	enum { MANY = 1000 };
	ls_group *group = runner_open(self);
	static int32_t values[RUNNER_RANKS_MAX][MANY];
	int32_t *mine = values[self->rank];
	ls_request **ops = calloc(MANY, sizeof *ops);
	for (int i = 0; i < MANY; i++) {
		if (self->rank == 0) {
			mine[i] = i * 7;
			ops[i] = start_send(group, &mine[i], 1, 1, i % 4);
		} else {
			ops[i] = start_receive(group, &mine[i], 1, 0, (i ^ 1) % 4);
		}
	}
	for (int i = 0; i < MANY; i++) {
		finish(ops[i]);
		CHECK_THAT(mine[i] == (self->rank == 0 ? i : i ^ 1) * 7, "message %d: %d", i,
			   mine[i]);
	}
	free(ops);
	ls_group_close(group);
}

/* Everybody sends to rank 0, which takes whatever comes, and is told what it was. */
void messages_of_any_source(struct runner_rank *self)
{
	enum { EACH = 200 };
	ls_group *group = runner_open(self);
	int seen[RUNNER_RANKS_MAX] = {0};
	if (self->rank != 0)
		for (int i = 0; i < EACH; i++) {
			int32_t value = self->rank * 1000 + i;
			struct ls_call_options options = tagged(self->rank + 10);
			OK(ls_send(group, &value, 1, LS_INT32, 0, &options));
		}
	for (int i = 0; self->rank == 0 && i < EACH * (self->size - 1); i++) {
		struct ls_message message = {.size = sizeof message};
		struct ls_call_options options = tagged(i % 3 ? LS_ANY_TAG : 11);
		int32_t value = -1;
		if (seen[1] == EACH)
			options.tag = LS_ANY_TAG;
		options.message = &message;
		OK(ls_recv(group, &value, 1, LS_INT32, LS_ANY_SOURCE, &options));
		CHECK(message.source > 0 && message.source < self->size);
		CHECK(message.tag == message.source + 10 && message.count == 1 &&
		      message.dtype == LS_INT32);
		CHECK_THAT(value == message.source * 1000 + seen[message.source],
			   "%d from rank %d after %d", value, message.source, seen[message.source]);
		seen[message.source]++;
	}
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

/* Receives that ask for the same, with and without wildcards, take messages in the order of their
 * calls. */
void messages_are_taken_in_order(struct runner_rank *self)
{
	enum { MANY = 40 };
	ls_group *group = runner_open(self);
	int32_t values[MANY];
	ls_request *ops[MANY];
	if (self->rank == 0) {
		OK(ls_barrier(group, NULL));
		for (int i = 0; i < MANY; i++)
			finish(start_send(group, &i, 1, 1, 3));
	} else {
		for (int i = 0; i < MANY; i++)
			ops[i] = start_receive(group, &values[i], 1, i % 4 < 2 ? 0 : LS_ANY_SOURCE,
					       i % 2 ? 3 : LS_ANY_TAG);
		OK(ls_barrier(group, NULL));
		for (int i = MANY - 1; i >= 0; i--)
			finish(ops[i]);
		for (int i = 0; i < MANY; i++)
			CHECK_THAT(values[i] == i, "receive %d took message %d", i, values[i]);
	}
	ls_group_close(group);
}

void messages_are_probed(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct ls_message message = {.size = sizeof message};
	struct ls_call_options options = tagged(LS_ANY_TAG);
	for (int i = 0; i < 50; i++) {
		uint64_t count = (uint64_t)(i * i);
		int32_t *buffer = values_alloc(group, count * 4 + 4, true);
		if (self->rank == 0) {
			values_fill(buffer, count, LS_INT32, LS_SUM, 0, (unsigned)i);
			finish(start_send(group, buffer, count, 1, i));
		} else {
			while (i % 2 && ls_iprobe(group, 0, &options, &message) == LS_PENDING)
				;
			if (i % 2 == 0)
				OK(ls_probe(group, LS_ANY_SOURCE, &options, &message));
			CHECK(message.source == 0 && message.tag == i && message.count == count);
			struct ls_call_options wanted = tagged(1000);
			GIVES(LS_PENDING, ls_iprobe(group, 0, &wanted, &message));
			finish(start_receive(group, buffer, count, 0, i));
			values_check_from(buffer, count, LS_INT32, 0, (unsigned)i);
		}
		values_free(group, buffer, true);
	}
	ls_group_close(group);
}

/* What has met nothing can be taken back; what has cannot. */
void messages_are_taken_back(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int other = 1 - self->rank;
	int32_t *buffer = values_alloc(group, 2 * LONG * 4, self->rank == 0), small = 5;
	for (int i = 0; i < 100; i++) {
		ls_request *send = start_send(group, buffer, LONG, other, 1);
		ls_request *receive = start_receive(group, buffer + LONG, LONG, other, 2);
		OK(runner_cancel(send));
		ls_status status = ls_cancel(receive);
		CHECK_THAT(status == LS_OK, "the receive was not taken back: %s, and is %s",
			   ls_status_name(status), ls_status_name(ls_test(receive)));
		GIVES(LS_CANCELLED, ls_wait(send, 0));
		GIVES(LS_CANCELLED, ls_test(receive));
		GIVES(LS_PENDING, ls_cancel(send));
		ls_request_free(send);
		ls_request_free(receive);
		OK(ls_barrier(group, NULL));
		struct ls_message message = {.size = sizeof message};
		GIVES(LS_PENDING, ls_iprobe(group, LS_ANY_SOURCE, NULL, &message));
		struct ls_call_options first = tagged(1);
		GIVES(LS_PENDING, ls_iprobe(group, other, &first, &message));
		OK(ls_barrier(group, NULL));
		/* What comes behind a message that is not there any more. */
		send = start_send(group, &small, 1, other, 1);
		int32_t value = 0;
		finish(start_receive(group, &value, 1, other, 1));
		CHECK(value == 5);
		GIVES(LS_PENDING, ls_cancel(send)); /* it was buffered, and is over */
		finish(send);
		OK(ls_barrier(group, NULL));
	}
	values_free(group, buffer, self->rank == 0);
	ls_group_close(group);
}

/* One rank tries to take back what the other is about to receive: either both go on, or nobody
 * has. */
void messages_taken_back_meanwhile(struct runner_rank *self)
{
	enum { TURNS = 400 };
	ls_group *group = runner_open(self);
	int32_t *buffer = values_alloc(group, LONG * 4, false);
	struct ls_call_options options = tagged(1);
	int taken_back = 0;
	for (int i = 0; i < TURNS; i++) {
		OK(ls_barrier(group, NULL));
		if (self->rank == 0) {
			values_fill(buffer, LONG, LS_INT32, LS_SUM, 0, (unsigned)i);
			ls_request *op = start_send(group, buffer, LONG, 1, 1);
			for (volatile int spin = 0; spin < i * 10; spin++)
				;
			/* A late answer of another host may cancel it after the call. */
			ls_status cancelled = ls_cancel(op), end = ls_wait(op, 0);
			int32_t went = end == LS_OK;
			GIVES(went ? LS_OK : LS_CANCELLED, end);
			CHECK(runner_is_on_hosts || cancelled == (went ? LS_PENDING : LS_OK));
			CHECK(cancelled == LS_PENDING || !went);
			ls_request_free(op);
			taken_back += !went;
			options.tag = 2;
			OK(ls_send(group, &went, 1, LS_INT32, 1, &options));
		} else {
			int32_t went;
			ls_request *op = start_receive(group, buffer, LONG, 0, 1);
			options.tag = 2;
			OK(ls_recv(group, &went, 1, LS_INT32, 0, &options));
			if (!went) {
				OK(runner_cancel(op));
				GIVES(LS_CANCELLED, ls_wait(op, 0));
				ls_request_free(op);
				continue;
			}
			finish(op);
			values_check_from(buffer, LONG, LS_INT32, 0, (unsigned)i);
		}
	}
	runner_note(self, "%d of %d were taken back", taken_back, TURNS);
	values_free(group, buffer, false);
	ls_group_close(group);
}

/* One rank batches what the others do singly, later, or in another order. */
void batches_need_not_agree(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int right = (self->rank + 1) % self->size;
	int left = (self->rank + self->size - 1) % self->size;
	int32_t *from = values_alloc(group, LONG * 4, true),
		*to = values_alloc(group, LONG * 4, false);
	for (int turn = 0; turn < 20; turn++) {
		ls_request *op = NULL;
		values_fill(from, LONG, LS_INT32, LS_SUM, self->rank, (unsigned)turn);
		bool batched = (self->rank + turn) % 2;
		if (batched)
			OK(ls_batch_begin(group));
		else
			op = start_receive(group, to, LONG, left, 0);
		OK(ls_send(group, from, LONG, LS_INT32, right, NULL));
		if (batched) {
			OK(ls_recv(group, to, LONG, LS_INT32, left, NULL));
			GIVES(LS_BAD_ARGUMENT, ls_batch_begin(group));
			if (turn % 4 < 2) {
				OK(ls_batch_end(group, NULL));
			} else {
				OK(ls_batch_end(group, &op));
				finish(op);
			}
		} else {
			finish(op);
		}
		values_check_from(to, LONG, LS_INT32, left, (unsigned)turn);
	}
	GIVES(LS_BAD_ARGUMENT, ls_batch_end(group, NULL));
	values_free(group, from, true);
	values_free(group, to, false);
	ls_group_close(group);
}

/* In one order with what is not batched. */
void batches_keep_the_order(struct runner_rank *self)
{
	enum { MANY = 30 };
	ls_group *group = runner_open(self);
	int32_t values[MANY];
	if (self->rank == 0)
		for (int i = 0; i < MANY; i++) {
			values[i] = i;
			if (i % 3 == 0)
				OK(ls_batch_begin(group));
			OK(ls_send(group, &values[i], 1, LS_INT32, 1, NULL));
			if (i % 3 == 1)
				OK(ls_batch_end(group, NULL));
		}
	else
		for (int i = 0; i < MANY; i++) {
			if (i % 5 == 0)
				OK(ls_batch_begin(group));
			OK(ls_recv(group, &values[i], 1, LS_INT32, 0, NULL));
			if (i % 5 == 3)
				OK(ls_batch_end(group, NULL));
		}
	for (int i = 0; i < MANY; i++)
		CHECK_THAT(values[i] == i, "receive %d took message %d", i, values[i]);
	ls_group_close(group);
}

/* Blocks change hands, are written by their owners, and come back to be reused. */
void blocks_change_hands(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int other = 1 - self->rank;
	struct ls_memory_stats stats = {.size = sizeof stats};
	for (int i = 0; i < 300; i++) {
		uint64_t count = i % 3 == 0 ? 0 : i % 3 == 1 ? 10 : LONG;
		int32_t *block, *got;
		void *memory;
		OK(ls_alloc(group, count * 4 + 4, &memory));
		block = memory;
		values_fill(block, count, LS_INT32, LS_SUM, self->rank, (unsigned)i);
		OK(ls_send_block(group, block, count, LS_INT32, other, NULL));
		OK(ls_recv_block(group, &memory, count, LS_INT32, other, NULL));
		got = memory;
		values_check_from(got, count, LS_INT32, other, (unsigned)i);
		values_blot(got, count, LS_INT32, 0x11);
		OK(ls_free(group, got));
	}
	OK(ls_barrier(group, NULL));
	OK(ls_memory_stats(group, &stats));
	CHECK_THAT(stats.live_bytes <= 64 * (LONG * 4 + 65536), "%llu bytes are still live",
		   (unsigned long long)stats.live_bytes);
	/* To a receive that copies, and from a send that does not give. */
	void *memory;
	int32_t *plain = values_alloc(group, LONG * 4, true);
	OK(ls_alloc(group, LONG * 4, &memory));
	values_fill(memory, LONG, LS_INT32, LS_SUM, self->rank, 1);
	ls_request *op = start_receive(group, plain, LONG, other, 0);
	OK(ls_send_block(group, memory, LONG, LS_INT32, other, NULL));
	finish(op);
	values_check_from(plain, LONG, LS_INT32, other, 1);
	values_fill(plain, LONG, LS_INT32, LS_SUM, self->rank, 2);
	op = start_send(group, plain, LONG, other, 0);
	OK(ls_recv_block(group, &memory, LONG, LS_INT32, other, NULL));
	finish(op);
	values_check_from(memory, LONG, LS_INT32, other, 2);
	OK(ls_free(group, memory));
	GIVES(LS_BAD_ARGUMENT, ls_send_block(group, plain, 1, LS_INT32, other, NULL));
	values_free(group, plain, true);
	ls_group_close(group);
}

/* A long receive that nobody waits for does not hold up its sender, nor does one behind the
 * limit. */
void messages_go_on_by_themselves(struct runner_rank *self)
{
	enum { MANY = 300 };
	ls_group *group = runner_open(self);
	int32_t *buffer = values_alloc(group, LONG * 4, false);
	int32_t values[MANY];
	ls_request *op, *ops[MANY];
	if (self->rank == 0) {
		op = start_receive(group, buffer, LONG, 1, 1);
		for (int i = 0; i < MANY; i++)
			ops[i] = start_receive(group, &values[i], 1, 1, 2);
		/* Nothing of the library until the other rank has sent everything. */
		runner_meet(self);
		runner_meet(self);
		finish(op);
		values_check_from(buffer, LONG, LS_INT32, 1, 4);
		for (int i = 0; i < MANY; i++) {
			finish(ops[i]);
			CHECK(values[i] == i);
		}
	} else {
		struct ls_call_options options = tagged(1);
		values_fill(buffer, LONG, LS_INT32, LS_SUM, 1, 4);
		runner_meet(self);
		OK(ls_send(group, buffer, LONG, LS_INT32, 0, &options));
		options.tag = 2;
		for (int32_t i = 0; i < MANY; i++)
			OK(ls_send(group, &i, 1, LS_INT32, 0, &options));
		runner_meet(self);
	}
	values_free(group, buffer, false);
	ls_group_close(group);
}

static void count_down(void *data, ls_status status)
{
	_Atomic int *left = data;
	if (status == LS_OK)
		atomic_fetch_sub(left, 1);
}

void messages_call_back(struct runner_rank *self)
{
	enum { MANY = 100 };
	ls_group *group = runner_open(self);
	int32_t values[MANY], mine[MANY];
	_Atomic int left = 2 * MANY;
	struct ls_call_options options = tagged(0);
	options.callback = count_down;
	options.callback_data = &left;
	int other = 1 - self->rank;
	for (int i = 0; i < MANY; i++)
		OK(ls_recv(group, &values[i], 1, LS_INT32, other, &options));
	for (int i = 0; i < MANY; i++) {
		mine[i] = i;
		OK(ls_send(group, &mine[i], 1, LS_INT32, other, &options));
	}
	while (atomic_load(&left) > 0)
		sched_yield();
	for (int i = 0; i < MANY; i++)
		CHECK(values[i] == i);
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

/* Waiting for any of several, collectives among them. */
void messages_any_of_several(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int other = 1 - self->rank;
	for (int turn = 0; turn < 50; turn++) {
		int32_t values[4] = {0}, sum = 0, one = 1;
		ls_request *ops[4];
		struct ls_call_options options = tagged(0);
		int left = 4;
		for (int i = 0; i < 3; i++)
			ops[i] = start_receive(group, &values[i], 1, other, i);
		options.request = &ops[3];
		OK(ls_allreduce(group, &one, &sum, 1, LS_INT32, LS_SUM, &options));
		for (int i = 2; i >= 0; i--) {
			int32_t value = i + turn;
			options = tagged(i);
			OK(ls_send(group, &value, 1, LS_INT32, other, &options));
		}
		while (left > 0) {
			int index;
			OK(ls_wait_any(ops, 4, 0, &index));
			CHECK(index >= 0 && index < 4 && ops[index]);
			CHECK(index == 3 ? sum == 2 : values[index] == index + turn);
			ls_request_free(ops[index]);
			ops[index] = NULL;
			left--;
		}
	}
	ls_group_close(group);
}
