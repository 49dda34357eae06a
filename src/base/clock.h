/* SPDX-License-Identifier: BSD-3-Clause
 * Time. Monotonic nanoseconds for deadlines and reports; raw ticks (TSC, the generic timer on Arm)
 * for the recorder, where clock_gettime would cost as much as the whole record. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define CLOCK_NEVER UINT64_MAX

/* CLOCK_MONOTONIC, nanoseconds. Comparable between processes of one machine. */
uint64_t clock_now_ns(void);

/* The moment `ms` milliseconds from now; never overflows. From one second on it is up to 10 ms
 * later, for a coarse clock is read; and it is earlier if the kernel was late in advancing that
 * clock. */
uint64_t clock_deadline_ns(uint64_t ms);

static inline uint64_t clock_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc(); /* x86intrin.h would make each compilation twice as long */
#elif defined(__aarch64__)
	uint64_t ticks;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return clock_now_ns();
#endif
}

/* A pair of readings taken together, and the rate: with it a reader in another process turns ticks
 * into nanoseconds. */
struct clock_rate {
	uint64_t ticks;
	uint64_t ns;
	double ns_per_tick;
};

/* Measures the rate over about two milliseconds; a process does so once. */
void clock_calibrate(struct clock_rate *out);
uint64_t clock_ticks_to_ns(const struct clock_rate *rate, uint64_t ticks);

#endif
