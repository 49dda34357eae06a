/* SPDX-License-Identifier: BSD-3-Clause
 * Whether a process is stopped, as /proc says. */
#include "base/stopped.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"

enum { LOOK_MS = 400 };

uint64_t stopped_until(struct stopped_looks *looks, uint64_t until_ns)
{
	if (looks->next_ns == 0)
		looks->next_ns = clock_deadline_ns(LOOK_MS);
	return looks->next_ns < until_ns ? looks->next_ns : until_ns;
}

bool stopped_is_due(struct stopped_looks *looks)
{
	if (looks->next_ns == 0 || clock_now_ns() < looks->next_ns)
		return false;
	looks->next_ns = clock_deadline_ns(LOOK_MS);
	return true;
}

static bool is_stopped(int pid)
{
	char path[32], text[512];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
	if (fd >= 0)
		close(fd);
	if (got <= 0)
		return false;
	text[got] = '\0';
	/* "PID (NAME) STATE ...", and the name may have any characters. */
	const char *end = strrchr(text, ')');
	return end && end[1] == ' ' && (end[2] == 'T' || end[2] == 't');
}

void stopped_look(struct stopped_looks *looks, int rank, int pid)
{
	if (pid <= 0 || ranks_have(&looks->told, rank))
		return;
	if (!is_stopped(pid)) {
		ranks_remove(&looks->seen, rank);
		return;
	}
	if (!ranks_have(&looks->seen, rank)) {
		ranks_add(&looks->seen, rank);
		return;
	}
	ranks_add(&looks->told, rank);
	MESSAGE_SAY(MESSAGE_OPEN_STOPPED, rank, pid, pid);
}
