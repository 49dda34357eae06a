/* SPDX-License-Identifier: BSD-3-Clause
 * /proc of the processes that ranks are played as: files and directories that are written anew each
 * time the library opens them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "played.h"
#include "proc.h"
#include "scheduler_private.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define PLACE __builtin_return_address(0)

enum { PATH_BYTES = 128, TEXT_BYTES = 512, DESCRIPTORS = 1024 };

int __real_open64(const char *path, int flags, ...);
pid_t __real_getpid(void);
DIR *__real_opendir(const char *path);
struct dirent *__real_readdir64(DIR *folder);
int __real_closedir(DIR *folder);

/* ---- texts ---- */

/* What the library reads of a file of /proc. Its descriptor is a copy of that of one empty file,
 * because a schedule may read a hundred such files, and the system would make and free each. */
struct text {
	int length; /* 0: none */
	int at;     /* how much has been read */
	char bytes[TEXT_BYTES];
};
static struct text texts[DESCRIPTORS]; /* of each descriptor */
static bool is_event[DESCRIPTORS];     /* an eventfd */

__attribute__((format(printf, 2, 3))) static void say(struct text *out, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	out->length = vsnprintf(out->bytes, TEXT_BYTES, format, list);
	out->at = 0;
	va_end(list);
	if (out->length <= 0 || out->length >= TEXT_BYTES)
		scheduler_fail("a text of /proc has %d characters", out->length);
}

static int open_text(const struct text *text)
{
	static int empty = -1;
	if (empty < 0)
		empty = memfd_create("played", MFD_CLOEXEC);
	int fd = fcntl(empty, F_DUPFD_CLOEXEC, 0);
	if (fd < 0 || fd >= DESCRIPTORS)
		scheduler_fail("cannot play /proc: %s", strerror(errno));
	texts[fd] = *text;
	return fd;
}

static ssize_t read_text(void *cookie, char *out, size_t bytes)
{
	struct text *text = cookie;
	size_t left = (size_t)(text->length - text->at), length = left < bytes ? left : bytes;
	memcpy(out, text->bytes + text->at, length);
	text->at += (int)length;
	return (ssize_t)length;
}

static int free_text(void *cookie)
{
	free(cookie);
	return 0;
}

static FILE *open_text_stream(const struct text *text, const char *mode)
{
	struct text *copy = malloc(sizeof *copy);
	FILE *file = NULL;
	if (copy) {
		*copy = *text;
		file = fopencookie(copy, mode,
				   (cookie_io_functions_t){.read = read_text, .close = free_text});
	}
	if (!file)
		scheduler_fail("cannot play /proc: %s", strerror(errno));
	return file;
}

bool proc_has(int fd)
{
	return fd >= 0 && fd < DESCRIPTORS && texts[fd].length;
}

ssize_t proc_read(int fd, void *out, size_t bytes)
{
	return read_text(&texts[fd], out, bytes);
}

void proc_forget(int fd)
{
	if (fd < 0 || fd >= DESCRIPTORS)
		return;
	texts[fd].length = 0;
	is_event[fd] = false;
}

static char state_of(const struct thread *thread)
{
	return thread->state == THREAD_KILLED ? 'Z' : thread->state == THREAD_READY ? 'R' : 'S';
}

/* /proc/PID/stat. 'R' while any thread of the rank is ready. */
static void tell_stat(int rank, struct text *out)
{
	char state = 'S', fields[TEXT_BYTES / 2];
	int at = 0;
	for (int i = 0; i < scheduler.count; i++)
		if (scheduler.threads[i].rank == rank && scheduler.threads[i].state == THREAD_READY)
			state = 'R';
	if (scheduler_is_killed(rank))
		state = 'Z';
	for (int field = 4; field <= 52; field++)
		at += snprintf(fields + at, sizeof fields - (size_t)at, " %d",
			       field == 20   ? 1
			       : field == 52 ? played_signals[rank]
					     : 0);
	say(out, "%d (rank) %c%s", played_pid(rank), state, fields);
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

static void tell_thread_stat(const struct thread *thread, struct text *out)
{
	say(out, "%d (rank) %c 0\n", played_tid(thread), state_of(thread));
}

static void tell_status(const struct thread *thread, struct text *out)
{
	say(out,
	    "Name:\trank\nState:\t%c (played)\nSigBlk:\t0\nSigCgt:\t0\nvoluntary_ctxt_switches:\t%llu\n"
	    "nonvoluntary_ctxt_switches:\t0\n",
	    state_of(thread), (unsigned long long)thread->sleeps);
}

/* A thread that waits for the harness without a time limit sleeps as in pthread_join; one with a
 * time limit, as in clock_nanosleep. */
static void tell_syscall(const struct thread *thread, struct text *out)
{
	bool waits = thread->wait == WAITS_THREAD || thread->wait == WAITS_WORD ||
		     thread->wait == WAITS_MUTEX || thread->wait == WAITS_FUTEX;
	if (thread->state != THREAD_BLOCKED)
		say(out, "running\n");
	else if (waits && thread->deadline_ns == SCHEDULER_NEVER)
		say(out, "%d 0x1000 0x80 0x1 0x0 0x0 0x0 0x0 0x0\n", SYS_futex);
	else
		say(out, "%d 0x0 0x0 0x1000 0x0 0x0 0x0 0x0 0x0\n", SYS_clock_nanosleep);
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

/* Whether the file is one of those that are played; then what it says. */
static bool tell(int rank, const char *rest, struct text *out)
{
	char name[PATH_BYTES];
	int tid;
	const struct thread *thread =
		sscanf(rest, "task/%d/%127s", &tid, name) == 2 ? find_thread(rank, tid) : NULL;
	if (strcmp(rest, "stat") == 0)
		tell_stat(rank, out);
	else if (thread && strcmp(name, "stat") == 0)
		tell_thread_stat(thread, out);
	else if (thread && strcmp(name, "status") == 0)
		tell_status(thread, out);
	else if (thread && strcmp(name, "syscall") == 0)
		tell_syscall(thread, out);
	else
		return false;
	return true;
}

/* Opens a descriptor of a rank. Others of its files do not exist. */
static int open_other(int rank, const char *rest, int flags)
{
	char name[PATH_BYTES];
	bool is_open = strncmp(rest, "fd/", 3) == 0 && !scheduler_is_killed(rank);
	/* files.c keeps what is written to standard error */
	errno = strcmp(rest, "fd/2") == 0 ? ENXIO : ENOENT;
	if (errno == ENXIO || !is_open)
		return -1;
	snprintf(name, sizeof name, "/proc/self/%s", rest);
	return __real_open64(name, flags);
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
	struct text text;
	return tell(rank, rest, &text) ? open_text(&text) : open_other(rank, rest, flags);
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

int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags)
{
	int fd = __real_eventfd(count, flags);
	if (fd >= 0 && fd < DESCRIPTORS)
		is_event[fd] = true;
	return fd;
}

static bool is_link_of_event(const char *path)
{
	int fd, at = 0;
	return sscanf(path, "/proc/self/fd/%d%n", &fd, &at) == 1 && !path[at] && fd >= 0 &&
	       fd < DESCRIPTORS && is_event[fd];
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
	static const char event_link[] = "anon_inode:[eventfd]";
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
	if (is_link_of_event(path))
		return copy_out(event_link, sizeof event_link - 1, out, bytes);
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
	struct text text;
	if (thread) {
		tell_thread_stat(thread, &text);
		return open_text_stream(&text, mode);
	}
	if (rank < 0 || strcmp(rest, "maps") == 0)
		return __real_fopen64(path, mode);
	scheduler_point(PLACE, "looks at a process");
	if (tell(rank, rest, &text))
		return open_text_stream(&text, mode);
	int fd = open_other(rank, rest, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? NULL : fdopen(fd, mode);
}

/* ---- the process's own namespaces ---- */

/* The library asks often, and they do not change. */
int __real_stat64(const char *path, struct stat64 *out);
int __wrap_stat64(const char *path, struct stat64 *out)
{
	static const char name[] = "/proc/self/ns/pid";
	static struct stat64 known;
	if (!scheduler_self || strcmp(path, name) != 0)
		return __real_stat64(path, out);
	if (!known.st_ino && __real_stat64(name, &known))
		return -1;
	*out = known;
	return 0;
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
