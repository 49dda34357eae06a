/* SPDX-License-Identifier: BSD-3-Clause
 * Finds the points in the machine code: direct calls of the functions that stand for atomic
 * accesses. Other bytes that look like such a call by chance would need the right four bytes of
 * distance, too. */
#include "coverage.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

extern const unsigned char __executable_start[], etext[];

/* points.c */
extern const void *const point_functions[];
extern const size_t point_function_count;

static size_t text_bytes(void)
{
	return (size_t)((uintptr_t)etext - (uintptr_t)__executable_start);
}

size_t coverage_bytes(void)
{
	return text_bytes() / 8 + 1;
}

static bool is_call(const unsigned char *at)
{
	int32_t distance;
	memcpy(&distance, at + 1, sizeof distance);
	const void *target = (const char *)at + 5 + distance;
	if (*at != 0xe8)
		return false;
	for (size_t i = 0; i < point_function_count; i++)
		if (point_functions[i] == target)
			return true;
	return false;
}

void coverage_count(const unsigned char *coverage, size_t *seen, size_t *all)
{
	const unsigned char *text = __executable_start;
	size_t bytes = text_bytes();
	*seen = *all = 0;
	for (size_t i = 0; i + 5 < bytes; i++) {
		if (!is_call(text + i))
			continue;
		++*all;
		*seen += coverage_has(coverage, i + 5);
	}
}
