/* SPDX-License-Identifier: BSD-3-Clause
 * A process that outlives a launcher killed by SIGKILL for as long as it takes to end what the
 * launcher started. The kernel ends the ranks themselves (PR_SET_PDEATHSIG), but not what they have
 * started: data loaders, shells' children. Ranks tell the guard their process groups through a
 * pipe; when its last writer, the launcher, is gone without a word, the guard kills the groups. */
#include "launcher/launcher_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/open_limit.h"
#include "base/ranks.h"
#include "base/wait.h"

enum { GUARD_END_MS = 2000 };

static void detach_descriptors(int keep)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* A reader of the launcher's output must not wait for the guard. */
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && null >= 0; fd++)
		dup2(null, fd);
	if (keep > STDERR_FILENO + 1)
		syscall(SYS_close_range, STDERR_FILENO + 1, (unsigned)keep - 1, 0);
	syscall(SYS_close_range, (unsigned)keep + 1, ~0u, 0);
}

/* False at the end of the pipe. Process ids come whole: a write of 4 bytes is never split. */
static bool read_group(int fd, int32_t *group)
{
	for (;;) {
		struct pollfd ready = {.fd = fd, .events = POLLIN};
		ls_status status = wait_fds(NULL, &ready, 1, -1, CLOCK_NEVER);
		if (status != LS_OK)
			continue;
		ssize_t bytes = read(fd, group, sizeof *group);
		if (bytes == (ssize_t)sizeof *group)
			return true;
		if (bytes == 0)
			return false;
	}
}

static void __attribute__((noreturn)) guard_main(int fd)
{
	int32_t groups[RANKS_HOST_MAX];
	int32_t group;
	int count = 0;

	setpgid(0, 0); /* a signal to the launcher's whole group must not reach the guard */
	prctl(PR_SET_NAME, "lockstep-guard");
	detach_descriptors(fd);
	while (read_group(fd, &group)) {
		if (group == 0)
			_exit(0); /* the launcher has ended everything itself */
		if (group > 1 && count < RANKS_HOST_MAX)
			groups[count++] = group;
	}
	/* Leaders stay zombies while the launcher lives. So until a moment ago no other process had
	 * these numbers. */
	for (int i = 0; i < count; i++)
		kill(-groups[i], SIGKILL);
	_exit(0);
}

ls_status launcher_guard_start(struct launcher_guard *out)
{
	int ends[2];

	*out = (struct launcher_guard){.pid = -1, .pidfd = -1, .fd = -1};
	if (pipe2(ends, O_CLOEXEC) != 0) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "pipe2", OPEN_LIMIT_TEXT(errno));
		return LS_SYSTEM;
	}
	pid_t pid = fork();
	if (pid < 0) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "fork", OPEN_LIMIT_TEXT(errno));
		close(ends[0]);
		close(ends[1]);
		return LS_SYSTEM;
	}
	if (pid == 0)
		guard_main(ends[0]);
	close(ends[0]);
	out->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (out->pidfd < 0) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "pidfd_open", OPEN_LIMIT_TEXT(errno));
		close(ends[1]); /* and so the guard ends */
		return LS_SYSTEM;
	}
	out->pid = pid;
	out->fd = ends[1];
	return LS_OK;
}

void launcher_guard_stop(struct launcher_guard *stopped)
{
	static const int32_t done = 0;

	if (stopped->fd < 0)
		return;
	/* If the guard is gone the write fails, which does not matter. */
	ssize_t written = write(stopped->fd, &done, sizeof done);
	(void)written;
	close(stopped->fd);
	stopped->fd = -1;

	struct pollfd ended = {.fd = stopped->pidfd, .events = POLLIN};
	ls_status status = wait_fds(NULL, &ended, 1, -1, clock_deadline_ns(GUARD_END_MS));
	if (status != LS_OK)
		kill(stopped->pid, SIGKILL); /* some process has stopped it; init reaps it */
	waitpid(stopped->pid, NULL, WNOHANG);
	close(stopped->pidfd);
	stopped->pidfd = -1;
	stopped->pid = -1;
}
