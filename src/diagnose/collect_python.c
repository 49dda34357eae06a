/* SPDX-License-Identifier: BSD-3-Clause
 * At which line of Python a rank is that does not come: the operation that it called last says where it was, not where it
 * is now. Where there is no Python, or it may not be looked into, nothing is told. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "diagnose/facts.h"
#include "stack/stack.h"

enum { LOOK_MS = 20 }; /* so long for all ranks: of whom it is over, nothing is told */

/* The same process that the trace is of, as far as can be told. */
static bool may_look(const struct diagnose_source *source, const struct diagnose_rank *rank)
{
	return source->trace && rank->known && rank->pid > 0 &&
	       (source->pid <= 0 || source->pid == rank->pid) &&
	       (rank->process == DIAGNOSE_RUNNING || rank->process == DIAGNOSE_SLEEPING) &&
	       diagnose_has_proc(source->trace->header->pid_space);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static bool add_frame(struct diagnose_rank *rank, uint32_t tid)
{
	struct stack_frame frame;
	char thread[32] = "its main thread";
	if (stack_python_top(rank->pid, tid, &frame) != STACK_FOUND)
		return false;
	if (tid != (uint32_t)rank->pid)
		snprintf(thread, sizeof thread, "its thread %u", tid);
	int used = snprintf(rank->python, sizeof rank->python, "%s is in %.64s at %.96s", thread,
			    frame.function, base_name(frame.file));
	if (frame.line > 0 && used > 0 && (size_t)used < sizeof rank->python)
		snprintf(rank->python + used, sizeof rank->python - (size_t)used, ":%d", frame.line);
	return true;
}

/* The thread that made the call which the verdict is about is likely to make the next one; if it is in no function of
 * Python, as those that PyTorch runs the backward pass in, the main thread is what its user knows. */
static void look(struct diagnose_rank *rank, const struct diagnose_record *last)
{
	uint32_t main_thread = (uint32_t)rank->pid;
	uint32_t caller = last ? last->record.tid : main_thread;
	if (!add_frame(rank, caller) && caller != main_thread)
		add_frame(rank, main_thread);
}

void diagnose_add_python(const struct diagnose_source *sources, int count,
			 const struct diagnose_verdict *verdict, struct diagnose_job *job)
{
	uint64_t end_ns = clock_now_ns() + LOOK_MS * UINT64_C(1000000);
	if (verdict->cause != DIAGNOSE_ELSEWHERE)
		return;
	for (int i = 0; i < count && clock_now_ns() < end_ns; i++) {
		int r = sources[i].rank;
		if (r < 0 || r >= job->size || !(verdict->culprits & diagnose_bit(r)) ||
		    !may_look(&sources[i], &job->ranks[r]))
			continue;
		look(&job->ranks[r], diagnose_part_of(job, verdict, r).record);
	}
}
