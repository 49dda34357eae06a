/* SPDX-License-Identifier: BSD-3-Clause
 * Kernels against a reference that goes element by element, bit by bit: every type and operation, odd
 * counts, buffers aligned to their element only, targets that are sources, plain and streaming. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

enum { BUFFERS = 2 * DEVICE_REDUCE_MAX, COUNT_MAX = 9000, GUARD = 64, DTYPES = 5, OPS = 5 };
#define BUFFER_BYTES (COUNT_MAX * 8 + 2 * GUARD + 64)

static const size_t element_bytes[DTYPES] = {1, 4, 8, 4, 8};

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* ---- the reference ---- */

union element {
	uint8_t u8;
	int32_t i32;
	int64_t i64;
	float f32;
	double f64;
};

static int64_t combine_integers(ls_reduce_op op, int64_t a, int64_t b)
{
	switch (op) {
	case LS_MIN:
		return b < a ? b : a;
	case LS_MAX:
		return b > a ? b : a;
	case LS_PRODUCT:
		return (int64_t)((uint64_t)a * (uint64_t)b);
	default:
		return (int64_t)((uint64_t)a + (uint64_t)b);
	}
}

/* Each step is rounded to float where the type is float. */
static double combine_floats(ls_reduce_op op, bool narrow, double a, double b)
{
	double result = op == LS_PRODUCT ? a * b : a + b;
	if (op == LS_MIN)
		result = isnan(a) || a < b ? a : b;
	if (op == LS_MAX)
		result = isnan(a) || a > b ? a : b;
	return narrow ? (double)(float)result : result;
}

static union element combine(ls_dtype dtype, ls_reduce_op op, union element a, union element b)
{
	union element out = {.i64 = 0};
	switch (dtype) {
	case LS_UINT8:
		out.u8 = (uint8_t)combine_integers(op, a.u8, b.u8);
		break;
	case LS_INT32:
		out.i32 = (int32_t)(uint32_t)combine_integers(op, a.i32, b.i32);
		break;
	case LS_INT64:
		out.i64 = combine_integers(op, a.i64, b.i64);
		break;
	case LS_FLOAT32:
		out.f32 = (float)combine_floats(op, true, (double)a.f32, (double)b.f32);
		break;
	case LS_FLOAT64:
		out.f64 = combine_floats(op, false, a.f64, b.f64);
		break;
	}
	return out;
}

static union element divide(ls_dtype dtype, union element a, uint32_t divisor)
{
	switch (dtype) {
	case LS_UINT8:
		a.u8 = (uint8_t)(a.u8 / divisor);
		break;
	case LS_INT32:
		a.i32 = (int32_t)((int64_t)a.i32 / (int64_t)divisor);
		break;
	case LS_INT64:
		a.i64 /= (int64_t)divisor;
		break;
	case LS_FLOAT32:
		a.f32 /= (float)divisor;
		break;
	case LS_FLOAT64:
		a.f64 /= (double)divisor;
		break;
	}
	return a;
}

static void expect(const struct device_reduce *reduce, size_t i, union element *out)
{
	size_t bytes = element_bytes[reduce->dtype];
	union element result = {.i64 = 0};
	memcpy(&result, (const char *)reduce->sources[0] + i * bytes, bytes);
	for (int k = 1; k < reduce->source_count; k++) {
		union element next = {.i64 = 0};
		memcpy(&next, (const char *)reduce->sources[k] + i * bytes, bytes);
		result = combine(reduce->dtype, reduce->op, result, next);
	}
	if (reduce->op == LS_AVERAGE && reduce->divisor > 1)
		result = divide(reduce->dtype, result, reduce->divisor);
	*out = result;
}

/* ---- the comparison ---- */

static unsigned char *memory[BUFFERS];
static unsigned char *expected;

static int set_up(void **state)
{
	(void)state;
	for (int i = 0; i < BUFFERS; i++)
		if (!(memory[i] = aligned_alloc(64, BUFFER_BYTES)))
			return -1;
	expected = malloc(BUFFER_BYTES);
	return expected ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	for (int i = 0; i < BUFFERS; i++)
		free(memory[i]);
	free(expected);
	return 0;
}

/* Random elements; min and max of floats also see NaN (with payloads), infinities and both zeros. */
static void fill(ls_dtype dtype, ls_reduce_op op, void *buffer, size_t count, uint64_t *random)
{
	bool special = op == LS_MIN || op == LS_MAX;
	const float specials[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f};
	for (size_t i = 0; i < count; i++) {
		uint64_t r = next_random(random);
		union element e = {.i64 = (int64_t)r};
		double value = ((double)(int32_t)r) / (double)(1 << (r >> 32) % 31);
		if (dtype == LS_FLOAT32)
			e.f32 = special && r % 5 == 0 ? specials[(r >> 40) % 6] : (float)value;
		if (dtype == LS_FLOAT64)
			e.f64 = special && r % 5 == 0 ? (double)specials[(r >> 40) % 6] : value;
		memcpy((char *)buffer + i * element_bytes[dtype], &e, element_bytes[dtype]);
	}
}

struct shape {
	ls_dtype dtype;
	ls_reduce_op op;
	size_t count;
	int sources, targets;
	bool stream, aligned, in_place;
	uint32_t divisor;
};

static bool guards_stand(const unsigned char *target, size_t bytes)
{
	for (size_t i = 1; i <= GUARD; i++)
		if (target[bytes + i - 1] != 0xee || *(target - i) != 0xee)
			return false;
	return true;
}

static void check(const struct shape *shape, uint64_t *random)
{
	const void *sources[DEVICE_REDUCE_MAX];
	void *targets[DEVICE_REDUCE_MAX];
	size_t element = element_bytes[shape->dtype], bytes = shape->count * element;
	struct device_reduce reduce = {.dtype = shape->dtype,
				       .op = shape->op,
				       .source_count = shape->sources,
				       .target_count = shape->targets,
				       .sources = sources,
				       .targets = targets,
				       .count = shape->count,
				       .divisor = shape->divisor,
				       .stream = shape->stream};
	unsigned char *places[BUFFERS];
	int used = shape->sources + shape->targets;
	for (int i = 0; i < used; i++) {
		size_t shift = shape->aligned ? 0 : next_random(random) % (64 / element) * element;
		places[i] = memory[i] + GUARD + shift;
		memset(places[i] - GUARD, 0xee, bytes + 2 * GUARD);
	}
	for (int i = 0; i < shape->sources; i++) {
		fill(shape->dtype, shape->op, places[i], shape->count, random);
		sources[i] = places[i];
	}
	/* In place: target i is source (i + shift) mod sources, as many as there are. */
	size_t shift = next_random(random);
	for (int i = 0; i < shape->targets; i++) {
		targets[i] = places[shape->sources + i];
		if (shape->in_place && i < shape->sources)
			targets[i] = places[(shift + (size_t)i) % (size_t)shape->sources];
	}
	for (size_t i = 0; i < shape->count; i++) {
		union element e;
		expect(&reduce, i, &e);
		memcpy(expected + i * element, &e, element);
	}
	device_reduce(&reduce);
	for (int i = 0; i < shape->targets; i++) {
		if (memcmp(targets[i], expected, bytes) != 0)
			fail_msg("dtype %d op %d count %zu sources %d target %d of %d stream %d "
				 "in place %d: differs",
				 shape->dtype, shape->op, shape->count, shape->sources, i,
				 shape->targets, shape->stream, shape->in_place);
		assert_true(guards_stand(targets[i], bytes));
	}
}

static void every_small_count(void **state)
{
	(void)state;
	uint64_t random = 42;
	for (int kind = 0; kind < DTYPES * OPS; kind++)
		for (size_t count = 0; count <= 130; count++)
			for (int sources = 1; sources <= 5; sources++)
				check(&(struct shape){.dtype = kind / OPS,
						      .op = kind % OPS,
						      .count = count,
						      .sources = sources,
						      .targets = 1 + (int)(count % 3),
						      .stream = count % 2,
						      .aligned = count % 4 == 0,
						      .in_place = count % 5 < 2,
						      .divisor = (uint32_t)(count % 7)},
				      &random);
}

static void random_shapes(void **state)
{
	(void)state;
	uint64_t random = 4711;
	for (int i = 0; i < 1000; i++) {
		uint64_t r = next_random(&random);
		check(&(struct shape){.dtype = r % DTYPES,
				      .op = (r >> 8) % OPS,
				      .count = (r >> 16) % 700,
				      .sources = 1 + (int)((r >> 32) % (i % 4 ? 9 : 64)),
				      .targets = 1 + (int)((r >> 40) % (i % 4 ? 4 : 64)),
				      .stream = r >> 48 & 1,
				      .aligned = r >> 49 & 1,
				      .in_place = r >> 50 & 1,
				      .divisor = (uint32_t)(r >> 51) % 65},
		      &random);
	}
}

static void long_buffers(void **state)
{
	(void)state;
	uint64_t random = 815;
	for (int kind = 0; kind < DTYPES * OPS; kind++)
		for (int variant = 0; variant < 4; variant++)
			check(&(struct shape){.dtype = kind / OPS,
					      .op = kind % OPS,
					      .count = COUNT_MAX - (size_t)variant * 7,
					      .sources = 2 + variant,
					      .targets = 2,
					      .stream = variant % 2,
					      .aligned = variant < 2,
					      .in_place = variant % 2,
					      .divisor = 3},
			      &random);
}

static void averages_round_towards_zero(void **state)
{
	(void)state;
	const int32_t a[] = {7, -7, INT32_MAX, INT32_MIN, -1, 0}, zero[6] = {0};
	const int32_t thirds[] = {2, -2, INT32_MAX / 3, INT32_MIN / 3, 0, 0};
	int32_t out[6];
	struct device_reduce reduce = {.dtype = LS_INT32,
				       .op = LS_AVERAGE,
				       .source_count = 2,
				       .target_count = 1,
				       .sources = (const void *[]){a, zero},
				       .targets = (void *[]){out},
				       .count = 6,
				       .divisor = 3};
	device_reduce(&reduce);
	assert_memory_equal(out, thirds, sizeof(out));
	/* Next to every whole quotient, where a rounded division would show. */
	uint64_t random = 99;
	for (int i = 0; i < 50000; i++) {
		uint64_t r = next_random(&random);
		uint32_t divisor = (uint32_t)r >> (r >> 32) % 32;
		if (!divisor)
			continue;
		int64_t whole = (int64_t)(int32_t)(r >> 8) / (int64_t)divisor * (int64_t)divisor;
		int64_t value = whole - 1 + (int64_t)((r >> 48) % 3);
		if (value < INT32_MIN || value > INT32_MAX)
			continue;
		int32_t in = (int32_t)value, result;
		reduce.sources = (const void *[]){&in};
		reduce.targets = (void *[]){&result};
		reduce.source_count = 1;
		reduce.count = 1;
		reduce.divisor = divisor;
		device_reduce(&reduce);
		assert_int_equal(result, value / (int64_t)divisor);
	}
}

static void nan_wins_and_order_is_kept(void **state)
{
	(void)state;
	const float nan_first[] = {NAN, NAN, -0.0f, 1e30f}, other[] = {1, INFINITY, 0.0f, 1.0f};
	const float last[] = {2, -INFINITY, -0.0f, -1e30f};
	float out[4];
	for (int op = LS_SUM; op <= LS_PRODUCT; op++) {
		struct device_reduce reduce = {.dtype = LS_FLOAT32,
					       .op = (ls_reduce_op)op,
					       .source_count = 3,
					       .target_count = 1,
					       .sources = (const void *[]){nan_first, other, last},
					       .targets = (void *[]){out},
					       .count = 4,
					       .divisor = 1};
		for (int turn = 0; turn < 3; turn++) {
			const void *turned[] = {reduce.sources[1], reduce.sources[2],
						reduce.sources[0]};
			reduce.sources = turned;
			device_reduce(&reduce);
			assert_true(isnan(out[0]) && isnan(out[1]));
		}
		reduce.sources = (const void *[]){nan_first, other, last};
		device_reduce(&reduce);
		/* (1e30 + 1) - 1e30 is 0, and would be 1 in another order. */
		assert_true(op != LS_SUM || out[3] == 0);
		assert_true(op != LS_MIN || signbit(out[2])); /* of equals the last */
	}
}

static void copies_are_exact(void **state)
{
	(void)state;
	uint64_t random = 7;
	unsigned char *from = memory[0], *to = memory[1];
	for (size_t i = 0; i < BUFFER_BYTES; i++)
		from[i] = (unsigned char)next_random(&random);
	for (size_t bytes = 0; bytes < 400; bytes++) {
		for (int variant = 0; variant < 16; variant++) {
			size_t in = next_random(&random) % 64, shift = next_random(&random) % 64;
			size_t length = variant == 15 ? bytes * 150 : bytes;
			unsigned char *target = to + GUARD + shift;
			memset(target - GUARD, 0xee, length + 2 * GUARD);
			device_copy(target, from + in, length, variant % 2);
			assert_memory_equal(target, from + in, length);
			assert_true(guards_stand(target, length));
		}
	}
	device_copy(NULL, NULL, 0, true);
	device_copy(NULL, NULL, 0, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_small_count),
		cmocka_unit_test(random_shapes),
		cmocka_unit_test(long_buffers),
		cmocka_unit_test(averages_round_towards_zero),
		cmocka_unit_test(nan_wins_and_order_is_kept),
		cmocka_unit_test(copies_are_exact),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
