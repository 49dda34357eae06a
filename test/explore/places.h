/* SPDX-License-Identifier: BSD-3-Clause
 * Lines of source that the library's reports name. The library reads the debug information of the
 * program for each of them, which took a quarter of the time of a schedule with a report. Here all
 * schedules share what was found. */
#ifndef TEST_EXPLORE_PLACES_H
#define TEST_EXPLORE_PLACES_H

/* Call once, in the first process. */
void places_make(void);

#endif
