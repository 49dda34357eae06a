/* SPDX-License-Identifier: BSD-3-Clause
 * What a rank holds while groups are open.
 *
 * struct world is everything one rank owns for a whole job: its trace, arena, segment, links, its
 * watch thread and its progress thread. Its groups are in world/ls_group.h. */
#ifndef WORLD_WORLD_H
#define WORLD_WORLD_H

#include <lockstep/lockstep.h>
#include <pthread.h>

#include "base/settings.h"
#include "base/wait.h"
#include "memory/memory.h"
#include "plan/plan.h"
#include "trace/trace.h"
#include "transport/transport.h"

struct world;

/* The thread that sleeps on what no waiting thread can see: peers that end, requests to look. */
struct world_watch {
	pthread_t thread;
	bool running;
	_Atomic bool stop;
	int event_fd; /* poked by waits that last long, and to stop */
	/* Before it looks: shows in the wait table what no thread of the program waits for. */
	void (*show)(struct world *world);
	/* per peer, also once it has ended; -1: none (myself, a rank in my process) */
	_Atomic int pid_fds[PLAN_SIZE_MAX];
};

/* The thread of a rank that goes on with what no caller waits for, collectives as well as sends and
 * receives: see progress.c and attend.c. Made with the first operation that needs it. */
struct world_progress {
	void (*act)(struct world *world); /* what it does */
	struct progress_thread *threads;  /* under the world's lock; the first is the newest */
	_Atomic bool there, stop;
	_Atomic uint32_t tid; /* of the one that it is now; 0: of one that is about to begin */
	_Atomic int state;    /* enum in progress.c: whether a proof has to reckon with it */
	/* groups with collectives that it has been called for, each held */
	ls_group *_Atomic called;
	/* The thread's own: groups whose first collective waits, each held, so that the object is
	 * of no other group. */
	struct world_attended {
		ls_group *groups[TRANSPORT_AREAS];
		int count;
	} attended;
};

/* Room for words to wait for, which grows. */
struct world_words {
	struct wait_word *words; /* few, or on the heap */
	int max;
	struct wait_word few[WAIT_EDGE_MAX];
};

/* See p2p.h. */
struct world_p2p {
	struct lock_group lock;
	struct ls_op *first LOCK_GUARDED(group),
		*last LOCK_GUARDED(group);             /* all that are not over */
	uint64_t next_deadline_ns LOCK_GUARDED(group); /* the earliest of theirs, or earlier */
	uint32_t progress_count LOCK_GUARDED(group), eager_count
		LOCK_GUARDED(group); /* that want the progress thread */
	bool driven LOCK_GUARDED(group), armed LOCK_GUARDED(group), shown LOCK_GUARDED(group);
	bool eager LOCK_GUARDED(group); /* it is armed so */
	/* Threads that ask for the right to drive, as they close a group. Raised before the news,
	 * so that who drives and sleeps learns of it; lowered under the lock when one has it. */
	_Atomic uint32_t wanted;
	uint64_t shown_hash LOCK_GUARDED(group);
	struct world_words to_show LOCK_GUARDED(group);
	struct world_words driving; /* of the one who drives */
	bool in_wait_table; /* the watch shows, or has shown, something for the progress thread */
	bool serial;
	uint64_t asleep_until_ns
		LOCK_GUARDED(group); /* when the progress thread looks at deadlines next */
	/* …at what only threads of this rank may send */
	uint64_t self_only_until_ns LOCK_GUARDED(group);
	/* threads that wait for the one that drives, or drive and sleep */
	_Atomic uint32_t resting;
	/* the watch's: how many members were gone, and groups had failed, at its last look */
	uint64_t gone_told;
	_Atomic uint64_t news;    /* raised where the one that drives has to look again */
	ls_group *_Atomic groups; /* that have had some; only who drives takes one out */
};

struct world {
	struct settings settings;
	uint32_t fork_generation; /* of the process that opened it */
	int rank, size;
	int cores;         /* on which the ranks of this machine may run, all together */
	int control_fd;    /* to the launcher, or to rank 0; -1: none */
	bool resumes;      /* a signal ends no operation */
	bool keeps_memory; /* blocks that are in use outlive it */
	struct trace trace;
	struct memory memory;
	struct transport transport;
	struct plan_table table;
	_Atomic uint32_t dead[PLAN_SIZE_MAX]; /* set by the watch */
	int pids[PLAN_SIZE_MAX];
	struct trace_view views[PLAN_SIZE_MAX]; /* everybody's trace, for diagnosis */
	struct wait_bell early_bell;            /* until the segment is there */
	/* Of no group: while the world is opened, and then what groups make theirs of. */
	struct waiter waiter;
	struct world_watch watch;
	struct world_progress progress;
	struct world_p2p p2p;
	_Atomic uint64_t registered_again; /* of ls_memory_stats */
	_Atomic uint64_t failures; /* groups that this rank knows to have failed, closed or not */
	/* Every group object is in one of these. An object keeps its area for ever. */
	struct lock_group lock;
	struct ls_group *open LOCK_GUARDED(group);   /* newest first */
	struct ls_group *closed LOCK_GUARDED(group); /* a member may still be in it */
	struct ls_group *spare LOCK_GUARDED(group);  /* area and all else as new */
	uint32_t object_count LOCK_GUARDED(group);
	uint32_t number LOCK_GUARDED(group);    /* of the last id that this rank has given */
	bool numbers_again LOCK_GUARDED(group); /* all have been used once */
};

#endif
