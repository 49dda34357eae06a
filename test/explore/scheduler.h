/* SPDX-License-Identifier: BSD-3-Clause
 * Schedules that a seed draws. Ranks and their threads are threads of one process, of which one
 * runs at a time. At every atomic access, lock, wait and system call of the library (a point) a
 * seed draws which thread goes next. The library is compiled with the calls of a thread sanitizer,
 * whose bodies are here, and linked so that its system calls come here, too: it is the code of
 * production. Time is virtual: with nobody able to run it jumps to the next deadline. Nobody able
 * to run, and nothing but looks that recur, is a hang.
 *
 * A thread that the scheduler knows ("managed") was made by scheduler_spawn, or by the library
 * while it ran in such a thread. All functions but scheduler_run are for managed threads. As only
 * one of them runs, and none is interrupted between two points, what they share beside the library
 * needs neither atomics nor locks. */
#ifndef TEST_EXPLORE_SCHEDULER_H
#define TEST_EXPLORE_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
	SCHEDULER_THREADS = 512, /* managed threads of one process, ever */
	SCHEDULER_RANKS = 8,
	SCHEDULER_NOBODY = -1, /* in place of a rank: the harness itself */
};

/* How the next thread is drawn. */
enum scheduler_policy {
	SCHEDULER_IN_TURN, /* a thread runs until it blocks: for setting up */
	SCHEDULER_WALK, /* at each point, with a probability that the seed draws, another thread */
	/* PCT: the thread of the highest priority; priorities change at a few drawn points, and a
	 * thread that spins or polls goes behind the others */
	SCHEDULER_PRIORITY,
};

/* Why scheduler_run came to its end. */
enum scheduler_end {
	SCHEDULER_DONE,
	SCHEDULER_HANG,    /* nobody can ever run, or only looks that recur */
	SCHEDULER_ENDLESS, /* more points than the limit */
	SCHEDULER_CRASHED, /* scheduler_fail */
};

typedef void scheduler_main(void *data);

/* Runs `main` as the first managed thread, of no rank, until it returns, or until a hang. Once in a
 * process. */
enum scheduler_end scheduler_run(scheduler_main *main, void *data);

/* From here on: this policy, drawn by this seed. The count of points begins anew. */
void scheduler_begin(enum scheduler_policy policy, uint64_t seed);

/* A new thread of `rank`; its number. `name` is shown in reports and must stay. */
int scheduler_spawn(int rank, const char *name, scheduler_main *main, void *data);
/* Waits, beside the library, for its end; false: its rank was killed. */
bool scheduler_join(int thread);
/* Waits, beside the library, until *word >= value; false at until_ns of virtual time. */
bool scheduler_await(const int *word, int value, uint64_t until_ns);
/* Stores it, and wakes the threads that await it. */
void scheduler_store(int *word, int value);
/* A point: somebody else may go. */
void scheduler_yield(void);
uint64_t scheduler_now_ns(void);

/* The process of `rank` is killed by `signal`: none of its threads runs again (if the caller is one
 * of them, this does not return), and the others learn of it as they learn of the end of a
 * process. */
void scheduler_kill(int rank, int signal);
/* The process of `rank` is killed when `points` more points have been passed by its threads. */
void scheduler_kill_at(int rank, uint64_t points, int signal);
bool scheduler_is_killed(int rank);

/* So long, in virtual time, nothing of the program may come to its end before that is a hang; at
 * first as long as proofs may take. */
void scheduler_patience(uint64_t ns);
/* From here on time jumps at most so far at once, and a further jump is a hang: no thread is ready,
 * and none will be, except threads that check once in a while whether they have missed
 * something. */
void scheduler_idle(uint64_t ns);
/* No more virtual time than this passes at a point from here on. */
void scheduler_slow_time(uint64_t ns);
/* Something of the program has come to its end, so what recurs is no hang. */
void scheduler_progress(void);

/* Points since scheduler_begin. */
uint64_t scheduler_points(void);

/* What the library has written to standard error since scheduler_begin. */
const char *scheduler_said(void);
/* Whether what was said is nothing but messages of one line with this id. */
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

/* Every managed thread, what it does, and where: for reports. Also after scheduler_run, which it
 * outlasts. */
void scheduler_describe(char *text, size_t bytes);

#endif
