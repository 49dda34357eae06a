/* SPDX-License-Identifier: BSD-3-Clause
 * What is run under drawn schedules: a sort of programs, each drawn by a seed, with what must come
 * out of it. */
#ifndef TEST_EXPLORE_SUBJECT_H
#define TEST_EXPLORE_SUBJECT_H

#include <lockstep/lockstep.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SUBJECT_SETTINGS = 256 };

/* What the seed has decided before any rank opens its group. */
struct subject_plan {
	int ranks;
	char name[96];     /* which of its sort it is, in a word; may be empty */
	bool opens_itself; /* `world` is NULL, and the schedule is drawn from the first call on */
	bool is_well;      /* it comes to its end without a look: half of the schedules have none */
	/* "NAME=VALUE NAME=VALUE…" for the environment, over those of explore.c */
	char settings[SUBJECT_SETTINGS];
};

struct subject {
	const char *name;
	unsigned weight; /* this many of the sum of all weights are of this sort */
	/* Draws the program. Before any thread is managed. */
	void (*draw)(uint64_t seed, struct subject_plan *plan);
	/* NULL, or: writes the option `device` of ls_group_open. */
	void (*device)(int rank, char *out, size_t bytes);
	/* NULL, or: called by the thread that has opened the group, before anything is drawn. */
	void (*opened)(int rank, ls_group *world);
	/* The part of one rank, in that rank's first thread: it is to close `world`. */
	void (*run)(int rank, ls_group *world);
	/* After all ranks have ended or been killed: scheduler_fail, if what came out is not what
	 * had to. */
	void (*judge)(void);
	/* Prints the program. */
	void (*show)(FILE *file);
	/* NULL, or: makes the program in the file `path`, as `show` has written it, smaller as long
	 * as it fails. Each attempt stands there when `fails` is called, and the last one that
	 * fails afterwards. draw takes the program from the file that EXPLORE_PROGRAM names, if it
	 * is set. */
	void (*shrink)(const char *path, bool (*fails)(void *data), void *data);
};

/* Where ranks that open their groups themselves meet. */
const char *subject_rendezvous(void);

extern const struct subject *const subjects[];
extern const size_t subject_count;

#endif
