/* SPDX-License-Identifier: BSD-3-Clause
 * What the training examples tell at the end: how well they do, and whether all ranks agree. */
#ifndef EVALUATE_H
#define EVALUATE_H

#include <stdbool.h>

#include <lockstep/lockstep.h>

#include "digits.h"

/* True after saying what failed, unless status is LS_OK. */
bool failed(ls_group *group, const char *what, ls_status status);

/* Share of the test images that are recognised; each rank looks at its part. */
bool evaluate_accuracy(ls_group *group, const struct digits *digits, const real *parameters,
		       double *accuracy);

/* Whether all ranks hold the same parameters, bit by bit; rank 0 prints it. scratch: as long as
 * those. */
bool evaluate_equal(ls_group *group, const real *parameters, real *scratch);

#endif
