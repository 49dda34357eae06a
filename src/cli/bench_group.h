/* SPDX-License-Identifier: BSD-3-Clause
 * Lockstep itself as a runtime to be timed. */
#ifndef CLI_BENCH_GROUP_H
#define CLI_BENCH_GROUP_H

#include <lockstep/group.h>

#include "cli/bench.h"

struct bench_runtime cli_bench_group(ls_group *group);

#endif
