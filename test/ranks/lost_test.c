/* SPDX-License-Identifier: BSD-3-Clause
 * Messages that no rank receives: reported once, by the rank that closes the group when that is
 * certain, and only then. */
#include <stdlib.h>
#include <string.h>

#include "caught.h"
#include "common.h"
#include "tests.h"

enum { LONG = 1 << 16, ROUNDS = 200 };

static struct ls_call_options with_tag(int tag)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .tag = tag};
}

static void send_one(ls_group *group, int to, int tag)
{
	struct ls_call_options options = with_tag(tag);
	int32_t value = tag;
	OK(ls_send(group, &value, 1, LS_INT32, to, &options));
}

static void receive_one(ls_group *group, int from, int tag)
{
	struct ls_call_options options = with_tag(tag);
	int32_t value;
	OK(ls_recv(group, &value, 1, LS_INT32, from, &options));
	CHECK(value == tag);
}

/* What is said as the group is closed. */
static const char *close_caught(ls_group *group, struct caught *caught)
{
	caught_begin(caught);
	ls_group_close(group);
	return caught_end(caught);
}

/* By the receiver what lies there as it closes, by the sender what it has sent since. */
void lost_messages_are_told(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	struct caught caught;
	OK(ls_group_split(world, 0, -self->rank, &group));
	if (self->rank == 0) {
		for (int tag = 5; tag <= 7; tag++)
			send_one(group, 0, tag); /* world ranks in reverse */
		runner_meet(self);
		runner_meet(self);
		send_one(group, 0, 8);
	} else {
		runner_meet(self);
		receive_one(group, 1, 6);
	}
	const char *text = close_caught(group, &caught);
	CHECK_THAT(times(text, "LS-GROUP-LOST") == 1, "%s", text);
	SAYS(text, "rank 1 has closed the group and never received send #");
	SAYS(text, self->rank == 0 ? "send #4 of group " : "send #1 of group ");
	SAYS(text, " (ranks 0 and 1) of 1 int32 from rank 0 to rank 1 (tag ");
	SAYS(text, self->rank == 0 ? "(tag 8), called from lost_test.c:"
				   : "(tag 5), called from lost_test.c:");
	CHECK_THAT((self->rank == 1) == (strstr(text, ", nor 1 later one [") != NULL), "%s", text);
	if (self->rank == 1)
		runner_meet(self);
	ls_group_close(world);
}

/* A block that was handed over, and what a rank has sent to itself. */
void lost_blocks_are_told(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct caught caught;
	void *block;
	OK(ls_alloc(group, LONG, &block));
	OK(ls_send_block(group, block, LONG / 4, LS_INT32, self->rank, NULL));
	const char *text = close_caught(group, &caught);
	SAYS(text, "never received send #1 of 16384 int32 from rank 0 to rank 0 (tag 0), called");
}

/* What is received, what has failed, and what was taken back. */
void what_is_not_lost_is_not_told(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	struct caught caught;
	int32_t *buffer = calloc(LONG, sizeof *buffer);
	ls_request *op;
	OK(ls_group_split(world, 0, self->rank, &group));
	if (self->rank == 0) {
		for (int tag = 0; tag < 40; tag++)
			send_one(group, 1, tag);
		OK(ls_isend(group, buffer, LONG, LS_INT32, 1, NULL, &op));
		OK(runner_cancel(op));
		OK(ls_wait(op, 0) == LS_CANCELLED ? LS_OK : LS_INTERNAL);
		ls_request_free(op);
		OK(ls_barrier(group, NULL));
	} else {
		OK(ls_barrier(group, NULL));
		for (int tag = 39; tag >= 0; tag--)
			receive_one(group, 0, tag);
	}
	const char *text = close_caught(group, &caught);
	CHECK_THAT(!*text, "this was said: %s", text);
	/* After a failure. */
	OK(ls_group_split(world, 0, self->rank, &group));
	if (self->rank == 0)
		send_one(group, 1, 3);
	runner_ready(self, group);
	if (self->rank == 0) {
		caught_begin(&caught);
		OK(ls_group_abort(group, "for a test"));
		(void)caught_end(&caught);
	}
	runner_meet(self);
	runner_await_failure(group);
	text = close_caught(group, &caught);
	CHECK_THAT(!*text, "this was said: %s", text);
	free(buffer);
	ls_group_close(world);
}

/* The rank that closes later sees it, and no other rank. */
void both_that_close_tell_once(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	struct caught caught;
	for (int i = 0; i < ROUNDS; i++) {
		OK(ls_group_split(world, 0, self->rank, &group));
		runner_meet(self);
		if (self->rank == 0)
			send_one(group, 1, i);
		const char *text = close_caught(group, &caught);
		atomic_fetch_add(&self->shared->words[0],
				 (uint64_t)times(text, "never received send #1 of group"));
		runner_meet(self);
		uint64_t told = atomic_load(&self->shared->words[0]);
		CHECK_THAT(told == (uint64_t)i + 1, "round %d: told %llu times", i,
			   (unsigned long long)told);
		runner_meet(self);
	}
	ls_group_close(world);
}

/* With CHECK it is an error for ranks that are still in the group. */
void lost_messages_are_an_error(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	if (self->rank == 0) {
		send_one(group, 1, 4);
		runner_meet(self);
		GIVES(LS_ABORTED, ls_barrier(group, NULL));
		struct ls_failure failure = {.size = sizeof failure};
		OK(ls_group_failure(group, &failure));
		SAYS(failure.text,
		     "rank 1 closed the group and nobody has received send #1 of 1 int32 "
		     "from rank 0 to rank 1 (tag 4), called from lost_test.c:");
		SAYS(failure.text, "; with LOCKSTEP_CHECK=1 that is an error\n");
		CHECK(failure.rank == 1);
	} else {
		runner_meet(self);
	}
	ls_group_close(group);
}

/* Nor do messages leave anything behind: neither the copy of a long send that was cancelled, nor a
 * block that was sent to another host. A few groups may not be over yet. */
void closed_groups_leave_no_blocks(struct runner_rank *self)
{
	enum { GROUPS = 40, OVER_SOON = 10 };
	ls_group *world = runner_open(self), *group;
	struct ls_memory_stats stats = {.size = sizeof stats};
	int last = self->size - 1;
	char *plain = calloc(1, LONG);
	CHECK(plain);
	for (int i = 0; i < GROUPS; i++) {
		void *block;
		ls_request *op;
		OK(ls_group_split(world, 0, self->rank, &group));
		if (self->rank == 0) {
			OK(ls_isend(group, plain, LONG, LS_UINT8, last, NULL, &op));
			OK(runner_cancel(op));
			ls_request_free(op);
		}
		if (self->rank == 0 && runner_is_on_hosts) {
			OK(ls_alloc(group, LONG, &block));
			OK(ls_send_block(group, block, LONG, LS_UINT8, last, NULL));
		}
		if (self->rank == last && runner_is_on_hosts) {
			OK(ls_recv_block(group, &block, LONG, LS_UINT8, 0, NULL));
			OK(ls_free(group, block));
		}
		ls_group_close(group);
		runner_meet(self);
	}
	OK(ls_memory_stats(world, &stats));
	CHECK_THAT(stats.live_bytes < OVER_SOON * 2 * LONG, "%llu bytes are still live",
		   (unsigned long long)stats.live_bytes);
	free(plain);
	ls_group_close(world);
}
