/* SPDX-License-Identifier: BSD-3-Clause
 * Looking into processes. lockstep diagnose --stacks: every thread of every rank, what it does for
 * Lockstep, and its Python and C frames. */
#ifndef INSPECT_STACKS_H
#define INSPECT_STACKS_H

#include <stdio.h>

#include "inspect/inspect.h"
#include "print/print.h"
#include "stack/stack.h"

/* ---- where.c ---- */

/* The memory of this rank's process. False: it has ended, and its number may be another's. */
bool inspect_open_process(const struct diagnose_rank *rank, struct stack_memory *out);

/* ---- stacks.c ---- */

/* Prints the stacks of all ranks of the report that live. */
void inspect_stacks_print(FILE *out, const struct inspect_report *report);
/* "threads" of one rank: a list, null if its process cannot be looked into. */
void inspect_stacks_json(struct print_json *json, const struct inspect_report *report, int rank);

#endif
