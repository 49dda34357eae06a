/* SPDX-License-Identifier: BSD-3-Clause
 * The group of all ranks of a test, for whichever runner calls it. */
#include "runner.h"

#include <sched.h>

static ls_group *open_group(const struct runner_rank *self, bool resumes, bool keeps)
{
	struct ls_group_options options = {.size = sizeof options,
					   .timeout_ms = RUNNER_TIMEOUT_MS,
					   .rank = self->rank,
					   .world_size = self->size,
					   .resume_after_signals = resumes,
					   .keep_memory = keeps,
					   .rendezvous = self->rendezvous};
	ls_group *group;
	OK(ls_group_open(&options, &group));
	CHECK(ls_group_rank(group) == self->rank && ls_group_size(group) == self->size);
	return group;
}

bool runner_is_on_hosts;

void runner_await_failure(ls_group *group)
{
	struct ls_failure failure = {.size = sizeof failure};
	while (runner_is_on_hosts && failure.status == LS_OK) {
		OK(ls_group_failure(group, &failure));
		sched_yield();
	}
}

/* A late answer may cancel the message after a call has returned, and before the next one. */
ls_status runner_cancel(ls_request *op)
{
	ls_status status = ls_cancel(op);
	while (runner_is_on_hosts && status == LS_PENDING) {
		status = ls_test(op);
		if (status != LS_PENDING)
			return status == LS_CANCELLED ? LS_OK : status;
		sched_yield();
		status = ls_cancel(op);
	}
	return status;
}

ls_group *runner_open(const struct runner_rank *self)
{
	return open_group(self, false, false);
}

ls_group *runner_open_resuming(const struct runner_rank *self)
{
	return open_group(self, true, false);
}

ls_group *runner_open_keeping(const struct runner_rank *self)
{
	return open_group(self, false, true);
}
