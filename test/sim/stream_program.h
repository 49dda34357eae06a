/* SPDX-License-Identifier: BSD-3-Clause
 * Random programs on streams of simulated devices, with public calls: collectives and messages on
 * streams and on the host, in two groups, with and without handles; memory of the device; groups
 * that are closed as soon as the streams are done. A healthy program ends with the right data and
 * without a message. In the others something fails, and then all ranks get an error. Ranks are
 * threads of one process. */
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
	STREAM_PROGRAM_CALL,   /* a call of a rank's driver fails, if there are so many calls */
	STREAM_PROGRAM_DEVICE, /* a kernel fails, and with it the device */
	STREAM_PROGRAM_KILLED, /* the caller kills a rank, which has a device of its own */
	STREAM_PROGRAM_FAULTS,
};

struct stream_program;

/* Draws a program. kills: it may be STREAM_PROGRAM_KILLED. NULL: no memory. */
struct stream_program *stream_program_draw(uint64_t seed, bool kills);
int stream_program_ranks(const struct stream_program *program);
enum stream_program_fault stream_program_fault(const struct stream_program *program, int *culprit);
/* "NAME=VALUE NAME=VALUE" for the environment. */
const char *stream_program_settings(const struct stream_program *program);
/* The option `device` of ls_group_open. */
void stream_program_device(const struct stream_program *program, int rank, char *out, size_t bytes);

/* Call in the thread that has opened the group. Opens streams, and makes further groups. */
void stream_program_begin(struct stream_program *program, int rank, ls_group *world);
/* Runs one thread of a rank. All threads run at once. */
void stream_program_run(struct stream_program *program, int rank, int thread);
/* Call when both have returned. Closes the groups. */
void stream_program_end(struct stream_program *program, int rank);
/* Call when all ranks have ended or were killed. said: what the library has printed. False: *why
 * says what is wrong. */
bool stream_program_judge(struct stream_program *program, const char *said, char *why, size_t bytes);
void stream_program_show(const struct stream_program *program, FILE *file);
void stream_program_free(struct stream_program *program);

/* The caller provides this. Called when something has completed. */
void stream_program_progress(void);

#endif
