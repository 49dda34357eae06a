/* SPDX-License-Identifier: BSD-3-Clause
 * Which points of the program have been passed: a bit for each byte of its text. */
#ifndef TEST_EXPLORE_COVERAGE_H
#define TEST_EXPLORE_COVERAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

size_t coverage_bytes(void);

/* Of the return address that lies `at` bytes behind the begin of the text. */
static inline bool coverage_has(const unsigned char *coverage, uintptr_t at)
{
	return coverage[at / 8] >> at % 8 & 1;
}

/* Several processes may do so at once. */
static inline void coverage_set(unsigned char *coverage, uintptr_t at)
{
	if (!coverage_has(coverage, at))
		__atomic_fetch_or(&coverage[at / 8], (unsigned char)(1u << at % 8),
				  __ATOMIC_RELAXED);
}

/* *all: calls of atomic accesses that the program's text has; *seen: those after which `coverage`
 * is set. */
void coverage_count(const unsigned char *coverage, size_t *seen, size_t *all);

#endif
