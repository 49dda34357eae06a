/* SPDX-License-Identifier: BSD-3-Clause
 * All 64 slots of a ring, or all RTS slots, are in use: one more message is sent as soon as any
 * slot is free, whichever rank or thread frees it, in any order. */
#include <sched.h>

#include "process.h"
#include "tests.h"
#include "values.h"

enum { PLACES = 64, LONG = 2000 }; /* longer than a message that is over without a receive */

static struct ls_call_options tagged(int tag)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .tag = tag};
}

/* Rank 0 is about to block; rank 1 goes on once it sleeps. */
static void say_who_blocks(struct runner_rank *self)
{
	atomic_store(&self->shared->words[0], (uint64_t)gettid());
}

static void await_its_sleep(struct runner_rank *self)
{
	uint64_t tid;
	while ((tid = atomic_load(&self->shared->words[0])) == 0 || process_state((int)tid) != 'S')
		sched_yield();
	atomic_store(&self->shared->words[0], 0);
}

static void *take_block(ls_group *group)
{
	void *block;
	OK(ls_recv_block(group, &block, LONG, LS_INT32, 0, NULL));
	return block;
}

static void give_block(ls_group *group)
{
	void *block;
	OK(ls_alloc(group, LONG * sizeof(int32_t), &block));
	OK(ls_send_block(group, block, LONG, LS_INT32, 1, NULL));
}

void blocks_given_back_in_any_order(struct runner_rank *self)
{
	static const int orders[][3] = {{63, 0, 31}, {31, 63, 0}, {0, 1, 62}};
	ls_group *group = runner_open(self);
	void *blocks[PLACES];
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < PLACES; i++)
			if (self->rank == 0)
				give_block(group);
			else
				blocks[i] = take_block(group);
		for (int i = 0; i < 3; i++) {
			if (self->rank == 0) {
				say_who_blocks(self);
				give_block(group);
				continue;
			}
			int which = orders[turn][i];
			await_its_sleep(self);
			OK(ls_free(group, blocks[which]));
			blocks[which] = take_block(group);
		}
		for (int i = 0; i < PLACES && self->rank == 1; i++)
			OK(ls_free(group, blocks[i]));
	}
	ls_group_close(group);
}

/* ---- a block that has come back, beside the call that has sent it ---- */

enum { BACK = 1, ROUNDS = 200, DRAWN_ROUNDS = 4 }; /* BACK: a tag */

struct sender {
	ls_group *group;
	int rounds;
};

static void *give_blocks(void *argument)
{
	const struct sender *sender = argument;
	for (int i = 0; i < sender->rounds; i++)
		give_block(sender->group);
	return NULL;
}

static void *take_blocks(void *argument)
{
	const struct sender *sender = argument;
	for (int i = 0; i < sender->rounds; i++)
		OK(ls_free(sender->group, take_block(sender->group)));
	return NULL;
}

/* Rank 0's first thread sends blocks; its second one may get such a block from ls_alloc before the
 * first one's call has returned, and uses it. */
void a_block_is_back_before_its_send(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct sender sender = {group, self->drawn ? DRAWN_ROUNDS : ROUNDS};
	struct ls_call_options options = tagged(BACK);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, self->rank == 0 ? give_blocks : take_blocks, &sender) ==
	      0);
	void *blocks[ROUNDS]; /* all are kept, so that ls_alloc gives those that come back */
	for (int i = 0; i < sender.rounds; i++) {
		OK(ls_alloc(group, LONG * sizeof(int32_t), &blocks[i]));
		if (self->rank == 1)
			OK(ls_send(group, blocks[i], LONG, LS_INT32, 0, &options));
		OK(ls_recv(group, blocks[i], LONG, LS_INT32, 1 - self->rank, &options));
		if (self->rank == 0) /* and takes back blocks that rank 1 has freed */
			OK(ls_send(group, blocks[i], LONG, LS_INT32, 1, &options));
	}
	for (int i = 0; i < sender.rounds; i++)
		OK(ls_free(group, blocks[i]));
	CHECK(pthread_join(thread, NULL) == 0);
	ls_group_close(group);
}

/* Rank 1 keeps as many blocks as it can while rank 0, whose cells are all on the way to rank 2,
 * sends it a message that would lie in cells, and a long one. */
void kept_blocks_hold_up_nobody(struct runner_rank *self)
{
	enum { IN_CELLS = 1024 };
	int32_t buffer[LONG]; /* each rank's own, also if ranks are threads */
	ls_group *group = runner_open(self);
	struct ls_memory_stats stats = {.size = sizeof stats};
	void *blocks[PLACES];
	int token = 0;
	if (self->rank == 0) {
		values_fill(buffer, LONG, LS_INT32, LS_SUM, 0, 1);
		for (int i = 0; i < PLACES; i++)
			give_block(group);
		for (int i = 0; i < PLACES; i++)
			OK(ls_send(group, buffer, IN_CELLS, LS_INT32, 2, NULL));
		OK(ls_send(group, buffer, IN_CELLS, LS_INT32, 1, NULL));
		OK(ls_send(group, buffer, LONG, LS_INT32, 1, NULL));
		/* A long message frees the blocks that have come back. */
		OK(ls_recv(group, &token, 1, LS_INT32, 1, NULL));
		OK(ls_send(group, buffer, LONG, LS_INT32, 1, NULL));
		OK(ls_memory_stats(group, &stats));
		CHECK(stats.live_bytes == 0);
	} else if (self->rank == 1) {
		for (int i = 0; i < PLACES; i++)
			blocks[i] = take_block(group);
		OK(ls_recv(group, buffer, IN_CELLS, LS_INT32, 0, NULL));
		values_check_from(buffer, IN_CELLS, LS_INT32, 0, 1);
		OK(ls_recv(group, buffer, LONG, LS_INT32, 0, NULL));
		values_check_from(buffer, LONG, LS_INT32, 0, 1);
		for (int i = 0; i < PLACES; i++)
			OK(ls_free(group, blocks[i]));
		OK(ls_send(group, &token, 1, LS_INT32, 0, NULL));
		OK(ls_recv(group, buffer, LONG, LS_INT32, 0, NULL));
		OK(ls_send(group, &token, 1, LS_INT32, 2, NULL));
	} else {
		OK(ls_recv(group, &token, 1, LS_INT32, 1, NULL));
		for (int i = 0; i < PLACES; i++)
			OK(ls_recv(group, buffer, IN_CELLS, LS_INT32, 0, NULL));
	}
	ls_group_close(group);
}

/* Blocks that the receiver has given back are free once the group is closed. */
static void a_closed_group_has_no_blocks(ls_group *world)
{
	ls_group *group;
	struct ls_memory_stats before = {.size = sizeof before}, after = before;
	OK(ls_group_split(world, 0, 0, &group));
	OK(ls_memory_stats(world, &before));
	for (int i = 0; i < PLACES / 2; i++)
		if (ls_group_rank(world) == 0)
			give_block(group);
		else
			OK(ls_free(group, take_block(group)));
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
	OK(ls_memory_stats(world, &after));
	CHECK_THAT(after.live_bytes == before.live_bytes, "%llu bytes are left",
		   (unsigned long long)(after.live_bytes - before.live_bytes));
}

/* The block of a send that has not begun, and is cancelled, is its caller's as before: it outlives
 * the group, if memory is kept. A short send that waited behind it needs no such room, and goes. */
void the_block_of_a_cancelled_send_is_kept(struct runner_rank *self)
{
	ls_group *group = runner_open_keeping(self);
	void *blocks[PLACES], *mine = NULL;
	int32_t token = 0, answer = 0;
	a_closed_group_has_no_blocks(group);
	for (int i = 0; i < PLACES; i++)
		if (self->rank == 0)
			give_block(group);
		else
			blocks[i] = take_block(group);
	if (self->rank == 0) {
		ls_request *op, *behind;
		struct ls_call_options options = {.size = sizeof options, .request = &op};
		OK(ls_alloc(group, LONG * sizeof(int32_t), &mine));
		values_fill(mine, LONG, LS_INT32, LS_SUM, 0, 1);
		OK(ls_send_block(group, mine, LONG, LS_INT32, 1, &options));
		OK(ls_isend(group, &token, 1, LS_INT32, 1, NULL, &behind));
		OK(runner_cancel(op));
		ls_request_free(op);
		OK(ls_recv(group, &answer, 1, LS_INT32, 1, NULL));
		OK(ls_wait(behind, 0));
		ls_request_free(behind);
	} else {
		OK(ls_recv(group, &token, 1, LS_INT32, 0, NULL));
		OK(ls_send(group, &token, 1, LS_INT32, 0, NULL));
	}
	OK(ls_barrier(group, NULL));
	for (int i = 0; i < PLACES && self->rank == 1; i++)
		OK(ls_free(group, blocks[i]));
	ls_group_close(group);
	if (self->rank == 0) {
		values_check_from(mine, LONG, LS_INT32, 0, 1);
		OK(ls_free(NULL, mine));
	}
}

/* Long sends beside the caller, whose thread blocks in one more: what is over of them is free all
 * the same. */
void sends_that_nobody_goes_on_with(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t *buffer = values_alloc(group, (PLACES + 1) * LONG * sizeof *buffer, false);
	ls_request *ops[PLACES + 1];
	if (self->rank == 0) {
		values_fill(buffer, (PLACES + 1) * LONG, LS_INT32, LS_SUM, 0, 1);
		for (int i = 0; i < PLACES; i++)
			OK(ls_isend(group, buffer + i * LONG, LONG, LS_INT32, 1, NULL, &ops[i]));
		say_who_blocks(self);
		OK(ls_send(group, buffer + PLACES * LONG, LONG, LS_INT32, 1, NULL));
	} else {
		await_its_sleep(self);
		for (int i = 0; i <= PLACES; i++)
			OK(ls_irecv(group, buffer + i * LONG, LONG, LS_INT32, 0, NULL, &ops[i]));
	}
	for (int i = 0; i < PLACES + self->rank; i++) {
		OK(ls_wait(ops[i], 0));
		ls_request_free(ops[i]);
	}
	if (self->rank == 1)
		values_check_from(buffer, (PLACES + 1) * LONG, LS_INT32, 0, 1);
	values_free(group, buffer, false);
	ls_group_close(group);
}

static void take_back_all(ls_group *group, const int32_t *buffer)
{
	struct ls_call_options unwanted = tagged(1);
	ls_request *ops[PLACES];
	for (int i = 0; i < PLACES; i++)
		OK(ls_isend(group, buffer, LONG, LS_INT32, 1, &unwanted, &ops[i]));
	for (int i = 0; i < PLACES; i++) {
		OK(runner_cancel(ops[i]));
		ls_request_free(ops[i]);
	}
}

/* Rank 1 has asked for something else before, in a call that blocks or beside it, or asks
 * afterwards; what goes then is short, or long. */
static void leave_room(struct runner_rank *self, bool beside)
{
	enum { TURNS = 8 };
	ls_group *group = runner_open(self);
	struct ls_call_options wanted = tagged(2), seen = tagged(3);
	int32_t *buffer = values_alloc(group, LONG * sizeof *buffer, false);
	for (int turn = 0; turn < TURNS; turn++) {
		uint64_t count = turn & 1 ? LONG : 1;
		bool before = turn & 2;
		ls_request *op = NULL;
		if (self->rank == 0) {
			values_fill(buffer, count, LS_INT32, LS_SUM, 0, (unsigned)turn);
			take_back_all(group, buffer);
			if (before)
				OK(ls_send(group, buffer, 0, LS_INT32, 1, &seen));
			take_back_all(group, buffer);
			OK(ls_send(group, buffer, count, LS_INT32, 1, &wanted));
		} else {
			if (before && beside)
				OK(ls_irecv(group, buffer, count, LS_INT32, 0, &wanted, &op));
			if (before)
				OK(ls_recv(group, NULL, 0, LS_INT32, 0, &seen));
			if (!op)
				OK(ls_recv(group, buffer, count, LS_INT32, 0, &wanted));
			else
				OK(ls_wait(op, 0));
			ls_request_free(op);
			values_check_from(buffer, count, LS_INT32, 0, (unsigned)turn);
		}
		OK(ls_barrier(group, NULL));
	}
	values_free(group, buffer, false);
	ls_group_close(group);
}

void what_was_taken_back_leaves_room(struct runner_rank *self)
{
	leave_room(self, false);
}

void what_was_taken_back_leaves_room_beside(struct runner_rank *self)
{
	leave_room(self, true);
}

/* Setting MESSAGES=1: one that is taken back makes room for the next, though its receiver calls
 * nothing. */
void what_was_taken_back_makes_room(struct runner_rank *self)
{
	enum { BYTES = 5000, TURNS = 20 };
	static unsigned char buffer[BYTES];
	ls_group *group = runner_open(self);
	struct ls_call_options wanted = {.size = sizeof wanted, .tag = 2};
	int32_t value = 7;
	ls_request *first, *second;
	for (int turn = 0; turn < TURNS; turn++) {
		if (self->rank == 1)
			OK(ls_irecv(group, &value, 1, LS_INT32, 0, &wanted, &second));
		runner_meet(self);
		if (self->rank == 0) {
			OK(ls_isend(group, buffer, BYTES, LS_UINT8, 1, NULL, &first));
			OK(ls_isend(group, &value, 1, LS_INT32, 1, &wanted, &second));
			OK(runner_cancel(first));
			OK(ls_wait(second, 0));
			ls_request_free(first);
		}
		runner_meet(self);
		if (self->rank == 1)
			OK(ls_wait(second, 0));
		ls_request_free(second);
	}
	ls_group_close(group);
}
