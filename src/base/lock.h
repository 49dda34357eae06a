/* SPDX-License-Identifier: BSD-3-Clause
 * Locks with ranks. One table says in which order locks may be taken; from it come one lock type
 * per rank (so a lock cannot be ranked wrongly), a Clang capability per rank (checked when
 * compiled with clang -Wthread-safety -Wthread-safety-beta), and a thread-local mask of what is
 * held, checked at run time in every build (about 1 ns). A violation prints LS-LOCK-ORDER and
 * aborts.
 *
 * Rules: a rank may be locked only while every held rank stands before it in the table; two locks
 * of one rank are never held together; no lock is held across a wait, a callback or anything that
 * can block. base/wait calls lock_assert_none.
 *
 * The table names ranks of upper rooms: words only, the one look upward that base allows itself. */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "bias.h"

/* X(rank, the rank before it, "what it protects"), outermost first. Y: the same for locks that are
 * biased to a thread that nearly always takes them (bias.h). */
#define LOCK_RANKS(X, Y)                                               \
	X(group, none, "numbering and lanes of one group")             \
	Y(mail, group, "messages of one group, and who asks for them") \
	X(peer, mail, "the sending side of one connection to a peer")  \
	X(memory, peer, "free lists and block table of one arena")     \
	X(trace, memory, "assignment of wait slots, labels and groups in a trace")

#if defined(__clang__)
#define LOCK_ATTRIBUTE(x) __attribute__((x))
#else
#define LOCK_ATTRIBUTE(x)
#endif
#define LOCK_CAPABILITY LOCK_ATTRIBUTE(capability("lock rank"))
#define LOCK_GUARDED(rank) LOCK_ATTRIBUTE(guarded_by(lock_rank_##rank))
#define LOCK_REQUIRES(rank) LOCK_ATTRIBUTE(requires_capability(lock_rank_##rank))
#define LOCK_ACQUIRES(rank) LOCK_ATTRIBUTE(acquire_capability(lock_rank_##rank))
#define LOCK_RELEASES(rank) LOCK_ATTRIBUTE(release_capability(lock_rank_##rank))
#define LOCK_UNCHECKED LOCK_ATTRIBUTE(no_thread_safety_analysis)
/* For functions that must run with no such lock held, such as everything that can wait. */
#define LOCK_AVOIDS(rank) LOCK_ATTRIBUTE(locks_excluded(lock_rank_##rank))
#define LOCK_AVOIDS_ALL    \
	LOCK_AVOIDS(group) \
	LOCK_AVOIDS(mail) LOCK_AVOIDS(peer) LOCK_AVOIDS(memory) LOCK_AVOIDS(trace)

/* Phantom capabilities, one per rank. The order must stand on the first declaration: clang
 * ignores it silently on a later one. */
struct LOCK_CAPABILITY lock_rank {
	int unused;
};
extern struct lock_rank lock_rank_none;
#define X(rank, before, what) \
	extern struct lock_rank lock_rank_##rank LOCK_ATTRIBUTE(acquired_after(lock_rank_##before));
LOCK_RANKS(X, X)
#undef X

enum lock_rank_index {
#define X(rank, before, what) LOCK_INDEX_##rank,
	LOCK_RANKS(X, X)
#undef X
		LOCK_RANK_COUNT
};

struct lock_state {
	pthread_mutex_t mutex;
	struct bias bias;
	/* The holder writes it. Not NULL: it is the owner, and holds the lock without the mutex. */
	_Atomic uint32_t *inside;
	/* Under the mutex: the thread that took it last, and how often in a row; after run_least
	 * times it becomes the owner. 0: there is never one. */
	uintptr_t last;
	uint32_t run, run_least;
};
enum { LOCK_RUN_LEAST = 4, LOCK_RUN_MOST = 1 << 14 };
/* A lock without bias that lives as long as the process. */
#define LOCK_STATIC                                            \
	{                                                      \
		.state = {.mutex = PTHREAD_MUTEX_INITIALIZER } \
	}

/* For the functions below: bit i is set while the calling thread holds a lock of rank i. */
extern _Thread_local uint32_t lock_held;
void lock_acquire_mutex(int index, struct lock_state *lock);
void lock_release_mutex(int index, struct lock_state *lock);

static inline void lock_acquire_biased(int index, struct lock_state *lock)
{
	uint32_t bit = UINT32_C(1) << index;
	_Atomic uint32_t *inside = lock_held < bit ? bias_enter(&lock->bias) : NULL;
	if (__builtin_expect(!inside, 0)) {
		lock_acquire_mutex(index, lock);
		return;
	}
	lock_held |= bit;
	lock->inside = inside;
}

static inline void lock_release_biased(int index, struct lock_state *lock)
{
	uint32_t bit = UINT32_C(1) << index;
	_Atomic uint32_t *inside = lock->inside;
	if (__builtin_expect(!(lock_held & bit) || !inside, 0)) {
		lock_release_mutex(index, lock);
		return;
	}
	lock_held &= ~bit;
	bias_leave(inside);
}

/* struct lock_group, lock_group_init, lock_group_acquire, … Clang cannot see through the mutex, so
 * it takes the word of the declarations. */
#define X(rank, before, what)                                                     \
	struct lock_##rank {                                                      \
		struct lock_state state;                                          \
	};                                                                        \
	void lock_##rank##_init(struct lock_##rank *lock);                        \
	void lock_##rank##_fini(struct lock_##rank *lock);                        \
	void lock_##rank##_acquire(struct lock_##rank *lock) LOCK_ACQUIRES(rank); \
	void lock_##rank##_release(struct lock_##rank *lock) LOCK_RELEASES(rank);
#define Y(rank, before, what)                                                               \
	struct lock_##rank {                                                                \
		struct lock_state state;                                                    \
	};                                                                                  \
	void lock_##rank##_init(struct lock_##rank *lock);                                  \
	void lock_##rank##_fini(struct lock_##rank *lock);                                  \
	static inline void lock_##rank##_acquire(struct lock_##rank *) LOCK_ACQUIRES(rank); \
	static inline void lock_##rank##_release(struct lock_##rank *) LOCK_RELEASES(rank); \
	LOCK_UNCHECKED static inline void lock_##rank##_acquire(struct lock_##rank *lock)   \
	{                                                                                   \
		lock_acquire_biased(LOCK_INDEX_##rank, &lock->state);                       \
	}                                                                                   \
	LOCK_UNCHECKED static inline void lock_##rank##_release(struct lock_##rank *lock)   \
	{                                                                                   \
		lock_release_biased(LOCK_INDEX_##rank, &lock->state);                       \
	}
LOCK_RANKS(X, Y)
#undef X
#undef Y

/* Bit i is set while the calling thread holds a lock of rank i. */
uint32_t lock_held_mask(void);

/* Aborts with LS-LOCK-WAIT if the calling thread holds any lock. */
void lock_assert_none(void);

/* "group", for an index below LOCK_RANK_COUNT; else "?". */
const char *lock_rank_name(int index);

#endif
