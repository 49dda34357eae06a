/* SPDX-License-Identifier: BSD-3-Clause
 * One schedule of one program, in a process of its own: the same seed does the same again, in the
 * same build. */
#ifndef TEST_EXPLORE_EPISODE_H
#define TEST_EXPLORE_EPISODE_H

#include "scheduler.h"
#include "subject.h"

enum {
	EPISODE_TEXT = 60000,
	EPISODE_LIMIT_MS = 120000, /* of processor time: a loop without a point */
};

enum episode_outcome {
	EPISODE_FINE,
	EPISODE_HANG,    /* a thread waits, and no rank reports why */
	EPISODE_ENDLESS, /* it never came to an end */
	EPISODE_WRONG,   /* not what had to come out */
	EPISODE_CRASHED, /* a signal */
	EPISODE_STUCK,   /* no point for a long time */
};

/* In memory that explore.c shares with the process of the episode. */
struct episode {
	uint64_t seed;
	bool traced; /* prints each switch */
	bool woken;  /* turns.h: by the kernel */
	enum episode_outcome outcome;
	uint64_t points;
	int threads, ranks;
	const struct subject *subject;
	char name[128]; /* of the program */
	/* of a failed program that can be made smaller; otherwise empty */
	char program[EPISODE_TEXT / 2];
	char text[EPISODE_TEXT]; /* why it is not fine */
	unsigned char *coverage; /* shared by all; NULL: none */
};

/* Runs the schedule of episode->seed in a new process, and waits for its end. only: a subject's
 * name, or NULL. */
void episode_run(struct episode *episode, const char *only);
const char *episode_outcome_name(enum episode_outcome outcome);

#endif
