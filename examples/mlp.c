/* SPDX-License-Identifier: BSD-3-Clause
 * Forward and backward pass: plain loops that the compiler vectorises. */
#include "mlp.h"

#include <math.h>
#include <string.h>

#include "digits.h"

/* Where each of the four parameters begins in the array. */
enum {
	W1 = 0,
	B1 = W1 + MLP_HIDDEN * MLP_INPUTS,
	W2 = B1 + MLP_HIDDEN,
	B2 = W2 + MLP_CLASSES * MLP_HIDDEN,
};

static const size_t offsets[MLP_PARTS + 1] = {W1, B1, W2, B2, MLP_PARAMETERS};

void mlp_describe(real *parameters, struct ls_ddp_parameter out[MLP_PARTS])
{
	static const char *const names[] = {"layer1.weight", "layer1.bias", "layer2.weight",
					    "layer2.bias"};
	static const int64_t shapes[][2] = {
		{MLP_HIDDEN, MLP_INPUTS}, {MLP_HIDDEN}, {MLP_CLASSES, MLP_HIDDEN}, {MLP_CLASSES}};
	for (int i = 0; i < MLP_PARTS; i++)
		out[i] = (struct ls_ddp_parameter){.name = names[i],
						   .data = parameters + offsets[i],
						   .shape = shapes[i],
						   .dims = shapes[i][1] ? 2 : 1,
						   .dtype = REAL_DTYPE};
}

/* A normally distributed number: a sum of twelve uniform ones, which is the same on every
 * machine. */
static double normal(uint64_t *state)
{
	double sum = -6;
	for (int i = 0; i < 12; i++)
		sum += (double)(digits_random(state) >> 11) * 0x1p-53;
	return sum;
}

void mlp_init(real *parameters, uint64_t seed)
{
	for (int i = 0; i < MLP_PARAMETERS; i++)
		parameters[i] = 0;
	for (int i = W1; i < B1; i++)
		parameters[i] = (real)(normal(&seed) * sqrt(2.0 / MLP_INPUTS));
	for (int i = W2; i < B2; i++)
		parameters[i] = (real)(normal(&seed) * sqrt(2.0 / MLP_HIDDEN));
}

static void forward(const real *p, const real *pixels, real *hidden, real *logits)
{
	for (int h = 0; h < MLP_HIDDEN; h++) {
		real sum = p[B1 + h];
		for (int i = 0; i < MLP_INPUTS; i++)
			sum += p[W1 + h * MLP_INPUTS + i] * pixels[i];
		hidden[h] = sum > 0 ? sum : 0;
	}
	for (int c = 0; c < MLP_CLASSES; c++) {
		real sum = p[B2 + c];
		for (int h = 0; h < MLP_HIDDEN; h++)
			sum += p[W2 + c * MLP_HIDDEN + h] * hidden[h];
		logits[c] = sum;
	}
}

static int largest(const real *logits)
{
	int best = 0;
	for (int c = 1; c < MLP_CLASSES; c++)
		if (logits[c] > logits[best])
			best = c;
	return best;
}

double mlp_forward(const real *p, const real *pixels, int label, real weight, struct mlp_pass *pass)
{
	real *delta = pass->delta[pass->count], logits[MLP_CLASSES];
	forward(p, pixels, pass->hidden[pass->count], logits);
	pass->pixels[pass->count++] = pixels;
	double top = (double)logits[largest(logits)], sum = 0;
	for (int c = 0; c < MLP_CLASSES; c++)
		sum += exp((double)logits[c] - top);
	for (int c = 0; c < MLP_CLASSES; c++) {
		delta[c] = (real)(exp((double)logits[c] - top) / sum) - (real)(c == label);
		delta[c] *= weight;
	}
	return log(sum) + top - (double)logits[label];
}

void mlp_backward_second(const struct mlp_pass *pass, real *weights, real *biases)
{
	memset(weights, 0, MLP_CLASSES * MLP_HIDDEN * sizeof *weights);
	memset(biases, 0, MLP_CLASSES * sizeof *biases);
	for (size_t i = 0; i < pass->count; i++)
		for (int c = 0; c < MLP_CLASSES; c++) {
			real delta = pass->delta[i][c];
			biases[c] += delta;
			for (int h = 0; h < MLP_HIDDEN; h++)
				weights[c * MLP_HIDDEN + h] += delta * pass->hidden[i][h];
		}
}

void mlp_backward_first(const real *p, const struct mlp_pass *pass, real *weights, real *biases)
{
	memset(weights, 0, MLP_HIDDEN * MLP_INPUTS * sizeof *weights);
	memset(biases, 0, MLP_HIDDEN * sizeof *biases);
	for (size_t i = 0; i < pass->count; i++) {
		real back[MLP_HIDDEN] = {0};
		for (int c = 0; c < MLP_CLASSES; c++)
			for (int h = 0; h < MLP_HIDDEN; h++)
				back[h] += pass->delta[i][c] * p[W2 + c * MLP_HIDDEN + h];
		for (int h = 0; h < MLP_HIDDEN; h++) {
			if (pass->hidden[i][h] <= 0)
				continue;
			biases[h] += back[h];
			for (int k = 0; k < MLP_INPUTS; k++)
				weights[h * MLP_INPUTS + k] += back[h] * pass->pixels[i][k];
		}
	}
}

void mlp_update(real *parameters, real *velocity, const real *gradient, enum mlp_part part)
{
	const real rate = (real)0.1, momentum = (real)0.9;
	for (size_t i = offsets[part]; i < offsets[part + 1]; i++) {
		velocity[i] = momentum * velocity[i] + gradient[i - offsets[part]];
		parameters[i] -= rate * velocity[i];
	}
}

int mlp_predict(const real *parameters, const real *pixels)
{
	real hidden[MLP_HIDDEN], logits[MLP_CLASSES];
	forward(parameters, pixels, hidden, logits);
	return largest(logits);
}
