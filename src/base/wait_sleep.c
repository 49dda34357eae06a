/* SPDX-License-Identifier: BSD-3-Clause
 * The sleep on words in shared memory: the system calls of a futex. */
#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
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
