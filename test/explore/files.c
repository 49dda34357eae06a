/* SPDX-License-Identifier: BSD-3-Clause
 * Descriptors and mappings. Sockets, eventfds and memory files are those of the system; a thread
 * that would block on one waits in the scheduler. This file notes which memory is mapped where,
 * because the file, and not the address, identifies a futex. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proc.h"
#include "scheduler_private.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define PLACE __builtin_return_address(0)

enum { MAPPINGS = 4096, NS_PER_S = 1000000000 };

struct mapping {
	uintptr_t begin, end;
	uint64_t file;
	uint64_t offset;
};
static struct mapping mappings[MAPPINGS];
static int mapping_count;

void *__real_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t bytes);
int __real_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *limit,
		 const sigset_t *mask);

/* ---- mappings ---- */

/* Removes the range from the mappings. */
static void forget(uintptr_t begin, uintptr_t end)
{
	for (int i = 0; i < mapping_count; i++) {
		struct mapping *at = &mappings[i], old = *at;
		if (old.end <= begin || old.begin >= end)
			continue;
		if (old.begin < begin && old.end > end) {
			if (mapping_count == MAPPINGS)
				scheduler_fail("more than %d mappings", MAPPINGS);
			at->end = begin;
			mappings[mapping_count++] =
				(struct mapping){.begin = end,
						 .end = old.end,
						 .file = old.file,
						 .offset = old.offset + (end - old.begin)};
		} else if (old.begin < begin) {
			at->end = begin;
		} else if (old.end > end) {
			at->begin = end;
			at->offset += end - old.begin;
		} else {
			*at = mappings[--mapping_count];
			i--;
		}
	}
}

void *__wrap_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	if (scheduler_self)
		flags &= ~MAP_POPULATE; /* for the same reason as fallocate64 below */
	void *out = __real_mmap64(address, bytes, protection, flags, fd, offset);
	struct stat stat;
	if (out == MAP_FAILED)
		return out;
	forget((uintptr_t)out, (uintptr_t)out + bytes);
	if (!(flags & MAP_SHARED) || fd < 0 || fstat(fd, &stat))
		return out;
	if (mapping_count == MAPPINGS)
		scheduler_fail("more than %d mappings", MAPPINGS);
	mappings[mapping_count++] = (struct mapping){.begin = (uintptr_t)out,
						     .end = (uintptr_t)out + bytes,
						     .file = stat.st_ino,
						     .offset = (uint64_t)offset};
	return out;
}

int __wrap_munmap(void *address, size_t bytes)
{
	forget((uintptr_t)address, (uintptr_t)address + bytes);
	return __real_munmap(address, bytes);
}

struct thread_key files_key(const volatile void *word)
{
	uintptr_t at = (uintptr_t)word;
	for (int i = 0; i < mapping_count; i++)
		if (at >= mappings[i].begin && at < mappings[i].end)
			return (struct thread_key){mappings[i].file,
						   mappings[i].offset + (at - mappings[i].begin)};
	return (struct thread_key){0, at};
}

/* ---- memory that is reserved ---- */

/* The library has the system reserve memory that it mostly never uses here; clearing it took a
 * fifth of the time. */
int __real_fallocate64(int fd, int mode, off_t at, off_t bytes);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t bytes)
{
	struct stat stat;
	if (!scheduler_self || mode != 0 || fstat(fd, &stat))
		return __real_fallocate64(fd, mode, at, bytes);
	return stat.st_size < at + bytes ? ftruncate(fd, at + bytes) : 0;
}

int __real_madvise(void *address, size_t bytes, int advice);
int __wrap_madvise(void *address, size_t bytes, int advice)
{
	return scheduler_self && advice == MADV_POPULATE_WRITE
		       ? 0
		       : __real_madvise(address, bytes, advice);
}

/* ---- waiting for descriptors ---- */

static int poll_now(struct pollfd *fds, nfds_t count)
{
	static const struct timespec zero;
	return count == 0 ? 0 : __real_ppoll(fds, count, &zero, NULL);
}

void files_look(void)
{
	scheduler.fds_changed = false;
	for (int i = 0; i < scheduler.count; i++) {
		struct thread *thread = &scheduler.threads[i];
		if (thread->state == THREAD_BLOCKED && thread->wait == WAITS_FDS &&
		    poll_now(thread->fds, (nfds_t)thread->fd_count) != 0) {
			thread->woken = true;
			scheduler_make_ready(thread);
		}
	}
}

int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *limit,
		 const sigset_t *mask)
{
	struct thread *self = scheduler_self;
	if (!self)
		return __real_ppoll(fds, count, limit, mask);
	scheduler_point(PLACE, "looks at descriptors");
	int ready = poll_now(fds, count);
	uint64_t left_ns = limit ? (uint64_t)limit->tv_sec * NS_PER_S + (uint64_t)limit->tv_nsec
				 : SCHEDULER_NEVER;
	if (ready != 0 || left_ns == 0)
		return ready;
	uint64_t until_ns = left_ns > SCHEDULER_NEVER - scheduler.now_ns
				    ? SCHEDULER_NEVER
				    : scheduler.now_ns + left_ns;
	self->fds = fds;
	self->fd_count = (int)count;
	scheduler_block(WAITS_FDS, (struct thread_key){0}, until_ns, "waits for descriptors");
	return poll_now(fds, count);
}

/* ---- what makes descriptors ready ---- */

#define CHANGES(type, name, what, parameters, arguments) \
	type __real_##name parameters;                   \
	type __wrap_##name parameters                    \
	{                                                \
		if (scheduler_self) {                    \
			scheduler_point(PLACE, what);    \
			scheduler.fds_changed = true;    \
		}                                        \
		return __real_##name arguments;          \
	}
CHANGES(ssize_t, sendmsg, "sends on a socket", (int fd, const struct msghdr *message, int flags),
	(fd, message, flags))
CHANGES(ssize_t, recvmsg, "reads from a socket", (int fd, struct msghdr *message, int flags),
	(fd, message, flags))
CHANGES(int, shutdown, "shuts a socket", (int fd, int how), (fd, how))

ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __wrap_read(int fd, void *bytes, size_t size)
{
	if (!scheduler_self)
		return __real_read(fd, bytes, size);
	scheduler_point(PLACE, "reads a descriptor");
	if (proc_has(fd))
		return proc_read(fd, bytes, size);
	scheduler.fds_changed = true;
	return __real_read(fd, bytes, size);
}

ssize_t __real_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size)
{
	if (!scheduler_self)
		return __real_write(fd, bytes, size);
	scheduler_point(PLACE, "writes to a descriptor");
	scheduler.fds_changed = true;
	if (fd != STDERR_FILENO)
		return __real_write(fd, bytes, size);
	size_t room = SAID_BYTES - 1 - scheduler.said_bytes;
	size_t kept = size < room ? size : room;
	memcpy(scheduler.said + scheduler.said_bytes, bytes, kept);
	scheduler.said_bytes += kept;
	scheduler.said[scheduler.said_bytes] = 0;
	return (ssize_t)size;
}
