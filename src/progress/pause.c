/* SPDX-License-Identifier: BSD-3-Clause
 * When a wait returns to its caller before the operation is complete. */
#include "progress/progress.h"

/* how often a caller checks for signals that were handled before the wait began */
enum { SIGNALS_MS = 50 };

const struct progress_pause progress_no_pause = {.at_ns = CLOCK_NEVER};

uint64_t progress_op_since(struct ls_request *op)
{
	uint64_t since = atomic_load(&op->waited_ns), now = since ? since : clock_now_ns();
	if (!since && !atomic_compare_exchange_strong(&op->waited_ns, &since, now))
		return since;
	return now;
}

/* The time at which a wait returns, so that Python can handle signals. A look comes after whole
 * look intervals since the wait's beginning, and needs to see the same wait twice. So the wait does
 * not return at these times, but soon after. */
static uint64_t next_return(uint64_t since_ns, uint64_t now_ns)
{
	uint64_t interval_ns = UINT64_C(1000000) * SIGNALS_MS;
	return now_ns + interval_ns - (now_ns - since_ns + interval_ns / 5) % interval_ns;
}

struct progress_pause progress_op_pause(struct ls_request *op, uint32_t timeout_ms)
{
	struct progress_pause pause = progress_no_pause;
	if (timeout_ms) {
		pause.since_ns = progress_op_since(op);
		pause.at_ns = clock_deadline_ns(timeout_ms);
	} else if (op->group->world->resumes) {
		pause.returns = true;
		pause.since_ns = progress_op_since(op);
		pause.at_ns = next_return(pause.since_ns, clock_now_ns());
	}
	return pause;
}
