/* SPDX-License-Identifier: BSD-3-Clause
 * What /proc tells of a process: whether it runs, sleeps, is stopped or dead, and how it ended as
 * long as its parent has not fetched that (a zombie); and what a descriptor of it tells from then
 * on. */
#include "diagnose/facts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fork.h"

enum {
	STAT_BYTES = 2048,
	PATH_BYTES = 4096,
	STAT_STATE = 3, /* fields of /proc/PID/stat, counted from 1 as proc(5) does */
	STAT_THREADS = 20,
	STAT_START = 22,
	STAT_EXIT = 52,
	START_SLACK_MS = 1000, /* two clocks, one of them coarse, are compared */
};

struct stat_line {
	char state;
	uint64_t threads;
	uint64_t start_ticks; /* since boot, in units of _SC_CLK_TCK */
	int status; /* as of waitpid; means something for a zombie that may be looked at */
	bool may_look;
};

ssize_t diagnose_read_file(const char *path, char *text, size_t bytes, bool *mine)
{
	struct stat stat;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return -1;
	if (mine)
		*mine = geteuid() == 0 || (fstat(fd, &stat) == 0 && stat.st_uid == geteuid());
	ssize_t length = read(fd, text, bytes - 1);
	close(fd);
	text[length > 0 ? length : 0] = 0;
	return length;
}

static bool parse_stat(const char *text, struct stat_line *out)
{
	/* The second field is the program's name in brackets and may hold anything, also
	 * brackets. */
	const char *field = strrchr(text, ')');
	if (!field || field[1] != ' ' || !field[2])
		return false;
	field += 2;
	for (int i = STAT_STATE; field; i++) {
		if (i == STAT_STATE)
			out->state = *field;
		else if (i == STAT_THREADS)
			out->threads = strtoull(field, NULL, 10);
		else if (i == STAT_START)
			out->start_ticks = strtoull(field, NULL, 10);
		else if (i == STAT_EXIT) {
			out->status = (int)strtol(field, NULL, 10);
			return true;
		}
		field = strchr(field, ' ');
		field = field ? field + 1 : NULL;
	}
	return false;
}

/* Whether the process began after the rank's trace was made: then the system has given the number
 * to another process. The start counts the time in which the machine was suspended, which
 * CLOCK_MONOTONIC leaves out. To take away all suspension since boot makes the process older, if
 * anything, so this takes no living rank for dead. */
static bool is_another(const struct stat_line *line, uint64_t trace_start_ns)
{
	struct timespec boot, monotonic;
	long hertz = sysconf(_SC_CLK_TCK);
	if (!trace_start_ns || hertz <= 0 || clock_gettime(CLOCK_BOOTTIME, &boot) != 0 ||
	    clock_gettime(CLOCK_MONOTONIC, &monotonic) != 0)
		return false;
	int64_t suspended_ms = (int64_t)(boot.tv_sec - monotonic.tv_sec) * 1000 +
			       (boot.tv_nsec - monotonic.tv_nsec) / 1000000;
	int64_t start_ms = (int64_t)(line->start_ticks / (uint64_t)hertz * 1000 +
				     line->start_ticks % (uint64_t)hertz * 1000 / (uint64_t)hertz);
	return start_ms - suspended_ms > (int64_t)(trace_start_ns / 1000000) + START_SLACK_MS;
}

/* Whether file `name` of the cgroup `path` (up to its line's end) below `root` holds `word`. */
static bool cgroup_says(const char *root, const char *path, const char *name, const char *word)
{
	char file[PATH_BYTES], text[256];
	int length = snprintf(file, sizeof file, "%s%.*s/%s", root, (int)strcspn(path, "\n"), path,
			      name);
	return length > 0 && (size_t)length < sizeof file &&
	       diagnose_read_file(file, text, sizeof text, NULL) > 0 && strstr(text, word);
}

/* A frozen process looks asleep; only its cgroup tells. Looks where systems have their cgroups:
 * version 2 alone, version 2 beside version 1, version 1. */
static bool is_frozen(int pid)
{
	char path[64], lines[STAT_BYTES];
	snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
	if (diagnose_read_file(path, lines, sizeof lines, NULL) <= 0)
		return false;
	for (const char *line = lines; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		const char *kind = strchr(line, ':');
		if (!kind)
			break;
		if (!strncmp(line, "0::", 3) &&
		    (cgroup_says("/sys/fs/cgroup", line + 3, "cgroup.events", "frozen 1") ||
		     cgroup_says("/sys/fs/cgroup/unified", line + 3, "cgroup.events", "frozen 1")))
			return true;
		if (!strncmp(kind, ":freezer:", 9) &&
		    cgroup_says("/sys/fs/cgroup/freezer", kind + 9, "freezer.state", "FROZEN"))
			return true;
	}
	return false;
}

static void set_ended(const struct stat_line *line, struct diagnose_rank *rank)
{
	rank->process = DIAGNOSE_PROCESS_DEAD;
	if (!line->may_look)
		return;
	if (WIFSIGNALED(line->status)) {
		rank->signal = WTERMSIG(line->status);
	} else if (WIFEXITED(line->status)) {
		rank->signal = 0;
		rank->exit_code = WEXITSTATUS(line->status);
	}
}

/* Missing from older headers: struct pidfd_info of Linux 6.13 in its first form, with the end since
 * 6.15. */
struct pidfd_end {
	uint64_t mask, cgroup;
	uint32_t ids[11];
	int32_t status; /* as of waitpid */
};
#define PIDFD_END_MASK (UINT64_C(1) << 3)
#define PIDFD_END_GET _IOWR(0xff, 11, struct pidfd_end)
_Static_assert(sizeof(struct pidfd_end) == 64, "as the kernel has it");

bool diagnose_read_exit(int pidfd, struct diagnose_source *source)
{
	struct pidfd_end end = {.mask = PIDFD_END_MASK};
	if (pidfd < 0 || ioctl(pidfd, PIDFD_END_GET, &end) != 0 || !(end.mask & PIDFD_END_MASK))
		return false;
	source->process = DIAGNOSE_PROCESS_DEAD;
	source->signal = WIFSIGNALED(end.status) ? WTERMSIG(end.status) : 0;
	source->exit_code = WIFEXITED(end.status) ? WEXITSTATUS(end.status) : -1;
	return true;
}

bool diagnose_has_proc(uint32_t pid_space)
{
	char link[32] = "";
	ssize_t length = readlink("/proc/self", link, sizeof link - 1);
	return length > 0 && strtol(link, NULL, 10) == (long)getpid() &&
	       (pid_space == 0 || pid_space == fork_pid_space());
}

bool diagnose_may_look_into(const struct diagnose_source *source, const struct diagnose_rank *rank)
{
	return source->trace && rank->known && rank->pid > 0 &&
	       (source->pid <= 0 || source->pid == rank->pid) &&
	       (rank->process == DIAGNOSE_PROCESS_RUNNING ||
		rank->process == DIAGNOSE_PROCESS_SLEEPING) &&
	       diagnose_has_proc(source->trace->header->pid_space);
}

void diagnose_look_process(int pid, struct diagnose_rank *rank)
{
	char path[64], text[STAT_BYTES];
	struct stat_line line = {0};
	rank->process = DIAGNOSE_PROCESS_UNKNOWN;
	rank->signal = -1;
	rank->exit_code = -1;
	if (pid <= 0)
		return;
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	if (!diagnose_has_proc(0) ||
	    diagnose_read_file(path, text, sizeof text, &line.may_look) <= 0) {
		/* /proc may be absent, hidden, or another namespace's; only the kernel's own word
		 * counts. */
		if (kill(pid, 0) != 0 && errno == ESRCH)
			rank->process = DIAGNOSE_PROCESS_DEAD;
		return;
	}
	if (!parse_stat(text, &line))
		return;
	if (is_another(&line, rank->start_ns)) {
		rank->process = DIAGNOSE_PROCESS_DEAD;
		return;
	}
	switch (line.state) {
	case 'R':
		rank->process = DIAGNOSE_PROCESS_RUNNING;
		break;
	case 'T':
	case 't':
		rank->process = DIAGNOSE_PROCESS_STOPPED;
		break;
	case 'Z':
		if (line.threads > 1) /* its first thread has ended, others go on */
			rank->process = DIAGNOSE_PROCESS_RUNNING;
		else
			set_ended(&line, rank);
		break;
	case 'X':
	case 'x':
		rank->process = DIAGNOSE_PROCESS_DEAD;
		break;
	default:
		rank->process =
			is_frozen(pid) ? DIAGNOSE_PROCESS_STOPPED : DIAGNOSE_PROCESS_SLEEPING;
		break;
	}
}
