/* SPDX-License-Identifier: BSD-3-Clause
 * What each type supports; every value of float16 and bfloat16, and how results are rounded to
 * them; bools; scaling; which kernels are chosen. By all kernels that this processor can run. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernel/reference_fixture.h"

enum { ALL = 1 << 16 };

static uint16_t every[ALL], other[ALL], out[ALL];

static int set_up(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < ALL; i++)
		every[i] = (uint16_t)i;
	return 0;
}

/* Kernels and a type of halves, for each i below HALF_KINDS. */
enum { HALF_KINDS = 2 * KERNEL_ISAS };

static const struct kernel_table *kind(int i, ls_dtype *dtype)
{
	*dtype = i % 2 ? LS_FLOAT16 : LS_BFLOAT16;
	return kernel_table_of((enum kernel_isa)(i / 2));
}

static struct kernel_reduce reduction(ls_dtype dtype, ls_reduce_op op, const void *const *sources,
				      int source_count, void *const *target)
{
	return (struct kernel_reduce){.dtype = dtype,
				      .op = op,
				      .source_count = source_count,
				      .target_count = 1,
				      .sources = sources,
				      .targets = target,
				      .count = ALL,
				      .divisor = 1};
}

static void the_table_of_types_holds(void **state)
{
	(void)state;
	/* sum average min max product band bor bxor premul-sum */
	static const char *const rows[REFERENCE_DTYPES] = {
		[LS_INT8] = "yyyyyyyyn",       [LS_INT16] = "yyyyyyyyn",
		[LS_INT32] = "yyyyyyyyn",      [LS_INT64] = "yyyyyyyyn",
		[LS_UINT8] = "yyyyyyyyn",      [LS_UINT16] = "yyyyyyyyn",
		[LS_UINT32] = "yyyyyyyyn",     [LS_UINT64] = "yyyyyyyyn",
		[LS_FLOAT16] = "yyyyynnny",    [LS_BFLOAT16] = "yyyyynnny",
		[LS_FLOAT32] = "yyyyynnny",    [LS_FLOAT64] = "yyyyynnny",
		[LS_BOOL] = "ynyyyyyyn",       [LS_COMPLEX64] = "yynnnnnny",
		[LS_COMPLEX128] = "yynnnnnny",
	};
	for (int dtype = -2; dtype < REFERENCE_DTYPES + 2; dtype++)
		for (int op = -2; op < REFERENCE_OPS + 2; op++) {
			bool known = dtype >= 0 && dtype < REFERENCE_DTYPES && op >= 0 &&
				     op < REFERENCE_OPS;
			assert_int_equal(kernel_has((ls_dtype)dtype, (ls_reduce_op)op),
					 known && rows[dtype][op] == 'y');
		}
}

static void the_best_kernels_are_taken(void **state)
{
	(void)state;
	const struct kernel_table *best = kernel_table_of(KERNEL_PORTABLE);
	assert_non_null(best);
	for (int isa = KERNEL_PORTABLE + 1; isa < KERNEL_ISAS; isa++) {
		const struct kernel_table *kernels = kernel_table_of((enum kernel_isa)isa);
		assert_ptr_not_equal(kernels, best);
		best = kernels ? kernels : best;
	}
	assert_ptr_equal(kernel_table_best(), best);
	assert_null(kernel_table_of(KERNEL_ISAS));
#if defined(__x86_64__)
	assert_int_equal(!!__builtin_cpu_supports("avx2"), !!kernel_table_of(KERNEL_AVX2));
#endif
}

/* The reference itself, where anybody can do the sum. */
static void the_reference_knows_halves(void **state)
{
	(void)state;
	assert_int_equal(half_of(LS_FLOAT16, 1.0f), 0x3c00);
	assert_int_equal(half_of(LS_FLOAT16, -65504.0f), 0xfbff);
	assert_int_equal(half_of(LS_FLOAT16, 65519.9f), 0x7bff);
	assert_int_equal(half_of(LS_FLOAT16, 65520.0f), 0x7c00);
	assert_int_equal(half_of(LS_FLOAT16, 0x1p-24f), 0x0001);
	assert_int_equal(half_of(LS_FLOAT16, 0x1p-25f), 0x0000);
	assert_int_equal(half_of(LS_FLOAT16, 0x1.8p-24f), 0x0002);
	assert_int_equal(half_of(LS_BFLOAT16, 1.0f), 0x3f80);
	assert_int_equal(half_of(LS_BFLOAT16, 257.0f), 0x4380);
	assert_int_equal(half_of(LS_BFLOAT16, 259.0f), 0x4382);
	assert_int_equal(half_of(LS_BFLOAT16, 0x1p-133f), 0x0001);
	assert_true(half_value(LS_FLOAT16, 0x8001) == -0x1p-24f);
	assert_true(half_value(LS_FLOAT16, 0x7bff) == 65504.0f);
	assert_true(half_value(LS_BFLOAT16, 0xc040) == -3.0f);
	for (uint32_t h = 0; h < ALL; h++)
		assert_true(half_is_nan(LS_FLOAT16, h) ||
			    half_of(LS_FLOAT16, half_value(LS_FLOAT16, h)) == h);
}

static void every_half_survives(void **state)
{
	(void)state;
	for (int i = 0; i < HALF_KINDS; i++) {
		ls_dtype dtype;
		const struct kernel_table *kernels = kind(i, &dtype);
		for (int twice = 0; kernels && twice < 3; twice++) {
			struct kernel_reduce reduce = reduction(dtype, twice ? LS_MAX : LS_MIN,
								(const void *[]){every, every},
								twice == 2 ? 1 : 2, (void *[]){out});
			reference_run(kernels, &reduce);
			uint16_t quiet = dtype == LS_FLOAT16 ? 0x200 : 0x40;
			for (uint32_t h = 0; h < ALL; h++) {
				/* Alone it is only copied. */
				bool changed = twice < 2 && half_is_nan(dtype, h);
				assert_int_equal(out[h], changed ? h | quiet : h);
			}
		}
	}
}

/* Each value with half of its own last place, where only "to even" decides; and with any other. */
static void halves_round_to_even(void **state)
{
	(void)state;
	uint64_t random = 12;
	for (int i = 0; i < HALF_KINDS * 8; i++) {
		ls_dtype dtype;
		const struct kernel_table *kernels = kind(i / 8, &dtype);
		struct half_format format = half_format(dtype);
		for (uint32_t h = 0; h < ALL; h++) {
			float size = fabsf(half_value(dtype, h));
			int exponent = isfinite(size) && size > 0 ? ilogbf(size) : 0;
			float tie = ldexpf(i & 1 ? 1 : -1, exponent - format.fraction - 1);
			other[h] = i & 6 ? (uint16_t)reference_random(&random) : half_of(dtype, tie);
		}
		struct kernel_reduce reduce =
			reduction(dtype, i & 4 ? LS_AVERAGE : LS_SUM,
				  (const void *[]){every, other}, 2, (void *[]){out});
		reduce.divisor = (uint32_t)(reference_random(&random) % 9);
		if (i & 2)
			reduce.op = LS_PRODUCT;
		if (!kernels)
			continue;
		reference_run(kernels, &reduce);
		for (uint32_t h = 0; h < ALL; h++) {
			uint64_t wanted;
			reference_reduce(&reduce, h, &wanted);
			assert_true(reference_same(dtype, true, &out[h], &wanted));
		}
	}
}

/* 62 ones are lost one by one, but not together. */
static void halves_are_rounded_once(void **state)
{
	(void)state;
	for (int i = 0; i < HALF_KINDS * 2; i++) {
		ls_dtype dtype;
		const struct kernel_table *kernels = kind(i / 2, &dtype);
		float big = dtype == LS_FLOAT16 ? 2048 : 256;
		uint16_t first[40], one[40], results[40];
		const void *sources[63];
		for (int k = 0; k < 40; k++) {
			first[k] = half_of(dtype, big);
			one[k] = half_of(dtype, 1);
		}
		for (int k = 0; k < 63; k++)
			sources[k] = k ? one : first;
		struct kernel_reduce reduce =
			reduction(dtype, LS_SUM, sources, 63, (void *[]){results});
		reduce.count = 40;
		reduce.nontemporal = i % 2;
		if (!kernels)
			continue;
		reference_run(kernels, &reduce);
		for (int k = 0; k < 40; k++)
			assert_true(half_value(dtype, results[k]) == big + 62);
		/* The sum does not fit, but the average does. */
		reduce = reduction(LS_FLOAT16, LS_AVERAGE, sources, 3, (void *[]){results});
		reduce.count = 40;
		reduce.divisor = 3;
		for (int k = 0; k < 40; k++)
			first[k] = one[k] = half_of(LS_FLOAT16, 60000);
		reference_run(kernels, &reduce);
		assert_memory_equal(results, one, sizeof results);
	}
}

static void bools_are_0_or_1(void **state)
{
	(void)state;
	const uint8_t a[] = {0, 0, 1, 2, 255, 128}, b[] = {0, 4, 0, 1, 254, 127};
	static const struct {
		ls_reduce_op op;
		int sources;
		uint8_t results[6];
	} cases[] = {
		{LS_SUM, 2, {0, 1, 1, 1, 1, 1}},  {LS_PRODUCT, 2, {0, 0, 0, 1, 1, 1}},
		{LS_MIN, 2, {0, 0, 0, 1, 1, 1}},  {LS_MAX, 2, {0, 1, 1, 1, 1, 1}},
		{LS_BAND, 2, {0, 0, 0, 1, 1, 1}}, {LS_BOR, 2, {0, 1, 1, 1, 1, 1}},
		{LS_BXOR, 2, {0, 1, 1, 0, 0, 0}}, {LS_BXOR, 1, {0, 0, 1, 1, 1, 1}},
		{LS_MIN, 1, {0, 0, 1, 1, 1, 1}},
	};
	uint8_t got[6];
	for (size_t i = 0; i < sizeof cases / sizeof cases[0] * KERNEL_ISAS; i++) {
		const struct kernel_table *kernels =
			kernel_table_of((enum kernel_isa)(i % KERNEL_ISAS));
		size_t k = i / KERNEL_ISAS;
		struct kernel_reduce reduce = reduction(LS_BOOL, cases[k].op, (const void *[]){a, b},
							cases[k].sources, (void *[]){got});
		reduce.count = 6;
		if (!kernels)
			continue;
		reference_run(kernels, &reduce);
		assert_memory_equal(got, cases[k].results, 6);
	}
}

static void halves_are_scaled_in_float32(void **state)
{
	(void)state;
	const double factors[] = {1,       0.5,          0x1p-7, 0x1p-9, 0x1p-14,
				  1.0 / 3, 1.0009765625, 65504,  -2.5};
	for (int i = 0; i < HALF_KINDS * 9; i++) {
		ls_dtype dtype;
		const struct kernel_table *kernels = kind(i / 9, &dtype);
		uint16_t *to = i % 2 ? out : other;
		memcpy(to, every, sizeof every);
		if (!kernels)
			continue;
		kernel_scale_with(kernels, to, i % 4 ? every : to, dtype, ALL - 3, factors[i % 9]);
		for (uint32_t h = 0; h < ALL - 3; h++) {
			float wanted = half_value(dtype, h) * (float)factors[i % 9];
			uint16_t rounded = half_of(dtype, wanted);
			assert_true(reference_same(dtype, true, &to[h], &rounded));
		}
		assert_memory_equal(to + ALL - 3, every + ALL - 3, 6);
	}
}

/* Numbers of floats and complex numbers, at any place and in place. */
static void floats_are_scaled(void **state)
{
	(void)state;
	enum { COUNT = 100 };
	float in[2 * COUNT], got[2 * COUNT];
	double wide_in[2 * COUNT], wide[2 * COUNT];
	for (int i = 0; i < 2 * COUNT; i++)
		wide_in[i] = in[i] = (float)(i - 77) * 1.7f;
	for (int i = 0; i < KERNEL_ISAS * COUNT; i++) {
		const struct kernel_table *kernels = kernel_table_of((enum kernel_isa)(i / COUNT));
		size_t count = (size_t)(i % COUNT), shift = count % 3;
		if (!kernels)
			continue;
		memcpy(got, in, sizeof in);
		memcpy(wide, wide_in, sizeof wide);
		bool pairs = count % 2;
		kernel_scale_with(kernels, got + shift, count % 4 < 2 ? got + shift : in + shift,
				  pairs ? LS_COMPLEX64 : LS_FLOAT32, count - shift, 0.1);
		kernel_scale_with(kernels, wide + shift,
				  count % 4 < 2 ? wide + shift : wide_in + shift,
				  pairs ? LS_COMPLEX128 : LS_FLOAT64, count - shift, 0.1);
		size_t end = shift + (count - shift) * (pairs ? 2 : 1);
		for (size_t k = 0; k < 2 * COUNT; k++) {
			bool scaled = k >= shift && k < end;
			assert_true(got[k] == (scaled ? in[k] * 0.1f : in[k]));
			assert_true(wide[k] == (scaled ? wide_in[k] * 0.1 : wide_in[k]));
		}
	}
	kernel_scale(got, in, LS_FLOAT32, COUNT, 3);
	assert_true(got[7] == in[7] * 3 && got[COUNT - 1] == in[COUNT - 1] * 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_of_types_holds),
		cmocka_unit_test(the_best_kernels_are_taken),
		cmocka_unit_test(the_reference_knows_halves),
		cmocka_unit_test(every_half_survives),
		cmocka_unit_test(halves_round_to_even),
		cmocka_unit_test(halves_are_rounded_once),
		cmocka_unit_test(bools_are_0_or_1),
		cmocka_unit_test(halves_are_scaled_in_float32),
		cmocka_unit_test(floats_are_scaled),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
