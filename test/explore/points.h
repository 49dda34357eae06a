/* SPDX-License-Identifier: BSD-3-Clause
 * Included before every file of the library when it is built for the scheduler: the processor's
 * clock and its hint for loops, which no compiler reports, come to the scheduler as well. */
#ifndef TEST_EXPLORE_POINTS_H
#define TEST_EXPLORE_POINTS_H

#include <stdint.h>

uint64_t explore_ticks(void);
void explore_pause(void);
#define __builtin_ia32_rdtsc explore_ticks
#define __builtin_ia32_pause explore_pause

#endif
