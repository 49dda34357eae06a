/* SPDX-License-Identifier: BSD-3-Clause
 * Short collectives, from the call to the result: engine/inline.h. */
#ifndef PROGRESS_INLINE_CALL_H
#define PROGRESS_INLINE_CALL_H

#include "world/ls_group.h"

/* Runs a short blocking collective. The caller has checked the arguments, and the payloads fit into
 * the entries or beside them. The options have no callback; with `request` they are `resumable`,
 * and *request is NULL. False: another collective is in progress, and nothing was done. True:
 * *status is the result, or LS_PENDING with the handle in *request. */
bool progress_inline_call(ls_group *group, const struct op_call *call,
			  const struct ls_call_options *options, const void *site,
			  ls_status *status);

#endif
