/* SPDX-License-Identifier: BSD-3-Clause
 * A part of template.h: float16 and bfloat16. A vector of elements goes through all operands
 * in float32, stays in registers meanwhile, and is rounded once. Written with the compilers' vector
 * types, because neither has a float16 that every processor can convert. No branches: NaN, infinity
 * and denormals cost nothing. */
enum { LANES = VECTOR_BYTES / sizeof(float) };
typedef float floats __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t words __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t ints __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t halves __attribute__((vector_size(VECTOR_BYTES / 2)));

#define INLINE static inline __attribute__((always_inline))

/* Widens to 32 bits, and narrows back values that fit into 16. */
#if !defined(EXTEND)
#define EXTEND(h) __builtin_convertvector(h, words)
#define TRUNCATE(w) __builtin_convertvector(w, halves)
#endif

/* The mask of a lane is all ones or all zeros. */
#if !defined(CHOOSE)
#define CHOOSE(mask, yes, no) (((words)(mask) & (yes)) | (~(words)(mask) & (no)))
#endif

INLINE floats widen_bfloat16(halves h)
{
	return (floats)(EXTEND(h) << 16);
}

/* Half of the last place that stays, less one if that place is even, carries upward. NaN stays NaN,
 * even where its payload goes, and becomes quiet. */
INLINE halves narrow_bfloat16(floats f)
{
	words bits = (words)f;
	words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
	words nan = (bits >> 16) | 0x40;
	return TRUNCATE(CHOOSE(f != f, nan, rounded));
}

#if !defined(WIDEN_FLOAT16)
#define WIDEN_FLOAT16 widen_float16
#define NARROW_FLOAT16 narrow_float16

enum {
	FLOAT16_INFINITY = 0x7c00,
	FLOAT16_QUIET = 0x200,
	LEAST_NORMAL = (127 - 14) << 23, /* of float16, as a float32 */
	BEYOND = (127 + 16) << 23,       /* as exponent 31 of float16 would be */
	/* A float32 whose last place is worth the last place of denormal float16. */
	DENORMAL_PLACE = (127 - 24 + 23) << 23,
};

INLINE floats widen_float16(halves h)
{
	words wide = EXTEND(h);
	words size = wide & 0x7fff;
	/* Mantissa in place; the exponent's bias is 127 in place of 15. */
	words normal = (size << 13) + ((127 - 15) << 23);
	/* In a denormal the mantissa alone counts: its value is the mantissa with the exponent of
	 * the least normal, less the least normal. */
	words least = (words){0} + LEAST_NORMAL;
	words denormal = (words)((floats)((size << 13) + least) - (floats)least);
	words special = (size << 13) | 0x7f800000;
	words out = CHOOSE((ints)size < 0x400, denormal, normal);
	out = CHOOSE((ints)size >= FLOAT16_INFINITY, special, out);
	return (floats)(out | (wide & 0x8000) << 16);
}

INLINE halves narrow_float16(floats f)
{
	words sign = (words)f & 0x80000000;
	words size = (words)f ^ sign;
	/* The addition rounds. */
	words place = (words){0} + DENORMAL_PLACE;
	words denormal = (words)((floats)size + (floats)place) - place;
	words normal = (size - ((127 - 15) << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
	words nan = ((size >> 13) & 0x3ff) | FLOAT16_QUIET | FLOAT16_INFINITY;
	words out = CHOOSE((ints)size < LEAST_NORMAL, denormal, normal);
	out = CHOOSE((ints)size >= BEYOND, (words){0} + FLOAT16_INFINITY, out);
	out = CHOOSE(f != f, nan, out);
	return TRUNCATE(out | sign >> 16);
}
#endif

/* Elements i to i + lanes; a constant LANES makes one instruction of it. The other lanes are
 * zeros. */
INLINE halves load_halves(const void *from, size_t i, size_t lanes)
{
	halves h = {0};
	memcpy(&h, (const uint16_t *)from + i, lanes * sizeof(uint16_t));
	return h;
}

INLINE void store_halves(void *to, size_t i, size_t lanes, halves h)
{
	memcpy((uint16_t *)to + i, &h, lanes * sizeof(uint16_t));
}

#define HALF_SUM(a, b) ((a) + (b))
#define HALF_PRODUCT(a, b) ((a) * (b))
#define HALF_MIN(a, b) ((floats)CHOOSE(((a) < (b)) | ((a) != (a)), (words)(a), (words)(b)))
#define HALF_MAX(a, b) ((floats)CHOOSE(((a) > (b)) | ((a) != (a)), (words)(a), (words)(b)))

/* A kernel_combine_halves. */
#define HALF_KERNEL(name, WIDEN, NARROW, OP)                                                   \
	INLINE void name##_vector(void *target, const void *const *sources, int operands,      \
				  uint32_t divisor, size_t i, size_t lanes)                    \
	{                                                                                      \
		floats out = WIDEN(load_halves(sources[0], i, lanes));                         \
		for (int k = 1; k < operands; k++) {                                           \
			floats next = WIDEN(load_halves(sources[k], i, lanes));                \
			out = OP(out, next);                                                   \
		}                                                                              \
		if (divisor > 1)                                                               \
			out /= (float)divisor;                                                 \
		store_halves(target, i, lanes, NARROW(out));                                   \
	}                                                                                      \
	static void name(void *target, const void *const *sources, int operands, size_t count, \
			 uint32_t divisor)                                                     \
	{                                                                                      \
		size_t i = 0;                                                                  \
		for (; i + LANES <= count; i += LANES)                                         \
			name##_vector(target, sources, operands, divisor, i, LANES);           \
		if (i < count)                                                                 \
			name##_vector(target, sources, operands, divisor, i, count - i);       \
	}

/* A kernel_multiply. */
#define HALF_MULTIPLY(name, WIDEN, NARROW)                                                 \
	static void name(void *to, const void *from, size_t count, double factor)          \
	{                                                                                  \
		float by = (float)factor;                                                  \
		size_t i = 0;                                                              \
		for (; i + LANES <= count; i += LANES)                                     \
			store_halves(to, i, LANES,                                         \
				     NARROW(WIDEN(load_halves(from, i, LANES)) * by));     \
		if (i < count)                                                             \
			store_halves(to, i, count - i,                                     \
				     NARROW(WIDEN(load_halves(from, i, count - i)) * by)); \
	}

#define HALF_KERNELS(type, WIDEN, NARROW)                        \
	HALF_KERNEL(sum_##type, WIDEN, NARROW, HALF_SUM)         \
	HALF_KERNEL(product_##type, WIDEN, NARROW, HALF_PRODUCT) \
	HALF_KERNEL(min_##type, WIDEN, NARROW, HALF_MIN)         \
	HALF_KERNEL(max_##type, WIDEN, NARROW, HALF_MAX)         \
	HALF_MULTIPLY(multiply_##type, WIDEN, NARROW)

HALF_KERNELS(float16, WIDEN_FLOAT16, NARROW_FLOAT16)
HALF_KERNELS(bfloat16, widen_bfloat16, narrow_bfloat16)
