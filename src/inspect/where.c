/* SPDX-License-Identifier: BSD-3-Clause
 * Where a rank is that others wait for: at which line of Python, and for which of its own mutexes
 * it waits. The operation that it called last only shows where it was. Nothing is reported of a
 * process into which this user may not look. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ranks.h"
#include "base/settings.h"
#include "failure/python_line.h"
#include "inspect/stacks.h"
#include "stack/stack.h"

enum { LOOK_MS = 20 }; /* for all ranks; after that no further rank is looked at */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static void name_thread(uint32_t tid, uint32_t main_thread, char *out, size_t bytes)
{
	if (tid == main_thread)
		snprintf(out, bytes, "its main thread");
	else
		snprintf(out, bytes, "its thread %u", tid);
}

static bool write_frame(const struct stack_memory *memory, uint32_t tid, char *out, size_t bytes)
{
	struct stack_frame frame;
	char thread[32], function[64], file[96];
	if (stack_python_top(memory, tid, &frame) != STACK_FOUND)
		return false;
	name_thread(tid, (uint32_t)memory->pid, thread, sizeof thread);
	stack_cut_text(frame.function, false, function, sizeof function);
	stack_cut_text(base_name(frame.file), true, file, sizeof file);
	int used = snprintf(out, bytes, "%s is in %s at %s", thread, function, file);
	if (frame.line > 0 && used > 0 && (size_t)used < bytes)
		snprintf(out + used, bytes - (size_t)used, ":%d", frame.line);
	return true;
}

bool inspect_open_process(const struct diagnose_rank *rank, struct stack_memory *out)
{
	struct diagnose_rank *now = calloc(1, sizeof *now); /* too large for the stack */
	stack_memory_open(rank->pid, out);
	bool same = now && stack_memory_is_there(out);
	if (same) {
		now->start_ns = rank->start_ns;
		diagnose_look_process(rank->pid, now);
		same = now->process != DIAGNOSE_PROCESS_DEAD;
	}
	free(now);
	if (!same)
		stack_memory_close(out);
	return same;
}

static bool is_for_ever(const struct stack_lock_wait *wait)
{
	return wait->is_deadlock || wait->owner_is_gone;
}

/* Ranks waits: one that lasts for ever before one that may end; among these that of `caller`, then
 * that of the main thread. 0: the wait of another thread, which may end, does not count. */
static int weight_of(const struct stack_lock_wait *wait, uint32_t caller, uint32_t main_thread)
{
	return 4 * is_for_ever(wait) + 2 * (wait->tid == caller) + (wait->tid == main_thread);
}

/* The wait to report. NULL: no thread waits for ever, nor `caller` or the main thread for a
 * while. */
static const struct stack_lock_wait *choose_wait(const struct stack_lock_wait *waits, int count,
						 uint32_t caller, uint32_t main_thread)
{
	const struct stack_lock_wait *chosen = NULL;
	int most = 0;
	for (int i = 0; i < count; i++) {
		int weight = weight_of(&waits[i], caller, main_thread);
		if (weight > most) {
			chosen = &waits[i];
			most = weight;
		}
	}
	return chosen;
}

static void write_wait(const struct stack_lock_wait *wait, uint32_t main_thread, char *out,
		       size_t bytes)
{
	char thread[32], owner[32];
	name_thread(wait->tid, main_thread, thread, sizeof thread);
	name_thread(wait->owner, main_thread, owner, sizeof owner);
	if (wait->owner_is_gone)
		snprintf(out, bytes,
			 "%s waits for ever for a mutex whose owner, thread %u, has ended or was "
			 "lost in a fork",
			 thread, wait->owner);
	else if (wait->owner == wait->tid)
		snprintf(out, bytes,
			 "its thread %u waits for a mutex that it holds itself, for ever",
			 wait->tid);
	else if (wait->is_deadlock)
		snprintf(out, bytes,
			 "its threads %u and %u are in a deadlock of the program's own mutexes",
			 wait->tid, wait->owner);
	else
		snprintf(out, bytes, "%s waits for a mutex that %s holds", thread, owner);
}

/* Adds the wait to the text. True: `caller` or the main thread waits for ever. */
static bool add_mutex(const struct stack_memory *memory, uint32_t caller, char *out, size_t bytes)
{
	uint64_t images[STACK_IMAGE_MAX];
	uint32_t tids[STACK_THREAD_MAX];
	struct stack_lock_wait waits[STACK_THREAD_MAX];
	uint32_t main_thread = (uint32_t)memory->pid;
	int count;
	if (stack_find_images(memory, images, &count) != STACK_FOUND)
		return false; /* reading the process may be forbidden, or block */
	count = stack_list_threads(memory->pid, tids, STACK_THREAD_MAX);
	count = stack_lock_waits(memory, tids, count, waits, STACK_THREAD_MAX);
	const struct stack_lock_wait *wait = choose_wait(waits, count, caller, main_thread);
	if (!wait)
		return false;
	size_t used = strlen(out);
	if (used > 0 && used + 2 < bytes)
		used += (size_t)snprintf(out + used, bytes - used, "; ");
	write_wait(wait, main_thread, out + used, bytes - used);
	return is_for_ever(wait) && (wait->tid == caller || wait->tid == main_thread);
}

/* The thread whose call the verdict is about is likely to make the next call. If it is in no
 * function of Python, like the threads in which PyTorch runs the backward pass, the user knows the
 * main thread. */
static bool look_at_process(const struct stack_memory *memory, uint32_t caller, char *out,
			    size_t bytes)
{
	uint32_t main_thread = (uint32_t)memory->pid;
	if (!write_frame(memory, caller, out, bytes) && caller != main_thread)
		write_frame(memory, main_thread, out, bytes);
	return add_mutex(memory, caller, out, bytes);
}

static void look_at_rank(struct diagnose_rank *rank, const struct diagnose_record *last)
{
	struct stack_memory memory;
	if (!inspect_open_process(rank, &memory))
		return;
	rank->awaits_mutex = look_at_process(&memory, last ? last->record.tid : (uint32_t)rank->pid,
					     rank->python, sizeof rank->python);
	stack_memory_close(&memory);
}

bool inspect_python_line(int pid, uint32_t caller, char *out, size_t bytes)
{
	struct stack_memory memory;
	out[0] = '\0';
	stack_memory_open(pid, &memory);
	bool awaits_mutex =
		stack_memory_is_there(&memory) && look_at_process(&memory, caller, out, bytes);
	stack_memory_close(&memory);
	return awaits_mutex;
}

void inspect_report_add_python(struct inspect_report *report)
{
	struct diagnose_snapshot *snapshot = report->snapshot;
	const struct diagnose_verdict *verdict = &report->verdict;
	uint64_t end_ns = clock_now_ns() + LOOK_MS * UINT64_C(1000000);
	for (int i = 0; i < snapshot->size && clock_now_ns() < end_ns; i++) {
		const struct diagnose_source *source = &report->sources[i];
		int r = source->rank;
		if (verdict->cause == DIAGNOSE_ELSEWHERE && r >= 0 && r < snapshot->size &&
		    ranks_have(&verdict->culprits, r) &&
		    diagnose_may_look_into(source, &snapshot->ranks[r]))
			look_at_rank(&snapshot->ranks[r],
				     diagnose_part_of(snapshot, verdict, r).record);
	}
	inspect_report_judge(report);
}

/* Runs this program as a helper, and reads its answer. */
static void ask_helper(const struct failure_command *command, char *answer, size_t bytes)
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
	if (failure_python_words(report->sources, report->snapshot, &report->verdict, &command) == 0)
		return;
	ask_helper(&command, answer, sizeof answer);
	RANKS_EACH (r, &report->verdict.culprits)
		if (r < report->snapshot->size && is_there(&report->snapshot->ranks[r]))
			failure_python_take(answer, &report->snapshot->ranks[r]);
	inspect_report_judge(report);
}
