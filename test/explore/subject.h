/* SPDX-License-Identifier: BSD-3-Clause
 * What explore runs under drawn schedules: sorts of programs. A seed draws each program, and the
 * subject knows what its outcome must be. */
#ifndef TEST_EXPLORE_SUBJECT_H
#define TEST_EXPLORE_SUBJECT_H

#include <lockstep/lockstep.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SUBJECT_SETTINGS = 256 };

/* What the seed decides before any rank opens its group. */
struct subject_plan {
	int ranks;
	char name[96]; /* which program of this sort it is, in a word; may be empty */
	/* its ranks open their own groups: `world` is NULL, and the schedule is drawn from the
	 * first call on */
	bool opens_itself;
	bool is_well; /* it ends without looks; half of the schedules have none */
	/* "NAME=VALUE NAME=VALUE…", settings that replace those of episode.c */
	char settings[SUBJECT_SETTINGS];
};

struct subject {
	const char *name;
	unsigned weight; /* the probability of this sort is this part of the sum of all weights */
	/* Draws the program. No thread is managed yet. */
	void (*draw)(uint64_t seed, struct subject_plan *plan);
	/* Writes the option `device` of ls_group_open. May be NULL. */
	void (*device)(int rank, char *out, size_t bytes);
	/* The thread that has opened the group calls this before anything is drawn. May be NULL. */
	void (*opened)(int rank, ls_group *world);
	/* Runs the part of one rank, in that rank's first thread, and closes `world`. */
	void (*run)(int rank, ls_group *world);
	/* Called when all ranks have ended or been killed. Calls scheduler_fail if the outcome is
	 * wrong. */
	void (*judge)(void);
	/* Prints the program. */
	void (*show)(FILE *file);
	/* May be NULL. Reduces the program in the file `path`, which has what `show` has printed,
	 * as long as it fails. Before it calls `fails` it writes each attempt to that file; in the
	 * end the file has the last one that failed. draw reads the program from the file that
	 * EXPLORE_PROGRAM names, if that is set. */
	void (*shrink)(const char *path, bool (*fails)(void *data), void *data);
};

/* Where ranks meet that open their own groups. */
const char *subject_rendezvous(void);

extern const struct subject *const subjects[];
extern const size_t subject_count;

#endif
