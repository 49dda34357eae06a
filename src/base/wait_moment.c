/* SPDX-License-Identifier: BSD-3-Clause
 * Short waits that locks and messages use themselves. So they check no lock, print nothing and fill
 * no wait slot. */
#include <errno.h>
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "base/wait.h"

enum {
	NS_PER_S = 1000000000,
	/* If the awaited thread does not run, it may have a lower priority than the waiting one; a
	 * yield would not help then. */
	MOMENT_SPINS = 64 * WAIT_SPIN_BATCH,
	MOMENT_PAUSE_NS = 50000,
	STORES_NS = 10000000,
};

void wait_moment(const _Atomic uint32_t *word)
{
	const struct timespec pause = {.tv_nsec = MOMENT_PAUSE_NS};
	for (unsigned i = 1; atomic_load_explicit(word, memory_order_acquire); i++)
		if (i % WAIT_SPIN_BATCH != 0)
			wait_relax();
		else if (i < MOMENT_SPINS)
			sched_yield();
		else
			nanosleep(&pause, NULL);
}

void wait_until_stores_are_seen(void)
{
	const struct timespec pause = {.tv_nsec = MOMENT_PAUSE_NS};
	uint64_t until_ns = clock_now_ns() + STORES_NS;
	while (clock_now_ns() < until_ns)
		nanosleep(&pause, NULL);
}

bool wait_room(int fd, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd room = {.fd = fd, .events = POLLOUT};
		uint64_t now = clock_now_ns();
		uint64_t left_ns = now < deadline_ns ? deadline_ns - now : 0;
		struct timespec left = {.tv_sec = (time_t)(left_ns / NS_PER_S),
					.tv_nsec = (long)(left_ns % NS_PER_S)};
		int ready = ppoll(&room, 1, &left, NULL);
		if (ready > 0)
			return true;
		if (ready == 0 || errno != EINTR || clock_now_ns() >= deadline_ns)
			return false;
	}
}
