/* SPDX-License-Identifier: BSD-3-Clause
 * A perceptron with one hidden layer: 64 inputs, 128 hidden units (ReLU), 10 classes (softmax). All
 * parameters lie in one array, and so do all gradients, so that one all-reduce covers them. */
#ifndef MLP_H
#define MLP_H

#include <stddef.h>
#include <stdint.h>

#ifdef DIGITS_FLOAT64
typedef double real;
#define REAL_DTYPE LS_FLOAT64
#else
typedef float real;
#define REAL_DTYPE LS_FLOAT32
#endif

enum {
	MLP_INPUTS = 64,
	MLP_HIDDEN = 128,
	MLP_CLASSES = 10,
	MLP_PARAMETERS = (MLP_INPUTS + 1) * MLP_HIDDEN + (MLP_HIDDEN + 1) * MLP_CLASSES,
};

/* He initialisation, the same for the same seed. */
void mlp_init(real *parameters, uint64_t seed);

/* Adds the gradient of the cross-entropy of one image, times `weight`, to gradients; returns the
 * cross-entropy. */
double mlp_backward(const real *parameters, const real *pixels, int label, real weight,
		    real *gradients);

/* The most probable class. */
int mlp_predict(const real *parameters, const real *pixels);

#endif
