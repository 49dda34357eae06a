/* SPDX-License-Identifier: BSD-3-Clause
 * Random programs that use devices through the pool and the gate: ranks of two threads each, with
 * collectives on one or two devices, blocks that are allocated, used by kernels of several streams,
 * freed and trimmed, and too little memory for all of it. Kernels check that nobody else has
 * written to a block while it is theirs. Whatever the schedule, such a program ends, and all memory
 * is the driver's again. Ranks are threads of one process, each with a simulated process of its
 * own. */
#ifndef SIM_DEVICE_PROGRAM_H
#define SIM_DEVICE_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

enum { DEVICE_PROGRAM_RANKS = 3, DEVICE_PROGRAM_THREADS = 2 };

struct device_program;

/* How many ranks the program of this seed has. */
int device_program_ranks(uint64_t seed);
/* NULL: no memory or no thread. */
struct device_program *device_program_open(uint64_t seed);
/* What one thread of one rank does. All are under way at once. */
void device_program_run(struct device_program *program, int rank, int thread);
/* When all have returned. False: memory was not given back, or a block was written to by others. */
bool device_program_close(struct device_program *program);

#endif
