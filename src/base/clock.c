/* SPDX-License-Identifier: BSD-3-Clause
 * Monotonic time. */
#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

enum { NS_PER_MS = 1000000 };

uint64_t clock_now_ns(void)
{
	struct timespec now;
	/* Cannot fail for this clock; without a clock no deadline holds, so going on would be a
	 * hang. */
	if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
		abort();
	return (uint64_t)now.tv_sec * 1000 * NS_PER_MS + (uint64_t)now.tv_nsec;
}

uint64_t clock_deadline_ns(uint64_t ms)
{
	uint64_t now = clock_now_ns();
	return ms > (CLOCK_NEVER - now) / NS_PER_MS ? CLOCK_NEVER : now + ms * NS_PER_MS;
}
