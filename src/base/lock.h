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
#include <stdint.h>

/* X(rank, the rank before it, "what it protects"), outermost first. */
#define LOCK_RANKS(X)                                                  \
	X(group, none, "numbering and lanes of one group")             \
	X(mail, group, "messages of one group, and who asks for them") \
	X(link, mail, "the sending side of one connection to a peer")  \
	X(memory, link, "free lists and block table of one arena")     \
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
	LOCK_AVOIDS(mail) LOCK_AVOIDS(link) LOCK_AVOIDS(memory) LOCK_AVOIDS(trace)

/* Phantom capabilities, one per rank. The order must stand on the first declaration: clang
 * ignores it silently on a later one. */
struct LOCK_CAPABILITY lock_rank {
	int unused;
};
extern struct lock_rank lock_rank_none;
#define X(rank, before, what) \
	extern struct lock_rank lock_rank_##rank LOCK_ATTRIBUTE(acquired_after(lock_rank_##before));
LOCK_RANKS(X)
#undef X

enum lock_rank_index {
#define X(rank, before, what) LOCK_INDEX_##rank,
	LOCK_RANKS(X)
#undef X
		LOCK_RANK_COUNT
};

/* struct lock_group, lock_group_init, lock_group_acquire, … */
#define X(rank, before, what)                                                     \
	struct lock_##rank {                                                      \
		pthread_mutex_t mutex;                                            \
	};                                                                        \
	void lock_##rank##_init(struct lock_##rank *lock);                        \
	void lock_##rank##_fini(struct lock_##rank *lock);                        \
	void lock_##rank##_acquire(struct lock_##rank *lock) LOCK_ACQUIRES(rank); \
	void lock_##rank##_release(struct lock_##rank *lock) LOCK_RELEASES(rank);
LOCK_RANKS(X)
#undef X

/* Bit i is set while the calling thread holds a lock of rank i. */
uint32_t lock_held_mask(void);

/* Aborts with LS-LOCK-WAIT if the calling thread holds any lock. */
void lock_assert_none(void);

/* "group", for an index below LOCK_RANK_COUNT; else "?". */
const char *lock_rank_name(int index);

#endif
