/* SPDX-License-Identifier: BSD-3-Clause
 * Locks with levels: a pthread mutex each, and a thread-local mask of the levels that the thread
 * holds. An acquire tests the mask before it locks the mutex, so a wrong order is a message, not a
 * hang. */
#include "base/lock.h"

#include <stdlib.h>
#include <string.h>

#include "base/messages.h"

struct lock_level lock_level_none;
#define X(level, before, what) struct lock_level lock_level_##level;
LOCK_LEVELS(X, X)
#undef X

_Thread_local uint32_t lock_held;

static const char *const names[LOCK_LEVEL_COUNT] = {
#define X(level, before, what) #level,
	LOCK_LEVELS(X, X)
#undef X
};
_Static_assert(LOCK_LEVEL_COUNT <= 32, "the mask has a bit for each level");

const char *lock_level_name(int index)
{
	return index >= 0 && index < LOCK_LEVEL_COUNT ? names[index] : "?";
}

uint32_t lock_held_mask(void)
{
	return lock_held;
}

static int innermost_held(void)
{
	return lock_held ? 31 - __builtin_clz(lock_held) : -1;
}

void lock_assert_none(void)
{
	if (__builtin_expect(lock_held != 0, 0)) {
		MESSAGE_SAY(MESSAGE_LOCK_WAIT, lock_level_name(innermost_held()));
		abort();
	}
}

static _Noreturn void abort_broken(int index, const char *verb, const char *why)
{
	MESSAGE_SAY(MESSAGE_LOCK_BROKEN, lock_level_name(index), verb, why);
	abort();
}

/* Call under the mutex. Each revocation makes it harder to become the next owner, so two threads
 * that alternate seldom pay for a revocation. */
static void choose_owner(struct lock_state *lock)
{
	uintptr_t me = bias_me();
	if (bias_has_owner(&lock->bias)) {
		bias_revoke(&lock->bias);
		lock->run_least *= lock->run_least < LOCK_RUN_MOST ? 2 : 1;
	}
	lock->inside = NULL;
	lock->run = lock->last == me ? lock->run + 1 : 1;
	lock->last = me;
	if (lock->run == lock->run_least)
		bias_give(&lock->bias);
}

void lock_acquire_mutex(int index, struct lock_state *lock)
{
	uint32_t bit = UINT32_C(1) << index;
	if (__builtin_expect(lock_held >= bit, 0)) {
		MESSAGE_SAY(MESSAGE_LOCK_ORDER, lock_level_name(index),
			    lock_level_name(innermost_held()));
		abort();
	}
	int error = pthread_mutex_lock(&lock->mutex);
	if (error)
		abort_broken(index, "taken", strerror(error));
	lock_held |= bit;
	if (lock->run_least)
		choose_owner(lock);
}

void lock_release_mutex(int index, struct lock_state *lock)
{
	uint32_t bit = UINT32_C(1) << index;
	if (__builtin_expect(!(lock_held & bit), 0))
		abort_broken(index, "released", "this thread does not hold it");
	lock_held &= ~bit;
	int error = pthread_mutex_unlock(&lock->mutex);
	if (error)
		abort_broken(index, "released", strerror(error));
}

static void init_lock(int index, struct lock_state *lock, uint32_t run_least)
{
	*lock = (struct lock_state){.run_least = run_least};
	if (run_least)
		bias_init(&lock->bias);
	int error = pthread_mutex_init(&lock->mutex, NULL);
	if (error)
		abort_broken(index, "made", strerror(error));
}

static void fini_lock(int index, struct lock_state *lock)
{
	int error = pthread_mutex_destroy(&lock->mutex);
	if (error)
		abort_broken(index, "destroyed", strerror(error));
}

#define X(level, before, what)                                                \
	void lock_##level##_init(struct lock_##level *lock)                   \
	{                                                                     \
		init_lock(LOCK_INDEX_##level, &lock->state, 0);               \
	}                                                                     \
	void lock_##level##_fini(struct lock_##level *lock)                   \
	{                                                                     \
		fini_lock(LOCK_INDEX_##level, &lock->state);                  \
	}                                                                     \
	LOCK_UNCHECKED void lock_##level##_acquire(struct lock_##level *lock) \
	{                                                                     \
		lock_acquire_mutex(LOCK_INDEX_##level, &lock->state);         \
	}                                                                     \
	LOCK_UNCHECKED void lock_##level##_release(struct lock_##level *lock) \
	{                                                                     \
		lock_release_mutex(LOCK_INDEX_##level, &lock->state);         \
	}
#define Y(level, before, what)                                               \
	void lock_##level##_init(struct lock_##level *lock)                  \
	{                                                                    \
		init_lock(LOCK_INDEX_##level, &lock->state, LOCK_RUN_LEAST); \
	}                                                                    \
	void lock_##level##_init_unbiased(struct lock_##level *lock)         \
	{                                                                    \
		init_lock(LOCK_INDEX_##level, &lock->state, 0);              \
	}                                                                    \
	void lock_##level##_fini(struct lock_##level *lock)                  \
	{                                                                    \
		fini_lock(LOCK_INDEX_##level, &lock->state);                 \
	}
LOCK_LEVELS(X, Y)
#undef X
#undef Y
