/* SPDX-License-Identifier: BSD-3-Clause
 * What looks.c looks at: one rank of a job in which nothing is wrong. */
#ifndef TEST_FAULTS_LOOKS_H
#define TEST_FAULTS_LOOKS_H

#include <stdint.h>

enum { LOOKS_RANKS_MAX = 4 };

struct looks_rank {
	int rank, size;
	uint64_t seed; /* from which all ranks draw the same */
	const char *rendezvous;
};

/* Opens its groups, works with several threads, and closes them. Ends the process if anything
 * fails. */
void looks_work(const struct looks_rank *self);

#endif
