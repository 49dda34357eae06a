/* SPDX-License-Identifier: BSD-3-Clause
 * Ways to break a training job on purpose, so as to see what Lockstep says about each. */
#ifndef FAULT_H
#define FAULT_H

#include <lockstep/lockstep.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "mlp.h"

enum fault_kind {
	FAULT_NONE,
	FAULT_LEAVE,     /* leaves the loop one batch early and closes its group */
	FAULT_KILLED,    /* SIGKILL */
	FAULT_STOPPED,   /* SIGSTOP */
	FAULT_SLOW,      /* keeps computing */
	FAULT_OPERATION, /* calls a broadcast where the others call an all-reduce */
	FAULT_COUNT,     /* one element less */
	FAULT_DTYPE,
	FAULT_REDUCE,
	FAULT_ROOT,  /* names another root in a broadcast that all ranks call */
	FAULT_CYCLE, /* every rank receives from its neighbour before it sends */
};

/* The fault with this name ("leave", "killed", …); -1: there is none. */
int fault_from(const char *name);
void fault_print_names(FILE *out);

/* Faults that replace the all-reduce of the gradients on the faulty rank, or happen before it;
 * `*done` is set if the step's all-reduce has been replaced. `buffer` has `count` elements, as many
 * as there are gradients. */
ls_status fault_strike(enum fault_kind kind, bool faulty, ls_group *group, real *buffer,
		       uint64_t count, bool *done);

#endif
