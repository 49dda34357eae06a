/* SPDX-License-Identifier: BSD-3-Clause
 * Every type and operation against a loop over single elements, bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

enum { SOURCES = 5, TARGETS = 3, LARGEST = 4096 + 17, ROOM = ((LARGEST + 16) * 8 + 63) / 64 * 64 };
static const size_t widths[] = {1, 4, 8, 4, 8};

#define REFERENCE(NAME, TYPE, WRAP)                                                           \
	static TYPE NAME(const void *const *in, int n, size_t i, ls_reduce_op op, uint32_t d) \
	{                                                                                     \
		TYPE r = ((const TYPE *)in[0])[i];                                            \
		for (int s = 1; s < n; s++) {                                                 \
			TYPE b = ((const TYPE *)in[s])[i];                                    \
			switch (op) {                                                         \
			case LS_MIN:                                                          \
				r = (r < b || r != r) ? r : b;                                \
				break;                                                        \
			case LS_MAX:                                                          \
				r = (r > b || r != r) ? r : b;                                \
				break;                                                        \
			case LS_PRODUCT:                                                      \
				r = (TYPE)((WRAP)r * (WRAP)b);                                \
				break;                                                        \
			default:                                                              \
				r = (TYPE)((WRAP)r + (WRAP)b);                                \
				break;                                                        \
			}                                                                     \
		}                                                                             \
		return op == LS_AVERAGE && d > 1 ? (TYPE)(r / (TYPE)d) : r;                   \
	}
REFERENCE(want_u8, uint8_t, uint8_t)
REFERENCE(want_i32, int32_t, uint32_t)
REFERENCE(want_i64, int64_t, uint64_t)
REFERENCE(want_f32, float, float)
REFERENCE(want_f64, double, double)

static void want(void *out, const struct device_reduce *r)
{
	for (size_t i = 0; i < r->count; i++)
		switch (r->dtype) {
#define ONE(DTYPE, TYPE, NAME)                                                              \
	case DTYPE:                                                                         \
		((TYPE *)out)[i] = NAME(r->sources, r->source_count, i, r->op, r->divisor); \
		break;
			ONE(LS_UINT8, uint8_t, want_u8)
			ONE(LS_INT32, int32_t, want_i32)
			ONE(LS_INT64, int64_t, want_i64)
			ONE(LS_FLOAT32, float, want_f32)
			ONE(LS_FLOAT64, double, want_f64)
		}
}

static void fill(void *buffer, ls_dtype dtype, size_t count, unsigned *seed)
{
	for (size_t i = 0; i < count; i++) {
		int x = rand_r(seed);
		switch (dtype) {
		case LS_UINT8:
			((uint8_t *)buffer)[i] = (uint8_t)x;
			break;
		case LS_INT32:
			((int32_t *)buffer)[i] = (int32_t)((unsigned)x * 3u);
			break;
		case LS_INT64:
			((int64_t *)buffer)[i] = (int64_t)((uint64_t)x << 33 ^ (uint64_t)x);
			break;
		case LS_FLOAT32:
			((float *)buffer)[i] = (float)x / 65536.0f - 9000.0f;
			break;
		case LS_FLOAT64:
			((double *)buffer)[i] = (double)x / 65536.0 - 9000.0;
			break;
		}
	}
}

/* Buffers with `shift` elements in front, and what every target must hold afterwards. */
struct bench {
	unsigned char *sources[SOURCES], *targets[TARGETS], *expected;
};

static void check(struct bench *b, struct device_reduce r, bool alias, size_t shift)
{
	const void *sources[SOURCES];
	void *targets[TARGETS];
	size_t width = widths[r.dtype];
	for (int s = 0; s < r.source_count; s++)
		sources[s] = b->sources[s] + shift * width;
	for (int t = 0; t < r.target_count; t++) {
		targets[t] = b->targets[t] + shift * width;
		memset(b->targets[t], 0xa5, ROOM);
	}
	if (alias)
		targets[0] = b->sources[0] + shift * width;
	r.sources = sources;
	r.targets = targets;
	want(b->expected, &r);
	device_reduce(&r);
	for (int t = 0; t < r.target_count; t++) {
		assert_memory_equal(targets[t], b->expected, r.count * width);
		if (!(alias && t == 0)) /* nothing is written past the end */
			assert_int_equal(((unsigned char *)targets[t])[r.count * width], 0xa5);
	}
}

static void test_all(void **state)
{
	struct bench *b = *state;
	unsigned seed = 1;
	for (size_t count = 0; count <= 131; count += 1 + count / 40)
		for (int dtype = 0; dtype <= LS_FLOAT64; dtype++)
			for (int op = 0; op <= LS_PRODUCT; op++)
				for (int shape = 0; shape < 8; shape++) {
					for (int s = 0; s < SOURCES; s++)
						fill(b->sources[s], (ls_dtype)dtype, count + 16,
						     &seed);
					struct device_reduce r = {
						.dtype = (ls_dtype)dtype,
						.op = (ls_reduce_op)op,
						.source_count = shape & 1 ? 2 : SOURCES,
						.target_count = shape & 1   ? 2
								: shape & 2 ? 1
									    : TARGETS,
						.count = count,
						.divisor = op == LS_AVERAGE ? 3 : 0,
						.stream = shape & 4,
					};
					check(b, r, shape & 2, count % 3);
				}
}

static void test_large(void **state)
{
	struct bench *b = *state;
	unsigned seed = 2;
	for (int dtype = 0; dtype <= LS_FLOAT64; dtype++)
		for (int stream = 0; stream < 2; stream++) {
			for (int s = 0; s < SOURCES; s++)
				fill(b->sources[s], (ls_dtype)dtype, LARGEST, &seed);
			struct device_reduce r = {.dtype = (ls_dtype)dtype,
						  .op = LS_SUM,
						  .source_count = SOURCES,
						  .target_count = TARGETS,
						  .count = LARGEST,
						  .stream = stream};
			check(b, r, false, 0);
		}
}

static void test_nan(void **state)
{
	(void)state;
	float a[17], b[17], out[17];
	for (int i = 0; i < 17; i++) {
		a[i] = i % 3 == 0 ? NAN : 1.0f;
		b[i] = i % 3 == 1 ? NAN : 2.0f;
	}
	const void *sources[] = {a, b};
	void *targets[] = {out};
	for (int op = LS_MIN; op <= LS_MAX; op++) {
		struct device_reduce r = {.dtype = LS_FLOAT32,
					  .op = (ls_reduce_op)op,
					  .source_count = 2,
					  .target_count = 1,
					  .sources = sources,
					  .targets = targets,
					  .count = 17};
		device_reduce(&r);
		for (int i = 0; i < 17; i++) {
			if (i % 3 != 2)
				assert_true(isnan(out[i]));
			else
				assert_true(out[i] == (op == LS_MIN ? 1.0f : 2.0f));
		}
	}
}

static void test_copy(void **state)
{
	struct bench *b = *state;
	unsigned seed = 3;
	fill(b->sources[0], LS_UINT8, 5000, &seed);
	for (size_t bytes = 0; bytes < 300; bytes++)
		for (int stream = 0; stream < 2; stream++)
			for (size_t shift = 0; shift < 2; shift++) {
				memset(b->targets[0], 0xa5, 400);
				device_copy(b->targets[0] + shift, b->sources[0], bytes, stream);
				assert_memory_equal(b->targets[0] + shift, b->sources[0], bytes);
				assert_int_equal(b->targets[0][shift + bytes], 0xa5);
			}
}

static int setup(void **state)
{
	static struct bench bench;
	for (int s = 0; s < SOURCES; s++)
		bench.sources[s] = aligned_alloc(64, ROOM);
	for (int t = 0; t < TARGETS; t++)
		bench.targets[t] = aligned_alloc(64, ROOM);
	bench.expected = aligned_alloc(64, ROOM);
	*state = &bench;
	return 0;
}

static int teardown(void **state)
{
	struct bench *b = *state;
	for (int s = 0; s < SOURCES; s++)
		free(b->sources[s]);
	for (int t = 0; t < TARGETS; t++)
		free(b->targets[t]);
	free(b->expected);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_nan),
		cmocka_unit_test(test_copy),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
