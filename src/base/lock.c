/* SPDX-License-Identifier: BSD-3-Clause
 * Ranked locks: a pthread mutex each, and a thread-local mask of the ranks that the thread holds.
 * The mask is tested before the mutex is, so that a wrong order is said and not hung in. */
#include "lock.h"

#include <stdlib.h>
#include <string.h>

#include "messages.h"

struct lock_rank lock_rank_none;
#define X(rank, before, what) struct lock_rank lock_rank_##rank;
LOCK_RANKS(X)
#undef X

static _Thread_local uint32_t held;

static const char *const names[LOCK_RANK_COUNT] = {
#define X(rank, before, what) #rank,
	LOCK_RANKS(X)
#undef X
};
_Static_assert(LOCK_RANK_COUNT <= 32, "the mask has a bit for each rank");

const char *lock_rank_name(int index)
{
	return index >= 0 && index < LOCK_RANK_COUNT ? names[index] : "?";
}

uint32_t lock_held_mask(void)
{
	return held;
}

static int innermost_held(void)
{
	return held ? 31 - __builtin_clz(held) : -1;
}

void lock_assert_none(void)
{
	if (__builtin_expect(held != 0, 0)) {
		MESSAGE_SAY(MESSAGE_LOCK_WAIT, lock_rank_name(innermost_held()));
		abort();
	}
}

static _Noreturn void broken(int index, const char *verb, const char *why)
{
	MESSAGE_SAY(MESSAGE_LOCK_BROKEN, lock_rank_name(index), verb, why);
	abort();
}

static void acquire(int index, pthread_mutex_t *mutex)
{
	uint32_t bit = UINT32_C(1) << index;
	if (__builtin_expect(held >= bit, 0)) {
		MESSAGE_SAY(MESSAGE_LOCK_ORDER, lock_rank_name(index),
			    lock_rank_name(innermost_held()));
		abort();
	}
	int error = pthread_mutex_lock(mutex);
	if (error)
		broken(index, "taken", strerror(error));
	held |= bit;
}

static void release(int index, pthread_mutex_t *mutex)
{
	uint32_t bit = UINT32_C(1) << index;
	if (__builtin_expect(!(held & bit), 0))
		broken(index, "released", "this thread does not hold it");
	held &= ~bit;
	int error = pthread_mutex_unlock(mutex);
	if (error)
		broken(index, "released", strerror(error));
}

static void init(int index, pthread_mutex_t *mutex)
{
	int error = pthread_mutex_init(mutex, NULL);
	if (error)
		broken(index, "made", strerror(error));
}

static void fini(int index, pthread_mutex_t *mutex)
{
	int error = pthread_mutex_destroy(mutex);
	if (error)
		broken(index, "destroyed", strerror(error));
}

/* Clang cannot see through the mutex, so it takes the word of the declarations for these four. */
#define X(rank, before, what)                                               \
	void lock_##rank##_init(struct lock_##rank *lock)                   \
	{                                                                   \
		init(LOCK_INDEX_##rank, &lock->mutex);                      \
	}                                                                   \
	void lock_##rank##_fini(struct lock_##rank *lock)                   \
	{                                                                   \
		fini(LOCK_INDEX_##rank, &lock->mutex);                      \
	}                                                                   \
	LOCK_UNCHECKED void lock_##rank##_acquire(struct lock_##rank *lock) \
	{                                                                   \
		acquire(LOCK_INDEX_##rank, &lock->mutex);                   \
	}                                                                   \
	LOCK_UNCHECKED void lock_##rank##_release(struct lock_##rank *lock) \
	{                                                                   \
		release(LOCK_INDEX_##rank, &lock->mutex);                   \
	}
LOCK_RANKS(X)
#undef X
