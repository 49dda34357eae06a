/* SPDX-License-Identifier: BSD-3-Clause
 * A program that runs beside the rank for a moment and answers with a few lines. Neither the rank's
 * own code nor its launcher notices the program. Whatever becomes of it, nobody waits longer than
 * the limit that the caller has set. */
#ifndef FAILURE_HELPER_H
#define FAILURE_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	HELPER_PLACE_MAX = 4, /* paths at which the program may be */
	HELPER_WORD_MAX = 12, /* arguments, its name among them */
	HELPER_PATH_BYTES = 320,
	HELPER_WORD_BYTES = 32,
};

/* What to run: the first of these paths at which there is a program. "" ends both lists, unless
 * they are full. */
struct failure_command {
	char places[HELPER_PLACE_MAX][HELPER_PATH_BYTES];
	char words[HELPER_WORD_MAX][HELPER_WORD_BYTES];
};

struct failure_helper; /* one that was started, and has not been reaped */

/* Starts the program with an empty environment, all signals blocked, and no descriptors but 0, 1
 * and 2, which are the pipe of its answer. It is killed limit_ms after it was executed, and when
 * the calling thread ends. Does not block: nothing here touches a file. NULL: it could not be
 * started. */
struct failure_helper *failure_helper_start(const struct failure_command *command,
					    uint64_t limit_ms);
/* Waits until the program has ended; false: it has not ended by the deadline. */
bool failure_helper_await(const struct failure_helper *helper, uint64_t deadline_ns);
/* What the program has written so far, at most bytes - 1 of it, as a string. Does not block. */
void failure_helper_read(const struct failure_helper *helper, char *out, size_t bytes);
/* A descriptor that is ready to read when the program has ended. */
int failure_helper_fd(const struct failure_helper *helper);
/* Reaps and frees the helper. False: it has not ended. Does not block. */
bool failure_helper_reap(struct failure_helper *helper);
/* Kills, reaps and frees the helper. A process that hangs in the kernel stays there, with the
 * memory that it needs, until the kernel ends it. Blocks for at most some 100 ms. */
void failure_helper_stop(struct failure_helper *helper);

#endif
