/* SPDX-License-Identifier: BSD-3-Clause
 * The functions that a compiler calls with -fsanitize=thread. Every atomic access is a point, and
 * then the access itself. Plain accesses are no points: the thread sanitizer finds their races.
 * Names and types are those of the compiler's interface. */
#include "scheduler_private.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define PLACE __builtin_return_address(0)

/* ---- calls, for reports ---- */

void __tsan_init(void)
{
}

void __tsan_func_entry(void *from)
{
	struct thread *self = scheduler_self;
	if (!self)
		return;
	if (self->depth < CALLS_MAX)
		self->calls[self->depth] = from;
	self->depth++;
}

void __tsan_func_exit(void)
{
	if (scheduler_self && scheduler_self->depth > 0)
		scheduler_self->depth--;
}

/* ---- plain accesses ---- */

#define PLAIN(name)                     \
	void __tsan_##name(void *place) \
	{                               \
		(void)place;            \
	}
#define PLAIN_SIZES(name) \
	PLAIN(name##1) PLAIN(name##2) PLAIN(name##4) PLAIN(name##8) PLAIN(name##16)
PLAIN_SIZES(read)
PLAIN_SIZES(write)
PLAIN_SIZES(unaligned_read)
PLAIN_SIZES(unaligned_write)
PLAIN_SIZES(volatile_read)
PLAIN_SIZES(volatile_write)

void __tsan_read_range(void *place, size_t bytes)
{
	(void)place, (void)bytes;
}

void __tsan_write_range(void *place, size_t bytes)
{
	(void)place, (void)bytes;
}

/* ---- atomic accesses ---- */

#define ATOMIC_LOAD_STORE(bits, type)                                                              \
	type __tsan_atomic##bits##_load(const volatile type *word, int order)                      \
	{                                                                                          \
		(void)order;                                                                       \
		scheduler_point(PLACE, "reads");                                                   \
		return __atomic_load_n(word, __ATOMIC_SEQ_CST);                                    \
	}                                                                                          \
	void __tsan_atomic##bits##_store(volatile type *word, type value, int order)               \
	{                                                                                          \
		(void)order;                                                                       \
		scheduler_point(PLACE, "stores");                                                  \
		__atomic_store_n(word, value, __ATOMIC_SEQ_CST);                                   \
	}                                                                                          \
	type __tsan_atomic##bits##_exchange(volatile type *word, type value, int order)            \
	{                                                                                          \
		(void)order;                                                                       \
		scheduler_point(PLACE, "exchanges");                                               \
		return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);                         \
	}                                                                                          \
	int __tsan_atomic##bits##_compare_exchange_strong(volatile type *word, type *expected,     \
							  type value, int order, int other)        \
	{                                                                                          \
		(void)order, (void)other;                                                          \
		scheduler_point(PLACE, "compares and exchanges");                                  \
		return __atomic_compare_exchange_n(word, expected, value, false, __ATOMIC_SEQ_CST, \
						   __ATOMIC_SEQ_CST);                              \
	}                                                                                          \
	/* A weak compare-and-swap may fail for no reason; here it sometimes does. */              \
	int __tsan_atomic##bits##_compare_exchange_weak(volatile type *word, type *expected,       \
							type value, int order, int other)          \
	{                                                                                          \
		(void)order, (void)other;                                                          \
		scheduler_point(PLACE, "compares and exchanges");                                  \
		if (scheduler_self && scheduler.policy != SCHEDULER_IN_TURN &&                     \
		    scheduler_random() % 16 == 0) {                                                \
			*expected = __atomic_load_n(word, __ATOMIC_SEQ_CST);                       \
			return 0;                                                                  \
		}                                                                                  \
		return __atomic_compare_exchange_n(word, expected, value, false, __ATOMIC_SEQ_CST, \
						   __ATOMIC_SEQ_CST);                              \
	}                                                                                          \
	type __tsan_atomic##bits##_compare_exchange_val(volatile type *word, type expected,        \
							type value, int order, int other)          \
	{                                                                                          \
		(void)order, (void)other;                                                          \
		scheduler_point(PLACE, "compares and exchanges");                                  \
		__atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_SEQ_CST,       \
					    __ATOMIC_SEQ_CST);                                     \
		return expected;                                                                   \
	}

#define ATOMIC_FETCH(bits, type, name)                                                      \
	type __tsan_atomic##bits##_fetch_##name(volatile type *word, type value, int order) \
	{                                                                                   \
		(void)order;                                                                \
		scheduler_point(PLACE, "changes");                                          \
		return __atomic_fetch_##name(word, value, __ATOMIC_SEQ_CST);                \
	}

#define ATOMIC(bits, type)            \
	ATOMIC_LOAD_STORE(bits, type) \
	ATOMIC_FETCH(bits, type, add) \
	ATOMIC_FETCH(bits, type, sub) \
	ATOMIC_FETCH(bits, type, and) \
	ATOMIC_FETCH(bits, type, or)  \
	ATOMIC_FETCH(bits, type, xor) \
	ATOMIC_FETCH(bits, type, nand)
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

/* All these functions, for coverage.c. */
#define ATOMIC_NAMES(bits)                                                                        \
	(void *)__tsan_atomic##bits##_load, (void *)__tsan_atomic##bits##_store,                  \
		(void *)__tsan_atomic##bits##_exchange, (void *)__tsan_atomic##bits##_fetch_add,  \
		(void *)__tsan_atomic##bits##_fetch_sub, (void *)__tsan_atomic##bits##_fetch_and, \
		(void *)__tsan_atomic##bits##_fetch_or, (void *)__tsan_atomic##bits##_fetch_xor,  \
		(void *)__tsan_atomic##bits##_compare_exchange_strong,                            \
		(void *)__tsan_atomic##bits##_compare_exchange_weak,                              \
		(void *)__tsan_atomic##bits##_compare_exchange_val
const void *const point_functions[] = {ATOMIC_NAMES(8), ATOMIC_NAMES(16), ATOMIC_NAMES(32),
				       ATOMIC_NAMES(64)};
const size_t point_function_count = sizeof point_functions / sizeof point_functions[0];

void __tsan_atomic_thread_fence(int order)
{
	(void)order;
	scheduler_point(PLACE, "fences");
}

void __tsan_atomic_signal_fence(int order)
{
	(void)order;
}

/* ---- points.h: points that the compiler does not see ---- */

uint64_t explore_ticks(void)
{
	return scheduler_now_ns();
}

void explore_pause(void)
{
	scheduler_relax(PLACE, "spins");
}
