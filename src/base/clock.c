/* SPDX-License-Identifier: BSD-3-Clause
 * Monotonic time. */
#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

enum {
	NS_PER_MS = 1000000,
	/* From this time limit on the coarse clock is used, which takes a third of the time: each
	 * posted receive computes a deadline. It is late by a tick of the kernel, 10 ms at most. */
	COARSE_FROM_MS = 1000,
	COARSE_LATE_MS = 10,
};

static uint64_t read_clock(clockid_t clock)
{
	struct timespec now;
	/* Cannot fail for these clocks; without a clock no deadline holds, so going on would be a
	 * hang. */
	if (clock_gettime(clock, &now) != 0)
		abort();
	return (uint64_t)now.tv_sec * 1000 * NS_PER_MS + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_deadline_ns(uint64_t ms)
{
	uint64_t now = ms < COARSE_FROM_MS
			       ? clock_now_ns()
			       : read_clock(CLOCK_MONOTONIC_COARSE) + COARSE_LATE_MS * NS_PER_MS;
	return ms > (CLOCK_NEVER - now) / NS_PER_MS ? CLOCK_NEVER : now + ms * NS_PER_MS;
}
