/* SPDX-License-Identifier: BSD-3-Clause
 * One host of three with its detector, and what others say to it, for tests. */
#ifndef DETECTOR_DETECTOR_FIXTURE_H
#define DETECTOR_DETECTOR_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "detector/detector.h"

#define AT(ms) (UINT64_C(5000000000) + detector_ms(ms))

static struct detector detector;

static inline struct detector_options options_of(int host, const struct auth_session *session)
{
	return (struct detector_options){.host = host,
					 .hosts = 3,
					 .agent = 4 * host,
					 .job = 77,
					 .generation = 1,
					 .session = session};
}

/* The next beat of a host, whose agent is `agent`. */
static inline struct detector_beat beat_of(struct detector *agent, uint64_t now_ns)
{
	struct detector_beat beat;
	while (!detector_step(agent, now_ns, &beat))
		now_ns += detector_ms(1);
	return beat;
}

static inline int give(const struct detector_beat *beat, uint64_t now_ns)
{
	return detector_receive(&detector, beat, sizeof *beat, now_ns);
}

/* Steps until then. Returns how many verdicts there were, and the last one. */
static inline int step_until(uint64_t ms, uint64_t end_ms, struct detector_verdict *out)
{
	struct detector_beat beat;
	int count = 0;
	for (; ms <= end_ms; ms += 10) {
		(void)detector_step(&detector, AT(ms), &beat);
		while (detector_next(&detector, out))
			count++;
	}
	return count;
}

#endif
