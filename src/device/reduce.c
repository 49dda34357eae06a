/* SPDX-License-Identifier: BSD-3-Clause
 * Reduction kernels. Elements are taken in chunks that stay in the first-level cache while they go from
 * all sources to all targets. The order of operands is fixed and each element stands alone, so neither
 * the chunks nor the vector width can be seen in the result. */
#include "device/device.h"

#include <string.h>

#include "device/kernel.h"

enum {
	CHUNK_BYTES = 4096,
	/* Shorter, so that the loads of one chunk overlap with the streaming stores of the one before. */
	STREAM_CHUNK_BYTES = 512,
	OPERANDS = 4, /* that one pass of a kernel combines in registers */
	DTYPES = LS_FLOAT64 + 1,
	OPS = LS_PRODUCT + 1,
};

/* Targets may be sources: then a store hits only what its own iteration has loaded. */
#if DEVICE_SANITIZED
#define INDEPENDENT
#elif defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Integers wrap: sums and products are made of unsigned operands. Of two floats the smaller (larger);
 * the first if it is NaN, the second if that one is, so NaN wins whatever its place; the second if
 * they are equal (-0 and +0). */
#define SUM(type, a, b) ((type)((a) + (b)))
#define PRODUCT(type, a, b) ((type)((a) * (b)))
#define MIN(type, a, b) ((a) < (b) ? (a) : (b))
#define MAX(type, a, b) ((a) > (b) ? (a) : (b))
#define FLOAT_MIN(type, a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))
#define FLOAT_MAX(type, a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))

/* Static functions have no prefix, but clang makes the resolver of each of these a global symbol. */

/* out = ((in0 op in1) op in2) op in3, for 2 to OPERANDS operands. */
#define KERNEL(name, type, OP)                                                                 \
	DEVICE_CLONES static void name(void *target, const void *const *sources, int operands, \
				       size_t count)                                           \
	{                                                                                      \
		type *out = target;                                                            \
		const type *a = sources[0], *b = sources[1];                                   \
		if (operands == 2) {                                                           \
			INDEPENDENT for (size_t i = 0; i < count; i++) out[i] =                \
				OP(type, a[i], b[i]);                                          \
			return;                                                                \
		}                                                                              \
		const type *c = sources[2];                                                    \
		if (operands == 3) {                                                           \
			INDEPENDENT for (size_t i = 0; i < count; i++)                         \
			{                                                                      \
				type ab = OP(type, a[i], b[i]);                                \
				out[i] = OP(type, ab, c[i]);                                   \
			}                                                                      \
			return;                                                                \
		}                                                                              \
		const type *d = sources[3];                                                    \
		INDEPENDENT for (size_t i = 0; i < count; i++)                                 \
		{                                                                              \
			type ab = OP(type, a[i], b[i]);                                        \
			type abc = OP(type, ab, c[i]);                                         \
			out[i] = OP(type, abc, d[i]);                                          \
		}                                                                              \
	}

KERNEL(device_sum_uint8, uint8_t, SUM)
KERNEL(device_min_uint8, uint8_t, MIN)
KERNEL(device_max_uint8, uint8_t, MAX)
KERNEL(device_product_uint8, uint8_t, PRODUCT)
KERNEL(device_sum_int32, uint32_t, SUM)
KERNEL(device_min_int32, int32_t, MIN)
KERNEL(device_max_int32, int32_t, MAX)
KERNEL(device_product_int32, uint32_t, PRODUCT)
KERNEL(device_sum_int64, uint64_t, SUM)
KERNEL(device_min_int64, int64_t, MIN)
KERNEL(device_max_int64, int64_t, MAX)
KERNEL(device_product_int64, uint64_t, PRODUCT)
KERNEL(device_sum_float32, float, SUM)
KERNEL(device_min_float32, float, FLOAT_MIN)
KERNEL(device_max_float32, float, FLOAT_MAX)
KERNEL(device_product_float32, float, PRODUCT)
KERNEL(device_sum_float64, double, SUM)
KERNEL(device_min_float64, double, FLOAT_MIN)
KERNEL(device_max_float64, double, FLOAT_MAX)
KERNEL(device_product_float64, double, PRODUCT)

typedef void kernel(void *target, const void *const *sources, int operands, size_t count);

static kernel *const kernels[DTYPES][OPS] = {
	[LS_UINT8] = {device_sum_uint8, device_sum_uint8, device_min_uint8, device_max_uint8,
		      device_product_uint8},
	[LS_INT32] = {device_sum_int32, device_sum_int32, device_min_int32, device_max_int32,
		      device_product_int32},
	[LS_INT64] = {device_sum_int64, device_sum_int64, device_min_int64, device_max_int64,
		      device_product_int64},
	[LS_FLOAT32] = {device_sum_float32, device_sum_float32, device_min_float32,
			device_max_float32, device_product_float32},
	[LS_FLOAT64] = {device_sum_float64, device_sum_float64, device_min_float64,
			device_max_float64, device_product_float64},
};

/* Towards zero, as C divides. Small integers go through floating point, which vectors can divide: with
 * |x| < 2^31 a quotient that is no integer is further from one than the rounding error. */
#define DIVIDE(name, type, wide)                                                     \
	DEVICE_CLONES static void name(void *values, uint32_t divisor, size_t count) \
	{                                                                            \
		type *out = values;                                                  \
		for (size_t i = 0; i < count; i++)                                   \
			out[i] = (type)(out[i] / (wide)divisor);                     \
	}

DIVIDE(device_divide_uint8, uint8_t, float)
DIVIDE(device_divide_int32, int32_t, double)
DIVIDE(device_divide_int64, int64_t, int64_t)
DIVIDE(device_divide_float32, float, float)
DIVIDE(device_divide_float64, double, double)

typedef void division(void *values, uint32_t divisor, size_t count);

static division *const divisions[DTYPES] = {
	[LS_UINT8] = device_divide_uint8,     [LS_INT32] = device_divide_int32,
	[LS_INT64] = device_divide_int64,     [LS_FLOAT32] = device_divide_float32,
	[LS_FLOAT64] = device_divide_float64,
};

static const size_t element_bytes[DTYPES] = {
	[LS_UINT8] = 1, [LS_INT32] = 4, [LS_INT64] = 8, [LS_FLOAT32] = 4, [LS_FLOAT64] = 8,
};

static void divide(const struct device_reduce *reduce, void *values, size_t count)
{
	if (reduce->op == LS_AVERAGE && reduce->divisor > 1)
		divisions[reduce->dtype](values, reduce->divisor, count);
}

/* Combines the sources' elements at byte `offset` into `out`: the first few, then the result with the
 * next few, and so on. out may be a source only if one pass takes all of them. */
static void combine(const struct device_reduce *reduce, size_t offset, void *out, size_t count)
{
	const void *operands[OPERANDS];
	int taken = 0, held = 0;
	while (taken < reduce->source_count) {
		while (held < OPERANDS && taken < reduce->source_count)
			operands[held++] = (const char *)reduce->sources[taken++] + offset;
		if (held == 1)
			memmove(out, operands[0], count * element_bytes[reduce->dtype]);
		else
			kernels[reduce->dtype][reduce->op](out, operands, held, count);
		operands[0] = out;
		held = 1;
	}
	divide(reduce, out, count);
}

void device_reduce(const struct device_reduce *reduce)
{
	_Alignas(64) unsigned char chunk[CHUNK_BYTES];
	size_t bytes = element_bytes[reduce->dtype];
	size_t step = (reduce->stream ? STREAM_CHUNK_BYTES : CHUNK_BYTES) / bytes;
	/* Straight into the first target, unless a source that is needed later may lie there. */
	bool direct = !reduce->stream && reduce->source_count <= OPERANDS;
	for (size_t first = 0; first < reduce->count; first += step) {
		size_t count = reduce->count - first < step ? reduce->count - first : step;
		size_t offset = first * bytes;
		void *out = direct ? (char *)reduce->targets[0] + offset : (void *)chunk;
		combine(reduce, offset, out, count);
		for (int i = direct; i < reduce->target_count; i++) {
			char *target = (char *)reduce->targets[i] + offset;
			if (reduce->stream)
				device_stream_copy(target, out, count * bytes);
			else
				memcpy(target, out, count * bytes);
		}
	}
	if (reduce->stream)
		device_stream_fence();
}
