/* SPDX-License-Identifier: BSD-3-Clause
 * What the training examples tell at the end: how well they do, and whether all ranks agree. */
#ifndef EVALUATE_H
#define EVALUATE_H

#include <stdbool.h>

#include <lockstep/lockstep.h>

#include "digits.h"

/* False if status is LS_OK. Else prints which call failed, and returns true. */
bool failed(ls_group *group, const char *what, ls_status status);

/* The share of the test images that the model recognises; each rank tests its part of them. */
bool evaluate_accuracy(ls_group *group, const struct digits *digits, const real *parameters,
		       double *accuracy);

/* Whether all ranks have the same parameters, bit by bit; rank 0 prints the answer. `scratch` is as
 * long as the parameters. */
bool evaluate_equal(ls_group *group, const real *parameters, real *scratch);

#endif
