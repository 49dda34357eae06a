/* SPDX-License-Identifier: BSD-3-Clause
 * All kernels, compiled once for each kind of processor by the file that includes this. Before it
 * stand KERNELS, the table's name; VECTOR_BYTES; copy_lines_nontemporal, for whole cache lines; and
 * of the macros in halves.h those that the processor has instructions for. Each element stands
 * alone, so that the vector width cannot be seen in results. */
#include <string.h>

#include "kernel/kernel_private.h"

/* Targets may be sources: then a store hits only what its own iteration has loaded. Sanitizers go
 * without, because clang cannot vectorize with them and warns of it. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
	__has_feature(memory_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(SANITIZED)
#define INDEPENDENT
#elif defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Integers wrap: sums and products are made of unsigned operands, products not of promoted ones. Of
 * two floats the smaller (larger); the first if it is NaN, the second if that one is, so NaN wins
 * whatever its place; the second if they are equal (-0 and +0). Bytes of bools may be any
 * number. */
#define SUM(type, a, b) ((type)((a) + (b)))
#define PRODUCT(type, a, b) ((type)(1u * (a) * (b)))
#define MIN(type, a, b) ((a) < (b) ? (a) : (b))
#define MAX(type, a, b) ((a) > (b) ? (a) : (b))
#define BAND(type, a, b) ((type)((a) & (b)))
#define BOR(type, a, b) ((type)((a) | (b)))
#define BXOR(type, a, b) ((type)((a) ^ (b)))
#define FLOAT_PRODUCT(type, a, b) ((a) * (b))
#define FLOAT_MIN(type, a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))
#define FLOAT_MAX(type, a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))
#define BOOL_AND(type, a, b) ((type)(((a) != 0) & ((b) != 0)))
#define BOOL_OR(type, a, b) ((type)(((a) | (b)) != 0))
#define BOOL_XOR(type, a, b) ((type)(((a) != 0) ^ ((b) != 0)))

/* A kernel_combine. */
#define KERNEL(name, type, OP)                                                               \
	static void name(void *target, void *also, const void *const *sources, int operands, \
			 size_t count)                                                       \
	{                                                                                    \
		type *out = target, *second = also;                                          \
		const type *a = sources[0], *b = sources[1];                                 \
		if (second) {                                                                \
			INDEPENDENT for (size_t i = 0; i < count; i++) out[i] = second[i] =  \
				OP(type, a[i], b[i]);                                        \
			return;                                                              \
		}                                                                            \
		if (operands == 2) {                                                         \
			INDEPENDENT for (size_t i = 0; i < count; i++) out[i] =              \
				OP(type, a[i], b[i]);                                        \
			return;                                                              \
		}                                                                            \
		const type *c = sources[2];                                                  \
		if (operands == 3) {                                                         \
			INDEPENDENT for (size_t i = 0; i < count; i++)                       \
			{                                                                    \
				type ab = OP(type, a[i], b[i]);                              \
				out[i] = OP(type, ab, c[i]);                                 \
			}                                                                    \
			return;                                                              \
		}                                                                            \
		const type *d = sources[3];                                                  \
		INDEPENDENT for (size_t i = 0; i < count; i++)                               \
		{                                                                            \
			type ab = OP(type, a[i], b[i]);                                      \
			type abc = OP(type, ab, c[i]);                                       \
			out[i] = OP(type, abc, d[i]);                                        \
		}                                                                            \
	}

#define INTEGER_KERNELS(bits)                           \
	KERNEL(sum_##bits, uint##bits##_t, SUM)         \
	KERNEL(product_##bits, uint##bits##_t, PRODUCT) \
	KERNEL(min_int##bits, int##bits##_t, MIN)       \
	KERNEL(max_int##bits, int##bits##_t, MAX)       \
	KERNEL(min_uint##bits, uint##bits##_t, MIN)     \
	KERNEL(max_uint##bits, uint##bits##_t, MAX)     \
	KERNEL(band_##bits, uint##bits##_t, BAND)       \
	KERNEL(bor_##bits, uint##bits##_t, BOR)         \
	KERNEL(bxor_##bits, uint##bits##_t, BXOR)

#define FLOAT_KERNELS(type)                         \
	KERNEL(sum_##type, type, SUM)               \
	KERNEL(product_##type, type, FLOAT_PRODUCT) \
	KERNEL(min_##type, type, FLOAT_MIN)         \
	KERNEL(max_##type, type, FLOAT_MAX)

INTEGER_KERNELS(8)
INTEGER_KERNELS(16)
INTEGER_KERNELS(32)
INTEGER_KERNELS(64)
FLOAT_KERNELS(float)
FLOAT_KERNELS(double)
KERNEL(and_bool, uint8_t, BOOL_AND)
KERNEL(or_bool, uint8_t, BOOL_OR)
KERNEL(xor_bool, uint8_t, BOOL_XOR)

/* A kernel_divide: towards zero, as C divides. Small integers go through floating point, which
 * vectors can divide: a quotient of n bits that is no integer is further from one than the rounding
 * error, if the floats have more than n bits. */
#define DIVIDE(name, type, wide)                                       \
	static void name(void *values, uint32_t divisor, size_t count) \
	{                                                              \
		type *out = values;                                    \
		for (size_t i = 0; i < count; i++)                     \
			out[i] = (type)(out[i] / (wide)divisor);       \
	}

DIVIDE(divide_int8, int8_t, float)
DIVIDE(divide_int16, int16_t, float)
DIVIDE(divide_int32, int32_t, double)
DIVIDE(divide_int64, int64_t, int64_t)
DIVIDE(divide_uint8, uint8_t, float)
DIVIDE(divide_uint16, uint16_t, float)
DIVIDE(divide_uint32, uint32_t, double)
DIVIDE(divide_uint64, uint64_t, uint64_t)
DIVIDE(divide_float, float, float)
DIVIDE(divide_double, double, double)

/* A kernel_multiply. */
#define MULTIPLY(name, type)                                                        \
	static void name(void *to, const void *from, size_t count, double factor)   \
	{                                                                           \
		const type *in = from;                                              \
		type *out = to, by = (type)factor;                                  \
		INDEPENDENT for (size_t i = 0; i < count; i++) out[i] = in[i] * by; \
	}

MULTIPLY(multiply_float, float)
MULTIPLY(multiply_double, double)

#include "kernel/halves.h"

static void copy_vectors(void *to, const void *from, size_t bytes)
{
	typedef unsigned char vector
		__attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));
	enum { AT_ONCE = 4 };
	vector *target = to;
	const vector *source = from;
	size_t count = bytes / (AT_ONCE * VECTOR_BYTES) * AT_ONCE, done = count * VECTOR_BYTES;
	for (size_t i = 0; i < count; i += AT_ONCE) {
		vector a = source[i], b = source[i + 1], c = source[i + 2], d = source[i + 3];
		target[i] = a;
		target[i + 1] = b;
		target[i + 2] = c;
		target[i + 3] = d;
	}
	memcpy((char *)to + done, (const char *)from + done, bytes - done);
}

static void nontemporal(void *to, const void *from, size_t bytes)
{
	size_t whole = (uintptr_t)to % KERNEL_LINE_BYTES ? 0 : bytes - bytes % KERNEL_LINE_BYTES;
	copy_lines_nontemporal(to, from, whole);
	if (bytes > whole)
		memcpy((char *)to + whole, (const char *)from + whole, bytes - whole);
}

#define INTEGER_ROW(type, bits)                                                                    \
	{                                                                                          \
		[LS_SUM] = sum_##bits, [LS_AVERAGE] = sum_##bits, [LS_PRODUCT] = product_##bits,   \
		[LS_MIN] = min_##type##bits, [LS_MAX] = max_##type##bits, [LS_BAND] = band_##bits, \
		[LS_BOR] = bor_##bits, [LS_BXOR] = bxor_##bits                                     \
	}
#define FLOAT_ROW(type)                                                                         \
	{                                                                                       \
		[LS_SUM] = sum_##type, [LS_AVERAGE] = sum_##type, [LS_PREMUL_SUM] = sum_##type, \
		[LS_PRODUCT] = product_##type, [LS_MIN] = min_##type, [LS_MAX] = max_##type     \
	}

const struct kernel_table KERNELS = {
	.combine =
		{
			[LS_INT8] = INTEGER_ROW(int, 8),
			[LS_INT16] = INTEGER_ROW(int, 16),
			[LS_INT32] = INTEGER_ROW(int, 32),
			[LS_INT64] = INTEGER_ROW(int, 64),
			[LS_UINT8] = INTEGER_ROW(uint, 8),
			[LS_UINT16] = INTEGER_ROW(uint, 16),
			[LS_UINT32] = INTEGER_ROW(uint, 32),
			[LS_UINT64] = INTEGER_ROW(uint, 64),
			[LS_FLOAT32] = FLOAT_ROW(float),
			[LS_FLOAT64] = FLOAT_ROW(double),
			[LS_BOOL] = {[LS_SUM] = or_bool,
				     [LS_PRODUCT] = and_bool,
				     [LS_MIN] = and_bool,
				     [LS_MAX] = or_bool,
				     [LS_BAND] = and_bool,
				     [LS_BOR] = or_bool,
				     [LS_BXOR] = xor_bool},
		},
	.divide =
		{
			[LS_INT8] = divide_int8,
			[LS_INT16] = divide_int16,
			[LS_INT32] = divide_int32,
			[LS_INT64] = divide_int64,
			[LS_UINT8] = divide_uint8,
			[LS_UINT16] = divide_uint16,
			[LS_UINT32] = divide_uint32,
			[LS_UINT64] = divide_uint64,
			[LS_FLOAT32] = divide_float,
			[LS_FLOAT64] = divide_double,
		},
	.multiply =
		{
			[LS_FLOAT16] = multiply_float16,
			[LS_BFLOAT16] = multiply_bfloat16,
			[LS_FLOAT32] = multiply_float,
			[LS_FLOAT64] = multiply_double,
		},
	.halves =
		{
			[KERNEL_FLOAT16] = FLOAT_ROW(float16),
			[KERNEL_BFLOAT16] = FLOAT_ROW(bfloat16),
		},
	.nontemporal = nontemporal,
	.copy = copy_vectors,
};
