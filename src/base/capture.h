/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: catches what is written to standard error. */
#ifndef BASE_CAPTURE_H
#define BASE_CAPTURE_H

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct capture {
	int file, saved;
	char text[16384];
};

static inline void capture_begin(struct capture *capture)
{
	capture->file = memfd_create("capture", MFD_CLOEXEC);
	capture->saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	assert_true(capture->file >= 0 && capture->saved >= 0);
	/* Writes of several threads would overwrite each other: a memfd's position is not
	 * locked. */
	assert_int_equal(fcntl(capture->file, F_SETFL, O_APPEND), 0);
	assert_int_equal(dup2(capture->file, STDERR_FILENO), STDERR_FILENO);
}

/* What was written since, NUL-terminated. */
static inline const char *capture_end(struct capture *capture)
{
	assert_int_equal(dup2(capture->saved, STDERR_FILENO), STDERR_FILENO);
	ssize_t size = pread(capture->file, capture->text, sizeof capture->text - 1, 0);
	assert_true(size >= 0);
	capture->text[size] = '\0';
	close(capture->file);
	close(capture->saved);
	return capture->text;
}

/* How often the word occurs in the text. */
static inline int capture_count(const char *text, const char *word)
{
	int count = 0;
	for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
		count++;
	return count;
}

#endif
