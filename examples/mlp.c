/* SPDX-License-Identifier: BSD-3-Clause
 * Forward and backward pass, one image at a time: plain loops that the compiler vectorises. */
#include "mlp.h"

#include <math.h>

#include "digits.h"

/* Where the four arrays begin: weights and biases of the first layer, then of the second. */
enum {
	W1 = 0,
	B1 = W1 + MLP_HIDDEN * MLP_INPUTS,
	W2 = B1 + MLP_HIDDEN,
	B2 = W2 + MLP_CLASSES * MLP_HIDDEN,
};

/* Normally distributed, by the sum of twelve uniform numbers: the same on every machine. */
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

double mlp_backward(const real *p, const real *pixels, int label, real weight, real *g)
{
	real hidden[MLP_HIDDEN], back[MLP_HIDDEN] = {0}, logits[MLP_CLASSES];
	forward(p, pixels, hidden, logits);
	double top = (double)logits[largest(logits)], sum = 0;
	for (int c = 0; c < MLP_CLASSES; c++)
		sum += exp((double)logits[c] - top);
	for (int c = 0; c < MLP_CLASSES; c++) {
		real delta = (real)(exp((double)logits[c] - top) / sum) - (real)(c == label);
		delta *= weight;
		g[B2 + c] += delta;
		for (int h = 0; h < MLP_HIDDEN; h++) {
			g[W2 + c * MLP_HIDDEN + h] += delta * hidden[h];
			back[h] += delta * p[W2 + c * MLP_HIDDEN + h];
		}
	}
	for (int h = 0; h < MLP_HIDDEN; h++) {
		if (hidden[h] <= 0)
			continue;
		g[B1 + h] += back[h];
		for (int i = 0; i < MLP_INPUTS; i++)
			g[W1 + h * MLP_INPUTS + i] += back[h] * pixels[i];
	}
	return log(sum) + top - (double)logits[label];
}

int mlp_predict(const real *parameters, const real *pixels)
{
	real hidden[MLP_HIDDEN], logits[MLP_CLASSES];
	forward(parameters, pixels, hidden, logits);
	return largest(logits);
}
