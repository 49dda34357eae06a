/* SPDX-License-Identifier: BSD-3-Clause
 * How a report is shown: to a person, and as JSON. */
#ifndef CLI_DIAGNOSE_PRINT_H
#define CLI_DIAGNOSE_PRINT_H

#include <stdio.h>

#include "print/print.h"
#include "cli/view.h"

/* A report and where it comes from. */
struct cli_shown {
	const struct cli_report *report;
	const struct cli_snapshot *snapshot; /* NULL: it was taken just now */
	bool verdict; /* something is wrong; false for what may yet come right by itself */
	bool stacks;  /* also where each thread is; not with a snapshot */
};

void cli_print_report(FILE *out, const struct cli_shown *shown);
void cli_print_json(struct print_json *json, const struct cli_shown *shown);
/* What was asked for: "number", "count", "dtype", "reduce_op", "peer" and "tag"; null for what its kind does not
 * have, and "any" for any source and any tag. */
void cli_json_call(struct print_json *json, const struct trace_record *record);

/* True if a rank's process still exists. */
bool cli_is_running(const struct diagnose_job *job);
/* Whom the threads of a rank say they wait for, as a set of ranks; *since_ns: the longest of them, 0 if
 * none waits; *record: the operation it waits in, NULL if unknown. */
uint64_t cli_waits_for(const struct diagnose_job *job, int rank, uint64_t *since_ns,
		       const struct diagnose_record **record);

#endif
