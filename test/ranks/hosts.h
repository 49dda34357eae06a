/* SPDX-License-Identifier: BSD-3-Clause
 * Places the ranks of tests on several hosts: network namespaces with names of their own on one
 * bridge, as tools/hosts makes them. They end with the process that made them. */
#ifndef TEST_RANKS_HOSTS_H
#define TEST_RANKS_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

enum { HOSTS_MAX = 8 };

/* Makes `count` hosts, with addresses 198.18.0.1, …; this process moves into a network namespace of
 * its own. Call once, before other threads. Ends the process with 77 and the reason where the
 * system refuses namespaces. */
void hosts_make(int count);
/* Moves this process, which has no other threads, onto a host. Ends it on errors. */
void hosts_enter(int host);
/* Of `rank` among `size` ranks. */
int hosts_of_rank(int rank, int size);
/* Where the ranks of the job with this number meet: 64 bytes are enough. */
void hosts_rendezvous(char *text, size_t room, unsigned job);

#endif
