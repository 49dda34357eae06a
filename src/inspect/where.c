/* SPDX-License-Identifier: BSD-3-Clause
 * Where a rank is that does not come: the operation that it called last says where it was, not
 * where it is now. At which line of Python, and whether its own mutexes deadlock. Of a process that
 * may not be looked into nothing is said. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ranks.h"
#include "base/settings.h"
#include "failure/python.h"
#include "inspect/stacks.h"
#include "stack/stack.h"

enum { LOOK_MS = 20 }; /* for all ranks; those for which it has passed are not reported */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static bool write_frame(const struct stack_memory *memory, uint32_t tid, char *out, size_t bytes)
{
	struct stack_frame frame;
	char thread[32] = "its main thread", function[64], file[96];
	if (stack_python_top(memory, tid, &frame) != STACK_FOUND)
		return false;
	if (tid != (uint32_t)memory->pid)
		snprintf(thread, sizeof thread, "its thread %u", tid);
	stack_cut_text(frame.function, false, function, sizeof function);
	stack_cut_text(base_name(frame.file), true, file, sizeof file);
	int used = snprintf(out, bytes, "%s is in %s at %s", thread, function, file);
	if (frame.line > 0 && used > 0 && (size_t)used < bytes)
		snprintf(out + used, bytes - (size_t)used, ":%d", frame.line);
	return true;
}

bool inspect_open_process(const struct diagnose_rank *rank, struct stack_memory *out)
{
	struct diagnose_rank *now =
		calloc(1, sizeof *now); /* it holds much more than is asked for */
	stack_memory_open(rank->pid, out);
	bool same = now && stack_memory_is_there(out);
	if (same) {
		now->start_ns = rank->start_ns;
		diagnose_look_process(rank->pid, now);
		same = now->process != DIAGNOSE_DEAD;
	}
	free(now);
	if (!same)
		stack_memory_close(out);
	return same;
}

/* Of the deadlocks of the process's own mutexes, the one that `caller` is in, else any. */
static const struct stack_lock_wait *choose_deadlock(const struct stack_lock_wait *waits, int count,
						     uint32_t caller)
{
	const struct stack_lock_wait *any = NULL;
	for (int i = 0; i < count; i++)
		if (waits[i].is_deadlock && (!any || waits[i].tid == caller))
			any = &waits[i];
	return any;
}

static void add_deadlock(const struct stack_memory *memory, uint32_t caller, char *out, size_t bytes)
{
	uint64_t images[STACK_IMAGE_MAX];
	uint32_t tids[STACK_THREAD_MAX];
	struct stack_lock_wait waits[STACK_THREAD_MAX];
	int count;
	if (stack_find_images(memory, images, &count) != STACK_FOUND)
		return; /* reading it may be forbidden, or block */
	count = stack_list_threads(memory->pid, tids, STACK_THREAD_MAX);
	count = stack_lock_waits(memory, tids, count, waits, STACK_THREAD_MAX);
	const struct stack_lock_wait *wait = choose_deadlock(waits, count, caller);
	size_t used = strlen(out);
	if (wait && wait->owner == wait->tid)
		snprintf(out + used, bytes - used,
			 "%sits thread %u waits for a mutex that it holds itself, for ever",
			 used ? "; " : "", wait->tid);
	else if (wait)
		snprintf(out + used, bytes - used,
			 "%sits threads %u and %u are in a deadlock of the program's own mutexes",
			 used ? "; " : "", wait->tid, wait->owner);
}

/* The thread that made the call which the verdict is about is likely to make the next one; if it is
 * in no function of Python, as those that PyTorch runs the backward pass in, the main thread is
 * what its user knows. */
static void look(const struct stack_memory *memory, uint32_t caller, char *out, size_t bytes)
{
	uint32_t main_thread = (uint32_t)memory->pid;
	if (!write_frame(memory, caller, out, bytes) && caller != main_thread)
		write_frame(memory, main_thread, out, bytes);
	add_deadlock(memory, caller, out, bytes);
}

static void look_at_rank(struct diagnose_rank *rank, const struct diagnose_record *last)
{
	struct stack_memory memory;
	if (!inspect_open_process(rank, &memory))
		return;
	look(&memory, last ? last->record.tid : (uint32_t)rank->pid, rank->python,
	     sizeof rank->python);
	stack_memory_close(&memory);
}

void inspect_python_line(int pid, uint32_t caller, char *out, size_t bytes)
{
	struct stack_memory memory;
	out[0] = '\0';
	stack_memory_open(pid, &memory);
	if (stack_memory_is_there(&memory))
		look(&memory, caller, out, bytes);
	stack_memory_close(&memory);
}

void inspect_report_add_python(struct inspect_report *report)
{
	struct diagnose_job *job = report->job;
	const struct diagnose_verdict *verdict = &report->verdict;
	uint64_t end_ns = clock_now_ns() + LOOK_MS * UINT64_C(1000000);
	for (int i = 0; i < job->size && clock_now_ns() < end_ns; i++) {
		const struct diagnose_source *source = &report->sources[i];
		int r = source->rank;
		if (verdict->cause == DIAGNOSE_ELSEWHERE && r >= 0 && r < job->size &&
		    ranks_have(&verdict->culprits, r) &&
		    diagnose_may_look_into(source, &job->ranks[r]))
			look_at_rank(&job->ranks[r], diagnose_part_of(job, verdict, r).record);
	}
	inspect_report_judge(report);
}

/* The answer of a program that is this one. */
static void ask(const struct failure_command *command, char *answer, size_t bytes)
{
	struct failure_helper *helper = failure_helper_start(command, PYTHON_LIMIT_MS);
	if (!helper)
		return;
	if (failure_helper_await(helper, clock_deadline_ns(PYTHON_LIMIT_MS + PYTHON_END_MS)))
		failure_helper_read(helper, answer, bytes);
	if (!failure_helper_reap(helper))
		failure_helper_stop(helper);
}

static bool is_there(const struct diagnose_rank *rank)
{
	struct stack_memory memory;
	bool there = inspect_open_process(rank, &memory);
	if (there)
		stack_memory_close(&memory);
	return there;
}

void inspect_report_ask_python(struct inspect_report *report)
{
	struct failure_command command = {.places = {"/proc/self/exe"}};
	char answer[PYTHON_ANSWER_BYTES] = "";
	/* A helper would end a program under Valgrind. */
	if (report->failure != LS_OK || settings_is_under_valgrind(NULL))
		return;
	inspect_report_judge(report);
	if (failure_python_words(report->sources, report->job, &report->verdict, &command) == 0)
		return;
	ask(&command, answer, sizeof answer);
	RANKS_EACH (r, &report->verdict.culprits)
		if (r < report->job->size && is_there(&report->job->ranks[r]))
			failure_python_take(answer, &report->job->ranks[r]);
	inspect_report_judge(report);
}
