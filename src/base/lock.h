/* SPDX-License-Identifier: BSD-3-Clause
 * Locks with levels. One table says in which order locks may be taken. It generates a lock type for
 * each level (so a lock cannot have the wrong level), a Clang capability for each level (checked
 * when compiled with clang -Wthread-safety -Wthread-safety-beta), and a thread-local mask of the
 * levels held, which every build checks at run time (about 1 ns). A violation prints LS-LOCK-ORDER
 * and aborts.
 *
 * Rules: a thread may take a lock only if the table lists all levels that it holds before the
 * lock's level. It never holds two locks of one level, nor any lock across a wait for a rank, a
 * callback or a call that can block: base/wait calls lock_assert_none. wait_moment alone may be
 * called with locks held: it waits for a thread of this process that waits for nothing.
 *
 * The table names levels of upper rooms, but only as words; base uses nothing else from above. */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bias.h"

/* X(level, the level before it, "what it protects"), outermost first. Y: the same for locks that
 * are biased to the one thread that nearly always takes them (bias.h); init_unbiased is for locks
 * of the level that several threads take in turn; such a lock is an ordinary mutex. */
#define LOCK_LEVELS(X, Y)                                                                 \
	Y(rank, none, "groups, lanes and operations of one rank")                         \
	Y(mail, rank, "messages and posted receives of one group")                        \
	X(peer, mail, "the channels between one rank and one peer")                       \
	Y(pool, peer, "blocks of one device's memory")                                    \
	X(gate, pool, "what is in flight on devices, and what they are to be given back") \
	X(memory, gate, "free lists and block table of one arena")                        \
	X(trace, memory, "assignment of wait slots, labels and groups in a trace")        \
	X(races, trace, "what is under way, for LOCKSTEP_CHECK=1")

#if defined(__clang__)
#define LOCK_ATTRIBUTE(x) __attribute__((x))
#else
#define LOCK_ATTRIBUTE(x)
#endif
#define LOCK_CAPABILITY LOCK_ATTRIBUTE(capability("lock level"))
#define LOCK_GUARDED(level) LOCK_ATTRIBUTE(guarded_by(lock_level_##level))
#define LOCK_REQUIRES(level) LOCK_ATTRIBUTE(requires_capability(lock_level_##level))
#define LOCK_ACQUIRES(level) LOCK_ATTRIBUTE(acquire_capability(lock_level_##level))
#define LOCK_RELEASES(level) LOCK_ATTRIBUTE(release_capability(lock_level_##level))
#define LOCK_UNCHECKED LOCK_ATTRIBUTE(no_thread_safety_analysis)
/* For functions that must run with no lock of this level held, such as all that can wait. */
#define LOCK_AVOIDS(level) LOCK_ATTRIBUTE(locks_excluded(lock_level_##level))
#define LOCK_AVOIDS_ALL   \
	LOCK_AVOIDS(rank) \
	LOCK_AVOIDS(mail) \
	LOCK_AVOIDS(peer) \
	LOCK_AVOIDS(pool) \
	LOCK_AVOIDS(gate) LOCK_AVOIDS(memory) LOCK_AVOIDS(trace) LOCK_AVOIDS(races)

/* Phantom capabilities, one per level. The first declaration must state the order: clang
 * silently ignores it on a later one. */
struct LOCK_CAPABILITY lock_level {
	int unused;
};
extern struct lock_level lock_level_none;
#define X(level, before, what)                                      \
	extern struct lock_level lock_level_##level LOCK_ATTRIBUTE( \
		acquired_after(lock_level_##before));
LOCK_LEVELS(X, X)
#undef X

enum lock_level_index {
#define X(level, before, what) LOCK_INDEX_##level,
	LOCK_LEVELS(X, X)
#undef X
		LOCK_LEVEL_COUNT
};

struct lock_state {
	pthread_mutex_t mutex;
	struct bias bias;
	/* The holder writes it. Not NULL: the holder is the bias's owner, and holds the lock
	 * without the mutex. */
	_Atomic uint32_t *inside;
	/* Under the mutex: the thread that took the mutex last, and how often in a row. After
	 * run_least times in a row that thread becomes the owner. run_least 0: the lock never has
	 * an owner. */
	uintptr_t last;
	uint32_t run, run_least;
};
enum { LOCK_RUN_LEAST = 4, LOCK_RUN_MOST = 1 << 14 };
/* A lock without bias that lives as long as the process. */
#define LOCK_STATIC                                            \
	{                                                      \
		.state = {.mutex = PTHREAD_MUTEX_INITIALIZER } \
	}

/* For the functions below: bit i is set while the calling thread holds a lock of level i. */
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

/* struct lock_rank, lock_rank_init, lock_rank_acquire, … Clang cannot look into the mutex,
 * so it believes the declarations. */
#define X(level, before, what)                                                       \
	struct lock_##level {                                                        \
		struct lock_state state;                                             \
	};                                                                           \
	void lock_##level##_init(struct lock_##level *lock);                         \
	void lock_##level##_fini(struct lock_##level *lock);                         \
	void lock_##level##_acquire(struct lock_##level *lock) LOCK_ACQUIRES(level); \
	void lock_##level##_release(struct lock_##level *lock) LOCK_RELEASES(level);
#define Y(level, before, what)                                                                 \
	struct lock_##level {                                                                  \
		struct lock_state state;                                                       \
	};                                                                                     \
	void lock_##level##_init(struct lock_##level *lock);                                   \
	void lock_##level##_init_unbiased(struct lock_##level *lock);                          \
	void lock_##level##_fini(struct lock_##level *lock);                                   \
	static inline void lock_##level##_acquire(struct lock_##level *) LOCK_ACQUIRES(level); \
	static inline void lock_##level##_release(struct lock_##level *) LOCK_RELEASES(level); \
	LOCK_UNCHECKED static inline void lock_##level##_acquire(struct lock_##level *lock)    \
	{                                                                                      \
		lock_acquire_biased(LOCK_INDEX_##level, &lock->state);                         \
	}                                                                                      \
	LOCK_UNCHECKED static inline void lock_##level##_release(struct lock_##level *lock)    \
	{                                                                                      \
		lock_release_biased(LOCK_INDEX_##level, &lock->state);                         \
	}
LOCK_LEVELS(X, Y)
#undef X
#undef Y

/* Bit i is set while the calling thread holds a lock of level i. */
uint32_t lock_held_mask(void);

/* Aborts with LS-LOCK-WAIT if the calling thread holds any lock. */
void lock_assert_none(void);

/* "rank", for an index below LOCK_LEVEL_COUNT; else "?". */
const char *lock_level_name(int index);

#endif
