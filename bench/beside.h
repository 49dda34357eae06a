/* SPDX-License-Identifier: BSD-3-Clause
 * All-reduce beside compute: how much longer a step takes than its compute alone. */
#ifndef BENCH_BESIDE_H
#define BENCH_BESIDE_H

#include "runtime.h"

struct beside_times {
	double compute;   /* a step without communication */
	double allreduce; /* one all-reduce without compute */
	double step;      /* both, begun together, until both are over */
	double slowed;    /* the compute within such a step */
};

/* Seconds, medians of several steps, each the slowest rank's. `thread`: the all-reduce runs in a
 * thread of the benchmark instead of by the runtime's own means. False: the runtime has failed. */
bool beside_measure(struct bench_runtime *runtime, float *buffer, size_t bytes, bool thread,
		    struct beside_times *out);

#endif
