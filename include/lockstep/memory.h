/* SPDX-License-Identifier: BSD-3-Clause
 * Memory that the other ranks of this machine can reach without a copy. See ls_alloc(3). */
#ifndef LOCKSTEP_MEMORY_H
#define LOCKSTEP_MEMORY_H

#include <stddef.h>

#include "group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *out = at least `bytes` bytes, aligned to 64, content undefined. A freed block is kept warm and
 * handed out again, so that a training loop touches fresh pages only in its first step. bytes 0 gives
 * a valid block that holds nothing. Local, any thread, does not block. A forked child cannot see this
 * memory. Errors: LS_BAD_ARGUMENT, LS_OUT_OF_MEMORY (says what is in use), LS_FORKED; *out is NULL. */
LS_EXPORT LS_CHECKED ls_status ls_alloc(ls_group *group, size_t bytes, void **out);

/* Gives a block of ls_alloc back; NULL is allowed. The caller must not free a buffer that an
 * operation is using. In a forked child it does nothing and returns LS_OK. Errors: LS_BAD_ARGUMENT for
 * an address that is no live block of this group. */
LS_EXPORT LS_CHECKED ls_status ls_free(ls_group *group, void *block);

#ifdef __cplusplus
}
#endif
#endif
