/* SPDX-License-Identifier: BSD-3-Clause
 * Which tests do not run in some way, and why. */
#ifndef TEST_RANKS_EXCLUDE_H
#define TEST_RANKS_EXCLUDE_H

/* Why a test, by the name of its function, does not run on several hosts; NULL: it does. */
const char *exclude_on_hosts(const char *test);
/* The same with LOCKSTEP_CHECK=1. */
const char *exclude_checked(const char *test);
/* Print which do not, by reason. */
void exclude_tell_on_hosts(void);
void exclude_tell_checked(void);

#endif
