/* SPDX-License-Identifier: BSD-3-Clause
 * A rank closes its world while the program runs that was to read another rank's line of Python.
 * A filter holds that program in its execve, as a file system that hangs would, and says when it is
 * there. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"
#include "tests.h"

/* From now on no process of this rank becomes another program: each waits in execve, until the
 * descriptor that this returns is closed, or a signal kills it. */
static int hold_programs(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = filter};
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	int listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
				    SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	CHECK(listener >= 0);
	return listener;
}

/* Waits until a program is held, and returns a pidfd of its process. */
static int await_held(int listener)
{
	struct seccomp_notif held = {0};
	int result;
	do
		result = ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &held);
	while (result < 0 && errno == EINTR);
	CHECK(result == 0);
	int pidfd = (int)syscall(SYS_pidfd_open, held.pid, 0);
	CHECK(pidfd >= 0);
	return pidfd;
}

/* The process ends without help, and this one has no child of any sort left. */
static void is_gone(int pidfd)
{
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	int count;
	do
		count = poll(&end, 1, -1);
	while (count < 0 && errno == EINTR);
	CHECK(count == 1);
	close(pidfd);
	CHECK(waitpid(-1, NULL, __WALL | WNOHANG) == -1 && errno == ECHILD);
}

/* Rank 0, in whose call or watch the program was started, closes its world. */
static void close_beside(const struct runner_rank *self, ls_group *group, int listener, bool let_go)
{
	if (self->rank == 0) {
		int program = await_held(listener);
		if (let_go)
			close(listener);
		ls_group_close(group);
		is_gone(program);
	}
	runner_meet(self);
	if (self->rank == 1)
		ls_group_close(group);
	runner_meet(self);
}

/* The call leaves the program to the watch. let_go: the program ends, with an error, at the very
 * moment at which the world is closed. */
static void beside_a_call(struct runner_rank *self, int listener, bool let_go)
{
	struct ls_call_options options = {.size = sizeof options, .timeout_ms = 50};
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank == 0)
		GIVES(LS_TIMED_OUT, ls_barrier(group, &options));
	close_beside(self, group, listener, let_go);
}

/* The watch is in the midst of asking when it is to end. */
static void beside_the_watch(struct runner_rank *self, int listener)
{
	ls_request *op = NULL;
	struct ls_call_options options = {.size = sizeof options, .request = &op};
	ls_group *group = runner_open(self);
	runner_ready(self, group);
	if (self->rank == 0)
		OK(ls_barrier(group, &options));
	ls_request_free(op); /* the operation itself continues */
	close_beside(self, group, listener, false);
}

/* More than once, as each world may have a program of its own. */
void a_helper_beside_the_close(struct runner_rank *self)
{
	int listener = self->rank == 0 ? hold_programs() : -1;
	beside_a_call(self, listener, false);
	int descriptors = process_entries("/proc/self/fd");
	beside_the_watch(self, listener);
	beside_a_call(self, listener, false);
	CHECK(process_entries("/proc/self/fd") == descriptors);
	beside_a_call(self, listener, true);
}
