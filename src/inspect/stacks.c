/* SPDX-License-Identifier: BSD-3-Clause
 * Shows where threads are. Python frames come first, as they are read while the thread runs. For C
 * frames the thread is stopped for a moment. */
#include "inspect/stacks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "base/text.h"
#include "print/print.h"
#include "stack/stack.h"

enum { FRAME_MAX = 64, ROLE_BYTES = 512, PROBLEM_BYTES = 320 };

/* One process, and the frames of the thread that is looked at. */
struct look {
	const struct inspect_report *report;
	int rank, pid;
	struct stack_memory memory;
	struct stack_python python;
	enum stack_answer python_answer;
	struct stack_thread python_threads[STACK_THREAD_MAX];
	int python_count;
	/* NULL: there is no libdw, or the process cannot be looked into */
	struct stack_native *native;
	uint32_t tids[STACK_THREAD_MAX];
	int count;
	struct stack_lock_wait lock_waits[STACK_THREAD_MAX];
	int lock_wait_count;
	struct stack_depth depth;
	struct stack_frame frames[FRAME_MAX];
};

/* ---- looking ---- */

static bool is_told_before(const struct inspect_report *report, int rank)
{
	for (int q = 0; q < rank; q++)
		if (report->snapshot->ranks[q].known &&
		    report->snapshot->ranks[q].pid == report->snapshot->ranks[rank].pid)
			return true;
	return false;
}

/* NULL: there is nothing to look at, for the reason in *why. */
static struct look *look_open(const struct inspect_report *report, int rank, const char **why)
{
	const struct diagnose_rank *facts = &report->snapshot->ranks[rank];
	const struct trace_view *trace = report->sources[rank].trace;
	uint64_t images[STACK_IMAGE_MAX];
	int count;

	*why = !facts->known || !trace || facts->pid <= 0 ? "cannot be read"
	       : facts->process == DIAGNOSE_PROCESS_DEAD  ? "has ended"
	       : trace->header->pid_space != 0 && trace->header->pid_space != fork_pid_space()
		       ? "is in another process namespace: look from there"
	       : is_told_before(report, rank) ? "is in the process of a rank above"
					      : NULL;
	if (*why)
		return NULL;
	struct look *look = calloc(1, sizeof *look);
	if (!look) {
		*why = "cannot be told for want of memory";
		return NULL;
	}
	look->report = report;
	look->rank = rank;
	look->pid = facts->pid;
	if (!inspect_open_process(facts, &look->memory)) {
		*why = "has ended";
		free(look);
		return NULL;
	}
	look->python_answer = stack_find_images(&look->memory, images, &count);
	if (look->python_answer == STACK_FOUND)
		look->python_answer = stack_find_python(&look->memory, images, count, &look->python);
	if (look->python_answer == STACK_FOUND)
		look->python_count =
			stack_python_threads(&look->python, look->python_threads, STACK_THREAD_MAX);
	if (look->python_answer != STACK_HANGS)
		look->native = stack_native_open(&look->memory);
	look->count = stack_list_threads(look->pid, look->tids, STACK_THREAD_MAX);
	if (look->python_answer != STACK_HANGS)
		look->lock_wait_count = stack_lock_waits(&look->memory, look->tids, look->count,
							 look->lock_waits, STACK_THREAD_MAX);
	return look;
}

static void look_close(struct look *look)
{
	stack_native_close(look->native);
	stack_memory_close(&look->memory);
	free(look);
}

/* An answer counts only if the process is still there: otherwise its number may be another's. */
static enum stack_answer confirm_answer(struct look *look, enum stack_answer answer)
{
	if (stack_memory_is_there(&look->memory))
		return answer;
	look->depth = (struct stack_depth){0};
	return STACK_GONE;
}

/* STACK_NOTHING: this thread runs no Python. */
static enum stack_answer look_at_python(struct look *look, uint32_t tid)
{
	look->depth = (struct stack_depth){0};
	for (int i = 0; i < look->python_count; i++)
		if (look->python_threads[i].tid == tid)
			return confirm_answer(
				look,
				stack_python_frames(&look->python, look->python_threads[i].state,
						    look->frames, FRAME_MAX, &look->depth));
	return look->python_answer == STACK_FOUND ? STACK_NOTHING : look->python_answer;
}

static enum stack_answer look_at_native(struct look *look, uint32_t tid)
{
	look->depth = (struct stack_depth){0};
	if (!look->native)
		return STACK_NOTHING;
	return confirm_answer(look, stack_native_frames(look->native, tid, look->frames, FRAME_MAX,
							&look->depth));
}

/* ---- words ---- */

static const char *state_word(char state)
{
	switch (state) {
	case 'R':
		return "running";
	case 'S':
	case 'I':
		return "asleep";
	case 'D':
		return "asleep, uninterruptible";
	case 'T':
		return "stopped";
	case 't':
		return "held by a debugger";
	default:
		return "ended";
	}
}

static const struct diagnose_record *newest_of(const struct diagnose_rank *rank, uint32_t tid)
{
	for (uint32_t i = 0; i < rank->record_count; i++)
		if (rank->records[i].record.tid == tid)
			return &rank->records[i];
	return NULL;
}

/* The name is another process's text. */
static void add_foreign_call(const struct diagnose_snapshot *snapshot,
			     const struct diagnose_rank *rank, uint32_t tid, char *out, size_t bytes)
{
	size_t used = strlen(out);
	char call[ROLE_BYTES / 2];
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		const struct wait_slot_body *wait = &rank->threads[i].wait;
		if (wait->state == WAIT_FOREIGN && wait->tid == tid) {
			diagnose_named_call_text(snapshot, wait, call, sizeof call);
			snprintf(out + used, bytes - used, "%sin the foreign call %s",
				 used ? ", " : "", call);
			text_clean(out + used, false);
			return;
		}
	}
}

/* What the thread does in Lockstep, or did last; "": nothing. */
static void role_of(const struct look *look, uint32_t tid, char *out, size_t bytes)
{
	const struct diagnose_rank *rank = &look->report->snapshot->ranks[look->rank];
	const struct wait_table *wait_table = look->report->sources[look->rank].trace->wait_table;
	const struct diagnose_record *record = newest_of(rank, tid);
	char text[ROLE_BYTES / 2];

	out[0] = '\0';
	if (tid == atomic_load(&wait_table->watch_tid)) {
		snprintf(out, bytes, "Lockstep's watch");
	} else if (tid == atomic_load(&wait_table->progress_tid)) {
		snprintf(out, bytes, "Lockstep's progress");
	} else if (record) {
		diagnose_operation_text(
			record, diagnose_members(look->report->snapshot, record->record.group),
			text, sizeof text);
		snprintf(out, bytes, "%s %s",
			 record->record.state == TRACE_RUNNING ? "in" : "last was", text);
	}
	add_foreign_call(look->report->snapshot, rank, tid, out, bytes);
}

/* The text in place of frames of Python; "": none. */
static void python_problem(const struct look *look, enum stack_answer answer, char *out,
			   size_t bytes)
{
	out[0] = '\0';
	if (answer == STACK_UNKNOWN)
		snprintf(out, bytes, "%s; `py-spy dump --pid %d` may know it",
			 stack_answer_text(answer), look->pid);
	else
		snprintf(out, bytes, "%s", stack_answer_text(answer));
}

/* Whether nothing of the process can be read. */
static bool is_closed(const struct look *look)
{
	return look->python_answer == STACK_REFUSED || look->python_answer == STACK_HANGS;
}

static void native_problem(const struct look *look, char state, enum stack_answer answer, char *out,
			   size_t bytes)
{
	if (is_closed(look))
		snprintf(out, bytes, "%s", stack_answer_text(look->python_answer));
	else if (!look->native)
		snprintf(out, bytes, "the files of the process cannot be read by libdw");
	else if (answer == STACK_REFUSED && state == 't')
		snprintf(out, bytes, "the debugger that holds it has to show them");
	else
		snprintf(out, bytes, "%s", stack_answer_text(answer));
}

static const struct stack_lock_wait *lock_wait_of(const struct look *look, uint32_t tid)
{
	for (int i = 0; i < look->lock_wait_count; i++)
		if (look->lock_waits[i].tid == tid)
			return &look->lock_waits[i];
	return NULL;
}

/* "cache_lock (0x55d0c0ffee40)", or its address alone. */
static void mutex_text(const struct look *look, uint64_t mutex, char *out, size_t bytes)
{
	char name[STACK_TEXT_BYTES] = "";
	if (look->native)
		stack_native_variable(look->native, mutex, name, sizeof name);
	snprintf(out, bytes, name[0] ? "%s (0x%" PRIx64 ")" : "%s0x%" PRIx64, name, mutex);
}

/* ---- for a person ---- */

/* "thread 7 (main, python)" */
static void thread_text(const struct look *look, uint32_t tid, char *out, size_t bytes)
{
	char name[32];
	stack_thread_name(look->pid, tid, name, sizeof name);
	snprintf(out, bytes, "thread %u (%s%s)", tid, tid == (uint32_t)look->pid ? "main, " : "",
		 name);
}

static void print_lock_wait(FILE *out, const struct look *look, const struct stack_lock_wait *wait)
{
	char mutex[STACK_TEXT_BYTES + 32], owner[64];
	mutex_text(look, wait->mutex, mutex, sizeof mutex);
	if (wait->owner_is_gone) {
		fprintf(out,
			"     waits for ever for the mutex %s: its owner, thread %u, has ended, or held "
			"it in another process when that forked\n",
			mutex, wait->owner);
		return;
	}
	thread_text(look, wait->owner, owner, sizeof owner);
	fprintf(out, "     waits for the mutex %s, which %s holds\n", mutex, owner);
}

/* Prints the cycle from this thread on. printed[i]: wait i has been printed. */
static void print_cycle(FILE *out, const struct look *look, int first, bool *printed)
{
	char thread[64];
	int count = 0;
	for (const struct stack_lock_wait *wait = &look->lock_waits[first];
	     wait && !printed[wait - look->lock_waits]; wait = lock_wait_of(look, wait->owner)) {
		printed[wait - look->lock_waits] = true;
		thread_text(look, wait->tid, thread, sizeof thread);
		fprintf(out, "%s%s", count++ == 0 ? "    deadlock: " : ", ", thread);
	}
	fputs(count == 1 ? " waits for a mutex that it holds itself, and can never continue\n"
			 : " wait for each other's mutexes and can never continue: the program "
			   "takes these locks in different orders\n",
	      out);
}

/* Says once, before all frames, which threads can never continue. */
static void print_deadlocks(FILE *out, const struct look *look)
{
	bool printed[STACK_THREAD_MAX] = {false};
	for (int i = 0; i < look->lock_wait_count; i++)
		if (look->lock_waits[i].is_deadlock && !printed[i])
			print_cycle(out, look, i, printed);
}

static void print_frames(FILE *out, const struct look *look)
{
	if (look->depth.moving)
		fputs("      (further in it calls and returns all the time)\n", out);
	for (int i = 0; i < look->depth.count; i++) {
		const struct stack_frame *frame = &look->frames[i];
		fprintf(out, "      %s", frame->function);
		if (frame->line > 0)
			fprintf(out, " at %s:%d", frame->file, frame->line);
		else if (frame->file[0])
			fprintf(out, " in %s", frame->file);
		fputc('\n', out);
	}
	if (look->depth.more)
		fputs("      (and so on)\n", out);
}

static void print_thread(FILE *out, struct look *look, uint32_t tid)
{
	char name[64], role[ROLE_BYTES], problem[PROBLEM_BYTES];
	char state = stack_thread_state(look->pid, tid);
	const struct stack_lock_wait *wait = lock_wait_of(look, tid);

	thread_text(look, tid, name, sizeof name);
	role_of(look, tid, role, sizeof role);
	fprintf(out, "    %s, %s%s", name, state_word(state), role[0] ? ": " : "");
	print_safely(out, role, 4);
	fputc('\n', out);
	if (wait)
		print_lock_wait(out, look, wait);

	enum stack_answer answer = look_at_python(look, tid);
	python_problem(look, answer, problem, sizeof problem);
	if (look->depth.count > 0) {
		fputs("     Python:\n", out);
		print_frames(out, look);
	} else if (problem[0] &&
		   look->python_answer == STACK_FOUND) { /* else printed once, for all threads */
		fprintf(out, "     Python: %s\n", problem);
	}
	answer = look_at_native(look, tid);
	native_problem(look, state, answer, problem, sizeof problem);
	if (is_closed(look))
		return;
	fprintf(out, "     C:%s%s\n", problem[0] ? " " : "", problem);
	print_frames(out, look);
}

void inspect_stacks_print(FILE *out, const struct inspect_report *report)
{
	char problem[PROBLEM_BYTES];
	const char *why;

	for (int r = 0; r < report->snapshot->size; r++) {
		struct look *look = look_open(report, r, &why);
		if (!look) {
			fprintf(out, "  stacks of rank %d: it %s\n", r, why);
			continue;
		}
		fprintf(out, "  stacks of rank %d, pid %d\n", r, look->pid);
		python_problem(look, look->python_answer, problem, sizeof problem);
		if (problem[0])
			fprintf(out, "    %s%s\n", is_closed(look) ? "" : "Python: ", problem);
		print_deadlocks(out, look);
		for (int i = 0; i < look->count; i++)
			print_thread(out, look, look->tids[i]);
		if (look->count == STACK_THREAD_MAX)
			fputs("    (and so on)\n", out);
		look_close(look);
	}
}

/* ---- for programs ---- */

static void put_frames(struct print_json *json, const char *key, const struct look *look,
		       const char *problem)
{
	print_json_open(json, key, '{');
	print_json_open(json, "frames", '[');
	for (int i = 0; i < look->depth.count; i++) {
		const struct stack_frame *frame = &look->frames[i];
		print_json_open(json, NULL, '{');
		print_json_string(json, "function", frame->function);
		print_json_string(json, "file", frame->file);
		print_json_number(json, "line", frame->line);
		print_json_close(json, '}');
	}
	print_json_close(json, ']');
	print_json_bool(json, "more", look->depth.more);
	print_json_bool(json, "moving", look->depth.moving);
	print_json_string(json, "problem", problem);
	print_json_close(json, '}');
}

static void put_lock_wait(struct print_json *json, const struct look *look, uint32_t tid)
{
	const struct stack_lock_wait *wait = lock_wait_of(look, tid);
	char mutex[STACK_TEXT_BYTES + 32];
	if (!wait) {
		print_json_null(json, "lock");
		return;
	}
	mutex_text(look, wait->mutex, mutex, sizeof mutex);
	print_json_open(json, "lock", '{');
	print_json_string(json, "mutex", mutex);
	print_json_unsigned(json, "owner", wait->owner);
	print_json_bool(json, "owner_is_gone", wait->owner_is_gone);
	print_json_bool(json, "deadlock", wait->is_deadlock);
	print_json_close(json, '}');
}

static void put_thread(struct print_json *json, struct look *look, uint32_t tid)
{
	char name[32], role[ROLE_BYTES], problem[PROBLEM_BYTES];
	char state = stack_thread_state(look->pid, tid);

	stack_thread_name(look->pid, tid, name, sizeof name);
	role_of(look, tid, role, sizeof role);
	print_json_open(json, NULL, '{');
	print_json_unsigned(json, "tid", tid);
	print_json_bool(json, "main", tid == (uint32_t)look->pid);
	print_json_string(json, "name", name);
	print_json_string(json, "state", state_word(state));
	print_json_string(json, "role", role);
	put_lock_wait(json, look, tid);
	enum stack_answer answer = look_at_python(look, tid);
	python_problem(look, answer, problem, sizeof problem);
	put_frames(json, "python", look, problem);
	answer = look_at_native(look, tid);
	native_problem(look, state, answer, problem, sizeof problem);
	put_frames(json, "c", look, problem);
	print_json_close(json, '}');
}

void inspect_stacks_json(struct print_json *json, const struct inspect_report *report, int rank)
{
	const char *why;
	struct look *look = look_open(report, rank, &why);

	if (!look) {
		print_json_null(json, "threads");
		return;
	}
	print_json_open(json, "threads", '[');
	for (int i = 0; i < look->count; i++)
		put_thread(json, look, look->tids[i]);
	print_json_close(json, ']');
	look_close(look);
}
