/* SPDX-License-Identifier: BSD-3-Clause
 * Schedules that a seed draws. Ranks and their threads are threads of one process, of which one
 * runs at a time. At every atomic access, lock, wait and system call of the library (a point) the
 * seed draws which thread runs next. The library is compiled with the calls of a thread sanitizer,
 * whose bodies are here, and its system calls are linked to functions here; otherwise it is the
 * code that users run. Time is virtual: if no thread can run, time jumps to the next deadline. If
 * no thread will ever run again, except for looks that recur, that is a hang.
 *
 * A managed thread is one that the scheduler knows: scheduler_spawn has made it, or the library
 * has, in such a thread. All functions but scheduler_run are for managed threads. Only one of them
 * runs at a time, and none is interrupted between two points. So what they share beside the library
 * needs neither atomics nor locks. */
#ifndef TEST_EXPLORE_SCHEDULER_H
#define TEST_EXPLORE_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
	SCHEDULER_THREADS = 512, /* managed threads that one process may ever have */
	SCHEDULER_RANKS = 8,
	SCHEDULER_NOBODY = -1, /* of the harness itself, which has no rank */
};

/* How the next thread is drawn. */
enum scheduler_policy {
	SCHEDULER_IN_TURN, /* a thread runs until it blocks; for the beginning */
	/* at each point another thread runs, with a probability that the seed draws */
	SCHEDULER_WALK,
	/* PCT: the thread of the highest priority runs. Priorities change at a few drawn points,
	 * and a thread that spins or polls goes behind the others. */
	SCHEDULER_PRIORITY,
};

/* Why scheduler_run has ended. */
enum scheduler_end {
	SCHEDULER_DONE,
	SCHEDULER_HANG,    /* no thread can ever run again, except for looks that recur */
	SCHEDULER_ENDLESS, /* more points than the limit */
	SCHEDULER_CRASHED, /* scheduler_fail */
};

typedef void scheduler_main(void *data);

/* Runs `main` as the first managed thread, of no rank, until it returns or until a hang. Once in a
 * process. */
enum scheduler_end scheduler_run(scheduler_main *main, void *data);

/* From now on: this policy, drawn from this seed. Points are counted from 0 again. */
void scheduler_begin(enum scheduler_policy policy, uint64_t seed);

/* Makes a thread of `rank`; returns its number. `name` is for reports, and must stay valid. */
int scheduler_spawn(int rank, const char *name, scheduler_main *main, void *data);
/* Waits, beside the library, until that thread has ended; false: its rank was killed. */
bool scheduler_join(int thread);
/* Waits, beside the library, until *word >= value; false: until_ns of virtual time has come. */
bool scheduler_await(const int *word, int value, uint64_t until_ns);
/* Stores the value, and wakes the threads that await it. */
void scheduler_store(int *word, int value);
/* A point at which another thread should run. */
void scheduler_yield(void);
uint64_t scheduler_now_ns(void);

/* Kills the process of `rank` by `signal`: none of its threads runs again, so if the caller is one
 * of them this does not return. The other ranks learn of it as of the end of a process. */
void scheduler_kill(int rank, int signal);
/* Kills the process of `rank` when its threads have passed `points` more points. */
void scheduler_kill_at(int rank, uint64_t points, int signal);
bool scheduler_is_killed(int rank);

/* If no operation of the program completes for this long, in virtual time, that is a hang. At first
 * it is as long as proofs may take. */
void scheduler_patience(uint64_t ns);
/* From now on, a longer jump of the time is a hang: no thread is ready, and none will be, except
 * threads that check from time to time whether they have missed something. */
void scheduler_idle(uint64_t ns);
/* From now on at most this much virtual time passes at a point. */
void scheduler_slow_time(uint64_t ns);
/* Something of the program has completed. So looks that recur do not yet mean a hang. */
void scheduler_progress(void);

/* How many points were passed since scheduler_begin. */
uint64_t scheduler_points(void);

/* What the library has written to standard error since scheduler_begin. */
const char *scheduler_said(void);
/* Whether the text consists only of messages of one line with this id. */
static inline bool scheduler_is_only(const char *said, const char *id)
{
	for (const char *line = said; *line;) {
		size_t length = strcspn(line, "\n");
		if (!memmem(line, length, id, strlen(id)))
			return false;
		line += length + (line[length] == '\n');
	}
	return true;
}

/* Ends scheduler_run with SCHEDULER_CRASHED and this text. */
void scheduler_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* For reports: every managed thread, what it does, and where. Also valid after scheduler_run. */
void scheduler_describe(char *text, size_t bytes);

#endif
