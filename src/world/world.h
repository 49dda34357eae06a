/* SPDX-License-Identifier: BSD-3-Clause
 * The data of a rank while groups are open.
 *
 * struct world is everything that one rank owns for a job: its trace, arena, segment, peers, watch
 * thread and progress thread. Its groups are in world/ls_group.h. */
#ifndef WORLD_WORLD_H
#define WORLD_WORLD_H

#include <lockstep/lockstep.h>
#include <pthread.h>

#include "base/ranks.h"
#include "base/settings.h"
#include "base/wait.h"
#include "memory/memory.h"
#include "plan/plan_table.h"
#include "trace/trace.h"
#include "transport/transport.h"

struct world;
struct world_device;
struct failure_helper;
struct races;

/* The watch: a thread that sleeps until a peer's process ends, or until it is asked to look for
 * hangs. */
struct world_watch {
	pthread_t thread;
	bool running;
	_Atomic bool stop;
	int event_fd; /* written by waits that last long, to serve others, and to stop the thread */
	/* The watch calls it before it looks: publishes in the wait table the words that would wake
	 * the progress thread. It is p2p_show, of a higher floor: only that room knows the
	 * words. */
	void (*show)(struct world *world);
	/* for each peer, also after it has ended; -1: none (myself, or a rank in my process) */
	_Atomic int pid_fds[RANKS_WORLD_MAX];
	/* A thread of this rank is starting a program for a report, or an earlier one hangs; then
	 * `helper` is the one that hangs. Always set under Valgrind, which ends a rank that starts
	 * such a process. */
	_Atomic bool helper_is_busy;
	struct failure_helper *_Atomic helper;
	struct failure_remote *remote; /* looks at other hosts; NULL: there are none */
	/* For the watch alone: when it last started such a program for a rank that did not yet
	 * count as late, and for how long others had waited for that rank. */
	uint64_t asked_ns, asked_ms;
};

/* The progress thread of a rank, which makes progress on collectives, sends and receives that no
 * calling thread waits for: see progress/thread.c and p2p/attend.c. The first operation that
 * needs it starts it. */
struct world_progress {
	/* What the thread does: p2p_thread_run, of a higher floor, as sends and receives are. */
	void (*act)(struct world *world);
	struct progress_thread *threads; /* under the world's lock; the first is the newest */
	_Atomic bool there, stop;
	_Atomic uint32_t tid; /* of the current thread; 0: a thread is about to begin */
	/* The enum in progress/thread.c: whether the thread may act, which prevents proofs. */
	_Atomic int state;
	/* groups that request progress on their collectives, each held */
	ls_group *_Atomic requesting;
	/* Only for the thread itself: groups whose first collective waits, each held, so that the
	 * object is not reused for another group. */
	struct world_attended {
		ls_group *groups[TRANSPORT_AREAS];
		int count;
	} attended;
};

/* Memory for words to wait for; it grows. */
struct world_words {
	struct wait_word *words; /* points to `few`, or to the heap */
	int max;
	struct wait_word few[WAIT_EDGE_MAX];
};

/* See p2p/p2p.h. */
struct world_p2p {
	struct lock_rank lock;
	struct ls_request *first LOCK_GUARDED(rank),
		*last LOCK_GUARDED(rank); /* all operations that are not complete */
	/* not after the earliest of their deadlines */
	uint64_t next_deadline_ns LOCK_GUARDED(rank);
	uint32_t progress_count LOCK_GUARDED(rank), urgent_count
		LOCK_GUARDED(rank);          /* how many operations need the progress thread */
	bool progressing LOCK_GUARDED(rank); /* a thread makes progress */
	bool armed LOCK_GUARDED(rank), shown LOCK_GUARDED(rank);
	bool urgent LOCK_GUARDED(rank); /* armed so that any wait_wake wakes the progress thread */
	/* How many threads want to make progress because they close a group. Raised before
	 * `rechecks`, so that the thread that makes progress now learns of it, even if it sleeps;
	 * lowered under the lock when a closing thread has taken over. */
	_Atomic uint32_t wanted;
	uint64_t shown_hash LOCK_GUARDED(rank);
	struct world_words to_show LOCK_GUARDED(rank);
	struct world_words to_await; /* for the thread that makes progress */
	bool in_wait_table;          /* the watch has published words for the progress thread */
	bool serial;
	/* when the progress thread next checks deadlines */
	uint64_t asleep_until_ns LOCK_GUARDED(rank);
	/* when the progress thread next checks receives that only threads of this rank may serve */
	uint64_t self_only_until_ns LOCK_GUARDED(rank);
	/* How many failed messages linger because a peer may still use their buffer, and when they
	 * are next checked. Raised before the time is set. */
	_Atomic uint32_t lingering;
	_Atomic uint64_t lingering_until_ns; /* changed under the lock */
	/* threads that wait for the thread that makes progress; and that thread while it sleeps */
	_Atomic uint32_t followers;
	/* memory for the words of a follower, left for the next one; NULL: none */
	struct wait_word *_Atomic follower_words;
	/* the watch's: the number of gone members and failed groups at its last look */
	uint64_t gone_at_look;
	/* raised when the thread that makes progress has to check again */
	_Atomic uint64_t rechecks;
	/* The groups that have or had operations. Only the thread that makes progress removes a
	 * group. */
	ls_group *_Atomic groups;
};

/* "/proc/PID/fd/NUMBER" */
enum { WORLD_RUN_NOTES_BYTES = 48 };

struct world {
	struct settings settings;
	uint32_t fork_generation; /* of the process that opened it */
	int rank, size;
	int host_ranks, host_cores; /* ranks of this host, and cores where they may run */
	int control_fd;             /* as rendezvous_leave says: to the launcher; -1: none */
	int control_mark;           /* of fork_close_in_child; -1: none */
	char run_notes[WORLD_RUN_NOTES_BYTES]; /* path of the file; "": there is none */
	bool resumes;                          /* a signal ends no operation */
	bool keeps_memory;                     /* blocks that are in use outlive it */
	struct trace trace;
	struct memory memory;
	struct transport transport;
	struct plan_table table;
	struct world_device *device; /* world/device.h; NULL: none */
	struct races *races;         /* setting CHECK; NULL: it is not set */
	/* Set by failure_mark_dead: by the watch, by the thread that makes progress on the link,
	 * and by the thread of heartbeats. */
	_Atomic uint32_t dead[RANKS_WORLD_MAX];
	/* The thread of heartbeats sets it for all ranks of a host while the link between the two
	 * hosts is proved to be broken: then that thread decides what a lost connection means. */
	_Atomic bool behind_broken_link[RANKS_WORLD_MAX];
	int pids[RANKS_WORLD_MAX];        /* 0: on another host */
	int remote_pids[RANKS_WORLD_MAX]; /* of ranks on other hosts, as these hosts see them */
	struct link *link;                /* to other hosts; NULL: there are none */
	/* For each rank the name of its host, if that is another one; "": it is this host. */
	char remote_hosts[RANKS_WORLD_MAX][TRACE_TEXT_BYTES];
	struct trace_view views[RANKS_WORLD_MAX]; /* the traces of all ranks, for diagnosis */
	struct wait_bell early_bell;              /* used until the segment exists */
	/* The rank uses it while it opens the world. Each group gets a copy. */
	struct waiter waiter;
	struct world_watch watch;
	struct heartbeat *heartbeat; /* heartbeats between hosts; NULL: there are none */
	struct world_progress progress;
	struct world_p2p p2p;
	_Atomic uint64_t registered_again; /* of ls_memory_stats */
	_Atomic uint64_t failures; /* groups whose failure this rank knows, open or closed */
	/* Every group object is in one of these lists. It keeps its area forever. */
	struct lock_rank lock;
	struct ls_group *open LOCK_GUARDED(rank);   /* newest first */
	struct ls_group *closed LOCK_GUARDED(rank); /* some member may not have left it */
	struct ls_group *spare LOCK_GUARDED(rank);  /* reset, and free for another group */
	/* Threads in ls_group_close on groups but the world group. The last access of such a thread
	 * lowers it, so if it is 0 and no open group is claimed, the world may be closed. */
	_Atomic uint32_t closers;
	uint32_t object_count LOCK_GUARDED(rank);
	uint32_t clearing LOCK_GUARDED(rank); /* threads that make closed groups spare */
	/* used for the last id that this rank has offered */
	uint32_t number LOCK_GUARDED(rank);
	bool numbers_again LOCK_GUARDED(rank); /* all have been used once */
};

#endif
