/* SPDX-License-Identifier: BSD-3-Clause
 * Lockstep itself as a runtime to be timed. */
#ifndef CLI_BENCH_GROUP_H
#define CLI_BENCH_GROUP_H

#include <lockstep/group.h>
#include <lockstep/op.h>

#include "cli/bench.h"

struct bench_group {
	ls_group *group;
	ls_op *ops[BENCH_OUTSTANDING_MAX]; /* those that are not finished yet */
};

/* `out` must stay as long as the runtime is used. */
struct bench_runtime cli_bench_group(ls_group *group, struct bench_group *out);

#endif
