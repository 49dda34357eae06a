/* SPDX-License-Identifier: BSD-3-Clause
 * Collectives that ranks have entered and have not recorded. */
#ifndef FAILURE_ENTERED_H
#define FAILURE_ENTERED_H

#include "diagnose/diagnose.h"

/* Adds them to a snapshot that was made of these sources. Call before the snapshot is judged. */
void failure_add_entered(const struct diagnose_source *sources, int count,
			 struct diagnose_snapshot *snapshot);

#endif
