/* SPDX-License-Identifier: BSD-3-Clause
 * How a report is shown: to a person, and as JSON. */
#ifndef INSPECT_REPORT_H
#define INSPECT_REPORT_H

#include <stdio.h>

#include "base/ranks.h"
#include "print/print.h"
#include "inspect/inspect.h"

/* A report and where it comes from. */
struct inspect_shown {
	const struct inspect_report *report;
	const struct inspect_saved *saved; /* NULL: it was taken just now */
	bool verdict; /* something is wrong; false for what may yet come right by itself */
	bool stacks;  /* also where each thread is; not with a snapshot */
};

void inspect_print(FILE *out, const struct inspect_shown *shown);
void inspect_print_json(struct print_json *json, const struct inspect_shown *shown);
/* The arguments of a call: "number", "count", "dtype", "reduce_op", "peer" and "tag"; null for what
 * its kind does not have, and "any" for any source and any tag. */
void inspect_json_call(struct print_json *json, const struct trace_record *record);

/* "job 0123456789abcdef: running, train, 4 ranks", and how a job of a file ended. */
void inspect_print_head(FILE *out, const struct diagnose_snapshot *snapshot,
			const struct inspect_saved *saved);
/* "running", "killed by SIGKILL"; a stable word, for JSON. */
void inspect_process_text(const struct diagnose_rank *rank, char *out, size_t bytes);
const char *inspect_process_word(enum diagnose_process process);
/* "foreign_calls" of a rank: a list. */
void inspect_foreign_calls_json(struct print_json *json, const struct diagnose_snapshot *snapshot,
				const struct diagnose_rank *rank);

/* True if a rank's process still exists. */
bool inspect_is_running(const struct diagnose_snapshot *snapshot);
/* For which ranks the threads of a rank wait, as their wait slots say. *since_ns: when the longest
 * wait began; 0: no thread waits. *record: the operation of that wait; NULL: unknown. */
struct ranks inspect_waits_for(const struct diagnose_snapshot *snapshot, int rank,
			       uint64_t *since_ns, const struct diagnose_record **record);

#endif
