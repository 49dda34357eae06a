/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of the scheduler share: its threads, and what each waits for. A process has one
 * scheduler, and only the managed thread that runs touches it. So nothing here is locked. */
#ifndef TEST_EXPLORE_SCHEDULER_PRIVATE_H
#define TEST_EXPLORE_SCHEDULER_PRIVATE_H

#include <poll.h>
#include <pthread.h>

#include "scheduler.h"
#include "turns.h"

#define SCHEDULER_NEVER UINT64_MAX

enum {
	CALLS_MAX = 40, /* of a thread; the outermost calls are kept */
	SAID_BYTES = 65536,
};

enum thread_state {
	THREAD_READY,
	THREAD_BLOCKED,
	THREAD_DONE,
	THREAD_KILLED,
};

/* What a blocked thread waits for, with a deadline or without. */
enum thread_wait {
	WAITS_NOT,
	WAITS_FUTEX, /* `key`, `further`: the file and the offset of each word, or its address */
	WAITS_MUTEX, /* `key`: its address */
	WAITS_FDS,
	WAITS_THREAD, /* `word_value`: the number of the thread */
	WAITS_WORD,   /* of scheduler_await */
};

struct thread_key {
	uint64_t file; /* 0: memory of this process alone */
	uint64_t at;
};

struct thread {
	int number, rank;
	const char *name;
	bool of_library; /* the library has made it, not the program */
	pthread_t id;
	void *(*main)(void *);
	void *argument;
	enum thread_state state;
	struct turn *turn, own_turn;
	struct parked *parked; /* parked.h; NULL: it has a kernel thread of its own, or had one */
	void *result;
	/* While it is blocked: what it waits for. */
	enum thread_wait wait;
	struct thread_key key;
	const struct thread_key *further; /* of its own stack */
	int further_count;
	uint64_t deadline_ns;
	const int *word;
	int word_value;
	struct pollfd *fds;
	int fd_count;
	bool woken;      /* by what it waited for, not by its deadline */
	uint64_t sleeps; /* how often it has blocked */
	/* For the policy. */
	int64_t priority;
	uint32_t in_a_row; /* points that it passed while others were ready */
	/* Where the thread is. */
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
	uint64_t idle_ns;     /* the longest jump of the time that is no hang */
	uint64_t progress_ns; /* virtual time of the last scheduler_progress */
	uint64_t points, points_max;
	enum scheduler_policy policy;
	uint64_t random;
	uint32_t switch_odds; /* for SCHEDULER_WALK: one point in this many, a power of two */
	uint64_t changes[8];  /* for SCHEDULER_PRIORITY: points at which a priority changes */
	int change_count;
	int64_t lowest; /* the lowest priority given so far */
	/* a thread has become ready, or has another priority, since scheduler_choose */
	bool changed;
	bool fds_changed;
	uint64_t kill_in[SCHEDULER_RANKS]; /* after so many points of its threads; 0: not at all */
	int kill_signal[SCHEDULER_RANKS];
	uint64_t killed; /* bit r */
	enum scheduler_end end;
	struct turn home; /* of the caller of scheduler_run */
	char said[SAID_BYTES];
	size_t said_bytes;
	char failure[1024];
	/* coverage.h; memory of explore.c, or NULL. */
	unsigned char *coverage;
	bool traced; /* every switch is printed */
	bool woken;  /* for turn_begin */
	bool hides;  /* /proc does not show the library's own threads */
};

static inline bool thread_waits_on(const struct thread *thread, struct thread_key key)
{
	bool waits = thread->key.file == key.file && thread->key.at == key.at;
	for (int i = 0; i < thread->further_count && !waits; i++)
		waits = thread->further[i].file == key.file && thread->further[i].at == key.at;
	return waits;
}

extern struct scheduler scheduler;
extern _Thread_local struct thread *scheduler_self; /* NULL: this thread is not managed */

/* ---- scheduler.c ---- */

uint64_t scheduler_random(void);
/* The running thread is about to do something that others may see. `what` is for reports. */
void scheduler_point(const void *place, const char *what);
/* The running thread spins, yields or polls: another thread should run. */
void scheduler_relax(const void *place, const char *what);
/* The running thread cannot continue until scheduler_wake, or until the deadline (false). */
bool scheduler_block(enum thread_wait wait, struct thread_key key, uint64_t deadline_ns,
		     const char *what);
/* Wakes at most `max` threads that wait for this key in this way. Returns how many it woke. */
int scheduler_wake(enum thread_wait wait, struct thread_key key, int max);
void scheduler_make_ready(struct thread *thread);
struct thread *scheduler_add(int rank, const char *name, void *(*main)(void *), void *argument);
/* Makes what runs it, and sets its id. Returns 0 or an errno. */
int scheduler_start(struct thread *thread, const pthread_attr_t *attributes);
/* Runs scheduler.current, which has just got its first turn, to its end. Returns whose turn is
 * next. */
struct turn *scheduler_thread_body(void);
/* Returns the next thread: `self`, if it is not NULL and ready, or another one. Lets time pass
 * until a thread is ready; if that cannot be, it is a hang. */
struct thread *scheduler_choose(struct thread *self);
/* Lets `to` run. Returns when it is this thread's turn again, if that ever comes. */
void scheduler_hand_over(struct thread *self, struct thread *to);
/* Reports a hang or a failure, and lets no thread run any more. */
_Noreturn void scheduler_stop(enum scheduler_end end);

/* ---- calls.c ---- */

/* The thread ends: runs what destroys its values of pthread_setspecific. */
void calls_destroy_specific(void);

/* ---- describe.c ---- */

/* Prints which thread continues, and where, when every switch is traced. */
void describe_switch(const struct thread *to);
/* With EXPLORE_CALLS set, prints a line for scripts: which thread passes which point, and its
 * calls, the innermost last. */
void describe_pass(const struct thread *self);

/* ---- files.c ---- */

/* Wakes threads whose descriptors are ready. */
void files_look(void);
/* Identifies the memory of a word, the same for all ranks that have mapped it. */
struct thread_key files_key(const volatile void *word);

/* ---- played.c ---- */

/* The process id of a rank, as the library sees it. */
int played_pid(int rank);

#endif
