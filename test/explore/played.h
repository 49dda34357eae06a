/* SPDX-License-Identifier: BSD-3-Clause
 * The processes that ranks would have: their numbers, their descriptors, what /proc says of them, and how they
 * end. */
#ifndef TEST_EXPLORE_PLAYED_H
#define TEST_EXPLORE_PLAYED_H

int played_pidfd_open(int pid);
int played_pidfd_signal(int fd);

#endif
