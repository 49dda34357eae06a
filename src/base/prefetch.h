/* SPDX-License-Identifier: BSD-3-Clause
 * What is worth asking the processor for ahead of time. */
#ifndef BASE_PREFETCH_H
#define BASE_PREFETCH_H

/* Takes a cache line back from whoever has read it, before it is stored to again. The compiler's
 * own prefetch for writing takes it for reading only, unless told of a newer processor. */
static inline void prefetch_for_store(const void *line)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
	__builtin_prefetch(line, 1);
#endif
}

#endif
