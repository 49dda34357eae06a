/* SPDX-License-Identifier: BSD-3-Clause
 * Prefetching. */
#ifndef BASE_PREFETCH_H
#define BASE_PREFETCH_H

/* Fetches a cache line back from the processor that has read it, before the next store to it.
 * Unless it compiles for a newer processor, the compiler's own prefetch fetches it for reading
 * only. */
static inline void prefetch_for_store(const void *line)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
	__builtin_prefetch(line, 1);
#endif
}

#endif
