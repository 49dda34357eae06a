/* SPDX-License-Identifier: BSD-3-Clause
 * Which points of the program have been passed: a byte for each byte of its text. */
#ifndef TEST_EXPLORE_COVERAGE_H
#define TEST_EXPLORE_COVERAGE_H

#include <stddef.h>

size_t coverage_bytes(void);
/* *all: calls of atomic accesses that the program's text has; *seen: those after which `coverage`
 * is set. */
void coverage_count(const unsigned char *coverage, size_t *seen, size_t *all);

#endif
