/* SPDX-License-Identifier: BSD-3-Clause
 * What may be shown. Labels, names and reports come out of other processes' memory and may hold
 * anything; terminals, viewers and logs do what they are told. All that shows them asks here. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of the well-formed UTF-8 character at `at` (Unicode, table 3-7), 0 if there is none. Never
 * looks past a NUL. */
int text_utf8_bytes(const char *at);

/* The code point of a well-formed character. */
uint32_t text_decode(const char *at, int bytes);

/* Whether the character at `at` does nothing but show itself: well-formed, no control character
 * (C0, DEL, C1) but a newline or a tab, none that turns the direction of what follows, breaks
 * lines, or is not to be seen. *bytes: to the next one, at least 1. Not at the NUL. */
bool text_is_shown(const char *at, int *bytes);

/* Replaces, in place, each character that may not be shown by one '?'; without `lines` newlines and
 * tabs, too. */
void text_clean(char *text, bool lines);

/* "KILL" for SIGKILL; NULL for a number that has no name. */
const char *text_signal(int number);

#endif
