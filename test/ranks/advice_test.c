/* SPDX-License-Identifier: BSD-3-Clause
 * What a report advises if a receive matches no message, and which message it names as nearly
 * matching. */
#include <string.h>

#include "caught.h"
#include "tests.h"

static struct ls_call_options with_tag(int tag)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .tag = tag};
}

/* The group fails, and its report says both. */
static void fails_saying(ls_group *group, const char *first, const char *second)
{
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	SAYS(failure.text, first);
	SAYS(failure.text, second);
}

/* Rank 0 sends a message of another tag than rank 1 asks for, and is gone. */
void another_tag_is_told(struct runner_rank *self)
{
	struct ls_call_options one = with_tag(1);
	ls_group *group = runner_open(self);
	int32_t value = 1;
	if (self->rank == 0) {
		OK(ls_send(group, &value, 1, LS_INT32, 1, NULL));
	} else {
		GIVES(LS_PEER_LEFT, ls_recv(group, &value, 1, LS_INT32, 0, &one));
		fails_saying(group, "not received: send #1 of 1 int32 from rank 0 to rank 1 (tag 0)",
			     "; rank 1 asks it for tag 1");
		fails_saying(group, "Let each receive meet a send", "advice_test.c:");
	}
	ls_group_close(group);
}

/* It lies in the group of all ranks, and rank 1 asks for it in another one. */
void another_group_is_told(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	int32_t value = 1;
	OK(ls_group_split(world, 0, -self->rank, &group));
	if (self->rank == 0)
		OK(ls_send(world, &value, 1, LS_INT32, 1, NULL));
	runner_meet(self);
	if (self->rank == 0) {
		ls_group_close(group);
		runner_meet(self);
	} else {
		GIVES(LS_PEER_LEFT, ls_recv(group, &value, 1, LS_INT32, 1, NULL));
		fails_saying(group, "not received: send #1 of 1 int32 from rank 0 to rank 1 (tag 0)",
			     "; rank 1 asks for a message of group ");
		OK(ls_recv(world, &value, 1, LS_INT32, 0, NULL));
		ls_group_close(group);
		runner_meet(self);
	}
	ls_group_close(world);
}

/* Rank 1's receive of any source has had the message that its next one waits for. */
void what_was_taken_before_is_told(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t value = 1;
	if (self->rank == 0) {
		OK(ls_send(group, &value, 1, LS_INT32, 1, NULL));
	} else {
		OK(ls_recv(group, &value, 1, LS_INT32, LS_ANY_SOURCE, NULL));
		GIVES(LS_PEER_LEFT, ls_recv(group, &value, 1, LS_INT32, 0, NULL));
		fails_saying(group, "taken before: receive #1 of rank 1 from any rank, called from ",
			     ", took a message of rank 0 (tag 0)");
	}
	ls_group_close(group);
}

/* Each is in the barrier of a group that the other comes to afterwards. */
void barriers_in_another_order_are_told(struct runner_rank *self)
{
	ls_group *world = runner_open(self), *group;
	OK(ls_group_split(world, 0, self->rank, &group));
	ls_group *first = self->rank == 0 ? world : group;
	GIVES(LS_DEADLOCK, ls_barrier(first, NULL));
	fails_saying(
		first, "ranks 0 and 1 wait for each other",
		"Let ranks that are in several of these groups make their calls in the same order");
	ls_group_close(group);
	ls_group_close(world);
}

void a_receive_from_oneself_is_told(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int32_t value;
	GIVES(LS_DEADLOCK, ls_recv(group, &value, 1, LS_INT32, self->rank, NULL));
	fails_saying(group, "waits for itself", "A rank that receives from itself must have begun");
	ls_group_close(group);
}
