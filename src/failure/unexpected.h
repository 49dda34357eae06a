/* SPDX-License-Identifier: BSD-3-Clause
 * Messages that have come and that nobody has received: unexpected ones, in the words of MPI. */
#ifndef FAILURE_UNEXPECTED_H
#define FAILURE_UNEXPECTED_H

#include "diagnose/diagnose.h"

/* Adds to a snapshot the messages that nobody has received yet, in groups in which some rank waits.
 * Looks up call sites, so only once something is to be reported; not for two threads at once
 * (trace_site). */
void failure_add_unexpected(const struct diagnose_source *sources, int count,
			    struct diagnose_snapshot *snapshot);

#endif
