/* SPDX-License-Identifier: BSD-3-Clause
 * Makes text safe to show. Labels, names and reports come from other processes' memory and may hold
 * anything, also control sequences that terminals obey. All code that shows them uses this. Also
 * text that grows. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed UTF-8 character at `at` (Unicode, table 3-7), 0 if there is none. Never
 * looks past a NUL. */
int text_utf8_bytes(const char *at);

/* The code point of a well-formed character. */
uint32_t text_decode(const char *at, int bytes);

/* Whether the character at `at` only shows itself: it is well-formed; no control character (C0,
 * DEL, C1) except newline and tab; and none that changes the direction of text, breaks lines, or is
 * invisible. *bytes: to the next character, at least 1. Not for the NUL. */
bool text_is_shown(const char *at, int *bytes);

/* Replaces, in place, each character that may not be shown by one '?'; without `lines` newlines and
 * tabs, too. */
void text_clean(char *text, bool lines);

/* Appends to text[bytes], of which *used are written without the NUL. What does not fit is left
 * out; then *used may be larger than bytes. */
void text_append(char *text, size_t bytes, size_t *used, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* "KILL" for SIGKILL; NULL for a number that has no name. */
const char *text_signal(int number);

#endif
