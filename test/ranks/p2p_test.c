/* SPDX-License-Identifier: BSD-3-Clause
 * Send and receive: every size, tags in any order, to oneself, all ranks at once, while collectives
 * run. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h"
#include "values.h"

static struct ls_call_options with_tag(int tag)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .tag = tag};
}

static void send_tagged(ls_group *group, int64_t value, int to, int tag)
{
	struct ls_call_options options = with_tag(tag);
	OK(ls_send(group, &value, 1, LS_INT64, to, &options));
}

static void expect_tagged(ls_group *group, int64_t expected, int from, int tag)
{
	struct ls_call_options options = with_tag(tag);
	int64_t value = -1;
	OK(ls_recv(group, &value, 1, LS_INT64, from, &options));
	CHECK_THAT(value == expected, "tag %d brought %lld, not %lld", tag, (long long)value,
		   (long long)expected);
}

static void wait_for(ls_request *request, bool polls)
{
	ls_status status = LS_PENDING;
	while (polls && status == LS_PENDING)
		status = ls_test(request);
	OK(polls ? status : ls_wait(request, 0));
	ls_request_free(request);
}

/* Windows of long nonblocking messages both ways, each with a buffer of its own of plain memory:
 * the sender waits, polls, or comes back late. */
static void exchange_windows(struct runner_rank *self, ls_group *group)
{
	enum { WINDOW = 5, MOST = 3 << 20, ROUNDS = 6 };
	ls_request *sends[WINDOW], *receives[WINDOW];
	unsigned char *out[WINDOW], *in[WINDOW];
	for (int i = 0; i < WINDOW; i++) {
		out[i] = values_alloc(group, MOST, true);
		in[i] = values_alloc(group, MOST, true);
	}
	for (int round = 0; round < ROUNDS; round++) {
		size_t bytes = MOST - (size_t)round * 500001;
		for (int i = 0; i < WINDOW; i++) {
			unsigned seed = (unsigned)(round * WINDOW + i);
			values_fill(out[i], bytes, LS_UINT8, LS_SUM, self->rank, seed);
			values_blot(in[i], bytes, LS_UINT8, 0xee);
			OK(ls_irecv(group, in[i], bytes, LS_UINT8, 1 - self->rank, NULL,
				    &receives[i]));
			OK(ls_isend(group, out[i], bytes, LS_UINT8, 1 - self->rank, NULL, &sends[i]));
		}
		for (int i = 0; i < WINDOW; i++) {
			int last = WINDOW - 1 - i;
			bool polls = (round + self->rank) % 3 == 0;
			wait_for(receives[last], polls);
			values_check_from(in[last], bytes, LS_UINT8, 1 - self->rank,
					  (unsigned)(round * WINDOW + last));
		}
		for (int i = 0; i < WINDOW; i++)
			wait_for(sends[i], (round + self->rank) % 3 == 1);
	}
	for (int i = 0; i < WINDOW; i++) {
		values_free(group, out[i], true);
		values_free(group, in[i], true);
	}
}

/* Another thread of the rank, which receives in calls that block what the peer sends in calls that
 * do not. */
static void *exchange_one_by_one(void *context)
{
	enum { BYTES = 1200000, ROUNDS = 12, TAG = 1 };
	ls_group *group = context;
	int rank = ls_group_rank(group), peer = 1 - rank;
	struct ls_call_options options = with_tag(TAG);
	void *out = values_alloc(group, BYTES, true), *in = values_alloc(group, BYTES, true);
	for (unsigned round = 0; round < ROUNDS; round++) {
		ls_request *send;
		values_fill(out, BYTES, LS_UINT8, LS_SUM, rank, round);
		values_blot(in, BYTES, LS_UINT8, 0xee);
		OK(ls_isend(group, out, BYTES, LS_UINT8, peer, &options, &send));
		OK(ls_recv(group, in, BYTES, LS_UINT8, peer, &options));
		values_check_from(in, BYTES, LS_UINT8, peer, round);
		wait_for(send, round % 2);
	}
	values_free(group, out, true);
	values_free(group, in, true);
	return NULL;
}

/* 0 bytes, 1 byte to 8 MiB and what lies between, from both sorts of memory into both. */
void send_every_size(struct runner_rank *self)
{
	enum { MOST = 8 << 20 };
	ls_group *group = runner_open(self);
	unsigned char *buffer[2] = {values_alloc(group, MOST, false),
				    values_alloc(group, MOST, true)};
	unsigned seed = 0;
	for (size_t bytes = 0; bytes <= MOST; bytes = bytes < 4 ? bytes + 1 : bytes * 3 / 2 + 1)
		for (int way = 0; way < 4; way++) {
			unsigned char *mine = buffer[self->rank == 0 ? way & 1 : way >> 1];
			seed++;
			if (self->rank == 0) {
				values_fill(mine, bytes, LS_UINT8, LS_SUM, 0, seed);
				OK(ls_send(group, mine, bytes, LS_UINT8, 1, NULL));
				values_blot(mine, bytes, LS_UINT8, 0xdd); /* mine again at once */
			} else {
				values_blot(mine, bytes, LS_UINT8, 0xee);
				OK(ls_recv(group, mine, bytes, LS_UINT8, 0, NULL));
				values_check_from(mine, bytes, LS_UINT8, 0, seed);
			}
		}
	values_free(group, buffer[0], false);
	values_free(group, buffer[1], true);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, exchange_one_by_one, group) == 0);
	exchange_windows(self, group);
	CHECK(pthread_join(thread, NULL) == 0);
	ls_group_close(group);
}

/* More than what is meant to be held without a receiver is not sent before the first is
 * received. */
void tags_in_any_order(struct runner_rank *self)
{
	enum { TAGS = 30 };
	ls_group *group = runner_open(self);
	if (self->rank == 0)
		for (int tag = 0; tag < TAGS; tag++)
			send_tagged(group, tag * 3, 1, tag);
	else
		for (int tag = TAGS - 1; tag >= 0; tag--)
			expect_tagged(group, tag * 3, 0, tag);
	/* Of one tag in the order they were sent, whatever lies between. */
	if (self->rank == 0)
		for (int i = 0; i < TAGS; i++)
			send_tagged(group, i, 1, i % 3 == 0 ? INT32_MAX : 1);
	else {
		for (int i = 0; i < TAGS; i += 3)
			expect_tagged(group, i, 0, INT32_MAX);
		for (int i = 0; i < TAGS; i++)
			if (i % 3 != 0)
				expect_tagged(group, i, 0, 1);
	}
	ls_group_close(group);
}

/* A channel that is full of one tag still lets its messages out one by one. */
void many_unmatched_messages(struct runner_rank *self)
{
	enum { MANY = 500 };
	ls_group *group = runner_open(self);
	for (int i = 0; i < MANY; i++) {
		if (self->rank == 0)
			send_tagged(group, i, 1, 7);
		else
			expect_tagged(group, i, 0, 7);
	}
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

struct sending {
	ls_group *group;
	const void *buffer;
	uint64_t count;
	int to;
	ls_status status;
};

static void *send_in_thread(void *argument)
{
	struct sending *sending = argument;
	sending->status = ls_send(sending->group, sending->buffer, sending->count, LS_INT32,
				  sending->to, NULL);
	return NULL;
}

static pthread_t start_sending(struct sending *sending)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, send_in_thread, sending) == 0);
	return thread;
}

static void finish_sending(struct sending *sending, pthread_t thread)
{
	pthread_join(thread, NULL);
	OK(sending->status);
}

void send_to_oneself(struct runner_rank *self)
{
	enum { LARGE = 100000 };
	ls_group *group = runner_open(self);
	send_tagged(group, 41, self->rank, 1);
	send_tagged(group, 42, self->rank, 2);
	expect_tagged(group, 42, self->rank, 2);
	expect_tagged(group, 41, self->rank, 1);
	int32_t *from = values_alloc(group, LARGE * 4, true),
		*to = values_alloc(group, LARGE * 4, false);
	values_fill(from, LARGE, LS_INT32, LS_SUM, self->rank, 3);
	struct sending sending = {.group = group, .buffer = from, .count = LARGE, .to = self->rank};
	pthread_t thread = start_sending(&sending);
	OK(ls_recv(group, to, LARGE, LS_INT32, self->rank, NULL));
	finish_sending(&sending, thread);
	values_check_from(to, LARGE, LS_INT32, self->rank, 3);
	values_free(group, from, true);
	values_free(group, to, false);
	ls_group_close(group);
}

/* Everybody sends to the right and receives from the left: short messages one after the other, long
 * ones from a second thread. */
void ring_exchange(struct runner_rank *self)
{
	enum { LARGE = 200000 };
	ls_group *group = runner_open(self);
	int right = (self->rank + 1) % self->size, left = (self->rank + self->size - 1) % self->size;
	for (int i = 0; i < 100; i++) {
		send_tagged(group, self->rank * 1000 + i, right, i);
		expect_tagged(group, left * 1000 + i, left, i);
	}
	for (int plain = 0; plain < 2; plain++) {
		int32_t *from = values_alloc(group, LARGE * 4, plain);
		int32_t *to = values_alloc(group, LARGE * 4, !plain);
		values_fill(from, LARGE, LS_INT32, LS_SUM, self->rank, 9);
		struct sending sending = {
			.group = group, .buffer = from, .count = LARGE, .to = right};
		pthread_t thread = start_sending(&sending);
		OK(ls_recv(group, to, LARGE, LS_INT32, left, NULL));
		finish_sending(&sending, thread);
		values_check_from(to, LARGE, LS_INT32, left, 9);
		values_free(group, from, plain);
		values_free(group, to, !plain);
	}
	ls_group_close(group);
}

/* Every rank to every rank, in an order in which both ends agree. */
void all_pairs_exchange(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	for (int step = 0; step < 2 * self->size; step++)
		for (int peer = 0; peer < self->size; peer++) {
			if (peer == self->rank || (self->rank + peer) % (2 * self->size) != step)
				continue;
			int64_t mine[300], theirs[300];
			values_fill(mine, 300, LS_INT64, LS_SUM, self->rank, 5);
			if (self->rank < peer)
				OK(ls_send(group, mine, 300, LS_INT64, peer, NULL));
			OK(ls_recv(group, theirs, 300, LS_INT64, peer, NULL));
			values_check_from(theirs, 300, LS_INT64, peer, 5);
			if (self->rank > peer)
				OK(ls_send(group, mine, 300, LS_INT64, peer, NULL));
		}
	ls_group_close(group);
}

/* ---- what does not depend on each other does not wait for each other ---- */

struct receiving {
	ls_group *group;
	int64_t value;
	int tag;
	ls_status status;
};

static void *receive_in_thread(void *argument)
{
	struct receiving *receiving = argument;
	struct ls_call_options options = with_tag(receiving->tag);
	receiving->status = ls_recv(receiving->group, &receiving->value, 1, LS_INT64, 1, &options);
	return NULL;
}

/* While rank 0 receives from rank 1, which will send last of all: collectives, other tags of the
 * same peer, and other peers all make progress. */
void lanes_do_not_wait(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct receiving receiving = {.group = group, .tag = 99};
	pthread_t thread;
	int last = self->size - 1;
	if (self->rank == 0)
		CHECK(pthread_create(&thread, NULL, receive_in_thread, &receiving) == 0);
	for (int i = 0; i < 100; i++) {
		int64_t value = self->rank, sum;
		OK(ls_allreduce(group, &value, &sum, 1, LS_INT64, LS_SUM, NULL));
		CHECK(sum == self->size * last / 2);
		if (self->rank == 1)
			send_tagged(group, i, 0, 5);
		if (self->rank == last)
			send_tagged(group, -i, 0, 6);
		if (self->rank == 0) {
			expect_tagged(group, i, 1, 5);
			expect_tagged(group, -i, last, 6);
		}
	}
	OK(ls_barrier(group, NULL));
	if (self->rank == 1)
		send_tagged(group, 123, 0, 99);
	if (self->rank == 0) {
		pthread_join(thread, NULL);
		OK(receiving.status);
		CHECK(receiving.value == 123);
	}
	ls_group_close(group);
}
