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

/* Weights and biases of the first layer, then of the second one. */
enum mlp_part { MLP_W1, MLP_B1, MLP_W2, MLP_B2, MLP_PARTS };

/* The results of a batch's forward pass, which the backward pass uses. */
struct mlp_pass {
	size_t count;
	const real *pixels[MLP_BATCH_MAX];
	real hidden[MLP_BATCH_MAX][MLP_HIDDEN];
	real delta[MLP_BATCH_MAX][MLP_CLASSES]; /* with respect to the logits */
};

/* He initialisation; the same seed gives the same parameters. */
void mlp_init(real *parameters, uint64_t seed);

/* Fills the descriptions of the parameters, which ls_ddp_open takes. */
void mlp_describe(real *parameters, struct ls_ddp_parameter out[MLP_PARTS]);

/* Adds one image to the pass, and returns its cross-entropy. Its gradient counts `weight` times. */
double mlp_forward(const real *parameters, const real *pixels, int label, real weight,
		   struct mlp_pass *pass);

/* Computes the gradients over all images of the pass: first of the second layer, then of the
 * first. */
void mlp_backward_second(const struct mlp_pass *pass, real *weights, real *biases);
void mlp_backward_first(const real *parameters, const struct mlp_pass *pass, real *weights,
			real *biases);

/* Stochastic gradient descent with momentum, for one of the parameters. */
void mlp_update(real *parameters, real *velocity, const real *gradient, enum mlp_part part);

/* The class that the model finds most probable. */
int mlp_predict(const real *parameters, const real *pixels);

#endif
