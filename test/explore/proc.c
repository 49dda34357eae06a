/* SPDX-License-Identifier: BSD-3-Clause
 * /proc of the processes that ranks are played as: files and directories that are written anew each
 * time the library opens them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "played.h"
#include "scheduler_private.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define PLACE __builtin_return_address(0)

enum { PATH_BYTES = 128 };

int __real_open64(const char *path, int flags, ...);
ssize_t __real_write(int fd, const void *bytes, size_t size);
pid_t __real_getpid(void);
DIR *__real_opendir(const char *path);
struct dirent *__real_readdir64(DIR *folder);
int __real_closedir(DIR *folder);

static int open_text(const char *text)
{
	int fd = memfd_create("played", MFD_CLOEXEC);
	if (fd < 0 || __real_write(fd, text, strlen(text)) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		scheduler_fail("cannot play /proc: %s", strerror(errno));
	return fd;
}

static char state_of(const struct thread *thread)
{
	return thread->state == THREAD_KILLED ? 'Z' : thread->state == THREAD_READY ? 'R' : 'S';
}

/* /proc/PID/stat. 'R' while any thread of the rank is ready. */
static int open_stat(int rank)
{
	char state = 'S', text[512];
	for (int i = 0; i < scheduler.count; i++)
		if (scheduler.threads[i].rank == rank && scheduler.threads[i].state == THREAD_READY)
			state = 'R';
	if (scheduler_is_killed(rank))
		state = 'Z';
	int at = snprintf(text, sizeof text, "%d (rank) %c", played_pid(rank), state);
	for (int field = 4; field <= 52; field++)
		at += snprintf(text + at, sizeof text - (size_t)at, " %d",
			       field == 20   ? 1
			       : field == 52 ? played_signals[rank]
					     : 0);
	return open_text(text);
}

/* ---- the threads of a rank ---- */

static struct thread *find_thread(int rank, int tid)
{
	for (int i = 0; i < scheduler.count; i++)
		if (scheduler.threads[i].rank == rank && scheduler.threads[i].state != THREAD_DONE &&
		    played_tid(&scheduler.threads[i]) == tid)
			return &scheduler.threads[i];
	return NULL;
}

static int open_thread_stat(const struct thread *thread)
{
	char text[64];
	snprintf(text, sizeof text, "%d (rank) %c 0\n", played_tid(thread), state_of(thread));
	return open_text(text);
}

static int open_status(const struct thread *thread)
{
	char text[256];
	snprintf(text, sizeof text,
		 "Name:\trank\nState:\t%c (played)\nSigBlk:\t0\nSigCgt:\t0\nvoluntary_ctxt_switches:\t%llu\n"
		 "nonvoluntary_ctxt_switches:\t0\n",
		 state_of(thread), (unsigned long long)thread->sleeps);
	return open_text(text);
}

/* A thread that waits for the harness without a time limit sleeps as in pthread_join; one with a
 * time limit, as in clock_nanosleep. */
static int open_syscall(const struct thread *thread)
{
	char text[128];
	bool waits = thread->wait == WAITS_THREAD || thread->wait == WAITS_WORD ||
		     thread->wait == WAITS_MUTEX || thread->wait == WAITS_FUTEX;
	if (thread->state != THREAD_BLOCKED)
		return open_text("running\n");
	if (waits && thread->deadline_ns == SCHEDULER_NEVER)
		snprintf(text, sizeof text, "%d 0x1000 0x80 0x1 0x0 0x0 0x0 0x0 0x0\n", SYS_futex);
	else
		snprintf(text, sizeof text, "%d 0x0 0x0 0x1000 0x0 0x0 0x0 0x0 0x0\n",
			 SYS_clock_nanosleep);
	return open_text(text);
}

/* ---- by name ---- */

static const struct thread *find_tid(int tid)
{
	for (int i = 0; i < scheduler.count; i++)
		if (scheduler.threads[i].state != THREAD_DONE &&
		    played_tid(&scheduler.threads[i]) == tid)
			return &scheduler.threads[i];
	return NULL;
}

/* Splits "/proc/PID/REST" or "/proc/self/REST" into the rank and the rest. */
static const char *split(const char *path, int *rank)
{
	static const char self[] = "/proc/self/";
	int pid = 0, at = 0;
	*rank = SCHEDULER_NOBODY;
	if (strncmp(path, self, strlen(self)) == 0) {
		*rank = scheduler_self->rank;
		return path + strlen(self);
	}
	if (sscanf(path, "/proc/%d/%n", &pid, &at) == 1 && at)
		*rank = played_rank(pid);
	return path + at;
}

static int open_played(int rank, const char *rest, int flags)
{
	char name[PATH_BYTES];
	int tid;
	if (strcmp(rest, "fd/2") == 0) { /* files.c keeps what is written to standard error */
		errno = ENXIO;
		return -1;
	}
	if (strncmp(rest, "fd/", 3) == 0 && !scheduler_is_killed(rank)) {
		snprintf(name, sizeof name, "/proc/self/%s", rest);
		return __real_open64(name, flags);
	}
	const struct thread *thread =
		sscanf(rest, "task/%d/%127s", &tid, name) == 2 ? find_thread(rank, tid) : NULL;
	if (strcmp(rest, "stat") == 0)
		return open_stat(rank);
	if (thread && strcmp(name, "stat") == 0)
		return open_thread_stat(thread);
	if (thread && strcmp(name, "status") == 0)
		return open_status(thread);
	if (thread && strcmp(name, "syscall") == 0)
		return open_syscall(thread);
	errno = ENOENT;
	return -1;
}

int __wrap_open64(const char *path, int flags, ...)
{
	va_list list;
	va_start(list, flags);
	mode_t mode = va_arg(list, mode_t);
	va_end(list);
	int rank = SCHEDULER_NOBODY;
	const char *rest = scheduler_self ? split(path, &rank) : path;
	if (rank < 0 || strcmp(rest, "maps") == 0)
		return __real_open64(path, flags, mode);
	scheduler_point(PLACE, "looks at a process");
	return open_played(rank, rest, flags);
}

/* ---- links ---- */

/* The names of the latest memory files. The library asks for that of each file several times, and
 * the kernel would make an entry of /proc for each descriptor. */
enum { MEMORY_FILES = 64 };
struct memory_file {
	dev_t device;
	ino_t number; /* a new file may have that of a closed one */
	char link[NAME_MAX + 32];
	ssize_t link_bytes;
};
static struct memory_file memory_files[MEMORY_FILES];
static int memory_file_count; /* ever */

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
	int fd = __real_memfd_create(name, flags);
	struct stat stat;
	if (fd < 0 || fstat(fd, &stat))
		return fd;
	struct memory_file *file = &memory_files[memory_file_count++ % MEMORY_FILES];
	file->device = stat.st_dev;
	file->number = stat.st_ino;
	file->link_bytes = snprintf(file->link, sizeof file->link, "/memfd:%s (deleted)", name);
	return fd;
}

/* The file of "/proc/self/fd/NUMBER"; NULL: none of these. */
static const struct memory_file *find_memory_file(const char *path)
{
	int fd, at = 0;
	struct stat stat;
	if (sscanf(path, "/proc/self/fd/%d%n", &fd, &at) != 1 || path[at] || fstat(fd, &stat))
		return NULL;
	for (int i = memory_file_count - 1; i >= 0 && i >= memory_file_count - MEMORY_FILES; i--) {
		const struct memory_file *file = &memory_files[i % MEMORY_FILES];
		if (file->number == stat.st_ino && file->device == stat.st_dev)
			return file;
	}
	return NULL;
}

static ssize_t copy_out(const char *text, ssize_t length, char *out, size_t bytes)
{
	if (length > (ssize_t)bytes)
		length = (ssize_t)bytes;
	if (length > 0)
		memcpy(out, text, (size_t)length);
	return length;
}

ssize_t __real_readlink(const char *path, char *out, size_t bytes);
ssize_t __wrap_readlink(const char *path, char *out, size_t bytes)
{
	static char program[PATH_MAX];
	static ssize_t program_bytes;
	if (!scheduler_self)
		return __real_readlink(path, out, bytes);
	if (strcmp(path, "/proc/self") == 0 && scheduler_self->rank >= 0) {
		int length = snprintf(out, bytes, "%d", played_pid(scheduler_self->rank));
		return length < (int)bytes ? length : (ssize_t)bytes;
	}
	if (strcmp(path, "/proc/self/exe") == 0) {
		if (program_bytes <= 0)
			program_bytes = __real_readlink(path, program, sizeof program);
		return copy_out(program, program_bytes, out, bytes);
	}
	const struct memory_file *file = find_memory_file(path);
	return file ? copy_out(file->link, file->link_bytes, out, bytes)
		    : __real_readlink(path, out, bytes);
}

FILE *__real_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode)
{
	int rank = SCHEDULER_NOBODY;
	const char *rest = scheduler_self ? split(path, &rank) : path;
	int tid = 0, at = 0;
	const struct thread *thread = NULL;
	if (rank < 0 && scheduler_self && sscanf(path, "/proc/%d/stat%n", &tid, &at) == 1 && at)
		thread = find_tid(tid);
	if (thread)
		return fdopen(open_thread_stat(thread), mode);
	if (rank < 0 || strcmp(rest, "maps") == 0)
		return __real_fopen64(path, mode);
	scheduler_point(PLACE, "looks at a process");
	int fd = open_played(rank, rest, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? NULL : fdopen(fd, mode);
}

/* ---- the directory of threads ---- */

struct folder {
	int rank, next;
	/* /proc itself. It shows only this process, so that a schedule does not depend on what else
	 * runs on the machine. */
	bool is_proc;
	struct dirent entry;
};
static struct folder folders[SCHEDULER_THREADS]; /* one for each thread that reads directories */

static bool is_played(const DIR *folder)
{
	const void *at = folder;
	return at >= (const void *)folders && at < (const void *)(folders + SCHEDULER_THREADS);
}

DIR *__wrap_opendir(const char *path)
{
	int rank = SCHEDULER_NOBODY;
	const char *rest = scheduler_self ? split(path, &rank) : path;
	struct folder *folder = scheduler_self ? &folders[scheduler_self->number] : NULL;
	if (folder && strcmp(path, "/proc") == 0) {
		*folder = (struct folder){.rank = SCHEDULER_NOBODY, .is_proc = true};
		return (DIR *)folder;
	}
	if (rank < 0)
		return __real_opendir(path);
	scheduler_point(PLACE, "looks at a process");
	if (strcmp(rest, "task") != 0 || scheduler_is_killed(rank)) {
		errno = ENOENT;
		return NULL;
	}
	*folder = (struct folder){.rank = rank};
	return (DIR *)folder;
}

struct dirent *__wrap_readdir64(DIR *played)
{
	if (!is_played(played))
		return __real_readdir64(played);
	struct folder *folder = (struct folder *)played;
	if (folder->is_proc && folder->next++ == 0) {
		snprintf(folder->entry.d_name, sizeof folder->entry.d_name, "%d",
			 (int)__real_getpid());
		return &folder->entry;
	}
	for (; !folder->is_proc && folder->next < scheduler.count; folder->next++) {
		const struct thread *thread = &scheduler.threads[folder->next];
		if (thread->rank != folder->rank || thread->state == THREAD_DONE ||
		    (scheduler.hides && thread->of_library))
			continue;
		snprintf(folder->entry.d_name, sizeof folder->entry.d_name, "%d",
			 played_tid(thread));
		folder->next++;
		return &folder->entry;
	}
	return NULL;
}

int __wrap_closedir(DIR *folder)
{
	return is_played(folder) ? 0 : __real_closedir(folder);
}
