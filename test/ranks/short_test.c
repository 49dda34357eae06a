/* SPDX-License-Identifier: BSD-3-Clause
 * Short messages, which are complete before they become operations: what the short path must do as
 * the general path does. */
#include <sched.h>

#include "caught.h"
#include "tests.h"
#include "values.h"

enum { SHORT = 10, LONG = 100000, OWN = 120 };

static struct ls_call_options with_tag(int tag)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .tag = tag};
}

static void await_turn(struct runner_rank *self, uint64_t turn)
{
	while (atomic_load(&self->shared->words[0]) < turn)
		sched_yield();
}

/* With room for one: the third is sent when the first has just been taken, and the second, which
 * waits for that, has not gone yet: its thread has to wake first. */
void short_ones_keep_the_order(struct runner_rank *self)
{
	enum { TURNS = 300, EACH = 3 };
	ls_group *group = runner_open(self);
	for (uint64_t turn = 0; turn < TURNS; turn++) {
		int32_t values[EACH];
		ls_request *ops[EACH];
		for (int i = 0; i < EACH && self->rank == 0; i++) {
			values[i] = (int32_t)turn * EACH + i;
			if (i == EACH - 1) {
				atomic_store(&self->shared->words[0], 2 * turn + 1);
				await_turn(self, 2 * turn + 2);
			}
			OK(ls_isend(group, &values[i], 1, LS_INT32, 1, NULL, &ops[i]));
		}
		for (int i = 0; i < EACH && self->rank == 0; i++) {
			OK(ls_wait(ops[i], 0));
			ls_request_free(ops[i]);
		}
		if (self->rank == 0)
			continue;
		await_turn(self, 2 * turn + 1);
		for (int32_t i = 0, got; i < EACH; i++) {
			OK(ls_recv(group, &got, 1, LS_INT32, 0, NULL));
			if (i == 0)
				atomic_store(&self->shared->words[0], 2 * turn + 2);
			CHECK_THAT(got == (int32_t)turn * EACH + i, "%d came instead of %d", got,
				   (int32_t)turn * EACH + i);
		}
	}
	ls_group_close(group);
}

/* A block that was sent belongs to its receiver, however short it is; also if it was received into
 * a block. */
void short_blocks_change_hands(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct ls_memory_stats before = {.size = sizeof before}, after = before;
	int other = 1 - self->rank;
	OK(ls_memory_stats(group, &before));
	for (int i = 0; i < 300; i++) {
		int32_t plain[SHORT];
		void *memory;
		bool gives = (i % 2 == 0) == (self->rank == 0), takes = i % 3 == 0;
		values_fill(plain, SHORT, LS_INT32, LS_SUM, self->rank, (unsigned)i);
		if (gives) {
			OK(ls_alloc(group, sizeof plain, &memory));
			memcpy(memory, plain, sizeof plain);
			OK(ls_send_block(group, memory, SHORT, LS_INT32, other, NULL));
		} else {
			OK(ls_send(group, plain, SHORT, LS_INT32, other, NULL));
		}
		if (i % 5)
			runner_meet(self); /* it is there, or is not */
		if (takes) {
			OK(ls_recv_block(group, &memory, SHORT, LS_INT32, other, NULL));
			values_check_from(memory, SHORT, LS_INT32, other, (unsigned)i);
			OK(ls_free(group, memory));
		} else {
			OK(ls_recv(group, plain, SHORT, LS_INT32, other, NULL));
			values_check_from(plain, SHORT, LS_INT32, other, (unsigned)i);
		}
	}
	OK(ls_barrier(group, NULL));
	OK(ls_memory_stats(group, &after));
	/* What was given back is freed when its place is needed again: at most one block for
	 * each. */
	CHECK_THAT(after.live_bytes <= before.live_bytes + 64 * 4096, "%llu bytes are still live",
		   (unsigned long long)(after.live_bytes - before.live_bytes));
	ls_group_close(group);
}

/* Without a byte in it: the receiver needs no buffer. More than there are RTS slots. */
void empty_blocks_change_hands(struct runner_rank *self)
{
	enum { COUNT = 3 * 64 };
	ls_group *group = runner_open(self);
	struct ls_memory_stats stats = {.size = sizeof stats};
	int other = 1 - self->rank;
	for (int i = 0; i < COUNT; i++) {
		void *memory;
		OK(ls_alloc(group, LONG, &memory));
		OK(ls_send_block(group, memory, 0, LS_INT32, other, NULL));
		if (i % 2) {
			OK(ls_recv(group, NULL, 0, LS_INT32, other, NULL));
		} else {
			OK(ls_recv_block(group, &memory, 0, LS_INT32, other, NULL));
			OK(ls_free(group, memory));
		}
	}
	OK(ls_barrier(group, NULL));
	OK(ls_memory_stats(group, &stats));
	CHECK_THAT(stats.live_bytes <= 64 * 2 * LONG, "%llu bytes are still live",
		   (unsigned long long)stats.live_bytes);
	ls_group_close(group);
}

/* Ranks that sleep at once, and that nothing else wakes for ten seconds: for a message, and for a
 * free slot. */
void short_ones_wake(struct runner_rank *self)
{
	enum { TURNS = 500 };
	ls_group *group = runner_open(self);
	int32_t value = 0;
	int other = 1 - self->rank;
	for (int i = 0; i < TURNS; i++) {
		if (self->rank == 0)
			OK(ls_send(group, &value, 1, LS_INT32, other, NULL));
		OK(ls_recv(group, &value, 1, LS_INT32, other, NULL));
		if (self->rank == 1)
			OK(ls_send(group, &value, 1, LS_INT32, other, NULL));
	}
	for (int i = 0; i < TURNS; i++) {
		if (self->rank == 0)
			OK(ls_send(group, &value, 1, LS_INT32, other, NULL));
		else
			OK(ls_recv(group, &value, 1, LS_INT32, other, NULL));
	}
	ls_group_close(group);
}

/* All that were over at once share a handle, which is freed as often as it was given out. */
void short_handles_are_shared(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t values[SHORT] = {0}, *buffer = values_alloc(group, LONG * 4, true);
	struct ls_call_options two = with_tag(2);
	struct caught caught;
	ls_request *op, *last;
	if (self->rank == 0) {
		for (int i = 0; i < SHORT; i++) {
			OK(ls_isend(group, &values[i], 1, LS_INT32, 1, NULL, &op));
			GIVES(LS_PENDING, ls_cancel(op));
			OK(ls_test(op));
			OK(ls_wait(op, 0));
			ls_request_free(op);
		}
		OK(ls_isend(group, buffer, LONG, LS_INT32, 1, &two, &last));
		OK(ls_wait(last, 0));
	} else {
		for (int i = 0; i < SHORT; i++) {
			OK(ls_irecv(group, &values[i], 1, LS_INT32, 0, NULL, &op));
			OK(ls_wait(op, 0));
			ls_request_free(op);
		}
		OK(ls_irecv(group, buffer, LONG, LS_INT32, 0, &two, &last));
		OK(ls_wait(last, 0));
	}
	caught_begin(&caught);
	ls_group_close(group); /* the last handle has not been freed */
	const char *text = caught_end(&caught);
	SAYS(text, "LS-GROUP-HANDLES-LEFT");
	SAYS(text,
	     self->rank == 0
		     ? "1 handle was not freed: that of send #11 to rank 1 (tag 2), called from short_"
		     : "1 handle was not freed: that of receive #11 from rank 0 (tag 2), called from ");
	values_free(NULL, buffer, true);
}

/* What is left of them is counted when the group is closed, and the newest of them is named. */
void short_handles_left_are_counted(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct ls_call_options seven = with_tag(7);
	struct caught caught;
	int32_t value = 0;
	ls_request *op;
	for (int i = 0; i < 3; i++)
		OK(ls_isend(group, &value, 1, LS_INT32, self->rank, &seven, &op));
	OK(ls_wait(op, 0));
	ls_request_free(op);
	for (int i = 0; i < 3; i++)
		OK(ls_irecv(group, &value, 1, LS_INT32, self->rank, &seven, &op));
	caught_begin(&caught);
	ls_group_close(group);
	const char *text = caught_end(&caught);
	SAYS(text,
	     "the group is closed, but 5 handles were not freed: that of a send that completed");
	SAYS(text, " at once, such as send #3 to rank 0 (tag 7), called from short_test.c:");
	SAYS(text, ", and 4 more [LS-GROUP-HANDLES-LEFT]");
}

/* A handle that is freed before its status was read is reported once for each call site, as for a
 * long message. */
void short_handles_dropped_are_told(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct caught caught;
	int32_t value = 0;
	ls_request *op, *other;
	caught_begin(&caught);
	for (int i = 0; i < 2; i++) {
		OK(ls_isend(group, &value, 1, LS_INT32, self->rank, NULL, &op));
		OK(ls_isend(group, &value, 1, LS_INT32, self->rank, NULL, &other));
		OK(ls_wait(other, 0));
		OK(ls_test(op));
		ls_request_free(op);
		ls_request_free(other);
	}
	const char *text = caught_end(&caught);
	CHECK_THAT(!*text, "printed: %s", text);
	caught_begin(&caught);
	for (int i = 0; i < 3; i++) {
		OK(ls_isend(group, &value, 1, LS_INT32, self->rank, NULL, &op));
		ls_request_free(op);
	}
	text = caught_end(&caught);
	SAYS(text, "the handle of a send that completed at once, such as send #5 to rank 0 (tag 0), "
		   "called from short_test.c:");
	SAYS(text, " was freed (ls_request_free, called from short_test.c:");
	const char *said = strstr(text, "LS-GROUP-DROPPED");
	CHECK_THAT(said && !strstr(said + 1, "LS-GROUP-DROPPED"), "%s", text);
	for (int i = 0; i < 7; i++)
		OK(ls_recv(group, &value, 1, LS_INT32, self->rank, NULL));
	ls_group_close(group);
}

static void note_over(void *over, ls_status status)
{
	OK(status);
	atomic_store((_Atomic int *)over, 1);
}

/* One message: received by a call that blocks, waited for, or called back while no thread is in a
 * call. */
static int32_t receive_one_own(struct runner_rank *self, ls_group *group, int32_t i)
{
	enum { BLOCKING, WAITED, CALLED_BACK, FORMS };
	int form = i % FORMS, source = i / FORMS % 2 ? LS_ANY_SOURCE : self->rank;
	int32_t got = -1;
	ls_request *op = NULL;
	_Atomic int over = 0;
	struct ls_call_options options = {.size = sizeof options,
					  .callback = form == CALLED_BACK ? note_over : NULL,
					  .callback_data = &over};
	if (form != BLOCKING)
		OK(ls_irecv(group, &got, 1, LS_INT32, source, &options, &op));
	atomic_store(&self->shared->words[self->rank], (uint64_t)i + 1);
	if (form == BLOCKING)
		OK(ls_recv(group, &got, 1, LS_INT32, source, &options));
	else if (form == WAITED)
		OK(ls_wait(op, 0));
	while (form == CALLED_BACK && !atomic_load(&over))
		sched_yield();
	ls_request_free(op);
	return got;
}

static void *receive_own(void *argument)
{
	struct runner_rank *self = argument;
	ls_group *group = (ls_group *)(uintptr_t)atomic_load(&self->shared->words[8 + self->rank]);
	for (int32_t i = 0; i < OWN; i++)
		CHECK(receive_one_own(self, group, i) == i);
	return NULL;
}

/* To a thread of one's own that has asked and waits for it, or is about to, and sleeps at once. */
void short_ones_to_oneself(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	pthread_t thread;
	atomic_store(&self->shared->words[8 + self->rank], (uint64_t)(uintptr_t)group);
	CHECK(pthread_create(&thread, NULL, receive_own, self) == 0);
	for (int32_t i = 0; i < OWN; i++) {
		while (atomic_load(&self->shared->words[self->rank]) < (uint64_t)i + 1)
			sched_yield();
		for (int yields = i % 4; yields > 0; yields--)
			sched_yield();
		OK(ls_send(group, &i, 1, LS_INT32, self->rank, NULL));
	}
	CHECK(pthread_join(thread, NULL) == 0);
	ls_group_close(group);
}
