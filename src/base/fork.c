/* SPDX-License-Identifier: BSD-3-Clause
 * The counter is the one piece of mutable process-wide state that a fork handler needs: it is about
 * the process, not about a rank. */
#include "base/fork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

_Atomic uint32_t fork_count;
static pthread_once_t registered = PTHREAD_ONCE_INIT;

static void in_child(void)
{
	atomic_fetch_add_explicit(&fork_count, 1, memory_order_relaxed);
}

static void register_handler(void)
{
	/* Without memory for the handler a child is not recognised; everything else works. */
	int error = pthread_atfork(NULL, NULL, in_child);
	(void)error;
}

uint32_t fork_generation(void)
{
	pthread_once(&registered, register_handler);
	return atomic_load_explicit(&fork_count, memory_order_relaxed);
}

uint32_t fork_pid_space(void)
{
	struct stat status;
	return stat("/proc/self/ns/pid", &status) == 0 ? (uint32_t)status.st_ino : 0;
}
