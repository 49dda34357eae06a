/* SPDX-License-Identifier: BSD-3-Clause
 * Random programs on streams of simulated devices, over the public API: collectives and messages on
 * streams and on the host, in two groups, with and without handles; memory of the device; groups
 * that are closed as soon as the streams are done. A healthy program ends with the right data, and
 * nothing is said. In others something fails, and then all ranks get an error. Ranks are threads of
 * one process. */
#ifndef SIM_STREAM_PROGRAM_H
#define SIM_STREAM_PROGRAM_H

#include <lockstep/lockstep.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { STREAM_PROGRAM_RANKS = 3, STREAM_PROGRAM_THREADS = 2 };

enum stream_program_fault {
	STREAM_PROGRAM_WELL,
	STREAM_PROGRAM_ABORTS, /* a rank aborts its groups */
	STREAM_PROGRAM_LEAVES, /* a rank closes its groups */
	STREAM_PROGRAM_CALL,   /* a call of a rank's driver fails, if there are this many */
	STREAM_PROGRAM_DEVICE, /* a kernel fails, and the device with it */
	STREAM_PROGRAM_KILLED, /* the caller kills a rank, whose device is its own */
	STREAM_PROGRAM_FAULTS,
};

struct stream_program;

/* What the seed draws. kills: it may be STREAM_PROGRAM_KILLED. NULL: no memory. */
struct stream_program *stream_program_draw(uint64_t seed, bool kills);
int stream_program_ranks(const struct stream_program *program);
enum stream_program_fault stream_program_fault(const struct stream_program *program, int *culprit);
/* "NAME=VALUE NAME=VALUE" for the environment. */
const char *stream_program_settings(const struct stream_program *program);
/* The option `device` of ls_group_open. */
void stream_program_device(const struct stream_program *program, int rank, char *out, size_t bytes);

/* In the thread that has opened the group: opens streams, and makes further groups. */
void stream_program_begin(struct stream_program *program, int rank, ls_group *world);
/* What one thread of a rank does. All are under way at once. */
void stream_program_run(struct stream_program *program, int rank, int thread);
/* When both have returned: closes the groups. */
void stream_program_end(struct stream_program *program, int rank);
/* All ranks have ended, or were killed. said: what the library has written. False: why not. */
bool stream_program_judge(struct stream_program *program, const char *said, char *why, size_t bytes);
void stream_program_show(const struct stream_program *program, FILE *file);
void stream_program_free(struct stream_program *program);

/* What the caller provides: something has come to its end. */
void stream_program_progress(void);

#endif
