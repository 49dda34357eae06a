/* SPDX-License-Identifier: BSD-3-Clause
 * The model of the pipeline example: a stack of dense layers with tanh, y = tanh(W x + b). Each
 * stage has a matrix W of its own; all stages of a chunk share b, so its gradient is a sum over all
 * ranks. */
#ifndef PIPELINE_MODEL_H
#define PIPELINE_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "pipeline_order.h"

/* x, y and their gradients are `batch` rows of `width` numbers. */
struct pipeline_shape {
	int width, batch, microbatches;
};

size_t pipeline_rows(const struct pipeline_shape *shape);    /* numbers in a micro-batch */
size_t pipeline_weights(const struct pipeline_shape *shape); /* numbers in one W */

/* Fills a matrix near the identity, the same on every rank. */
void pipeline_init(const struct pipeline_shape *shape, int stage, double *weights);
/* Fills the input and the target of a micro-batch; with NULL only the other one. */
void pipeline_sample(const struct pipeline_shape *shape, int microbatch, double *x, double *target);

void pipeline_forward(const struct pipeline_shape *shape, const double *weights, const double *bias,
		      const double *x, double *y);
/* Adds to the gradients of weights and bias; dx may be NULL. */
void pipeline_backward(const struct pipeline_shape *shape, const double *weights, const double *x,
		       const double *y, const double *dy, double *weight_gradients,
		       double *bias_gradients, double *dx);
/* The micro-batch's part of the loss, the mean square over all of them, and its gradient. */
double pipeline_loss(const struct pipeline_shape *shape, int microbatch, const double *y,
		     double *dy);
void pipeline_update(double *values, const double *gradients, size_t count);

/* The whole model in one process. The ranks compare their results with it. */
struct pipeline_whole {
	struct pipeline_shape shape;
	int stages;
	double *weights, *weight_gradients; /* of all stages */
	double *biases, *bias_gradients;    /* of all chunks */
	double *values,
		*gradients; /* of one micro-batch: the inputs of all stages, the last output */
};

/* False: no memory. */
bool pipeline_whole_open(struct pipeline_whole *whole, const struct pipeline_shape *shape,
			 int stages);
/* One training step up to the gradients; returns the loss. The update follows. */
double pipeline_whole_step(struct pipeline_whole *whole);
void pipeline_whole_update(struct pipeline_whole *whole);
void pipeline_whole_close(struct pipeline_whole *whole);

#endif
