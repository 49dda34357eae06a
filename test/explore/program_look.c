/* SPDX-License-Identifier: BSD-3-Clause
 * `lockstep diagnose` beside a running program: finds the job as the command does, and looks at it
 * again and again. */
#include <string.h>
#include <unistd.h>

#include "inspect/inspect.h"
#include "program_private.h"
#include "scheduler.h"

enum { PAUSE = 8 };

static bool is_fault(enum diagnose_cause cause)
{
	return cause == DIAGNOSE_MISMATCH || cause == DIAGNOSE_DIED || cause == DIAGNOSE_LEFT ||
	       cause == DIAGNOSE_DEADLOCK || cause == DIAGNOSE_STOPPED;
}

static void look(struct program_results *results, const struct inspect_view *view)
{
	struct inspect_report *report = inspect_report_take(view, NULL);
	if (!report)
		return;
	results->looked++;
	if (report->failure == LS_OK)
		diagnose_judge(report->snapshot, NULL, &report->verdict);
	if (report->failure == LS_OK && is_fault(report->verdict.cause) && !results->seen[0])
		diagnose_text(report->snapshot, &report->verdict, results->seen,
			      sizeof results->seen);
	inspect_report_free(report);
}

void program_run_looks(void *data)
{
	struct program_run *run = data;
	struct inspect_jobs jobs;
	int ranks = run->program->world.ranks;
	if (inspect_find_jobs(0, getpid(), &jobs) != LS_OK)
		scheduler_fail("the job cannot be found");
	for (int i = 0; i < run->program->looks && word_read(&run->ranks_over) < ranks; i++) {
		for (size_t j = 0; j < jobs.count; j++)
			if (jobs.views[j]->size == ranks)
				look(&run->results, jobs.views[j]);
		for (int pause = 0; pause < PAUSE; pause++)
			scheduler_yield();
	}
	inspect_jobs_free(&jobs);
}
