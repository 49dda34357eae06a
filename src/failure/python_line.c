/* SPDX-License-Identifier: BSD-3-Clause
 * The line of Python at which a rank is that others wait for. The program `lockstep` reads it, in a
 * process of its own: reading the memory of another process may take forever. Where there is no
 * such program, or it finds nothing in time, the report is made without that line. */
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ranks.h"
#include "failure/failure_private.h"
#include "failure/helper.h"
#include "failure/python_line.h"

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), bytes = strlen(end);
	return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

/* The program lies beside the file that this library was loaded from (a build folder), in ../bin
 * from lib (`make install`), or in ../../../../bin from lib/python3.11/site-packages/lockstep. The
 * third place counts only for such a folder. No file is touched: that could take forever, too. */
static bool find_program(struct failure_command *command)
{
	static const char *const places[] = {"lockstep", "../bin/lockstep",
					     "../../../../bin/lockstep"};
	struct trace_module module;
	_Static_assert(sizeof module.path + 32 < HELPER_PATH_BYTES, "each place fits");
	if (!trace_find_module((uintptr_t)&failure_add_python, &module) || module.path[0] != '/')
		return false;
	*strrchr(module.path, '/') = '\0';
	size_t count = ends_with(module.path, "-packages/lockstep") ? 3 : 2;
	for (size_t i = 0; i < count; i++)
		snprintf(command->places[i], HELPER_PATH_BYTES, "%s/%s", module.path, places[i]);
	return true;
}

/* The trace of another rank may hold anything. */
static bool is_thread(const struct diagnose_record *record)
{
	return record && record->record.tid > 0 && record->record.tid <= INT32_MAX;
}

int failure_python_words(const struct diagnose_source *sources,
			 const struct diagnose_snapshot *snapshot,
			 const struct diagnose_verdict *verdict, struct failure_command *command)
{
	int count = 3;
	memcpy(command->words, (char[3][HELPER_WORD_BYTES]){"lockstep", "diagnose", "--python"},
	       3 * HELPER_WORD_BYTES);
	if (verdict->cause != DIAGNOSE_ELSEWHERE)
		return 0;
	RANKS_EACH (r, &verdict->culprits) {
		if (r >= snapshot->size || count == HELPER_WORD_MAX)
			break;
		const struct diagnose_rank *rank = &snapshot->ranks[r];
		const struct diagnose_record *last = diagnose_part_of(snapshot, verdict, r).record;
		if (!diagnose_may_look_into(&sources[r], rank) || rank->pid == getpid())
			continue;
		snprintf(command->words[count++], HELPER_WORD_BYTES, "%d:%u", rank->pid,
			 is_thread(last) ? last->record.tid : (uint32_t)rank->pid);
	}
	return count - 3;
}

/* A program that hangs is left to the watch. Until it has ended, no thread starts another one. */
static void ask_program(struct world *world, const struct failure_command *command, char *answer,
			size_t bytes)
{
	struct world_watch *watch = &world->watch;
	if (atomic_exchange(&watch->helper_is_busy, true))
		return;
	struct failure_helper *helper = failure_helper_start(command, PYTHON_LIMIT_MS);
	if (helper &&
	    failure_helper_await(helper, clock_deadline_ns(PYTHON_LIMIT_MS + PYTHON_END_MS)))
		failure_helper_read(helper, answer, bytes);
	if (!helper || failure_helper_reap(helper)) {
		atomic_store(&watch->helper_is_busy, false);
		return;
	}
	atomic_store(&watch->helper, helper);
	failure_watch_wake(watch);
}

/* A line of the answer: "4711 its main thread is in load at data.py:88". */
void failure_python_take(const char *answer, struct diagnose_rank *rank)
{
	char number[16];
	int length = snprintf(number, sizeof number, "%d", rank->pid);
	for (const char *line = answer; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		const char *text = line + length;
		bool is_its = strncmp(line, number, (size_t)length) == 0;
		bool awaits_mutex = is_its && *text == PYTHON_AWAITS_MUTEX;
		text += awaits_mutex;
		if (!is_its || *text != ' ')
			continue;
		rank->awaits_mutex = awaits_mutex;
		snprintf(rank->python, sizeof rank->python, "%.*s", (int)strcspn(text + 1, "\n"),
			 text + 1);
		return;
	}
}

static bool is_there(const struct world *world, int r)
{
	return syscall(SYS_pidfd_send_signal, world->watch.pid_fds[r], 0, NULL, 0) == 0;
}

void failure_add_python(struct world *world, struct diagnose_snapshot *snapshot,
			const struct diagnose_verdict *verdict)
{
	struct diagnose_source sources[RANKS_WORLD_MAX];
	struct failure_command command = {0};
	char answer[PYTHON_ANSWER_BYTES] = "";
	if (verdict->cause != DIAGNOSE_ELSEWHERE || !find_program(&command))
		return;
	failure_fill_sources(world, sources);
	if (failure_python_words(sources, snapshot, verdict, &command) == 0)
		return;
	ask_program(world, &command, answer, sizeof answer);
	RANKS_EACH (r, &verdict->culprits)
		if (r < world->size && is_there(world, r))
			failure_python_take(answer, &snapshot->ranks[r]);
}
