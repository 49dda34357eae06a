/* SPDX-License-Identifier: BSD-3-Clause
 * A perceptron with one hidden layer: 64 inputs, 128 hidden units (ReLU), 10 classes (softmax). Its
 * four parameters lie in one array, in the order of the forward pass; each has a gradient of its
 * own. */
#ifndef MLP_H
#define MLP_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/lockstep.h>

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
	MLP_BATCH_MAX = 1000,
};

/* The parameters: weights and biases of the first layer, then of the second. */
enum mlp_part { MLP_W1, MLP_B1, MLP_W2, MLP_B2, MLP_PARTS };

/* What the forward pass of a batch leaves for the backward pass. */
struct mlp_pass {
	size_t count;
	const real *pixels[MLP_BATCH_MAX];
	real hidden[MLP_BATCH_MAX][MLP_HIDDEN];
	real delta[MLP_BATCH_MAX][MLP_CLASSES]; /* of the logits */
};

/* He initialisation, the same for the same seed. */
void mlp_init(real *parameters, uint64_t seed);

/* What ls_ddp_open is to know of them. */
void mlp_describe(real *parameters, struct ls_ddp_parameter out[MLP_PARTS]);

/* Adds one image to the pass, whose gradient counts `weight` times; returns its cross-entropy. */
double mlp_forward(const real *parameters, const real *pixels, int label, real weight,
		   struct mlp_pass *pass);

/* Sets the gradients of the second layer, then of the first one, to those of all images of the
 * pass. */
void mlp_backward_second(const struct mlp_pass *pass, real *weights, real *biases);
void mlp_backward_first(const real *parameters, const struct mlp_pass *pass, real *weights,
			real *biases);

/* Stochastic gradient descent with momentum, for one of the parameters. */
void mlp_update(real *parameters, real *velocity, const real *gradient, enum mlp_part part);

/* The most probable class. */
int mlp_predict(const real *parameters, const real *pixels);

#endif
