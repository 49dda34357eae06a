/* SPDX-License-Identifier: BSD-3-Clause
 * What calls may cost, and whether they do. */
#ifndef COST_COST_H
#define COST_COST_H

#include <lockstep/status.h>

#include "count.h"

/* Of what was optimised as a release is (COST_RELEASE), and of what the tests are built with. */
#ifdef COST_RELEASE
#define COST_LIMITS(release, tested) release
#else
#define COST_LIMITS(release, tested) tested
#endif

/* At most this many of a call. */
struct cost_limit {
	long instructions, locked;
};

/* Without it locks are never biased, and calls cost more: decision 022. */
bool cost_has_membarrier(void);

/* Ends the process with a line of text, unless the status is LS_OK. */
void cost_must(ls_status status);

/* Prints the least of each `each` counts, and "N passed, N failed"; 0 if all are within their
 * limits. */
int cost_judge(const char *const *names, const struct cost_limit *limits,
	       const struct count *counts, int name_count, int each);

#endif
