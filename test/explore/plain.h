/* SPDX-License-Identifier: BSD-3-Clause
 * scheduler.h on real threads and in real time, as far as programs need it: for drawn programs
 * under the thread sanitizer, and where no seed draws the next thread. There are no deaths. */
#ifndef TEST_EXPLORE_PLAIN_H
#define TEST_EXPLORE_PLAIN_H

/* scheduler_said is what was written to this file. */
void plain_begin(int file);

#endif
