/* SPDX-License-Identifier: BSD-3-Clause
 * The one place that blocks. Two doors: words in shared memory, and descriptors. Whoever waits
 * says for what, until when, and for whom, and that stands in a wait slot that other processes
 * can read before the thread sleeps; so the wait-for graph of a job is always there to be read,
 * even after kill -9 or SIGSTOP of the one who waits.
 *
 * The doorbell protocol (model: test/model/doorbell.pml). A waiter: count itself in
 * bell->sleepers, read bell->ring, test all conditions again, sleep while bell->ring is
 * unchanged. A signaller: store the word, read bell->sleepers of whom it may concern, and only if
 * that is not zero change bell->ring and wake. The four accesses that matter are sequentially
 * consistent, so one of the two sees the other: either the waiter sees the word, or the signaller
 * sees the sleeper.
 *
 * There are no locks in shared memory, and nobody else's memory is trusted: a peer that writes
 * nonsense can make a wait end early (it re-tests) or late (the deadline holds), nothing else. */
#ifndef BASE_WAIT_H
#define BASE_WAIT_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <lockstep/status.h>

#include "lock.h"

enum {
	WAIT_EDGE_MAX = 64,   /* words in a slot, and in each page of those that do not fit there */
	WAIT_CHOICE_MAX = 64, /* choices of one wait: 1 to so many */
	WAIT_PAGE_MAX = 64,   /* pages of a rank: one bit each in a set */
	WAIT_SLOT_MAX = 32,   /* threads of one rank that may be inside Lockstep at once */
};

/* Which memory an awaited word lies in; with owner and offset a reader in another process finds
 * it. */
enum wait_segment {
	WAIT_SEGMENT_NONE = 0, /* a descriptor, or memory that only the waiting process can see */
	WAIT_SEGMENT_LINK = 1, /* the transport segment of rank `owner` */
};

/* One awaited word, as flat data. Satisfied once (int64_t)(word - value) >= 0: awaited words only
 * grow. */
struct wait_edge {
	uint64_t value;
	uint64_t offset; /* of the word in its segment, a multiple of 8 */
	int32_t owner;   /* world rank whose segment it is */
	/* world rank that has to make it true; the waiting rank itself is allowed; -1: another
	 * thread of the waiting rank, which waits for peers in its turn */
	int32_t peer;
	uint16_t segment; /* enum wait_segment */
	/* Of a wait that any word ends: what it waits for is made by this word alone (0), or takes
	 * all unsatisfied words of this choice, so that one of them that never comes rules the
	 * choice out. */
	uint16_t choice;
	/* Whose need this is: the lowest bits of the record of an operation, 0: of the operation
	 * that the wait belongs to. A thread that sees to others' operations as well names their
	 * words with OTHERS. */
	uint32_t record;
};
#define WAIT_RECORD_OTHERS UINT32_MAX

/* Not WAIT_ANY: <sys/wait.h> has a macro of that name. */
enum wait_state {
	WAIT_UNUSED = 0,   /* no thread has this slot */
	WAIT_OUTSIDE = 1,  /* the thread has called Lockstep before and is not blocked in it now */
	WAIT_WORDS = 2,    /* blocked, all of the edges are needed */
	WAIT_ANY_WORD = 3, /* blocked, any one of the edges suffices */
	WAIT_FDS = 4, /* blocked on a descriptor for edges[0].peer (-1: for nobody in particular) */
};

/* What one thread waits for. Flat, and a multiple of 8 bytes, for seqlock_store. Words that do not
 * fit into `edges` are in pages of the wait table, in the order of these; if those have no room for
 * all of them either, that shows:
 *   further > WAIT_EDGE_MAX * number of pages  <=>  not all words are shown, so the wait proves
 *                                                   nothing */
struct wait_slot_body {
	uint32_t state; /* enum wait_state */
	uint32_t tid;
	uint32_t may_leave; /* 1: the call has a time limit of its own, so it may go on by itself */
	uint32_t group;     /* the operation this wait belongs to: its group and its trace record */
	uint64_t record;
	uint64_t since_ns;    /* clock_now_ns at the beginning */
	uint64_t deadline_ns; /* CLOCK_NEVER: none */
	uint32_t edge_count;  /* only so many of edges are meant */
	uint32_t further;     /* words that are not among them */
	uint64_t pages;       /* bit i: page i has some of these */
	struct wait_edge edges[WAIT_EDGE_MAX];
};

/* Written by the thread that has it, under the sequence lock `epoch` (base/seqlock.h), which
 * therefore differs between any two waits. */
struct wait_slot {
	_Alignas(64) _Atomic uint32_t epoch;
	_Atomic uint32_t taken; /* 1 while a thread has this slot */
	struct wait_slot_body body;
};

/* All wait slots of a rank; lies in its trace, zeroed at first. */
struct wait_table {
	struct wait_slot slots[WAIT_SLOT_MAX];
	/* Not zero: some thread has called in and found no slot, so the wait table does not show
	 * all threads and proves nothing about this rank. */
	_Alignas(64) _Atomic uint32_t unpublished;
	/* Those of them that are threads without a slot, which may come back from wherever they
	 * are. */
	_Atomic uint32_t slotless;
	/* Bit i: a slot has page i, which its thread writes while the slot's epoch is odd. So what
	 * was read of it belongs to a wait whose epoch is the same afterwards. */
	_Atomic uint64_t pages_taken;
	_Atomic uint32_t watch_tid;    /* of the rank's watch, which is no thread that might call */
	_Atomic uint32_t progress_tid; /* of the progress thread, which calls for others */
	/* Which sleeps those threads of the process sleep that are in no wait in this wait table,
	 * where all of them can only be woken by each other, or by one that is; as the watch has
	 * seen it (diagnose_rest_sleep). Among them the main thread, which might call at any time,
	 * whether it has or not. Others must not see where they sleep, but how often each has gone
	 * to sleep. 0: not known. */
	_Atomic uint64_t rest_sleep;
	struct wait_edge pages[WAIT_PAGE_MAX][WAIT_EDGE_MAX];
};

/* A rank's doorbell; lies in memory that its peers can write. */
struct wait_bell {
	_Alignas(64) _Atomic uint32_t ring;
	_Atomic uint32_t sleepers; /* their number, and WAIT_ARMED, WAIT_ARMED_EAGER */
	_Atomic uint32_t summons;  /* raised to call the rank's progress thread: see wait_set */
	_Atomic uint32_t listens;  /* enum wait_listens: on what that thread sleeps */
};
enum wait_listens { WAIT_LISTENS_NOT, WAIT_LISTENS_SUMMONS, WAIT_LISTENS_RING };
#define WAIT_ARMED UINT32_C(0x10000)
#define WAIT_ARMED_EAGER UINT32_C(0x20000)
#define WAIT_SLEEPERS UINT32_C(0xffff)

/* What a waiter knows of one peer. `left` points to a word the peer itself changes when it leaves
 * the group (NULL: none), from `stays`; `dead` to one that this process' watch sets (NULL:
 * none). */
struct wait_peer {
	const _Atomic uint64_t *left;
	uint64_t stays;
	const _Atomic uint32_t *dead;
};

/* One awaited word: where this process sees it, and how others find it. */
struct wait_word {
	const _Atomic uint64_t *word;
	/* Of the group that the word is of, as a wait may be for words of several: by world rank,
	 * as many as the waiter has. NULL: those of the waiter. */
	const struct wait_peer *peers;
	struct wait_edge edge;
};

/* Which threads have which slot of a wait table. Private to the process; see wait_slot.c. */
struct wait_registry;

/* How one rank waits. Filled by its owner, then wait_open, constant until wait_close. */
struct waiter {
	struct wait_table *wait_table;
	struct wait_bell *bell;
	const _Atomic uint64_t *cause; /* wait_has_failed: every wait ends; NULL: none */
	struct wait_peer *peers;       /* indexed by world rank; NULL if peer_count is 0 */
	int peer_count;
	uint32_t spin_ns; /* how long to spin or yield before sleeping */
	bool yield;       /* more ranks than cores: give the core away instead of spinning */
	uint64_t look_ns; /* a wait this long pokes look_fd, and again after as long; 0: never */
	int look_fd; /* non-blocking eventfd of the watch that then looks for the cause; -1: none */
	/* Not NULL: how many threads sleep here, for peers who have nothing to say but to them;
	 * counted before they look for the last time. */
	_Atomic uint32_t *asleep;
	bool resumes; /* handlers end no wait for descriptors; of words the caller sees to that */
	struct wait_registry *registry; /* NULL before wait_open and after wait_close */
};

struct wait_call {
	const struct wait_word *words;
	int count;
	bool any;       /* true: one word suffices; false: all are needed */
	bool may_leave; /* the deadline was given for this very call */
	bool partial;   /* words were left out: it is taken up again soon, and proves nothing */
	uint64_t deadline_ns; /* CLOCK_NEVER: none */
	uint64_t since_ns;    /* when it began, if it is taken up again; 0: now */
	uint32_t group;
	uint64_t record;
};

/* So many descriptors every wait of a rank has at most. */
enum { WAIT_FDS_MAX = 255 };

/* Makes the waiter's wait table usable by threads: until then its waits work, but unpublished. Not
 * for two threads at once. Nothing to do for a waiter without a wait table. Errors:
 * LS_OUT_OF_MEMORY, LS_SYSTEM, with a message. */
LS_CHECKED ls_status wait_open(struct waiter *waiter);

/* Before the wait table's memory goes away, while no thread is in a call on this waiter: afterwards
 * no thread touches the wait table any more, not even one that ends later. Frees all slots.
 * Harmless when repeated. Not in a forked child. */
void wait_close(struct waiter *waiter) LOCK_AVOIDS(trace);

/* Puts the calling thread in the wait table, as outside, so that a proof does not overlook a thread
 * that has never blocked. Upper rooms call it at each public entry; after a thread's first call
 * it costs one compare with a thread-local pointer. Its slot is free again after
 * wait_thread_leave, when the thread ends, or at wait_close. Not in a forked child. */
void wait_thread_enter(struct waiter *waiter) LOCK_AVOIDS(trace);

/* Gives the calling thread's slot back, for a thread that will not call again soon. */
void wait_thread_leave(struct waiter *waiter) LOCK_AVOIDS(trace);

/* Whether a group's cause says that it has failed. Its upper half may name the group. */
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
	return peer->left && atomic_load_explicit(peer->left, memory_order_seq_cst) != peer->stays;
}

/* True once the call's condition holds: one sequentially consistent load per word, nothing else.
 * Of no words, all are there and none is there. */
bool wait_satisfied(const struct wait_call *call);

/* Looks for the time of a few cache misses; true once the condition holds. For what is most often
 * over before the clock could be read: deadline, cause and peers are not looked at. */
bool wait_briefly(const struct waiter *waiter, const struct wait_call *call);

/* Blocks until the condition holds. It is tested once more after every other reason to end, so
 * success wins. Returns LS_OK; LS_ABORTED when *cause said so; LS_PEER_DIED or
 * LS_PEER_LEFT when a peer that is still needed is gone (*peer: who): with `any`, when the peers
 * of all words are gone; one that died goes before one that left, and one that left and then
 * ended has left; LS_TIMED_OUT; LS_INTERRUPTED when a signal handler installed without SA_RESTART
 * ran while the thread slept (one that runs during the first spin_ns is not noticed; a kernel
 * before 5.16 notices any handler). *peer is -1 otherwise. LS_SYSTEM comes with a message. Needs
 * waiter->bell. */
LS_CHECKED ls_status wait_words(struct waiter *waiter, const struct wait_call *call, int *peer)
	LOCK_AVOIDS_ALL;

/* Whether the wait would end now, and how: without blocking, as wait_words does with a deadline
 * that has passed. */
bool wait_look(const struct waiter *waiter, const struct wait_call *call, ls_status *status,
	       int *peer);

/* Shows the call in the wait table in place of the calling thread, which does not wait: for one
 * that speaks for another. wait_thread_leave takes it away. */
void wait_show(struct waiter *waiter, const struct wait_call *call) LOCK_AVOIDS(trace);

/* As poll(2) on `fds` until one is ready (LS_OK, revents set), the deadline (LS_TIMED_OUT) or an
 * interrupt (LS_INTERRUPTED). With a waiter, as wait_words: a handler installed with SA_RESTART
 * runs and ends nothing, nor does any if waiter->resumes; of more than WAIT_FDS_MAX descriptors,
 * and where no descriptor is left, any other one ends it. Without one (a watch, a launcher) nothing
 * is published, and any handler ends it; who wants to go on calls again. With count 0 it sleeps.
 * `peer`: whom this waits for, -1 for nobody. Looks neither at cause nor at peers: give it a
 * descriptor for those. LS_SYSTEM comes with a message. */
LS_CHECKED ls_status wait_fds(struct waiter *waiter, struct pollfd *fds, int count, int peer,
			      uint64_t deadline_ns) LOCK_AVOIDS_ALL;

/* Whether `fd` can be written to, now or until the deadline. Says nothing: messages ask it. */
bool wait_room(int fd, uint64_t deadline_ns);

/* Of a thread's line in /proc/PID/task/TID/syscall: whether it sleeps, without a time limit, until
 * another thread wakes it. *shared: the address of the word it sleeps on, if others may who share
 * that memory; 0: only its process may. */
bool wait_is_endless(const char *line, uint64_t *shared);

/* Waits for a thread of this process to end. */
void wait_join(pthread_t thread) LOCK_AVOIDS_ALL;

/* Call after a sequentially consistent store to a word that somebody may await: wakes the sleepers
 * of `bell`, and costs one load when there are none. */
void wait_ring(struct wait_bell *bell);

/* One of several waits of one thread, which stands in for callers who do something else. It is
 * shown in the wait table in a slot of its own, as if a thread waited there for nothing else, so
 * that a proof sees each of them by itself. */
struct wait_item {
	struct waiter *waiter; /* with a wait table; all of one rank */
	/* and what it points to, as long as the thread that shows it may wait for it */
	struct wait_call call;
	uint32_t tid; /* of that thread */
	struct wait_slot *slot;
	_Atomic bool counted; /* no slot was free, so unpublished counts it */
	_Atomic bool shown;
};

/* Shows the item, or what it waits for now. One thread shows it and waits for it; any may hide it,
 * which ends that wait when the thread next wakes: a lock of the caller's keeps the two calls
 * apart. A hidden item may be hidden again. */
void wait_item_show(struct wait_item *item) LOCK_AVOIDS(trace);
void wait_item_hide(struct wait_item *item) LOCK_AVOIDS(trace);

/* How the progress thread of a rank waits, a thread that is in no wait table itself. */
struct wait_set {
	struct wait_item *const *items;
	int count;
	struct wait_bell *bell; /* of the rank, and of all items */
	uint32_t seen;          /* bell->summons when it last looked what there is to do */
	uint64_t until_ns;
	uint32_t spin_ns;
	bool yield;
};

/* Blocks until one of the items would end its wait (wait_look) or is hidden, bell->summons is not
 * `seen`, or until_ns; and if an item stands in no slot until the next look, so that it may be
 * shown again. Without items it sleeps where no ring of the bell wakes it. */
void wait_set(const struct wait_set *set) LOCK_AVOIDS_ALL;
/* Raises bell->summons, so that the thread comes back. Costs no system call while it is awake. */
void wait_call_thread(struct wait_bell *bell);

/* A rank may have something that goes on only if some thread of it sees to it, while none waits for
 * it. It arms its bell, looks once more whether there is something to do, and leaves. The next
 * wait_summon (with `eager` the next wait_ring too) disarms the bell and calls the progress thread.
 * So that thread costs nothing as long as others see to it. Model: test/model/summon.pml. */
void wait_arm(struct wait_bell *bell, bool eager);
void wait_disarm(struct wait_bell *bell);
/* Whether the next wait_ring would call that thread. */
static inline bool wait_is_eager(const struct wait_bell *bell)
{
	return atomic_load_explicit(&bell->sleepers, memory_order_seq_cst) & WAIT_ARMED_EAGER;
}
/* wait_ring, for what a rank should see to at once even if none of its threads waits for it. */
void wait_summon(struct wait_bell *bell);

/* Stores `value` so that wait_ring's promise holds, then rings nobody: ring each bell
 * afterwards. */
static inline void wait_store(_Atomic uint64_t *word, uint64_t value)
{
	atomic_store_explicit(word, value, memory_order_seq_cst);
}

#endif
