/* SPDX-License-Identifier: BSD-3-Clause
 * Plain loops that the compiler vectorises. Numbers are added in an order that does not depend on
 * the ranks. */
#include "pipeline_model.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const double rate = 0.5;

size_t pipeline_rows(const struct pipeline_shape *shape)
{
	return (size_t)shape->batch * (size_t)shape->width;
}

size_t pipeline_weights(const struct pipeline_shape *shape)
{
	return (size_t)shape->width * (size_t)shape->width;
}

/* The next number of SplitMix64, from -1 to 1. */
static double draw(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1;
}

void pipeline_init(const struct pipeline_shape *shape, int stage, double *weights)
{
	uint64_t state = (uint64_t)stage + 1;
	double spread = 0.5 / sqrt(shape->width);
	for (int i = 0; i < shape->width; i++)
		for (int j = 0; j < shape->width; j++)
			*weights++ = (i == j) + spread * draw(&state);
}

void pipeline_sample(const struct pipeline_shape *shape, int microbatch, double *x, double *target)
{
	uint64_t state = UINT64_C(1000003) * ((uint64_t)microbatch + 1);
	for (size_t i = 0; i < pipeline_rows(shape); i++) {
		double value = draw(&state);
		if (x)
			x[i] = value;
		if (target)
			target[i] = value > 0 ? 0.5 : -0.5;
	}
}

void pipeline_forward(const struct pipeline_shape *shape, const double *weights, const double *bias,
		      const double *x, double *y)
{
	int width = shape->width;
	for (int b = 0; b < shape->batch; b++, x += width, y += width)
		for (int i = 0; i < width; i++) {
			const double *row = weights + (size_t)i * (size_t)width;
			double sum = bias[i];
			for (int j = 0; j < width; j++)
				sum += row[j] * x[j];
			y[i] = tanh(sum);
		}
}

void pipeline_backward(const struct pipeline_shape *shape, const double *weights, const double *x,
		       const double *y, const double *dy, double *weight_gradients,
		       double *bias_gradients, double *dx)
{
	int width = shape->width;
	if (dx)
		memset(dx, 0, pipeline_rows(shape) * sizeof *dx);
	for (int b = 0; b < shape->batch; b++, x += width, y += width, dy += width) {
		for (int i = 0; i < width; i++) {
			size_t row = (size_t)i * (size_t)width;
			double delta = dy[i] * (1 - y[i] * y[i]);
			bias_gradients[i] += delta;
			for (int j = 0; j < width; j++)
				weight_gradients[row + (size_t)j] += delta * x[j];
			for (int j = 0; dx && j < width; j++)
				dx[j] += delta * weights[row + (size_t)j];
		}
		dx = dx ? dx + width : NULL;
	}
}

double pipeline_loss(const struct pipeline_shape *shape, int microbatch, const double *y, double *dy)
{
	double scale = 1.0 / (shape->batch * shape->microbatches), loss = 0;
	pipeline_sample(shape, microbatch, NULL, dy);
	for (size_t i = 0; i < pipeline_rows(shape); i++) {
		double difference = y[i] - dy[i];
		loss += difference * difference * scale / shape->width;
		dy[i] = 2 * difference * scale / shape->width;
	}
	return loss;
}

void pipeline_update(double *values, const double *gradients, size_t count)
{
	for (size_t i = 0; i < count; i++)
		values[i] -= rate * gradients[i];
}

/* ---- the whole model ---- */

bool pipeline_whole_open(struct pipeline_whole *whole, const struct pipeline_shape *shape,
			 int stages)
{
	size_t matrices = (size_t)stages * pipeline_weights(shape);
	size_t biases = PIPELINE_CHUNKS * (size_t)shape->width;
	*whole = (struct pipeline_whole){.shape = *shape, .stages = stages};
	whole->weights = calloc(matrices, sizeof(double));
	whole->weight_gradients = calloc(matrices, sizeof(double));
	whole->biases = calloc(biases, sizeof(double));
	whole->bias_gradients = calloc(biases, sizeof(double));
	whole->values = calloc(((size_t)stages + 1) * pipeline_rows(shape), sizeof(double));
	whole->gradients = calloc(2 * pipeline_rows(shape), sizeof(double));
	if (!whole->weights || !whole->weight_gradients || !whole->biases ||
	    !whole->bias_gradients || !whole->values || !whole->gradients)
		return false;
	for (int s = 0; s < stages; s++)
		pipeline_init(shape, s, whole->weights + (size_t)s * pipeline_weights(shape));
	return true;
}

void pipeline_whole_close(struct pipeline_whole *whole)
{
	free(whole->weights);
	free(whole->weight_gradients);
	free(whole->biases);
	free(whole->bias_gradients);
	free(whole->values);
	free(whole->gradients);
}

double pipeline_whole_step(struct pipeline_whole *whole)
{
	const struct pipeline_shape *shape = &whole->shape;
	size_t rows = pipeline_rows(shape), matrix = pipeline_weights(shape),
	       last = (size_t)whole->stages;
	double loss = 0;
	memset(whole->weight_gradients, 0, last * matrix * sizeof(double));
	memset(whole->bias_gradients, 0, PIPELINE_CHUNKS * (size_t)shape->width * sizeof(double));
	for (int m = 0; m < shape->microbatches; m++) {
		double *dy = whole->gradients, *dx = whole->gradients + rows;
		pipeline_sample(shape, m, whole->values, NULL);
		for (size_t s = 0; s < last; s++)
			pipeline_forward(shape, whole->weights + s * matrix,
					 whole->biases +
						 s * PIPELINE_CHUNKS / last * (size_t)shape->width,
					 whole->values + s * rows, whole->values + (s + 1) * rows);
		loss += pipeline_loss(shape, m, whole->values + last * rows, dy);
		for (size_t s = last; s-- > 0;) {
			pipeline_backward(shape, whole->weights + s * matrix,
					  whole->values + s * rows, whole->values + (s + 1) * rows,
					  dy, whole->weight_gradients + s * matrix,
					  whole->bias_gradients +
						  s * PIPELINE_CHUNKS / last * (size_t)shape->width,
					  dx);
			double *swap = dy;
			dy = dx;
			dx = swap;
		}
	}
	return loss;
}

void pipeline_whole_update(struct pipeline_whole *whole)
{
	pipeline_update(whole->weights, whole->weight_gradients,
			(size_t)whole->stages * pipeline_weights(&whole->shape));
	pipeline_update(whole->biases, whole->bias_gradients,
			PIPELINE_CHUNKS * (size_t)whole->shape.width);
}
