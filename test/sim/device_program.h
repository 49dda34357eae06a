/* SPDX-License-Identifier: BSD-3-Clause
 * Random programs that use devices through the pool and the gate. Ranks have two threads each, with
 * collectives on one or two devices. Several streams use blocks in kernels; the threads allocate,
 * free and trim them, and there is too little memory for all. The kernels check that no other rank
 * or stream writes to a block while it is theirs. Whatever the schedule, such a program ends, and
 * the driver gets all memory back. Ranks are threads of one process, each with a simulated process
 * of its own. */
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
/* Runs one thread of one rank. All threads run at once. */
void device_program_run(struct device_program *program, int rank, int thread);
/* Call when all have returned. False: some memory was not given back, or a block was written to by
 * another. */
bool device_program_close(struct device_program *program);

#endif
