/* SPDX-License-Identifier: BSD-3-Clause
 * How many instructions a thread executes between two points. It stops after each of them, so the
 * figures are exact, and the same on a busy machine. On x86-64 alone. */
#ifndef COST_COUNT_H
#define COST_COUNT_H

#include <stdbool.h>

struct count {
	long instructions;
	long locked; /* of these: atomic ones, which wait until all stores are done */
};

/* Before anything is counted. False, after a word on standard error: nothing can be. */
bool count_init(void);
/* One thread of the process counts at a time. */
void count_begin(void);
/* Some ten instructions of these two functions are counted, too. */
struct count count_end(void);

#endif
