/* SPDX-License-Identifier: BSD-3-Clause
 * Which thread waits for which thread's mutex. A thread that waits for a mutex of glibc is in the
 * futex call, whose arguments /proc shows, with the mutex' address. The mutex names its owner. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fork.h"
#include "base/wait.h"
#include "stack/stack_private.h"

enum { FILE_BYTES = 16384 };

/* struct __pthread_mutex_s of glibc on 64-bit systems. */
struct mutex {
	uint32_t state, count, owner, users;
	int32_t kind;
	uint32_t spins;
	uint64_t list[2]; /* of robust mutexes alone */
};

/* Kinds of mutexes that have no other flags; the last two bits of glibc's elision are none. */
enum {
	KIND_NORMAL = 0,
	KIND_RECURSIVE = 1,
	KIND_ADAPTIVE = 3,
	KIND_LAST = 3,
	KIND_ELISION = 0x300
};
enum { TID_MAX = 1 << 22 }; /* the kernel's own limit */

/* How often a thread has been scheduled out; 0: not known, as a sleeping thread has been. */
static uint64_t count_switches(int pid, uint32_t tid)
{
	char text[FILE_BYTES];
	uint64_t sum = 0;
	if (!stack_read_thread_file(pid, tid, "status", text, sizeof text))
		return 0;
	for (const char *at = text; (at = strstr(at, "voluntary_ctxt_switches:")) != NULL;) {
		at += strlen("voluntary_ctxt_switches:");
		sum += strtoull(at, NULL, 10);
	}
	return sum;
}

/* A thread may sleep in this way on any word: a pool's, the allocator's own lock. So all that a
 * mutex has must be there. An owner that takes its mutex again waits forever only with some
 * kinds. */
static bool is_mutex(const struct mutex *mutex, uint32_t waiter)
{
	int32_t kind = mutex->kind & ~KIND_ELISION;
	return mutex->state == WAIT_MUTEX_CONTENDED && mutex->users > 0 && mutex->owner != 0 &&
	       kind >= 0 && kind <= KIND_LAST && mutex->list[0] == 0 && mutex->list[1] == 0 &&
	       (mutex->owner != waiter || kind == KIND_NORMAL || kind == KIND_ADAPTIVE);
}

/* Whether the owner is no thread of the process. Then its number proves less: another sort of lock
 * may have any number there. So the word must look exactly like a mutex that is held once. */
static bool is_ownerless(int pid, const struct mutex *mutex)
{
	bool recursive = (mutex->kind & ~KIND_ELISION) == KIND_RECURSIVE;
	char path[64];
	struct stat task;
	if (mutex->users != 1 || mutex->owner > TID_MAX || (mutex->count != 0) != recursive)
		return false;
	snprintf(path, sizeof path, "/proc/%d/task/%" PRIu32, pid, mutex->owner);
	return stat(path, &task) != 0 && errno == ENOENT;
}

/* False: the thread waits for no mutex. */
static bool read_wait(const struct stack_memory *memory, uint32_t tid, struct stack_lock_wait *out)
{
	char line[FILE_BYTES];
	struct mutex mutex;
	*out = (struct stack_lock_wait){.tid = tid};
	if (!stack_read_thread_file(memory->pid, tid, "syscall", line, sizeof line) ||
	    !wait_is_for_mutex(line, &out->mutex) ||
	    !memory->read(memory, out->mutex, &mutex, sizeof mutex) || !is_mutex(&mutex, tid))
		return false;
	out->owner = mutex.owner;
	out->owner_is_gone = is_ownerless(memory->pid, &mutex);
	return true;
}

/* One reading of one thread. */
struct reading {
	struct stack_lock_wait wait;
	uint64_t switches; /* 0: the thread waits for no mutex, or that is not known */
};

static bool is_listed(const uint32_t *tids, int count, uint32_t tid)
{
	for (int i = 0; i < count; i++)
		if (tids[i] == tid)
			return true;
	return false;
}

static const struct stack_lock_wait *wait_of(const struct stack_lock_wait *waits, int count,
					     uint32_t tid)
{
	for (int i = 0; i < count; i++)
		if (waits[i].tid == tid)
			return &waits[i];
	return NULL;
}

/* Whether the wait is in a cycle. Every thread of a cycle slept between the readings, while the
 * next one held what it waits for. So none can go on. */
static bool is_in_cycle(const struct stack_lock_wait *waits, int count, int which)
{
	const struct stack_lock_wait *at = &waits[which];
	for (int steps = 0; at && steps < count; steps++) {
		if (at->owner == waits[which].tid)
			return true;
		at = wait_of(waits, count, at->owner);
	}
	return false;
}

/* Numbers of threads in the process's mutexes are those of its own namespace. */
static bool is_in_our_namespace(int pid)
{
	char path[64];
	struct stat other;
	snprintf(path, sizeof path, "/proc/%d/ns/pid", pid);
	return stat(path, &other) == 0 && (uint32_t)other.st_ino == fork_pid_space();
}

/* Whether the owner ended with the mutex. A thread that releases a mutex and ends wakes the waiting
 * one. So the mutex still had this owner after it was gone, and the process still existed. */
static bool was_gone(const struct stack_memory *memory, const struct reading *first,
		     const struct stack_lock_wait *second)
{
	return first->wait.owner_is_gone && second->owner_is_gone && stack_memory_is_there(memory);
}

int stack_lock_waits(const struct stack_memory *memory, const uint32_t *tids, int count,
		     struct stack_lock_wait *out, int max)
{
	int found = 0;
	struct reading *first =
		is_in_our_namespace(memory->pid) ? calloc((size_t)count + 1, sizeof *first) : NULL;
	/* The counts enclose what is read of the mutexes. */
	for (int i = 0; first && i < count; i++) {
		first[i].switches = count_switches(memory->pid, tids[i]);
		if (!read_wait(memory, tids[i], &first[i].wait))
			first[i].switches = 0;
	}
	for (int i = 0; first && i < count && found < max; i++) {
		struct stack_lock_wait second;
		const struct reading *before = &first[i];
		if (before->switches != 0 && read_wait(memory, tids[i], &second) &&
		    second.mutex == before->wait.mutex && second.owner == before->wait.owner &&
		    count_switches(memory->pid, tids[i]) == before->switches &&
		    (is_listed(tids, count, second.owner) || was_gone(memory, before, &second)))
			out[found++] = second;
	}
	free(first);
	for (int i = 0; i < found; i++)
		out[i].is_deadlock = is_in_cycle(out, found, i);
	return found;
}
