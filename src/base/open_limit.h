/* SPDX-License-Identifier: BSD-3-Clause
 * The limit of open files, for messages: an error of the system names neither the limit nor what to
 * do. */
#ifndef BASE_OPEN_LIMIT_H
#define BASE_OPEN_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

enum { OPEN_LIMIT_BYTES = 160 };

/* Whether this process can open no file more. */
bool open_limit_is_reached(void);
/* How many files more this process may open; where that cannot be counted, as if none were open. */
uint64_t open_limit_left(void);
/* How many files this process may have open. */
uint64_t open_limit_get(void);
/* Writes the words of this errno; if it says that no descriptor is left, also how many the process
 * may have, and how to raise that. Returns out. */
const char *open_limit_text(int error, char out[OPEN_LIMIT_BYTES]);

/* The same, for an argument of a call. */
#define OPEN_LIMIT_TEXT(error) open_limit_text((error), (char[OPEN_LIMIT_BYTES]){""})

#endif
