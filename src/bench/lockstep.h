/* SPDX-License-Identifier: BSD-3-Clause
 * Lockstep itself as a runtime to be timed. */
#ifndef BENCH_LOCKSTEP_H
#define BENCH_LOCKSTEP_H

#include <lockstep/group.h>
#include <lockstep/request.h>

#include "bench/bench.h"

struct bench_lockstep {
	ls_group *group;
	ls_request *requests[BENCH_OUTSTANDING_MAX]; /* the messages that are not finished yet */
};

/* `out` must stay as long as the runtime is used. */
struct bench_runtime bench_lockstep(ls_group *group, struct bench_lockstep *out);

#endif
