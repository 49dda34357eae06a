/* SPDX-License-Identifier: BSD-3-Clause
 * What tests of kernels compare with: reductions element by element, by arithmetic that shares no
 * trick with the kernels. Halves are decoded and encoded by scaling with powers of two. */
#ifndef KERNEL_REFERENCE_FIXTURE_H
#define KERNEL_REFERENCE_FIXTURE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/kernel.h"

#define REFERENCE_ONE(...) +1
enum {
	REFERENCE_DTYPES = 0 LS_DTYPES(REFERENCE_ONE),
	REFERENCE_OPS = 0 LS_REDUCE_OPS(REFERENCE_ONE),
};

static const size_t reference_bytes[REFERENCE_DTYPES] = {
#define X(name, value, bytes, text) [value] = bytes,
	LS_DTYPES(X)
#undef X
};

static const char *const reference_dtypes[REFERENCE_DTYPES] = {
#define X(name, value, bytes, text) [value] = text,
	LS_DTYPES(X)
#undef X
};

static const char *const reference_ops[REFERENCE_OPS] = {
#define X(name, value, text) [value] = text,
	LS_REDUCE_OPS(X)
#undef X
};

static const char *const reference_isas[KERNEL_ISAS] = {"portable", "AVX2", "AVX-512"};

static inline uint64_t reference_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* ---- halves ---- */

struct half_format {
	int fraction; /* bits */
	int least;    /* exponent of the least normal number */
	uint32_t infinity;
};

static inline struct half_format half_format(ls_dtype dtype)
{
	return dtype == LS_FLOAT16 ? (struct half_format){10, -14, 0x7c00}
				   : (struct half_format){7, -126, 0x7f80};
}

static inline bool half_is_nan(ls_dtype dtype, uint32_t h)
{
	return (h & 0x7fff) > half_format(dtype).infinity;
}

/* A NaN becomes quiet, and keeps its payload. */
static inline float half_value(ls_dtype dtype, uint32_t h)
{
	struct half_format format = half_format(dtype);
	uint32_t fraction = h & ((1u << format.fraction) - 1);
	int exponent = (int)((h & 0x7fff) >> format.fraction);
	double size = ldexp(fraction, format.least - format.fraction);
	if (half_is_nan(dtype, h)) {
		uint32_t bits = (h & 0x8000) << 16 | 0x7fc00000 | fraction << (23 - format.fraction);
		float nan_value;
		memcpy(&nan_value, &bits, sizeof bits);
		return nan_value;
	}
	if ((h & 0x7fff) == format.infinity)
		size = INFINITY;
	else if (exponent > 0)
		size = ldexp(fraction + (1 << format.fraction),
			     format.least - format.fraction + exponent - 1);
	return (float)(h & 0x8000 ? -size : size);
}

/* Rounded to nearest, of two to even. */
static inline uint16_t half_of(ls_dtype dtype, float value)
{
	struct half_format format = half_format(dtype);
	uint32_t bits, sign = signbit(value) ? 0x8000 : 0;
	memcpy(&bits, &value, sizeof bits);
	if (isnan(value)) {
		uint32_t payload = (bits & 0x7fffff) >> (23 - format.fraction);
		return (uint16_t)(sign | format.infinity | payload | 1u << (format.fraction - 1));
	}
	double size = fabs((double)value);
	if (isinf(value))
		return (uint16_t)(sign | format.infinity);
	int exponent = size > 0 && ilogb(size) > format.least ? ilogb(size) : format.least;
	double units = nearbyint(ldexp(size, format.fraction - exponent));
	uint32_t code = ((uint32_t)(exponent - format.least) << format.fraction) + (uint32_t)units;
	return (uint16_t)(sign | (code < format.infinity ? code : format.infinity));
}

/* ---- combining ---- */

static inline bool reference_is_half(ls_dtype dtype)
{
	return dtype == LS_FLOAT16 || dtype == LS_BFLOAT16;
}

static inline bool reference_is_signed(ls_dtype dtype)
{
	return dtype <= LS_INT64;
}

/* The type of the numbers that floats, halves and complex numbers are made of; else the type
 * itself. */
static inline ls_dtype reference_number(ls_dtype dtype)
{
	return dtype == LS_COMPLEX64 ? LS_FLOAT32 : dtype == LS_COMPLEX128 ? LS_FLOAT64 : dtype;
}

static inline bool reference_is_float(ls_dtype number)
{
	return number == LS_FLOAT32 || number == LS_FLOAT64 || reference_is_half(number);
}

/* Integers and bools, extended by their sign to 64 bits. */
static inline uint64_t reference_load(ls_dtype dtype, const void *from)
{
	size_t bits = 8 * reference_bytes[dtype];
	uint64_t value = 0;
	memcpy(&value, from, bits / 8);
	if (reference_is_signed(dtype) && bits < 64 && value >> (bits - 1))
		value |= ~UINT64_C(0) << bits;
	return value;
}

static inline uint64_t combine_integers(ls_reduce_op op, bool is_signed, uint64_t a, uint64_t b)
{
	bool less = is_signed ? (int64_t)a < (int64_t)b : a < b;
	switch (op) {
	case LS_MIN:
		return less ? a : b;
	case LS_MAX:
		return less ? b : a;
	case LS_PRODUCT:
		return a * b;
	case LS_BAND:
		return a & b;
	case LS_BOR:
		return a | b;
	case LS_BXOR:
		return a ^ b;
	default:
		return a + b;
	}
}

static inline bool combine_bools(ls_reduce_op op, bool a, bool b)
{
	if (op == LS_SUM || op == LS_MAX || op == LS_BOR)
		return a || b;
	return op == LS_BXOR ? a != b : a && b;
}

static inline float combine_floats(ls_reduce_op op, float a, float b)
{
	if (op == LS_MIN)
		return isnan(a) || a < b ? a : b;
	if (op == LS_MAX)
		return isnan(a) || a > b ? a : b;
	return op == LS_PRODUCT ? a * b : a + b;
}

static inline double combine_doubles(ls_reduce_op op, double a, double b)
{
	if (op == LS_MIN)
		return isnan(a) || a < b ? a : b;
	if (op == LS_MAX)
		return isnan(a) || a > b ? a : b;
	return op == LS_PRODUCT ? a * b : a + b;
}

static inline float reference_float(ls_dtype number, const void *from)
{
	float value = 0;
	uint16_t half = 0;
	if (number == LS_FLOAT32)
		memcpy(&value, from, sizeof value);
	else
		memcpy(&half, from, sizeof half);
	return number == LS_FLOAT32 ? value : half_value(number, half);
}

/* Number i (of a complex number each part is one) of the result. */
static inline void reference_reduce(const struct kernel_reduce *reduce, size_t i, void *out)
{
	ls_dtype number = reference_number(reduce->dtype);
	size_t bytes = reference_bytes[number], at = i * bytes;
	uint32_t divisor = reduce->op == LS_AVERAGE && reduce->divisor > 1 ? reduce->divisor : 1;
	const char *const *sources = (const char *const *)reduce->sources;
	if (reduce->source_count == 1 && divisor == 1 && number != LS_BOOL) {
		memcpy(out, sources[0] + at, bytes);
	} else if (number == LS_FLOAT64) {
		double result, next;
		memcpy(&result, sources[0] + at, bytes);
		for (int k = 1; k < reduce->source_count; k++) {
			memcpy(&next, sources[k] + at, bytes);
			result = combine_doubles(reduce->op, result, next);
		}
		result = divisor > 1 ? result / divisor : result;
		memcpy(out, &result, bytes);
	} else if (reference_is_float(number)) {
		float result = reference_float(number, sources[0] + at);
		for (int k = 1; k < reduce->source_count; k++)
			result = combine_floats(reduce->op, result,
						reference_float(number, sources[k] + at));
		result = divisor > 1 ? result / (float)divisor : result;
		uint16_t half = reference_is_half(number) ? half_of(number, result) : 0;
		memcpy(out, number == LS_FLOAT32 ? (void *)&result : &half, bytes);
	} else {
		bool is_bool = number == LS_BOOL, is_signed = reference_is_signed(number);
		uint64_t result = reference_load(number, sources[0] + at);
		for (int k = 1; k < reduce->source_count; k++) {
			uint64_t next = reference_load(number, sources[k] + at);
			result = is_bool ? combine_bools(reduce->op, result, next)
					 : combine_integers(reduce->op, is_signed, result, next);
		}
		memcpy(out, &result, bytes);
		result = is_bool ? !!result : reference_load(number, out); /* wrapped */
		if (divisor > 1)
			result = is_signed ? (uint64_t)((int64_t)result / (int64_t)divisor)
					   : result / divisor;
		memcpy(out, &result, bytes);
	}
}

static inline void reference_run(const struct kernel_table *kernels, struct kernel_reduce *reduce)
{
	reduce->kernels = kernels;
	kernel_reduce(reduce);
}

/* Equal bits; of floats also any two NaNs, if `any_nan`. */
static inline bool reference_same(ls_dtype number, bool any_nan, const void *a, const void *b)
{
	if (memcmp(a, b, reference_bytes[number]) == 0)
		return true;
	if (!any_nan || !reference_is_float(number))
		return false;
	if (number == LS_FLOAT64) {
		double x, y;
		memcpy(&x, a, sizeof x);
		memcpy(&y, b, sizeof y);
		return isnan(x) && isnan(y);
	}
	return isnan(reference_float(number, a)) && isnan(reference_float(number, b));
}

#endif
