/* SPDX-License-Identifier: BSD-3-Clause
 * The rate at which ticks pass. Apart from clock.c, which the wait uses, because this waits. */
#include "base/clock.h"
#include "base/wait.h"

enum { CALIBRATE_NS = 2000000, CALIBRATE_TRIES = 8 };

/* Ticks and nanoseconds of one moment: of several tries the one with the shortest way from one
 * reading of ticks to the next, as a thread may lose its core between them. */
static void read_both(uint64_t *ticks, uint64_t *ns)
{
	uint64_t shortest = UINT64_MAX;
	*ticks = *ns = 0;
	for (int i = 0; i < CALIBRATE_TRIES; i++) {
		uint64_t before = clock_ticks();
		uint64_t now = clock_now_ns();
		uint64_t took = clock_ticks() - before;
		if (took < shortest) {
			shortest = took;
			*ticks = before + took / 2;
			*ns = now;
		}
	}
}

void clock_calibrate(struct clock_rate *out)
{
	uint64_t first_ticks, first_ns;
	read_both(&first_ticks, &first_ns);
	uint64_t until = first_ns + CALIBRATE_NS;
	while (clock_now_ns() < until) {
		/* A signal that ends the sleep early only shortens it; the loop goes by the
		 * clock. */
		ls_status ignored = wait_fds(NULL, NULL, 0, -1, until);
		(void)ignored;
	}
	read_both(&out->ticks, &out->ns);
	uint64_t ticks = out->ticks - first_ticks;
	out->ns_per_tick = ticks ? (double)(out->ns - first_ns) / (double)ticks : 1.0;
}

uint64_t clock_ticks_to_ns(const struct clock_rate *rate, uint64_t ticks)
{
	double delta = (double)(int64_t)(ticks - rate->ticks) * rate->ns_per_tick;
	/* The rate may come from another process: what does not fit, or is no number, moves
	 * nothing. */
	if (!(delta > -9e18 && delta < 9e18))
		return rate->ns;
	if (delta < 0) {
		uint64_t back = (uint64_t)-delta;
		return back > rate->ns ? 0 : rate->ns - back;
	}
	uint64_t ahead = (uint64_t)delta;
	return ahead > UINT64_MAX - rate->ns ? UINT64_MAX : rate->ns + ahead;
}
