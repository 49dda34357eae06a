/* SPDX-License-Identifier: BSD-3-Clause
 * Runs the program of one rank of a schedule (schedule.h) on a group, on buffers whose content
 * shows where it comes from. */
#ifndef TEST_RANKS_SCHEDULE_RUN_H
#define TEST_RANKS_SCHEDULE_RUN_H

#include "runner.h"
#include "schedule.h"

struct schedule_slot {
	unsigned char *buffer;
	bool plain;                /* not from ls_alloc */
	bool over;                 /* the library has said so */
	ls_request *op;            /* NULL: none, or it has been waited for */
	struct ls_message message; /* of a receive */
};

struct schedule_run {
	const struct runner_rank *self;
	ls_group *group;
	const struct schedule *schedule;
	const struct schedule_program *program; /* of this rank */
	uint32_t number;                        /* of the case */
	char text[SCHEDULE_TEXT];               /* the program, for notes */
	int at;           /* the action it is in; how many there are, if it has come to its end */
	ls_status status; /* that ended it */
	struct schedule_slot slots[SCHEDULE_ACTIONS];
};

/* Runs it as far as it goes. */
void schedule_run_begin(struct schedule_run *run, const struct runner_rank *self, ls_group *group,
			const struct schedule *schedule, uint32_t number);
/* After all has ended with LS_OK: fails the test unless every receive got the message it had to, in
 * the right order, and every collective its result. `end`: what each receive has got, NULL if it
 * had a choice. */
void schedule_run_check(const struct schedule_run *run, const struct schedule_end *end);
/* Gives handles and buffers back; waits for what is under way, which must end with LS_OK or
 * `failure`. */
void schedule_run_end(struct schedule_run *run, ls_status failure);
/* Whether where it was stopped, and what the report of a deadlock says, fit one of the ends that
 * the matcher has found. */
bool schedule_run_fits(const struct schedule_run *run, const struct schedule_verdict *verdict,
		       const char *report);

#endif
