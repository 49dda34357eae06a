/* SPDX-License-Identifier: BSD-3-Clause
 * Typed buffers for the tests. The reference is worked out here, in whole numbers, and shares no
 * code with the library. */
#include "values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator.h"

/* For functions that touch what no other thread has: the thread sanitizer would look at every
 * element. memcpy and memcmp show it the buffers. */
#define UNSHARED __attribute__((no_sanitize("thread")))

/* What a dtype is: bytes of a number (complex ones have two), and how it is written. */
enum sort { SIGNED, UNSIGNED, FLOAT, BOOLEAN };
static const struct dtype {
	enum sort sort;
	unsigned bytes;
	bool is_complex;
} dtypes[VALUES_DTYPES] = {
	[LS_INT8] = {SIGNED, 1, false},     [LS_INT16] = {SIGNED, 2, false},
	[LS_INT32] = {SIGNED, 4, false},    [LS_INT64] = {SIGNED, 8, false},
	[LS_UINT8] = {UNSIGNED, 1, false},  [LS_UINT16] = {UNSIGNED, 2, false},
	[LS_UINT32] = {UNSIGNED, 4, false}, [LS_UINT64] = {UNSIGNED, 8, false},
	[LS_FLOAT16] = {FLOAT, 2, false},   [LS_BFLOAT16] = {FLOAT, 2, false},
	[LS_FLOAT32] = {FLOAT, 4, false},   [LS_FLOAT64] = {FLOAT, 8, false},
	[LS_BOOL] = {BOOLEAN, 1, false},    [LS_COMPLEX64] = {FLOAT, 4, true},
	[LS_COMPLEX128] = {FLOAT, 8, true},
};

bool values_allowed(ls_dtype dtype, ls_reduce_op op)
{
	enum sort sort = dtypes[dtype].sort;
	switch (op) {
	case LS_SUM:
		return true;
	case LS_AVERAGE:
		return sort != BOOLEAN;
	case LS_MIN:
	case LS_MAX:
	case LS_PRODUCT:
		return !dtypes[dtype].is_complex;
	case LS_BAND:
	case LS_BOR:
	case LS_BXOR:
		return sort != FLOAT;
	case LS_PREMUL_SUM:
		break;
	}
	return sort == FLOAT;
}

double values_factor(int rank)
{
	return rank % 3 - 1.0;
}

UNSHARED static bool is_integer(ls_dtype dtype)
{
	return dtypes[dtype].sort == SIGNED || dtypes[dtype].sort == UNSIGNED;
}

/* Integers use all their bits: where they are combined they may wrap around, and the sign bit
 * counts in comparisons. */
UNSHARED static int64_t widen(ls_dtype dtype, ls_reduce_op op, int64_t value)
{
	if (!is_integer(dtype) || op == LS_AVERAGE)
		return value;
	if (op == LS_MIN || op == LS_MAX)
		return (int64_t)((uint64_t)value << (8 * dtypes[dtype].bytes - 5));
	return (int64_t)((uint64_t)value * UINT64_C(0x9e3779b97f4a7c15));
}

/* What ranks give comes again after this many numbers. */
enum {
	PERIOD_BOOL = 16 * 3,
	PERIOD_PRODUCT = 3,
	PERIOD_MAX = 16 * 29,
	PERIOD_BYTES = PERIOD_MAX * 8
};

UNSHARED static uint64_t period(ls_dtype dtype, ls_reduce_op op)
{
	if (dtypes[dtype].sort == BOOLEAN)
		return PERIOD_BOOL;
	return op == LS_PRODUCT ? PERIOD_PRODUCT : PERIOD_MAX;
}

/* Number i of what a rank gives; of complex elements two are the parts. */
UNSHARED static int64_t input_at(ls_dtype dtype, ls_reduce_op op, int rank, uint64_t i,
				 unsigned seed)
{
	uint64_t mixed = (i + seed) * 7 + (uint64_t)rank * 5 + i / 16 + (uint64_t)(seed % 13);
	if (dtypes[dtype].sort == BOOLEAN)
		return mixed % 3 != 0;
	if (op == LS_PRODUCT) /* at most 2^3 with 8 ranks */
		return widen(dtype, op, (uint64_t)rank % 3 == (i + seed) % 3 ? 2 : 1);
	int64_t value = (int64_t)(mixed % 29);
	return widen(dtype, op, dtypes[dtype].sort == UNSIGNED ? value : value - 14);
}

UNSHARED static bool is_less(ls_dtype dtype, int64_t a, int64_t b)
{
	return dtypes[dtype].sort == UNSIGNED ? (uint64_t)a < (uint64_t)b : a < b;
}

UNSHARED static int64_t combine(ls_dtype dtype, ls_reduce_op op, int64_t a, int64_t b)
{
	switch (op) {
	case LS_SUM:
	case LS_AVERAGE:
	case LS_PREMUL_SUM:
		return dtypes[dtype].sort == BOOLEAN ? a | b : (int64_t)((uint64_t)a + (uint64_t)b);
	case LS_MIN:
		return is_less(dtype, b, a) ? b : a;
	case LS_MAX:
		return is_less(dtype, a, b) ? b : a;
	case LS_PRODUCT:
		return (int64_t)((uint64_t)a * (uint64_t)b);
	case LS_BAND:
		return a & b;
	case LS_BOR:
		return a | b;
	case LS_BXOR:
		break;
	}
	return a ^ b;
}

UNSHARED static int64_t reduced_at(ls_dtype dtype, ls_reduce_op op, int size, uint64_t i,
				   unsigned seed)
{
	int64_t result = 0;
	for (int r = 0; r < size; r++) {
		int64_t next = input_at(dtype, op, r, i, seed);
		if (op == LS_PREMUL_SUM)
			next *= (int64_t)values_factor(r);
		result = r ? combine(dtype, op, result, next) : next;
	}
	return result;
}

/* A float of 16 bits, rounded to the nearest, to even; never so small or large that it needs more
 * care. */
UNSHARED static uint16_t half_of(float value, unsigned mantissa, unsigned bias)
{
	uint32_t bits, drop = 23 - mantissa;
	memcpy(&bits, &value, sizeof bits);
	uint32_t size = bits & 0x7fffffff, sign = bits >> 31 << 15;
	if (size == 0)
		return (uint16_t)sign;
	uint32_t rounded = (size + (1u << (drop - 1)) - 1 + (size >> drop & 1)) >> drop;
	return (uint16_t)(sign | (rounded - ((127 - bias) << mantissa)));
}

UNSHARED static void put_float(unsigned char *at, ls_dtype dtype, unsigned bytes, int64_t value,
			       int divisor)
{
	double exact = (double)value / divisor;
	float single = (float)value / (float)divisor;
	uint16_t half = dtype == LS_FLOAT16 ? half_of(single, 10, 15) : half_of(single, 7, 127);
	const void *from = bytes == 8   ? (void *)&exact
			   : bytes == 4 ? (void *)&single
					: (void *)&half;
	memcpy(at, from, bytes);
}

/* Number i of the buffer as it must be in memory: value / divisor, of integers rounded towards
 * zero. */
UNSHARED static void put(void *buffer, uint64_t i, ls_dtype dtype, int64_t value, int divisor)
{
	unsigned bytes = dtypes[dtype].bytes;
	unsigned char *at = (unsigned char *)buffer + i * bytes;
	if (dtypes[dtype].sort == FLOAT) {
		put_float(at, dtype, bytes, value, divisor);
		return;
	}
	uint64_t word = (uint64_t)(value / divisor);
	uint8_t one = (uint8_t)word;
	uint16_t two = (uint16_t)word;
	uint32_t four = (uint32_t)word;
	const void *from = bytes == 1   ? (void *)&one
			   : bytes == 2 ? (void *)&two
			   : bytes == 4 ? (void *)&four
					: (void *)&word;
	memcpy(at, from, bytes);
}

static bool holds(const void *buffer, uint64_t i, ls_dtype dtype, int64_t value, int divisor)
{
	unsigned char want[8];
	unsigned bytes = dtypes[dtype].bytes;
	const unsigned char *is = (const unsigned char *)buffer + i * bytes;
	put(want, 0, dtype, value, divisor);
	if (memcmp(is, want, bytes) == 0)
		return true;
	/* Zero has two signs, and which one comes out is of no interest here. */
	static const unsigned char zero[8];
	return value == 0 && dtypes[dtype].sort == FLOAT && is[bytes - 1] == 0x80 &&
	       memcmp(is, zero, bytes - 1) == 0;
}

static uint64_t numbers(ls_dtype dtype, uint64_t elements)
{
	return dtypes[dtype].is_complex ? 2 * elements : elements;
}

/* What a buffer is to hold: what `rank` gives, or the result of `size` ranks. */
struct content {
	ls_dtype dtype;
	ls_reduce_op op;
	int rank; /* -1: the result */
	int size;
	unsigned seed;
};

UNSHARED static int64_t number_at(const struct content *content, uint64_t i)
{
	return content->rank < 0
		       ? reduced_at(content->dtype, content->op, content->size, i, content->seed)
		       : input_at(content->dtype, content->op, content->rank, i, content->seed);
}

UNSHARED static int divisor_of(const struct content *content)
{
	return content->rank < 0 && content->op == LS_AVERAGE ? content->size : 1;
}

/* `count` numbers, at most one period, of which the first one is number `from`. */
UNSHARED static void write_period(unsigned char out[PERIOD_BYTES], const struct content *content,
				  uint64_t from, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		put(out, i, content->dtype, number_at(content, from + i), divisor_of(content));
}

static void fail_at(const struct content *content, uint64_t i, uint64_t count, int64_t value)
{
	char whose[32] = "the result";
	if (content->rank >= 0)
		snprintf(whose, sizeof whose, "rank %d", content->rank);
	CHECK_THAT(false, "number %llu of %llu is not %lld / %d of %s (dtype %d, op %d)",
		   (unsigned long long)i, (unsigned long long)count, (long long)value,
		   divisor_of(content), whose, (int)content->dtype, (int)content->op);
}

static void check_content(const void *buffer, const struct content *content, uint64_t from,
			  uint64_t count)
{
	unsigned char want[PERIOD_BYTES];
	uint64_t unit = period(content->dtype, content->op);
	unsigned bytes = dtypes[content->dtype].bytes;
	const unsigned char *at = buffer;
	write_period(want, content, from, count < unit ? count : unit);
	for (uint64_t done = 0; done < count; done += unit) {
		uint64_t run = count - done < unit ? count - done : unit;
		if (memcmp(at + done * bytes, want, run * bytes) == 0)
			continue;
		for (uint64_t i = done; i < done + run; i++) {
			int64_t value = number_at(content, from + i);
			if (!holds(buffer, i, content->dtype, value, divisor_of(content)))
				fail_at(content, i, count, value);
		}
	}
}

void values_fill(void *buffer, uint64_t count, ls_dtype dtype, ls_reduce_op op, int rank,
		 unsigned seed)
{
	struct content content = {dtype, op, rank, 0, seed};
	unsigned char own[PERIOD_BYTES];
	unsigned char *at = buffer;
	size_t unit = period(dtype, op) * dtypes[dtype].bytes;
	size_t bytes = numbers(dtype, count) * dtypes[dtype].bytes,
	       first = bytes < unit ? bytes : unit;
	write_period(own, &content, 0, first / dtypes[dtype].bytes);
	if (bytes > 0)
		memcpy(at, own, first);
	for (size_t done = first; done < bytes;) {
		size_t more = done < bytes - done ? done : bytes - done;
		memcpy(at + done, at, more);
		done += more;
	}
}

void values_blot(void *buffer, uint64_t count, ls_dtype dtype, unsigned char byte)
{
	if (count > 0)
		memset(buffer, byte, count * ls_dtype_bytes(dtype));
}

void values_check_filled(const void *buffer, uint64_t first, uint64_t count, ls_dtype dtype,
			 ls_reduce_op op, int rank, unsigned seed)
{
	struct content content = {dtype, op, rank, 0, seed};
	check_content(buffer, &content, numbers(dtype, first), numbers(dtype, count));
}

void values_check_reduced_part(const void *buffer, uint64_t first, uint64_t count, ls_dtype dtype,
			       ls_reduce_op op, int size, unsigned seed)
{
	struct content content = {dtype, op, -1, size, seed};
	check_content(buffer, &content, numbers(dtype, first), numbers(dtype, count));
}

void values_check_reduced(const void *buffer, uint64_t count, ls_dtype dtype, ls_reduce_op op,
			  int size, unsigned seed)
{
	values_check_reduced_part(buffer, 0, count, dtype, op, size, seed);
}

void values_check_from(const void *buffer, uint64_t count, ls_dtype dtype, int root, unsigned seed)
{
	values_check_filled(buffer, 0, count, dtype, LS_SUM, root, seed);
}

uint64_t values_hash(const void *buffer, size_t bytes)
{
	const unsigned char *at = buffer;
	uint64_t hash = UINT64_C(0xcbf29ce484222325) + bytes;
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = 0;
		memcpy(&word, at + i, bytes - i < 8 ? bytes - i : 8);
		hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 32;
	}
	return hash;
}

void *values_alloc(ls_group *group, size_t bytes, bool plain)
{
	void *out = NULL;
	if (plain)
		out = malloc(bytes + 1);
	else
		OK(ls_alloc(group, bytes, &out));
	CHECK(out);
	return out;
}

void values_free(ls_group *group, void *buffer, bool plain)
{
	if (plain)
		free(buffer);
	else
		OK(ls_free(group, buffer));
}

uint32_t values_random(uint64_t *state)
{
	return generator_next(state);
}
