/* SPDX-License-Identifier: BSD-3-Clause
 * The processes that ranks would have: their numbers, their descriptors, what /proc says of them,
 * and how they end. */
#ifndef TEST_EXPLORE_PLAYED_H
#define TEST_EXPLORE_PLAYED_H

struct thread;

/* The rank whose process has this number, or SCHEDULER_NOBODY. */
int played_rank(int pid);
int played_tid(const struct thread *thread);
/* How each rank was killed. */
extern int played_signals[];

int played_pidfd_open(int pid);
int played_pidfd_signal(int fd);

#endif
