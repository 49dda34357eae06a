/* SPDX-License-Identifier: BSD-3-Clause
 * The model for the tests of gradient averaging; see model.h. */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "values.h"

void model_init(struct model *model, int count, bool mixed, uint64_t seed, int rank)
{
	static const ls_dtype dtypes[] = {LS_FLOAT64, LS_FLOAT32, LS_COMPLEX64};
	CHECK(count <= MODEL_MAX);
	model->count = count;
	for (int p = 0; p < count; p++) {
		int64_t *shape = model->shapes[p];
		shape[0] = 1 + values_random(&seed) % 60;
		shape[1] = 1 + values_random(&seed) % 40;
		uint64_t elements = model->elements[p] = (uint64_t)(shape[0] * shape[1]);
		ls_dtype dtype = dtypes[mixed ? values_random(&seed) % 3 : 0];
		snprintf(model->names[p], sizeof model->names[p], "p%d", p);
		unsigned char *data = calloc(elements, ls_dtype_bytes(dtype));
		CHECK(data);
		for (uint64_t i = 0; i < elements; i++) {
			double wide = (double)rank + (double)i;
			float narrow = (float)wide;
			bool is_wide = dtype == LS_FLOAT64;
			memcpy(data + i * ls_dtype_bytes(dtype),
			       is_wide ? (void *)&wide : (void *)&narrow,
			       is_wide ? sizeof wide : sizeof narrow);
		}
		model->parameters[p] = (struct ls_ddp_parameter){.name = model->names[p],
								 .data = data,
								 .shape = shape,
								 .dims = 2,
								 .dtype = dtype};
	}
}

void model_free(struct model *model)
{
	for (int p = 0; p < model->count; p++)
		free(model->parameters[p].data);
}

double model_value(int p, uint64_t i, int rank, unsigned pass)
{
	return (double)((int)((i + 7 * (uint64_t)p + 3 * pass) % 61) - 30 + rank * 5);
}

void model_add(const struct model *model, ls_ddp *ddp, int p, int rank, unsigned pass, double times)
{
	double *wide = ls_ddp_gradient(ddp, p);
	float *narrow = ls_ddp_gradient(ddp, p);
	CHECK(wide);
	for (uint64_t i = 0; i < model->elements[p]; i++) {
		double value = model_value(p, i, rank, pass) * times;
		switch (model->parameters[p].dtype) {
		case LS_FLOAT64:
			wide[i] += value;
			break;
		case LS_FLOAT32:
			narrow[i] += (float)value;
			break;
		default:
			narrow[2 * i] += (float)value;
		}
	}
}

double model_gradient(const struct model *model, const ls_ddp *ddp, int p, uint64_t i)
{
	const double *wide = ls_ddp_gradient(ddp, p);
	const float *narrow = ls_ddp_gradient(ddp, p);
	switch (model->parameters[p].dtype) {
	case LS_FLOAT64:
		return wide[i];
	case LS_FLOAT32:
		return (double)narrow[i];
	default:
		CHECK(narrow[2 * i + 1] == 0);
		return (double)narrow[2 * i];
	}
}

void model_check_averages(const struct model *model, const ls_ddp *ddp, int size, unsigned pass)
{
	for (int p = 0; p < model->count; p++)
		for (uint64_t i = 0; i < model->elements[p]; i++) {
			double want = 0, got = model_gradient(model, ddp, p, i);
			for (int r = 0; r < size; r++)
				want += model_value(p, i, r, pass);
			want /= size;
			CHECK_THAT(fabs(got - want) <= 1e-5, "%s[%d] in pass %u is %g, not %g",
				   model->names[p], (int)i, pass, got, want);
		}
}
