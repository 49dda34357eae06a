/* SPDX-License-Identifier: BSD-3-Clause
 * A model for the tests of gradient averaging: parameters of several shapes and dtypes, and
 * gradients that are known for every rank and every pass. */
#ifndef TEST_RANKS_MODEL_H
#define TEST_RANKS_MODEL_H

#include "runner.h"

enum { MODEL_MAX = 64 };

struct model {
	int count;
	struct ls_ddp_parameter parameters[MODEL_MAX];
	int64_t shapes[MODEL_MAX][2];
	char names[MODEL_MAX][8];
	uint64_t elements[MODEL_MAX];
};

/* "p0", "p1", …: this many parameters, 1 to a few thousand elements, the same on all ranks for one
 * seed. float64, or with `mixed` also float32 and complex64. Their elements are rank + index. */
void model_init(struct model *model, int count, bool mixed, uint64_t seed, int rank);
void model_free(struct model *model);

/* Adds to the gradient of parameter p what the backward pass number `pass` on `rank` gives, times
 * `times`. */
void model_add(const struct model *model, ls_ddp *ddp, int p, int rank, unsigned pass, double times);

/* What that is for element i (of a complex number: its real part; the imaginary part is 0). A whole
 * number. */
double model_value(int p, uint64_t i, int rank, unsigned pass);

/* Element i of a gradient. */
double model_gradient(const struct model *model, const ls_ddp *ddp, int p, uint64_t i);

/* Fails the test unless the gradients of all parameters are those of `pass` averaged over `size`
 * ranks. */
void model_check_averages(const struct model *model, const ls_ddp *ddp, int size, unsigned pass);

#endif
