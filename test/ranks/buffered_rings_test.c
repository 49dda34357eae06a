/* SPDX-License-Identifier: BSD-3-Clause
 * The warning of buffered_test.c for rings of any number of ranks. */
#include "buffered.h"
#include "caught.h"

static const char *const rings_said[] = {
	"rank 0 sends to itself before it receives (tag 3, received at buffered.h:",
	"ranks 0 and 1 both send to each other before they receive (tag 3, received at buffered.h",
	"ranks 0, 1 and 2 each send to the next of them before they receive (tag 3, received at buff",
	"ranks 0, 1, 2 and 3 each send to the next of them before they receive (tag 3, received at ",
};

/* Each sends to the next, and then receives. The last that receives sees it; here it is rank 0. */
static void ring(struct runner_rank *self, bool beside)
{
	ls_group *group = runner_open(self);
	struct caught caught;
	int next = (self->rank + 1) % self->size,
	    before = (self->rank + self->size - 1) % self->size;
	caught_begin(&caught);
	if (beside)
		isend_one(group, next, 3, true);
	else
		send_one(group, 1, next, 3);
	runner_meet(self);
	if (self->rank == 0)
		runner_meet(self);
	receive_one(group, before, 3);
	if (self->rank != 0)
		runner_meet(self);
	const char *text = caught_end(&caught);
	if (self->rank == 0)
		SAYS(text, rings_said[self->size - 1]);
	ls_group_close(group);
}

void rings_are_told(struct runner_rank *self)
{
	ring(self, false);
}

/* The same with sends that are waited for. */
void waited_sends_are_told(struct runner_rank *self)
{
	ring(self, true);
}

/* Rings in order: one receives first; sends that nobody waits for first; blocks, whose sends never
 * wait. */
void rings_in_order_are_not_told(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct caught caught;
	int next = (self->rank + 1) % self->size,
	    before = (self->rank + self->size - 1) % self->size;
	caught_begin(&caught);
	for (int i = 0; i < 30; i++) {
		if (self->rank == 0)
			receive_one(group, before, 3);
		send_one(group, i, next, 3);
		if (self->rank != 0)
			receive_one(group, before, 3);
	}
	runner_meet(self);
	for (int i = 0; i < 30; i++) {
		isend_one(group, next, 4, false);
		runner_meet(self);
		receive_one(group, before, 4);
	}
	for (int i = 0; i < 30; i++) {
		void *block;
		OK(ls_alloc(group, 64, &block));
		OK(ls_send_block(group, block, 16, LS_INT32, next, NULL));
		runner_meet(self);
		OK(ls_recv_block(group, &block, 16, LS_INT32, before, NULL));
		OK(ls_free(group, block));
	}
	const char *text = caught_end(&caught);
	CHECK_THAT(!*text, "this was said: %s", text);
	ls_group_close(group);
}
