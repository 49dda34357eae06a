/* SPDX-License-Identifier: BSD-3-Clause
 * Texts, JSON and files that the commands of the program write. */
#ifndef PRINT_PRINT_H
#define PRINT_PRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/ranks.h"

/* ---- pieces.c ---- */

/* "rank 2", "ranks 0, 1, 3", "ranks 0-15, 18". */
void print_ranks(const struct ranks *ranks, char *out, size_t bytes);
/* As print_ranks, without the word. */
void print_rank_list(const struct ranks *ranks, char *out, size_t bytes);

/* "4032 B", "64 KiB", "1.5 MiB". */
void print_bytes(uint64_t value, char *out, size_t bytes);

/* "SIGKILL"; "signal 99" for a number that has no name. */
void print_signal(int number, char *out, size_t bytes);

/* Appends to the NUL-terminated text in `out`, cut at the end. */
void print_append(char *out, size_t bytes, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The last part of a path, which is never empty unless the path is. */
const char *print_base_name(const char *path);

/* Prints `text` with everything that may not be shown (base/text.h) replaced by '?', and each line
 * after the first indented by `indent`. For text that came out of another process's memory or a
 * file. */
void print_safely(FILE *out, const char *text, int indent);

/* Prints `text` as text of XML. '?' replaces what may not be shown, and so all that XML does not
 * allow. */
void print_xml(FILE *out, const char *text);

/* ---- file.c ---- */

/* Opens `name` in `place` (AT_FDCWD) for writing, empty; -1 and *why. The file is a regular one,
 * and no link that another user has made leads to it. exact: no link at all leads to it, symbolic
 * or hard, and it is this user's; for names that others can guess. */
int print_create(int place, const char *name, bool exact, unsigned mode, const char **why);

/* ---- json_writer.c: just enough to write one object ---- */

struct print_json {
	FILE *out;
	bool comma; /* the next value needs a comma before it */
};

/* `key` is NULL inside an array. Strings may hold any bytes; what is no UTF-8 becomes U+FFFD, and
 * what may not be shown is escaped. */
void print_json_open(struct print_json *json, const char *key, char bracket);
void print_json_close(struct print_json *json, char bracket);
void print_json_string(struct print_json *json, const char *key, const char *value);
void print_json_number(struct print_json *json, const char *key, int64_t value);
void print_json_unsigned(struct print_json *json, const char *key, uint64_t value);
/* Six significant digits. */
void print_json_real(struct print_json *json, const char *key, double value);
void print_json_bool(struct print_json *json, const char *key, bool value);
void print_json_null(struct print_json *json, const char *key);
/* The numbers of the bits that are set, as an array. */
void print_json_ranks(struct print_json *json, const char *key, const struct ranks *ranks);

#endif
