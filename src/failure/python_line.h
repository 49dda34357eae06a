/* SPDX-License-Identifier: BSD-3-Clause
 * How the program `lockstep` is asked at which line of Python each rank is that others wait for:
 * `lockstep diagnose --python PID:TID...`, as a helper. A rank that waits asks, and so does the
 * launcher. */
#ifndef FAILURE_PYTHON_LINE_H
#define FAILURE_PYTHON_LINE_H

#include "diagnose/diagnose.h"
#include "failure/helper.h"

enum {
	PYTHON_LIMIT_MS = 250, /* how much later a report comes at most; as a rule some 10 ms */
	PYTHON_END_MS = 50,    /* how long it takes to end the program */
	PYTHON_RANK_MAX = HELPER_WORD_MAX - 3,
	PYTHON_ANSWER_BYTES = PYTHON_RANK_MAX * (DIAGNOSE_PYTHON_BYTES + 16), /* "PID LINE\n" */
	/* After the number of a process: struct diagnose_rank.awaits_mutex. */
	PYTHON_AWAITS_MUTEX = '*',
};

/* Writes command->words: of each rank that is elsewhere the process, and the thread that made the
 * call after which it is elsewhere. sources[r]: of rank r. Returns how many ranks there are; 0:
 * none is, or none may be looked into. */
int failure_python_words(const struct diagnose_source *sources,
			 const struct diagnose_snapshot *snapshot,
			 const struct diagnose_verdict *verdict, struct failure_command *command);
/* Copies what the answer says about the process of this rank to rank->python and awaits_mutex. Only
 * for a process that still has its number: then it had it when it was read. */
void failure_python_take(const char *answer, struct diagnose_rank *rank);

#endif
