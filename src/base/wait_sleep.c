/* SPDX-License-Identifier: BSD-3-Clause
 * The sleep on words in shared memory: the system calls of a futex, and how /proc shows them. */
#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/wait_private.h"

enum { NS_PER_S = 1000000000 };

static struct timespec to_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S),
				 .tv_nsec = (long)(ns % NS_PER_S)};
}

/* musl 1.2.3 does not name this call; the kernel's number is the same on all processors. */
#if !defined(SYS_futex_waitv) && defined(FUTEX_32)
#define SYS_futex_waitv 449
#endif

/* Sleeps while each word has its value, at most until until_ns; 0 or an errno. The words are in
 * shared memory, so this is not FUTEX_PRIVATE. futex_waitv continues after a handler installed with
 * SA_RESTART, also with a time-out, and so tells the two kinds of handlers apart.
 * FUTEX_WAIT_BITSET, for kernels before 5.16 and system call filters that do not know futex_waitv,
 * returns after any handler, and takes one word. */
static int futex_sleep(const struct wait_futex *words, int count, uint64_t until_ns)
{
	struct timespec until = to_timespec(until_ns);
	struct timespec *limit = until_ns == CLOCK_NEVER ? NULL : &until;
#ifdef SYS_futex_waitv
	struct futex_waitv all[1 + WAIT_TOPICS_AT_ONCE];
	for (int i = 0; i < count; i++)
		all[i] = (struct futex_waitv){
			.val = words[i].value, .uaddr = (uintptr_t)words[i].word, .flags = FUTEX_32};
	if (syscall(SYS_futex_waitv, all, count, 0, limit, CLOCK_MONOTONIC) >= 0)
		return 0;
	if (errno != ENOSYS && errno != EPERM)
		return errno;
#endif
	if (count > 1)
		return ENOSYS;
	if (syscall(SYS_futex, words->word, FUTEX_WAIT_BITSET, words->value, limit, NULL,
		    FUTEX_BITSET_MATCH_ANY) == 0)
		return 0;
	return errno;
}

enum wait_slept wait_sleep_while(const struct wait_futex *words, int count, uint64_t until_ns)
{
	int error = futex_sleep(words, count, until_ns);
	if (error == ENOSYS && count > 1)
		return WAIT_SLEEP_ONE_WORD;
	if (error == EINTR)
		return WAIT_SLEPT_INTERRUPTED;
	if (!error || error == EAGAIN || error == ETIMEDOUT)
		return WAIT_SLEPT;
	MESSAGE_SAY(MESSAGE_WAIT_SYSTEM, "futex", strerror(error));
	return WAIT_SLEEP_REFUSED;
}

/* ---- as /proc shows it ---- */

/* Whether the thread sleeps in a futex without a time limit; then the outputs are the arguments of
 * its call. */
static bool read_futex_wait(const char *line, uint64_t *address, uint64_t *operation,
			    uint64_t *value)
{
	long call;
	uint64_t limit;
	if (sscanf(line, "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64, &call, address,
		   operation, value, &limit) != 5 ||
	    call != SYS_futex || limit != 0)
		return false;
	uint64_t command = *operation & FUTEX_CMD_MASK;
	return command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
}

/* The same of a thread that sleeps in futex_waitv. The thread may wake at any time, and its memory
 * may go, so the system reads that. */
static int read_futex_waitv(const char *line, uint64_t shared[WAIT_SHARED_MAX])
{
#ifdef SYS_futex_waitv
	struct futex_waitv all[WAIT_SHARED_MAX];
	long call;
	uint64_t address, count, flags, limit;
	int found = 0;
	if (sscanf(line, "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64, &call, &address,
		   &count, &flags, &limit) != 5 ||
	    call != SYS_futex_waitv || limit != 0 || count > WAIT_SHARED_MAX)
		return -1;
	struct iovec to = {.iov_base = all, .iov_len = (size_t)count * sizeof all[0]};
	struct iovec from = {.iov_base = (void *)(uintptr_t)address, .iov_len = to.iov_len};
	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != (ssize_t)to.iov_len)
		return -1;
	for (uint64_t i = 0; i < count; i++)
		if (!(all[i].flags & FUTEX_PRIVATE_FLAG))
			shared[found++] = all[i].uaddr;
	return found;
#else
	(void)line;
	(void)shared;
	return -1;
#endif
}

int wait_is_endless(const char *line, uint64_t shared[WAIT_SHARED_MAX])
{
	uint64_t operation, value;
	if (!read_futex_wait(line, &shared[0], &operation, &value))
		return read_futex_waitv(line, shared);
	return operation & FUTEX_PRIVATE_FLAG ? 0 : 1;
}

bool wait_is_for_mutex(const char *line, uint64_t *mutex)
{
	uint64_t operation, value;
	return read_futex_wait(line, mutex, &operation, &value) &&
	       (operation & FUTEX_PRIVATE_FLAG) && value == WAIT_MUTEX_CONTENDED;
}
