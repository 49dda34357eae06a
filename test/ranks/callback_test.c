/* SPDX-License-Identifier: BSD-3-Clause
 * Calls in a completion callback that would have to wait. */
#include <sched.h>
#include <stdatomic.h>

#include <lockstep/lockstep.h>

#include "caught.h"
#include "runner.h"
#include "tests.h"

struct caller_back {
	ls_group *group;
	ls_request *op; /* of the callback */
	_Atomic int ended;
};

static void note_end(void *data, ls_status status)
{
	OK(status);
	atomic_fetch_add((_Atomic int *)data, 1);
}

/* The receive of a message that is there already: its own callback runs in this one. */
static void call_back_in_callback(ls_group *group)
{
	_Atomic int ended = 0;
	struct ls_call_options options = {.size = sizeof options, .tag = 1};
	int32_t value = 0;
	OK(ls_send(group, &value, 1, LS_INT32, ls_group_rank(group), &options));
	options.callback = note_end;
	options.callback_data = (void *)&ended;
	OK(ls_recv(group, &value, 1, LS_INT32, ls_group_rank(group), &options));
	CHECK(atomic_load(&ended) == 1);
}

static void wait_in_callback(void *data, ls_status status)
{
	struct caller_back *self = data;
	struct ls_message message = {.size = sizeof message};
	struct ls_call_options options = {.size = sizeof options, .resumable = 1};
	ls_request *handle;
	ls_group *other;
	int32_t value = 0;
	int index;
	options.request = &handle;
	OK(status);
	call_back_in_callback(self->group);
	GIVES(LS_BAD_ARGUMENT, ls_wait(self->op, 0));
	GIVES(LS_BAD_ARGUMENT, ls_wait_any(&self->op, 1, 0, &index));
	GIVES(LS_BAD_ARGUMENT, ls_recv(self->group, &value, 1, LS_INT32, 0, NULL));
	GIVES(LS_BAD_ARGUMENT, ls_recv(self->group, &value, 1, LS_INT32, 0, &options));
	GIVES(LS_BAD_ARGUMENT, ls_probe(self->group, 0, NULL, &message));
	GIVES(LS_BAD_ARGUMENT, ls_cancel(self->op));
	GIVES(LS_BAD_ARGUMENT, ls_batch_begin(self->group));
	GIVES(LS_BAD_ARGUMENT, ls_group_open(NULL, &other));
	ls_group_close(self->group);
	CHECK(ls_group_rank(self->group) >= 0);
	atomic_fetch_add(&self->ended, 1);
}

static void call_collectives_in_callback(void *data, ls_status status)
{
	struct caller_back *self = data;
	struct ls_buffers buffers = {.send = NULL};
	int32_t values[2] = {0};
	ls_group *other;
	int zero = 0;
	buffers.send = buffers.recv = values;
	buffers.count = 1;
	GIVES(LS_BAD_ARGUMENT, ls_barrier(self->group, NULL));
	GIVES(LS_BAD_ARGUMENT, ls_allreduce(self->group, values, values, 1, LS_INT32, LS_SUM, NULL));
	GIVES(LS_BAD_ARGUMENT, ls_allreduce_many(self->group, &buffers, 1, LS_INT32, LS_SUM, NULL));
	GIVES(LS_BAD_ARGUMENT, ls_group_split(self->group, 0, 0, &other));
	GIVES(LS_BAD_ARGUMENT, ls_group_from_members(self->group, &zero, 1, NULL, &other));
	GIVES(LS_BAD_ARGUMENT, ls_register(self->group, NULL, 0, -1, 0, NULL));
	wait_in_callback(data, status);
}

/* What would wait there for the thread that calls back is refused, and the group goes on. */
void callbacks_do_not_wait(struct runner_rank *self)
{
	struct caller_back mine = {.group = runner_open(self)};
	struct ls_call_options options = {.size = sizeof options,
					  .request = &mine.op,
					  .callback = call_collectives_in_callback,
					  .callback_data = &mine};
	struct caught caught;
	int32_t value = self->rank, sum = 0;
	caught_begin(&caught);
	OK(ls_allreduce(mine.group, &value, &sum, 1, LS_INT32, LS_SUM, &options));
	while (atomic_load(&mine.ended) == 0)
		sched_yield();
	ls_request_free(mine.op);
	/* Now no collective is under way. */
	OK(ls_barrier(mine.group, NULL));
	OK(ls_recv(mine.group, &value, 1, LS_INT32, self->rank, &options));
	OK(ls_send(mine.group, &sum, 1, LS_INT32, self->rank, NULL));
	while (atomic_load(&mine.ended) == 1)
		sched_yield();
	ls_request_free(mine.op);
	SAYS(caught_end(&caught), "ls_wait: the calling thread is in a completion callback, but "
				  "must be outside of one: a callback must not wait");
	CHECK(value == sum && sum == self->size * (self->size - 1) / 2);
	OK(ls_barrier(mine.group, NULL));
	ls_group_close(mine.group);
}
