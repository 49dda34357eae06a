/* SPDX-License-Identifier: BSD-3-Clause
 * Statuses: what functions of Lockstep that can fail return. See lockstep-errors(7). */
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

/* What is broken, and so what to discard. */
typedef enum ls_scope {
	LS_SCOPE_NONE,    /* nothing */
	LS_SCOPE_CALL,    /* only this call; retry it differently */
	LS_SCOPE_OP,      /* this operation; the group continues to work */
	LS_SCOPE_GROUP,   /* the group: close it, if there is one; see "Reopening" in group.h */
	LS_SCOPE_PROCESS, /* the process: exit */
} ls_scope;

/* "LS_TIMED_OUT"; "LS_?" for a number that is no status. Static, never NULL, any thread. */
LS_EXPORT const char *ls_status_name(ls_status status);

/* One sentence, lower case, no full stop. Static, never NULL, any thread. */
LS_EXPORT const char *ls_status_text(ls_status status);

/* Copies to `out` the message that the last failed call of this thread printed on standard error,
 * without rank and id, and forgets it: for languages whose errors carry a text. The thread has kept
 * at most 1,023 bytes of the message. Returns how many it has kept, which may be above `bytes` - 1:
 * the copy is truncated to `bytes`, NUL included. 0: no call of this thread has failed with a
 * message since the last ls_last_error. `out` may be NULL with `bytes` 0: then the call forgets the
 * message only. Why a group has failed is in ls_group_failure. */
LS_EXPORT size_t ls_last_error(char *out, size_t bytes);

/* Any thread. LS_SCOPE_PROCESS for a number that is no status. */
LS_EXPORT ls_scope ls_status_scope(ls_status status);

#ifdef __cplusplus
}
#endif
#endif
