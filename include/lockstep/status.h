/* SPDX-License-Identifier: BSD-3-Clause
 * Statuses: what every Lockstep function returns. See lockstep-errors(7). */
#ifndef LOCKSTEP_STATUS_H
#define LOCKSTEP_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LS_CHECKED __attribute__((warn_unused_result))
#define LS_EXPORT __attribute__((visibility("default")))
#else
#define LS_CHECKED
#define LS_EXPORT
#endif

typedef enum ls_status {
#define X(name, value, scope, sentence) LS_##name = value,
#include "status.def"
#undef X
} ls_status;

/* What is broken, and so what to throw away. */
typedef enum ls_scope {
	LS_SCOPE_NONE,    /* nothing */
	LS_SCOPE_CALL,    /* nothing but this call; retry it differently */
	LS_SCOPE_OP,      /* this operation; the group goes on */
	LS_SCOPE_GROUP,   /* the group: close it and open a new one */
	LS_SCOPE_PROCESS, /* the process: exit */
} ls_scope;

/* "LS_TIMED_OUT"; "LS_?" for a number that is no status. Static, never NULL, any thread. */
LS_EXPORT const char *ls_status_name(ls_status status);

/* One sentence, lower case, no full stop. Static, never NULL, any thread. */
LS_EXPORT const char *ls_status_text(ls_status status);

/* Takes what the last call of this thread that failed has said about it on standard error, without rank and id: for
 * languages whose errors carry a text. Returns its length, 0: nothing was said since it was last asked; `out` is cut to
 * `bytes`, with a NUL. Statuses that close a group are told by ls_group_failure instead. */
LS_EXPORT size_t ls_last_error(char *out, size_t bytes);

/* LS_SCOPE_PROCESS for a number that is no status. */
LS_EXPORT ls_scope ls_status_scope(ls_status status);

#ifdef __cplusplus
}
#endif
#endif
