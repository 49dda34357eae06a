/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: a child whose threads another process looks at. After cmocka.h. */
#ifndef STACK_CHILD_FIXTURE_H
#define STACK_CHILD_FIXTURE_H

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stack/stack.h"

/* 0 in a child, which ends with this process. */
static inline pid_t fork_along(void)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static inline void await_state(pid_t pid, char state)
{
	while (stack_thread_state(pid, (uint32_t)pid) != state)
		sched_yield();
}

static inline void end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#endif
