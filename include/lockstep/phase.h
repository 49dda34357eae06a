/* SPDX-License-Identifier: BSD-3-Clause
 * Phases of a training step: where each rank's time goes, and which rank keeps the others waiting. See
 * ls_phase(3).
 *
 * Names are up to the caller: data, forward, backward, optimizer, or with slashes, such as data/image, which
 * can begin inside of data. Each thread has its own nesting. A thread's time belongs to the innermost phase
 * that it is in. Beginning and ending cost some 20 ns each, and neither blocks nor communicates. */
#ifndef LOCKSTEP_PHASE_H
#define LOCKSTEP_PHASE_H

#include <stddef.h>

#include "group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The calling thread begins a phase: any if it is in none, else one whose name begins with that of the one
 * it is in and a slash. A rank can have 64 names, of up to 63 bytes without blanks, 8 inside of each other,
 * and 64 threads in phases at once. Errors: LS_BAD_ARGUMENT, LS_UNSUPPORTED for too many threads, LS_FORKED;
 * then nothing has begun. */
LS_EXPORT LS_CHECKED ls_status ls_phase_begin(ls_group *group, const char *name);

/* It ends the one that it has begun last, whose name must be given. Errors: LS_BAD_ARGUMENT, LS_FORKED; then
 * nothing has ended. */
LS_EXPORT LS_CHECKED ls_status ls_phase_end(ls_group *group, const char *name);

/* Writes what has been recorded so far on all ranks of the group: first who keeps the others waiting, in
 * what, and what that costs, such as "rank 3 spends 4.2x the median in data/image, which costs 18 % of the
 * step"; then a table. It reads the memory of the other ranks and needs nothing of them, so it also works when
 * they hang or have ended: one rank calls it, when it wants. The text ends with a NUL; lines that do not fit
 * are left out; 128 bytes for each rank and each 8 phases suffice. Any thread. Errors: LS_BAD_ARGUMENT,
 * LS_OUT_OF_MEMORY, LS_FORKED. */
LS_EXPORT LS_CHECKED ls_status ls_phase_report(ls_group *group, char *out, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
