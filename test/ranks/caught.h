/* SPDX-License-Identifier: BSD-3-Clause
 * Catches what a rank prints on standard error. For tests whose ranks are processes. */
#ifndef TEST_RANKS_CAUGHT_H
#define TEST_RANKS_CAUGHT_H

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runner.h"

struct caught {
	int file, saved;
	char text[4096];
};

static inline void caught_begin(struct caught *caught)
{
	caught->file = memfd_create("caught", MFD_CLOEXEC);
	caught->saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	CHECK(caught->file >= 0 && caught->saved >= 0);
	CHECK(fcntl(caught->file, F_SETFL, O_APPEND) == 0);
	CHECK(dup2(caught->file, STDERR_FILENO) == STDERR_FILENO);
}

/* What was printed so far. */
static inline const char *caught_read(struct caught *caught)
{
	ssize_t size = pread(caught->file, caught->text, sizeof caught->text - 1, 0);
	CHECK(size >= 0);
	caught->text[size] = '\0';
	return caught->text;
}

/* The same, and what comes from now on is printed again. */
static inline const char *caught_end(struct caught *caught)
{
	CHECK(dup2(caught->saved, STDERR_FILENO) == STDERR_FILENO);
	caught_read(caught);
	close(caught->file);
	close(caught->saved);
	return caught->text;
}

#define SAYS(text, part) CHECK_THAT(strstr(text, part), "'%s' is not in: %s", part, text)

#endif
