/* SPDX-License-Identifier: BSD-3-Clause
 * The only place that blocks: on words in shared memory, or on descriptors. Before a thread sleeps
 * it writes into its wait slot, which other processes can read, what it waits for, until when, and
 * which ranks have to act. So the wait-for graph of a job can always be read, even after kill -9 or
 * SIGSTOP of a waiting rank.
 *
 * The doorbell protocol (model: test/model/doorbell.pml). A waiter increments bell->sleepers, reads
 * bell->wakeups, tests all conditions again, and sleeps while bell->wakeups is unchanged. A
 * signaller stores the word, reads bell->sleepers of each rank that may await it, and only if that
 * is not zero changes bell->wakeups and wakes the sleepers. These four accesses are sequentially
 * consistent, so either the waiter sees the word, or the signaller sees the sleeper. For words that
 * have a topic there are such accesses for each topic, so that a signaller wakes only the sleepers
 * that its word concerns: see wait_bell.c.
 *
 * There are no locks in shared memory, and no peer is trusted: a peer that writes nonsense can make
 * a wait wake early (it tests again) or late (the deadline holds), and nothing else. */
#ifndef BASE_WAIT_H
#define BASE_WAIT_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <lockstep/status.h>

#include "base/lock.h"

enum {
	WAIT_EDGE_MAX = 64,        /* words in a slot, and in each page of further words */
	WAIT_ALTERNATIVE_MAX = 64, /* a wait has alternatives 1 to WAIT_ALTERNATIVE_MAX */
	WAIT_PAGE_MAX = 64,        /* pages of a rank: one bit each in a set */
	/* Threads of one rank whose waits are shown. Further ones are counted in `unpublished`, and
	 * nothing is proved about the rank. */
	WAIT_SLOT_MAX = 32,
	WAIT_FOREIGN_BYTES = 48, /* of the name of a foreign call, with its NUL */
};

/* The memory that an awaited word lies in. With owner and offset a reader in another process can
 * find the word. */
enum wait_segment {
	WAIT_SEGMENT_NONE = 0,   /* a descriptor, or memory of the waiting process alone */
	WAIT_SEGMENT_MAPPED = 1, /* the transport segment of rank `owner` */
	/* The same, but the writer of the word is on another host, so what that rank has written
	 * may not have arrived. Words of ranks on other hosts are in mirrors, which are in the
	 * segment of the rank that waits. The values may be or-ed: if the owner or the writer is on
	 * another host, the result is MIRROR. */
	WAIT_SEGMENT_MIRROR = 3,
	/* Memory of the waiting process that a device stores, behind other work of a stream.
	 * `offset` is the trace record of the operation that it belongs to, 0 if it has none. With
	 * WAIT_DEVICE_PUT, a thread stores it that has put this operation on its stream. Or
	 * WAIT_DEVICE_BROKEN: it tells that the device is broken, which no wait expects. Or
	 * WAIT_DEVICE_ROOM: other threads of the rank may make room in the stream's queue. No
	 * other process can read it. What a proof knows of it comes from the records of
	 * operations in front of it on the stream (diagnose/streams.c). */
	WAIT_SEGMENT_DEVICE = 4,
};
#define WAIT_DEVICE_BROKEN UINT64_MAX
#define WAIT_DEVICE_ROOM (UINT64_MAX - 1)
#define WAIT_DEVICE_PUT (UINT64_C(1) << 63)

/* One awaited word, as flat data. Its condition holds once (int64_t)(word - value) >= 0: awaited
 * words only grow. */
struct wait_edge {
	uint64_t value;
	uint64_t offset; /* of the word in its segment, a multiple of 8; else as the segment says */
	int32_t owner;   /* world rank whose segment it is */
	/* world rank that has to write the word; it may be the waiting rank itself; -1: another
	 * thread of the waiting rank, which in turn waits for peers */
	int32_t peer;
	uint16_t segment; /* enum wait_segment */
	/* In a wait that any one word ends. 0: this word alone completes what the thread waits for.
	 * Otherwise all unsatisfied words of this alternative are needed for that, so if one of
	 * them can never come, the alternative is ruled out. */
	uint16_t alternative;
	/* The operation that needs the word: the lowest bits of its record; 0: the operation that
	 * the wait belongs to. A thread that also makes progress on other operations marks their
	 * words with WAIT_RECORD_OTHERS. */
	uint32_t record;
};
#define WAIT_RECORD_OTHERS UINT32_MAX

/* Not WAIT_ANY: <sys/wait.h> has a macro of that name. */
enum wait_state {
	WAIT_UNUSED = 0,   /* no thread has this slot */
	WAIT_OUTSIDE = 1,  /* the thread has called Lockstep, and is not blocked in it now */
	WAIT_WORDS = 2,    /* blocked; all edges are needed */
	WAIT_ANY_WORD = 3, /* blocked; any one edge suffices */
	/* blocked on a descriptor, for edges[0].peer (-1: for no rank in particular) */
	WAIT_FDS = 4,
	/* in code that is not Lockstep's and may block, such as a device's driver: `foreign` names
	 * it. It may return at any time, so it proves nothing, as WAIT_OUTSIDE. */
	WAIT_FOREIGN = 5,
};

/* What one thread waits for. Flat, and a multiple of 8 bytes, for seqlock_store. Words that do not
 * fit into `edges` are in pages of the wait table, in order. If the pages have no room for all of
 * them either, this shows:
 *   further > WAIT_EDGE_MAX * number of pages  <=>  not all words are shown, so the wait proves
 *                                                   nothing */
struct wait_slot_body {
	uint32_t state; /* enum wait_state */
	uint32_t tid;
	/* 1: the call may time out by itself, so its wait proves nothing */
	uint32_t has_own_limit;
	/* the operation that this wait belongs to: its group and trace record */
	uint32_t group;
	uint64_t record;
	uint64_t since_ns;    /* clock_now_ns at the beginning */
	uint64_t deadline_ns; /* CLOCK_NEVER: none */
	uint32_t edge_count;  /* the number of valid edges */
	uint32_t further;     /* the number of words beyond those */
	uint64_t pages;       /* bit i: page i has some of those */
	struct wait_edge edges[WAIT_EDGE_MAX];
	char foreign[WAIT_FOREIGN_BYTES]; /* written and valid only in state WAIT_FOREIGN */
};

/* Written by its thread, under the sequence lock `epoch` (base/seqlock.h). So any two waits have
 * different epochs. */
struct wait_slot {
	_Alignas(64) _Atomic uint32_t epoch;
	_Atomic uint32_t taken; /* enum wait_taken */
	struct wait_slot_body body;
};

/* What has the slot: nothing, a thread, or an item of the progress thread (below). */
enum wait_taken { WAIT_TAKEN_NOT, WAIT_TAKEN_BY_THREAD, WAIT_TAKEN_BY_ITEM };

/* All wait slots of a rank. In its trace; initially zero. */
struct wait_table {
	struct wait_slot slots[WAIT_SLOT_MAX];
	/* Not zero: some thread is in Lockstep without a slot, so the wait table does not show all
	 * threads, and nothing can be proved about this rank. */
	_Alignas(64) _Atomic uint32_t unpublished;
	/* How many of these are threads that found no free slot; such a thread may come back at any
	 * time. */
	_Atomic uint32_t slotless;
	/* Bit i: a slot has page i. Its thread writes the page while the slot's epoch is odd; so a
	 * copy of the page belongs to a wait if the slot has the same epoch afterwards. */
	_Atomic uint64_t pages_taken;
	_Atomic uint32_t watch_tid;    /* the rank's watch, which never calls Lockstep */
	_Atomic uint32_t progress_tid; /* the progress thread, which acts for other threads */
	/* Threads that move messages between hosts. They store only what has been sent to the rank;
	 * other ranks see that in transport_traffic. 0: none. */
	_Atomic uint32_t link_tids[2];
	/* The thread that sends heartbeats to other hosts, and acts for none. 0: none */
	_Atomic uint32_t heartbeat_tid;
	/* The sleep of the process's threads that are in no wait, as the watch has seen it
	 * (diagnose_outside_sleep), if only such threads or threads in a wait can wake them. The
	 * main thread is among them, because it might call at any time, whether or not it has
	 * called before. It is a hash: readers need not know where the threads sleep, only whether
	 * they still sleep the same sleep. 0: unknown. */
	_Atomic uint64_t outside_sleep;
	struct wait_edge pages[WAIT_PAGE_MAX][WAIT_EDGE_MAX];
};

/* Topics are numbers from 1. The topic of a word follows from its writer and its group; two words
 * may have the same one by chance. */
enum { WAIT_TOPICS = 64 };

/* A rank's doorbell, in memory that its peers can write. */
struct wait_bell {
	_Alignas(64) _Atomic uint32_t wakeups; /* raised to wake all sleepers */
	_Atomic uint32_t sleepers;             /* their number, and WAIT_ARMED, WAIT_ARMED_URGENT */
	_Atomic uint32_t requests; /* raised to wake the rank's progress thread: see wait_for_set */
	_Atomic uint32_t listens;  /* enum wait_listens: the word on which that thread sleeps */
	_Atomic uint32_t to_all;   /* how many sleepers listen to all topics */
	_Atomic uint32_t to_one;   /* how many listen to one topic, and sleep on its word only */
	/* of each topic: how many sleepers listen to it; raised to wake these */
	_Alignas(64) _Atomic uint16_t listeners[WAIT_TOPICS];
	_Atomic uint32_t topic_wakeups[WAIT_TOPICS];
};
/* The progress thread does not sleep; or it sleeps on `requests`, until other threads of its rank
 * have work for it; or on `wakeups` as well, as any thread that waits for words. */
enum wait_listens { WAIT_LISTENS_NOT, WAIT_LISTENS_REQUESTS, WAIT_LISTENS_WAKEUPS };
#define WAIT_ARMED UINT32_C(0x10000)
#define WAIT_ARMED_URGENT UINT32_C(0x20000)
#define WAIT_SLEEPERS UINT32_C(0xffff)

/* What a waiter knows of one peer. `left` is a word that the peer changes from `left_before` when
 * it leaves the group; NULL: none. `dead` is a word that threads of this process set once the
 * peer's process has ended, or its host is given up; NULL: none. */
struct wait_peer {
	const _Atomic uint64_t *left;
	uint64_t left_before;
	const _Atomic uint32_t *dead;
};

/* One awaited word: where this process reads it, and how other processes find it. */
struct wait_word {
	const _Atomic uint64_t *word;
	/* The peers of the word's group, by world rank, as many as the waiter has; a wait may have
	 * words of several groups. NULL: the waiter's own. */
	const struct wait_peer *peers;
	struct wait_edge edge;
	/* The writer announces the word by wait_wake_topic, with this topic; 0: by wait_wake. */
	uint8_t topic;
};

/* Moves messages from and to other hosts while threads wait. A thread that spins calls `advance`.
 * One that goes to sleep calls `hand_over`: then a thread that sleeps on the link's descriptors
 * takes over. The functions hold no lock when they return, and never block. */
struct wait_pump {
	void *context;
	void (*advance)(void *context);
	void (*hand_over)(void *context);
};

/* The slots of the threads of this process. Private to the process; see wait_slot.c. */
struct wait_registry;

/* How one rank waits. The owner fills it and calls wait_open; it stays constant until
 * wait_close. */
struct waiter {
	struct wait_table *wait_table;
	struct wait_bell *bell;
	const _Atomic uint64_t *cause; /* wait_has_failed: every wait ends; NULL: none */
	struct wait_peer *peers;       /* indexed by world rank; NULL if peer_count is 0 */
	int peer_count;
	uint32_t spin_ns; /* how long to spin or yield before sleeping */
	bool yield;       /* more ranks than cores: give the core away instead of spinning */
	/* a wait that lasts this long writes to look_fd, and again after the same time; 0: never */
	uint64_t look_ns;
	/* non-blocking eventfd of the watch, which then looks for the cause; -1: none */
	int look_fd;
	/* Not NULL: the number of threads that sleep in this waiter, for peers whose news concerns
	 * only these. Raised before a thread tests its words for the last time. */
	_Atomic uint32_t *asleep;
	/* signal handlers end no wait for descriptors; for words the caller resumes the wait */
	bool resumes;
	const struct wait_pump *pump;   /* NULL: all peers are on this host */
	struct wait_registry *registry; /* NULL before wait_open and after wait_close */
};

/* One wait: its words and their values, its limits, and the operation that it is shown with. */
struct wait_call {
	const struct wait_word *words;
	int count;
	bool any;           /* true: one word suffices; false: all are needed */
	bool has_own_limit; /* it may time out by itself, so it proves nothing */
	bool partial; /* some words are left out: the wait is resumed soon, and proves nothing */
	/* After LS_TIMED_OUT the slot still shows the call, until wait_hide, so that ranks that
	 * look meanwhile see what the thread has waited for in vain. */
	bool remains_shown;
	uint64_t deadline_ns; /* CLOCK_NEVER: none */
	uint64_t since_ns;    /* when it began, if it is resumed; 0: now */
	uint32_t group;
	uint64_t record;
	/* Not NULL: the call waits for code that is not Lockstep's, such as a device that is to
	 * free memory. It is shown as a foreign call of this name, without its words, because no
	 * other process could learn anything from them. */
	const char *foreign;
};

/* The most descriptors that a wait of a rank has. */
enum { WAIT_FDS_MAX = 639 };

/* Lets threads use the waiter's wait table. Before this call waits work, but are not published. Not
 * for two threads at once. Does nothing if the waiter has no wait table. Errors: LS_OUT_OF_MEMORY,
 * LS_SYSTEM, with a message. */
LS_CHECKED ls_status wait_open(struct waiter *waiter);

/* Call before the wait table's memory is unmapped, while no thread is in a call on this waiter.
 * Afterwards no thread touches the wait table, not even a thread that ends later. Frees all slots.
 * May be repeated. Not in a forked child. */
void wait_close(struct waiter *waiter) LOCK_AVOIDS(trace);

/* Puts the calling thread into the wait table, as outside, so that a proof does not overlook a
 * thread that has never blocked. Upper rooms call it at each public entry; after a thread's first
 * call it costs one compare with a thread-local pointer. The slot is free again after
 * wait_thread_leave, when the thread ends, or at wait_close. Not in a forked child. */
void wait_thread_enter_first(struct waiter *waiter) LOCK_AVOIDS(trace);
/* The registry in which this thread last got a slot; NULL: search. */
extern _Thread_local const struct wait_registry *wait_entered;
static inline void wait_thread_enter(struct waiter *waiter) LOCK_AVOIDS(trace)
{
	if (__builtin_expect(!waiter->registry || wait_entered != waiter->registry, 0))
		wait_thread_enter_first(waiter);
}

/* Frees the calling thread's slot, for a thread that will not call again soon. */
void wait_thread_leave(struct waiter *waiter) LOCK_AVOIDS(trace);

/* Whether a group's cause word says that it has failed. Its upper half may name the group. */
static inline bool wait_has_failed(uint64_t cause)
{
	return (uint32_t)cause != 0;
}

/* Whether the peer is known to have ended, and whether it has left. */
static inline bool wait_peer_is_dead(const struct wait_peer *peer)
{
	return peer->dead && atomic_load_explicit(peer->dead, memory_order_seq_cst) != 0;
}
static inline bool wait_peer_has_left(const struct wait_peer *peer)
{
	return peer->left &&
	       atomic_load_explicit(peer->left, memory_order_seq_cst) != peer->left_before;
}

/* Spins between two looks at the clock, the failure and the peers. */
enum { WAIT_SPIN_BATCH = 16 };

/* Tells the processor that this is a spin. */
static inline void wait_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

/* Lets a peer work on a few messages undisturbed, if it has a processor of its own. */
static inline void wait_hold_back(const struct waiter *waiter)
{
	if (waiter->yield || waiter->spin_ns == 0)
		return;
	for (int i = 0; i < WAIT_SPIN_BATCH; i++)
		wait_relax();
}

/* True once the call's condition holds: one sequentially consistent load for each word, nothing
 * else. With no words, "all" holds and "any" does not. */
bool wait_satisfied(const struct wait_call *call);

/* Polls for the time of a few cache misses; true once the condition holds. For waits that usually
 * end before the clock could be read: it ignores deadline, cause and peers. */
bool wait_briefly(const struct waiter *waiter, const struct wait_call *call);

/* As wait_briefly, for one word, without a struct wait_call: the word has nearly always arrived
 * already. Where ranks share processors it yields instead, twice at most for each word: the writer
 * is likely to need this processor. */
bool wait_word_poll(const struct waiter *waiter, const _Atomic uint64_t *word, uint64_t value);
static inline bool wait_word_briefly(const struct waiter *waiter, const _Atomic uint64_t *word,
				     uint64_t value)
{
	return (int64_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0 ||
	       wait_word_poll(waiter, word, value);
}

/* Blocks until the condition holds. Before it returns for another reason it tests the condition
 * once more, so success wins.
 * - LS_OK: the condition holds.
 * - LS_ABORTED: *cause is set.
 * - LS_PEER_DIED, LS_PEER_LEFT: a peer that is still needed (*peer) is dead or has left; with
 *   `any`, the peers of all words. A peer that died counts before one that left; a peer that left
 *   and then ended counts as left.
 * - LS_TIMED_OUT: the deadline has passed.
 * - LS_INTERRUPTED: a signal handler that was installed without SA_RESTART ran while the thread
 *   slept. A handler that runs during the first spin_ns is not noticed; a kernel before 5.16
 *   notices any handler.
 * - LS_SYSTEM, with a message.
 *
 * *peer is -1 except as said. Needs waiter->bell. */
LS_CHECKED ls_status wait_words(struct waiter *waiter, const struct wait_call *call, int *peer)
	LOCK_AVOIDS_ALL;

/* Whether the wait would end now. True: *status and *peer are as wait_words would return them.
 * False: it would not, and *status means nothing. Does not block. */
bool wait_check(const struct waiter *waiter, const struct wait_call *call, ls_status *status,
		int *peer);

/* Publishes the call in the calling thread's slot, although that thread does not wait: it acts for
 * another one. wait_thread_leave removes it. */
void wait_show(struct waiter *waiter, const struct wait_call *call) LOCK_AVOIDS(trace);
/* The calling thread's slot shows no call any more. */
void wait_hide(struct waiter *waiter) LOCK_AVOIDS(trace);

/* As poll(2) on `fds`: until one is ready (LS_OK, revents set), until the deadline (LS_TIMED_OUT),
 * or until a signal handler ends it (LS_INTERRUPTED). With waiter->resumes no handler ends the
 * wait. With another waiter, handlers end it that were installed without SA_RESTART; any handler
 * does if there are more than WAIT_FDS_MAX descriptors, or the process has no descriptor left.
 * Without a waiter (a watch, a launcher) the wait is not published, and any handler ends it. With
 * count 0 the thread sleeps. peer: the rank that the thread waits for; -1: none. The wait does not
 * look at cause and peers: pass a descriptor for those. LS_SYSTEM comes with a message. */
LS_CHECKED ls_status wait_fds(struct waiter *waiter, struct pollfd *fds, int count, int peer,
			      uint64_t deadline_ns) LOCK_AVOIDS_ALL;

/* Whether a thread that blocks all signals, or looks at its deadline itself, continues after
 * wait_fds. It is interrupted all the same when another thread calls setuid(2) or the like: then
 * the C library sends a signal of its own to all threads. */
static inline bool wait_fds_continues(ls_status status)
{
	return status == LS_OK || status == LS_TIMED_OUT || status == LS_INTERRUPTED;
}

/* Around a call of code that is not Lockstep's and may block, such as a device's driver: shows its
 * name, and since when the thread is in it. Such a wait proves nothing, because the call may return
 * at any time. At most WAIT_FOREIGN_BYTES - 1 bytes of `call` are copied. No lock may be held. Not
 * nested, and no wait on the same waiter in between. A thread that finds no free slot is counted as
 * unpublished, as in other waits. Afterwards the thread counts as outside. A thread of Lockstep's
 * own, which has no slot otherwise, then calls wait_thread_leave. A waiter that is NULL or has no
 * wait table shows nothing. */
void wait_foreign_call_begin(struct waiter *waiter, const char *call) LOCK_AVOIDS_ALL;
void wait_foreign_call_end(struct waiter *waiter) LOCK_AVOIDS(trace);

/* Whether `fd` can be written to, now or until the deadline. Prints no message, because messages
 * themselves use it. */
bool wait_room(int fd, uint64_t deadline_ns);

/* Given the line /proc/self/task/TID/syscall of a thread: -1 unless it sleeps, without a limit,
 * until another thread wakes it. Returns how many `shared` futex words it sleeps on, by which other
 * processes that share the memory may wake it. */
enum { WAIT_SHARED_MAX = 16 };
int wait_is_endless(const char *line, uint64_t shared[WAIT_SHARED_MAX]);

/* Such a line of any process: whether the thread sleeps as one that waits for a mutex of the C
 * library, of its process alone, at the address *mutex. Other locks may sleep in the same way; the
 * memory there tells them apart: src/stack/locks.c. */
bool wait_is_for_mutex(const char *line, uint64_t *mutex);
enum { WAIT_MUTEX_CONTENDED = 2 };

/* Waits until a thread of this process, which waits for nothing meanwhile, has stored 0. Locks may
 * be held. */
void wait_moment(const _Atomic uint32_t *word);
/* In place of a membarrier that the system refuses: waits until all that other threads had stored
 * when this was called is seen here. A store leaves its processor in less than a microsecond, or
 * when its thread does; this takes 10 ms. Locks may be held. */
void wait_until_stores_are_seen(void);

/* Waits for a thread of this process to end. */
void wait_join(pthread_t thread) LOCK_AVOIDS_ALL;

/* Call after a sequentially consistent store to a word that a rank may await: wakes the sleepers of
 * `bell`. One load if there are none. */
void wait_wake(struct wait_bell *bell);
/* The same for a word of which all waits have this topic. Wakes only sleepers that listen to it: of
 * those that need all of several words, the ones that need a word of this topic first. */
void wait_wake_topic(struct wait_bell *bell, int topic);
/* Whether wait_wake would do anything. */
static inline bool wait_is_awaited(const struct wait_bell *bell)
{
	return atomic_load_explicit(&bell->sleepers, memory_order_seq_cst) != 0;
}

/* One of several waits of one thread, the progress thread. Each is published in a wait slot of its
 * own, as if a thread waited there for nothing else, so that a proof treats them separately. */
struct wait_item {
	struct waiter *waiter; /* has a wait table; all items are of one rank */
	/* Stays valid, with all that it points to, as long as the thread may wait for it. */
	struct wait_call call;
	uint32_t tid; /* of that thread */
	struct wait_slot *slot;
	_Atomic bool counted; /* no slot was free, so `unpublished` counts it */
	_Atomic bool shown;
};

/* Publishes the item, or its new words. One thread publishes it and waits for it. Any thread may
 * hide it, which ends that wait when the thread next wakes; the callers exclude the two calls from
 * each other by a lock. A hidden item may be hidden again. */
void wait_item_show(struct wait_item *item) LOCK_AVOIDS(trace);
void wait_item_hide(struct wait_item *item) LOCK_AVOIDS(trace);

/* How the progress thread of a rank waits; it has no wait slot of its own. */
struct wait_set {
	struct wait_item *const *items;
	int count;
	struct wait_bell *bell; /* of the rank, and of all items */
	uint32_t seen;          /* bell->requests before the thread last looked for work */
	uint64_t until_ns;
	uint32_t spin_ns;
	bool yield;
};

/* Blocks until one of the items would end its wait (wait_check) or is hidden, until bell->requests
 * is not `seen`, or until_ns; if an item found no free slot, at most until the next look, so that
 * the thread can try again. Without items it sleeps where wait_wake does not wake it. */
void wait_for_set(const struct wait_set *set) LOCK_AVOIDS_ALL;
/* Wakes the progress thread: raises bell->requests, so that wait_for_set returns. No system call
 * while the thread is awake. */
void wait_wake_progress(struct wait_bell *bell);

/* Arming. A rank may have operations that need one of its threads to make progress while none of
 * them waits. Such a rank arms its bell, looks for work once more, and leaves. The next
 * wait_request_progress of a peer (with `urgent` the next wait_wake, too) disarms the bell and
 * wakes the progress thread. So that thread costs nothing while other threads make the progress.
 * Model: test/model/request.pml. */
void wait_arm(struct wait_bell *bell, bool urgent);
void wait_disarm(struct wait_bell *bell);
/* Whether the next wait_wake would wake the progress thread. */
static inline bool wait_is_urgent(const struct wait_bell *bell)
{
	return atomic_load_explicit(&bell->sleepers, memory_order_seq_cst) & WAIT_ARMED_URGENT;
}
/* wait_wake_topic (0: wait_wake) for a word to which a rank should react at once, even if none of
 * its threads waits: it also wakes the progress thread if the bell is armed. */
void wait_request_progress(struct wait_bell *bell, int topic);

/* Stores `value` as wait_wake requires. Call wait_wake for each bell afterwards. */
static inline void wait_store(_Atomic uint64_t *word, uint64_t value)
{
	atomic_store_explicit(word, value, memory_order_seq_cst);
}

#endif
