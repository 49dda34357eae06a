/* SPDX-License-Identifier: BSD-3-Clause
 * Phases of a training step: where each rank's time goes, and which rank (the straggler) makes the
 * others wait. See ls_phase(3).
 *
 * The caller chooses the names: data, forward, backward, optimizer. A name with a slash, such as
 * data/image, is a phase inside the phase data. Each thread has its own nesting. A thread's time
 * counts for the innermost phase that it is in. ls_phase_begin and ls_phase_end cost about 20 ns
 * each; they neither block nor communicate. */
#ifndef LOCKSTEP_PHASE_H
#define LOCKSTEP_PHASE_H

#include <stddef.h>

#include "group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begins a phase in the calling thread. Outside all phases any name is allowed; inside a phase the
 * new name must be that phase's name, a slash, and more. A name has up to 63 bytes and no blanks. A
 * rank can have 64 names, 8 phases inside each other, and 64 threads in phases at once.
 * Errors: LS_BAD_ARGUMENT (also for too many names or levels), LS_UNSUPPORTED (too many threads),
 * LS_FORKED; after an error no phase has begun. */
LS_EXPORT LS_CHECKED ls_status ls_phase_begin(ls_group *group, const char *name);

/* Ends the phase that the calling thread has begun last; `name` must be the name of that phase.
 * Errors: LS_BAD_ARGUMENT, LS_FORKED; after an error no phase has ended. */
LS_EXPORT LS_CHECKED ls_status ls_phase_end(ls_group *group, const char *name);

/* Writes a report on the group's ranks of this host to `out`: first the stragglers, such as "rank
 * 3 spends 4.2x the median in data/image, which costs 18 % of the step"; then a table. Ranks have
 * their numbers in the group. Not collective: any rank may call it at any time. It reads the
 * recorded times from the memory of the other ranks and needs no action from them, so it also
 * works when they hang or have ended. Does not block; any thread. The text ends with a NUL; lines
 * that do not fit into `bytes` are left out. 64 KiB suffice for most jobs, and for every job of R
 * ranks and P phases 256 * (6 + (P + 1) * (R + 1)) bytes. Errors: LS_BAD_ARGUMENT,
 * LS_OUT_OF_MEMORY, LS_FORKED. */
LS_EXPORT LS_CHECKED ls_status ls_phase_report(ls_group *group, char *out, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
