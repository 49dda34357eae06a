/* SPDX-License-Identifier: BSD-3-Clause
 * What a timeline draws, as text, for tests. */
#ifndef TIMELINE_TIMELINE_FIXTURE_H
#define TIMELINE_TIMELINE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "timeline/timeline.h"

/* The caller frees it. */
static inline char *drawn(const struct timeline *timeline,
			  void (*draw)(const struct timeline *, FILE *))
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	assert_non_null(out);
	draw(timeline, out);
	assert_int_equal(fclose(out), 0);
	return text;
}

/* How often the text has this part. */
static inline size_t count(const char *text, const char *part)
{
	size_t found = 0;

	for (; (text = strstr(text, part)); text++)
		found++;
	return found;
}

#endif
