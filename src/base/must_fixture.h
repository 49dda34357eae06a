/* SPDX-License-Identifier: BSD-3-Clause
 * For tests whose ranks are threads or programs: what must hold, else the process ends. cmocka's
 * assertions may only fail in the thread that runs the test. */
#ifndef BASE_MUST_FIXTURE_H
#define BASE_MUST_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                                           \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                                  \
		}                                                                                 \
	} while (0)

#endif
