/* SPDX-License-Identifier: BSD-3-Clause
 * Messages from one rank to another. See ls_send(3). They run beside collectives and beside each other, and
 * so far always block: options->op and options->callback must be NULL. */
#ifndef LOCKSTEP_POINT_H
#define LOCKSTEP_POINT_H

#include <stdint.h>

#include "group.h"
#include "op.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sends count elements to rank `dst` (also to itself) with options->tag. Messages of one sender with
 * one tag arrive in order. Returns when buffer may be used again: short messages are buffered (a
 * number of them per peer, see lockstep-settings(7)), long ones are taken by the receiver. A receive
 * of another count or dtype fails on both sides with LS_MISMATCH. */
LS_EXPORT LS_CHECKED ls_status ls_send(ls_group *group, const void *buffer, uint64_t count,
				       ls_dtype dtype, int dst, const struct ls_op_options *options);

/* Receives the oldest message of rank `src` with options->tag. */
LS_EXPORT LS_CHECKED ls_status ls_recv(ls_group *group, void *buffer, uint64_t count,
				       ls_dtype dtype, int src, const struct ls_op_options *options);

#ifdef __cplusplus
}
#endif
#endif
