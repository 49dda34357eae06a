/* SPDX-License-Identifier: BSD-3-Clause
 * One host of three with its control, and what others say to it, for tests. */
#ifndef CONTROL_CONTROL_FIXTURE_H
#define CONTROL_CONTROL_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "control/control.h"

#define AT(ms) (UINT64_C(5000000000) + control_ms(ms))

static struct control control;

static inline struct control_options options_of(int host, const struct auth_session *session)
{
	return (struct control_options){.host = host,
					.hosts = 3,
					.agent = 4 * host,
					.job = 77,
					.generation = 1,
					.session = session};
}

/* The next beat of a host, whose agent is `agent`. */
static inline struct control_beat beat_of(struct control *agent, uint64_t now_ns)
{
	struct control_beat beat;
	while (!control_step(agent, now_ns, &beat))
		now_ns += control_ms(1);
	return beat;
}

static inline int give(const struct control_beat *beat, uint64_t now_ns)
{
	return control_receive(&control, beat, sizeof *beat, now_ns);
}

/* Steps until then. Returns how many verdicts there were, and the last one. */
static inline int step_until(uint64_t ms, uint64_t end_ms, struct control_verdict *out)
{
	struct control_beat beat;
	int count = 0;
	for (; ms <= end_ms; ms += 10) {
		(void)control_step(&control, AT(ms), &beat);
		while (control_next(&control, out))
			count++;
	}
	return count;
}

#endif
