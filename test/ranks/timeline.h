/* SPDX-License-Identifier: BSD-3-Clause
 * What all ranks of a test did when, as lockstep trace draws it: for tests of which ranks wait for
 * which. Call it before the test fails: what it prints is shown then. */
#ifndef TEST_RANKS_TIMELINE_H
#define TEST_RANKS_TIMELINE_H

#include <stdio.h>

/* Of every group that is open in this process: one rank is enough to draw all. Does not need the
 * library to be in order, for it reads nothing but the traces that this process holds. No rank of
 * the process may close its group meanwhile. */
void timeline_print(FILE *out);

#endif
