/* SPDX-License-Identifier: BSD-3-Clause
 * Threads of a rank's process that are in no wait table, because they have not called Lockstep on
 * this rank: may one of them be about to call? The collector reads their state in /proc before and
 * after a snapshot, as it does the wait slots. A thread that slept the whole time between did
 * nothing. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diagnose/facts.h"

enum { FILE_BYTES = 4096, LINE_BYTES = 512 };

struct sleeper {
	char state; /* as in /proc/PID/stat */
	uint64_t voluntary, involuntary;
	bool handles; /* see may_handle */
};

static bool find_number(const char *text, const char *name, uint64_t *out)
{
	const char *at = strstr(text, name);
	if (at)
		*out = strtoull(at + strlen(name), NULL, 10);
	return at != NULL;
}

/* The signals 1 to 64 whose handlers do not count as threads that may act. The thread itself causes
 * the synchronous ones; two are the C library's own; and many programs catch SIGINT and SIGCHLD
 * whatever they do, as Python and its loaders do. */
static uint64_t unawaited_signals(void)
{
	static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE,  SIGILL, SIGABRT, SIGTRAP,
				      SIGSYS,  SIGINT, SIGCHLD, 32,     33};
	uint64_t set = 0;
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		set |= UINT64_C(1) << (numbers[i] - 1);
	return set;
}

static bool find_set(const char *text, const char *name, uint64_t *out)
{
	const char *at = strstr(text, name);
	if (at)
		*out = strtoull(at + strlen(name), NULL, 16);
	return at != NULL;
}

/* Whether a signal may make this thread run a handler, which may wake any thread of the process.
 * Also true if that is not known. */
static bool may_handle(const char *status)
{
	uint64_t caught, blocked;
	return !find_set(status, "\nSigBlk:\t", &blocked) ||
	       !find_set(status, "\nSigCgt:\t", &caught) ||
	       (caught & ~blocked & ~unawaited_signals()) != 0;
}

/* Whether the last call on /proc failed for good: the thread has ended, or /proc does not exist or
 * hides it from this process. If /proc hides threads, it always did, and proofs ignore the hidden
 * ones, because otherwise there would be none. Any other failure, such as a lack of descriptors,
 * says nothing about which threads run. */
static bool has_nothing_to_see(void)
{
	return errno == ENOENT || errno == ESRCH || errno == EACCES || errno == EPERM;
}

/* False: the thread has ended, or cannot be looked at; errno tells. */
static bool look_at_thread(int pid, int tid, struct sleeper *out)
{
	static const char name[] = "\nState:\t";
	char path[64], text[FILE_BYTES];
	snprintf(path, sizeof path, "/proc/%d/task/%d/status", pid, tid);
	errno = 0;
	if (diagnose_read_file(path, text, sizeof text, NULL) <= 0)
		return false;
	errno = EIO;
	const char *state = strstr(text, name);
	if (!state)
		return false;
	out->state = state[strlen(name)];
	out->handles = may_handle(text);
	return find_number(text, "\nvoluntary_ctxt_switches:", &out->voluntary) &&
	       find_number(text, "\nnonvoluntary_ctxt_switches:", &out->involuntary);
}

/* ---- how a thread sleeps ---- */

/* Whether no other process can wake a thread that sleeps on this address. */
static bool is_private(uint64_t address)
{
	char line[LINE_BYTES];
	bool found = false;
	FILE *maps = fopen("/proc/self/maps", "re");
	while (maps && !found && fgets(line, sizeof line, maps)) {
		uint64_t first, end;
		char rights[5];
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &first, &end, rights) == 3 &&
		    first <= address && address < end)
			found = rights[3] == 'p';
	}
	if (maps)
		fclose(maps);
	return found;
}

/* Whether only another thread of the process ends this sleep. Joins of threads, locks and condition
 * variables sleep so. */
static bool is_endless(const char *line)
{
	uint64_t shared[WAIT_SHARED_MAX];
	int count = wait_is_endless(line, shared);
	for (int i = 0; i < count; i++)
		if (!is_private(shared[i]))
			return false;
	return count >= 0;
}

/* Whether a thread of this process sleeps such a sleep (is_endless). */
static bool sleeps_endlessly(int pid, int tid, struct sleeper *out)
{
	char path[64], text[LINE_BYTES];
	struct sleeper before;
	snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
	return look_at_thread(pid, tid, &before) && before.state == 'S' && !before.handles &&
	       diagnose_read_file(path, text, sizeof text, NULL) > 0 && is_endless(text) &&
	       look_at_thread(pid, tid, out) && out->state == 'S' && !out->handles &&
	       out->voluntary == before.voluntary;
}

/* ---- all of them ---- */

/* The slot of thread `tid`; NULL: it has none. */
static const struct wait_slot *find_slot(const struct wait_table *wait_table, uint32_t tid)
{
	for (int i = 0; i < WAIT_SLOT_MAX; i++)
		if (atomic_load_explicit(&wait_table->slots[i].taken, memory_order_acquire) &&
		    __atomic_load_n(&wait_table->slots[i].body.tid, __ATOMIC_RELAXED) == tid)
			return &wait_table->slots[i];
	return NULL;
}

static bool is_watch(const struct wait_table *wait_table, uint32_t tid)
{
	return tid == atomic_load_explicit(&wait_table->watch_tid, memory_order_relaxed) ||
	       tid == atomic_load_explicit(&wait_table->heartbeat_tid, memory_order_relaxed) ||
	       tid == atomic_load_explicit(&wait_table->link_tids[0], memory_order_relaxed) ||
	       tid == atomic_load_explicit(&wait_table->link_tids[1], memory_order_relaxed);
}

bool diagnose_has_slot(const struct trace_view *trace, uint32_t tid)
{
	return is_watch(trace->wait_table, tid) || find_slot(trace->wait_table, tid);
}

/* Whether the thread is in no wait in the wait table. Threads of the library do not count, because
 * they are seen by other means: the progress thread calls back only where the wait table shows what
 * for. */
static bool is_in_no_wait(const struct wait_table *wait_table, uint32_t tid,
			  const struct wait_slot *slot)
{
	if (is_watch(wait_table, tid) ||
	    tid == atomic_load_explicit(&wait_table->progress_tid, memory_order_relaxed))
		return false;
	uint32_t state = slot ? __atomic_load_n(&slot->body.state, __ATOMIC_RELAXED) : WAIT_OUTSIDE;
	return state != WAIT_WORDS && state != WAIT_ANY_WORD;
}

static bool has_ended(const struct sleeper *sleeper)
{
	return sleeper->state == 'Z' || sleeper->state == 'X';
}

/* Whether the thread runs, or will continue by itself, also after it is no longer stopped or
 * traced. */
static bool may_run(const struct sleeper *sleeper)
{
	return sleeper->state != 'S' && sleeper->state != 'I' && !has_ended(sleeper);
}

/* A hash of a thread's sleep. Callers add the hashes of threads, so the order of the threads does
 * not matter. */
static uint64_t hash_of(uint32_t tid, const struct sleeper *sleeper)
{
	uint64_t hash = (tid ^ sleeper->voluntary << 32) * UINT64_C(0x9e3779b97f4a7c15);
	return (hash ^ hash >> 29 ^ sleeper->involuntary) * UINT64_C(0xbf58476d1ce4e5b9);
}

/* Not 0, which stands for none. */
static uint64_t outside_sleep_of(uint64_t hash)
{
	return hash | 1;
}

/* Whether the thread may run a handler. Also true if the thread cannot be seen; false if it has
 * ended. */
static bool handles_signals(int pid, int tid)
{
	struct sleeper sleeper;
	return look_at_thread(pid, tid, &sleeper) ? sleeper.handles : !has_nothing_to_see();
}

uint64_t diagnose_outside_sleep(const struct trace_view *trace)
{
	const struct wait_table *wait_table = trace->wait_table;
	int pid = getpid(), self = (int)trace_thread_id();
	uint64_t hash = 0;
	DIR *tasks = opendir("/proc/self/task");
	bool all = tasks != NULL;
	for (const struct dirent *entry; all && (entry = readdir(tasks)) != NULL;) {
		struct sleeper sleeper;
		int tid = (int)strtol(entry->d_name, NULL, 10);
		bool rests = tid > 0 && tid != self &&
			     is_in_no_wait(wait_table, (uint32_t)tid,
					   find_slot(wait_table, (uint32_t)tid));
		if (rests)
			all = sleeps_endlessly(pid, tid, &sleeper);
		else if (tid > 0) /* a thread that waits may run a handler all the same */
			all = !handles_signals(pid, tid);
		if (all && rests)
			hash += hash_of((uint32_t)tid, &sleeper);
	}
	if (tasks)
		closedir(tasks);
	return all ? outside_sleep_of(hash) : 0;
}

bool diagnose_newcomer_runs(const struct trace_view *trace)
{
	int pid = getpid(), self = (int)trace_thread_id();
	DIR *tasks = opendir("/proc/self/task");
	bool runs = !tasks && !has_nothing_to_see();
	for (const struct dirent *entry; tasks && !runs && (entry = readdir(tasks)) != NULL;) {
		struct sleeper sleeper;
		int tid = (int)strtol(entry->d_name, NULL, 10);
		if (tid <= 0 || tid == self || diagnose_has_slot(trace, (uint32_t)tid) ||
		    !is_in_no_wait(trace->wait_table, (uint32_t)tid, NULL))
			continue;
		runs = look_at_thread(pid, tid, &sleeper) ? may_run(&sleeper)
							  : !has_nothing_to_see();
	}
	if (tasks)
		closedir(tasks);
	return runs;
}

static void look_at_outside(const struct wait_table *wait_table, uint32_t tid, uint64_t hash,
			    struct diagnose_look *look)
{
	const struct wait_slot *slot = find_slot(wait_table, tid);
	if (!is_in_no_wait(wait_table, tid, slot))
		return;
	look->idle = true;
	look->outside_sleep += hash;
	if (slot)
		look->outside |= UINT32_C(1) << (slot - wait_table->slots);
}

struct diagnose_look diagnose_look_threads(const struct diagnose_source *source)
{
	const struct trace_view *trace = source->trace;
	struct diagnose_look look = {.awake = true, .idle = true};
	char path[64];
	int pid = __atomic_load_n(&trace->header->pid, __ATOMIC_RELAXED);
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	/* If another PID namespace has given the number, it may be that of another process. */
	bool same = pid > 0 && (source->pid <= 0 || source->pid == pid) &&
		    diagnose_has_proc(trace->header->pid_space);
	DIR *tasks = same ? opendir(path) : NULL;
	if (!tasks) {
		look.awake =
			(same && !has_nothing_to_see()) || !diagnose_has_slot(trace, (uint32_t)pid);
		return look;
	}
	look.awake = look.idle = false;
	bool main_rests = false;
	for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
		struct sleeper sleeper;
		int tid = (int)strtol(entry->d_name, NULL, 10);
		if (tid <= 0 || is_watch(trace->wait_table, (uint32_t)tid))
			continue;
		bool seen = look_at_thread(pid, tid, &sleeper);
		bool sleeps = seen && sleeper.state == 'S';
		uint64_t hash = seen ? hash_of((uint32_t)tid, &sleeper) : 0;
		look_at_outside(trace->wait_table, (uint32_t)tid, sleeps ? hash : UINT64_MAX / 3,
				&look);
		if (diagnose_has_slot(trace, (uint32_t)tid))
			continue;
		look.awake |= !seen || may_run(&sleeper);
		main_rests |= tid == pid && !(seen && has_ended(&sleeper));
		look.hash += hash;
	}
	closedir(tasks);
	if (outside_sleep_of(look.outside_sleep) !=
	    atomic_load_explicit(&trace->wait_table->outside_sleep, memory_order_acquire)) {
		look.outside = 0;
		look.awake |= main_rests;
	}
	return look;
}

void diagnose_set_asleep(struct diagnose_rank *rank, uint32_t slots)
{
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		struct diagnose_thread *thread = &rank->threads[i];
		thread->asleep = thread->wait.state == WAIT_OUTSIDE && thread->stable &&
				 (slots >> thread->slot & 1);
	}
}
