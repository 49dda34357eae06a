/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of the scheduler share: its threads, and what each waits for. There is one
 * scheduler in a process, and only the managed thread that runs touches it, so nothing here is
 * locked. */
#ifndef TEST_EXPLORE_SCHEDULER_PRIVATE_H
#define TEST_EXPLORE_SCHEDULER_PRIVATE_H

#include <poll.h>
#include <pthread.h>

#include "scheduler.h"
#include "turns.h"

#define SCHEDULER_NEVER UINT64_MAX

enum {
	CALLS_MAX = 40, /* of the calls that a thread is in, the outermost ones are kept */
	SAID_BYTES = 65536,
	DEFERRED = 4, /* rounds of destructors after which a thread has ended */
};

enum thread_state {
	THREAD_READY,
	THREAD_BLOCKED,
	THREAD_DONE,
	THREAD_KILLED,
};

/* What a blocked thread waits for; with a deadline, or without. */
enum thread_wait {
	WAITS_NOT,
	WAITS_FUTEX, /* `key`: the file and the offset of the word, or its address */
	WAITS_MUTEX, /* `key`: its address */
	WAITS_FDS,
	WAITS_THREAD, /* `word_value`: its number */
	WAITS_WORD,   /* of scheduler_await */
};

struct thread_key {
	uint64_t file; /* 0: of this process alone */
	uint64_t at;
};

struct thread {
	int number, rank;
	const char *name;
	bool of_library; /* not of the program */
	pthread_t id;
	void *(*main)(void *);
	void *argument;
	enum thread_state state;
	struct turn turn;
	int destructor_rounds;
	/* What it waits for, while blocked. */
	enum thread_wait wait;
	struct thread_key key;
	uint64_t deadline_ns;
	const int *word;
	int word_value;
	struct pollfd *fds;
	int fd_count;
	bool woken;      /* by what it waited for, and not by time */
	uint64_t sleeps; /* so often it has blocked */
	/* Of the policy. */
	int64_t priority;
	uint32_t in_a_row; /* points, while others were ready */
	/* Where it is. */
	const void *calls[CALLS_MAX];
	int depth; /* may be more than CALLS_MAX */
	const void *point;
	const char *doing;
};

struct scheduler {
	struct thread threads[SCHEDULER_THREADS];
	int count;
	struct thread *current;
	uint64_t now_ns, tick_ns, next_deadline_ns;
	uint64_t patience_ns;
	uint64_t idle_ns;     /* the furthest that time may jump at once */
	uint64_t progress_ns; /* virtual time of the last scheduler_progress */
	uint64_t points, points_max;
	enum scheduler_policy policy;
	uint64_t random;
	uint32_t switch_odds; /* of SCHEDULER_WALK: one in this many points, a power of two */
	uint64_t changes[8];  /* of SCHEDULER_PRIORITY: at these points */
	int change_count;
	int64_t lowest; /* priority given so far */
	/* somebody has become ready, or has another priority, since scheduler_choose */
	bool changed;
	bool fds_changed;
	uint64_t kill_in[SCHEDULER_RANKS]; /* points of its threads; 0: not at all */
	int kill_signal[SCHEDULER_RANKS];
	uint64_t killed; /* bit r */
	enum scheduler_end end;
	struct turn home; /* of scheduler_run's caller */
	char said[SAID_BYTES];
	size_t said_bytes;
	char failure[1024];
	/* coverage.h; in memory of explore.c, NULL: none. */
	unsigned char *coverage;
	bool traced; /* every switch is printed */
	bool woken;  /* turn_begin */
	bool hides;  /* /proc does not show the threads of the library */
};

extern struct scheduler scheduler;
extern _Thread_local struct thread *scheduler_self; /* NULL: not managed */

/* ---- scheduler.c ---- */

uint64_t scheduler_random(void);
/* The thread that runs is about to do something that others may see; `what` for reports. */
void scheduler_point(const void *place, const char *what);
/* It spins, yields or polls: somebody else had better go. */
void scheduler_relax(const void *place, const char *what);
/* It cannot go on until scheduler_wake, or the deadline: false. */
bool scheduler_block(enum thread_wait wait, struct thread_key key, uint64_t deadline_ns,
		     const char *what);
/* Those that wait so for this key, at most `max`; how many. */
int scheduler_wake(enum thread_wait wait, struct thread_key key, int max);
void scheduler_make_ready(struct thread *thread);
struct thread *scheduler_add(int rank, const char *name, void *(*main)(void *), void *argument);
/* The body of every managed thread. */
void *scheduler_thread_main(void *thread);
/* The next thread: `self`, if it is not NULL and ready, or another one. Time passes until a thread
 * is ready; otherwise it is a hang. */
struct thread *scheduler_choose(struct thread *self);
/* `to` runs; returns when it is this thread's turn again, if that ever comes. */
void scheduler_hand_over(struct thread *self, struct thread *to);
/* Reports a hang or a failure, and runs nobody any more. */
_Noreturn void scheduler_stop(enum scheduler_end end);

/* ---- describe.c ---- */

/* Prints which thread continues, and where, when every switch is traced. */
void describe_switch(const struct thread *to);
/* With EXPLORE_CALLS set, a line for scripts: who passes which point, and its calls, the innermost
 * last. */
void describe_pass(const struct thread *self);

/* ---- files.c ---- */

/* Wakes those whose descriptors are ready. */
void files_look(void);
/* Identifies the memory of a word, so that all ranks that have mapped it find it. */
struct thread_key files_key(const volatile void *word);

/* ---- played.c ---- */

/* The process id of a rank, as the library sees it. */
int played_pid(int rank);

#endif
