/* SPDX-License-Identifier: BSD-3-Clause
 * What collectives.c needs of the runtime that it is linked with: Lockstep (lockstep.c), an MPI
 * (peers/mpi.c) or Gloo (peers/gloo.cc). So all of them are timed by the same code. */
#ifndef BENCH_RUNTIME_H
#define BENCH_RUNTIME_H

#include "bench/bench.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The rank that the launcher gave to this process, -1 if it did not say. */
int bench_rank(void);

/* Joins the other ranks. `threads`: operations will be run by a thread that is not the caller, one
 * at a time. False after a message. */
bool bench_open(struct bench_runtime *out, bool threads);
void bench_close(struct bench_runtime *runtime);

/* Memory for buffers, at most two, which last as long as the runtime; `plain`: not the runtime's
 * own kind, where it has one. NULL after a message. */
void *bench_allocate(struct bench_runtime *runtime, size_t bytes, bool plain);

/* An all-reduce that runs beside the caller, in place: begin returns at once, finish when it is
 * over. False after a message, also if the runtime has no such thing. */
bool bench_begin(struct bench_runtime *runtime, float *buffer, size_t count);
bool bench_finish(struct bench_runtime *runtime);

/* Memory that the runtime's recorder holds for this rank; 0 if it has none. */
size_t bench_trace_bytes(void);

#ifdef __cplusplus
}
#endif
#endif
