/* SPDX-License-Identifier: BSD-3-Clause
 * Collectives that ranks have entered and have not recorded. */
#ifndef FAILURE_ENTERED_H
#define FAILURE_ENTERED_H

#include "diagnose/diagnose.h"

/* Adds them to a snapshot, for which the sources were collected. Call it before it is judged. */
void failure_add_entered(const struct diagnose_source *sources, int count, struct diagnose_job *job);

#endif
