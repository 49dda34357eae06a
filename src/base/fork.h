/* SPDX-License-Identifier: BSD-3-Clause
 * Tells a forked child from the process that opened a group, and one PID namespace from another.
 * Shared memory is not copied on write, so a child has no arena and no connections. A handle has
 * the generation in which it was made, and each use compares it. That is one load; getpid would be
 * a system call. */
#ifndef BASE_FORK_H
#define BASE_FORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A socket that children of this process are not to hold: they close their copies. Returns a mark
 * for fork_forget; -1: there are too many, so children hold it. Any thread. */
int fork_close_in_child(int fd);
void fork_forget(int mark);

/* How often this process and its ancestors have forked since the first call, as this process sees
 * it: another number in a child than in its parent. */
uint32_t fork_generation(void);
/* No process has forked as often. */
#define FORK_NEVER UINT32_MAX

/* Whether this process is the one in which fork_generation returned this number. */
extern _Atomic uint32_t fork_count;
static inline bool fork_is_in(uint32_t generation)
{
	return atomic_load_explicit(&fork_count, memory_order_relaxed) == generation;
}

/* Which PID namespace this process is in: a number that is the same in all processes of one; 0:
 * unknown. */
uint32_t fork_pid_space(void);

#endif
