/* SPDX-License-Identifier: BSD-3-Clause
 * All kernels that this processor can run, compared bit by bit with a reference that takes one
 * element after the other: every type and operation, odd counts, buffers aligned to their elements
 * only, targets that are sources, plain and nontemporal stores. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernel/kernel_private.h"
#include "kernel/reference_fixture.h"

enum { BUFFERS = 2 * KERNEL_REDUCE_MAX, LONG_BYTES = 9216, GUARD = 64 };
#define BUFFER_BYTES (LONG_BYTES + 2 * GUARD + 64)

static unsigned char *memory[BUFFERS];
static unsigned char *expected;

static int set_up(void **state)
{
	(void)state;
	for (int i = 0; i < BUFFERS; i++)
		if (!(memory[i] = aligned_alloc(64, BUFFER_BYTES)))
			return -1;
	expected = malloc(BUFFER_BYTES);
	for (int isa = 0; isa < KERNEL_ISAS; isa++)
		if (!kernel_table_of((enum kernel_isa)isa))
			print_message("this processor does not run %s\n", reference_isas[isa]);
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

/* Numbers: some of any bits, which among floats are also NaN (quiet or not, with payloads) and
 * denormals; some special ones; and some of moderate size, so that sums stay finite. */
static void fill(ls_dtype number, void *buffer, size_t count, uint64_t *random)
{
	const float specials[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1.0f, -1.0f};
	size_t bytes = reference_bytes[number];
	for (size_t i = 0; i < count; i++) {
		uint64_t r = reference_random(random);
		double value = ((double)(int32_t)r) / (double)(1 << (r >> 32) % 31);
		if (r % 8 == 0)
			value = (double)specials[(r >> 40) % 8];
		float single = (float)value;
		uint64_t bits = r % 3 ? r >> 24 : 0; /* of bools a third is false */
		uint16_t half = reference_is_half(number) ? half_of(number, single) : 0;
		const void *from = &bits;
		if (reference_is_float(number) && r % 16)
			from = number == LS_FLOAT64   ? (void *)&value
			       : number == LS_FLOAT32 ? (void *)&single
						      : &half;
		if (number != LS_BOOL && from == &bits)
			bits = reference_random(random);
		memcpy((char *)buffer + i * bytes, from, bytes);
	}
}

struct shape {
	enum kernel_isa isa;
	ls_dtype dtype;
	ls_reduce_op op;
	size_t count;
	int sources, targets;
	bool nontemporal, cached, aligned, in_place;
	uint32_t divisor;
};

static bool guards_stand(const unsigned char *target, size_t bytes)
{
	unsigned char guard[GUARD];
	memset(guard, 0xee, GUARD);
	return memcmp(target + bytes, guard, GUARD) == 0 &&
	       memcmp(target - GUARD, guard, GUARD) == 0;
}

/* Compares with the reference. Where two NaNs are combined arithmetically the processor chooses
 * one, so any NaN is right. */
static void compare(const struct shape *shape, int target, const unsigned char *got)
{
	ls_dtype number = reference_number(shape->dtype);
	size_t bytes = reference_bytes[number];
	size_t numbers = shape->count * reference_bytes[shape->dtype] / bytes;
	bool any_nan = shape->op != LS_MIN && shape->op != LS_MAX;
	for (size_t i = 0; i < numbers; i++)
		if (!reference_same(number, any_nan, got + i * bytes, expected + i * bytes))
			fail_msg("%s %s %s: number %zu of %zu elements differs in target %d of %d; "
				 "sources %d nontemporal %d in place %d divisor %u",
				 reference_isas[shape->isa], reference_dtypes[shape->dtype],
				 reference_ops[shape->op], i, shape->count, target, shape->targets,
				 shape->sources, shape->nontemporal, shape->in_place,
				 shape->divisor);
}

static void check(const struct shape *shape, uint64_t *random)
{
	const struct kernel_table *kernels = kernel_table_of(shape->isa);
	if (!kernels || !kernel_has(shape->dtype, shape->op))
		return;
	ls_dtype number = reference_number(shape->dtype);
	size_t element_bytes = reference_bytes[shape->dtype], bytes = shape->count * element_bytes;
	size_t number_bytes = reference_bytes[number];
	unsigned char *places[BUFFERS];
	const void *sources[KERNEL_REDUCE_MAX];
	void *targets[KERNEL_REDUCE_MAX];
	struct kernel_reduce reduce = {.dtype = shape->dtype,
				       .op = shape->op,
				       .source_count = shape->sources,
				       .target_count = shape->targets,
				       .sources = sources,
				       .targets = targets,
				       .count = shape->count,
				       .divisor = shape->divisor,
				       .nontemporal = shape->nontemporal,
				       .cached = shape->cached};
	for (int i = 0; i < shape->sources + shape->targets; i++) {
		size_t shift = reference_random(random) % (64 / number_bytes) * number_bytes;
		places[i] = memory[i] + GUARD + (shape->aligned ? 0 : shift);
		memset(places[i] - GUARD, 0xee, bytes + 2 * GUARD);
	}
	for (int i = 0; i < shape->sources; i++) {
		fill(number, places[i], bytes / number_bytes, random);
		sources[i] = places[i];
	}
	/* In place: target i is source (i + shift) mod sources, as many as there are. */
	size_t shift = reference_random(random);
	for (int i = 0; i < shape->targets; i++) {
		targets[i] = places[shape->sources + i];
		if (shape->in_place && i < shape->sources)
			targets[i] = places[(shift + (size_t)i) % (size_t)shape->sources];
	}
	for (size_t i = 0; i < bytes / number_bytes; i++)
		reference_reduce(&reduce, i, expected + i * number_bytes);
	reference_run(kernels, &reduce);
	for (int i = 0; i < shape->targets; i++) {
		compare(shape, i, targets[i]);
		assert_true(guards_stand(targets[i], bytes));
	}
}

enum { KINDS = KERNEL_ISAS * REFERENCE_DTYPES * REFERENCE_OPS };

static struct shape shape_of(int kind)
{
	return (struct shape){
		.isa = (enum kernel_isa)(kind / REFERENCE_OPS / REFERENCE_DTYPES),
		.dtype = (ls_dtype)(kind / REFERENCE_OPS % REFERENCE_DTYPES),
		.op = (ls_reduce_op)(kind % REFERENCE_OPS),
	};
}

static void every_small_count(void **state)
{
	(void)state;
	uint64_t random = 42;
	for (int kind = 0; kind < KINDS; kind++) {
		struct shape shape = shape_of(kind);
		for (size_t count = 0; count <= 130; count += count < 67 ? 1 : 7) {
			shape.count = count;
			shape.sources = 1 + (int)(reference_random(&random) % 6);
			shape.targets = 1 + (int)(count % 3);
			shape.nontemporal = count % 2;
			shape.cached = count / 2 % 2;
			shape.aligned = count % 4 == 0;
			shape.in_place = count % 5 < 2;
			shape.divisor = (uint32_t)(count % 7);
			check(&shape, &random);
		}
	}
}

static void every_number_of_operands(void **state)
{
	(void)state;
	uint64_t random = 4711;
	for (int kind = 0; kind < KINDS; kind++) {
		struct shape shape = shape_of(kind);
		for (int sources = 1; sources <= 64; sources += sources < 14 ? 1 : 5) {
			uint64_t r = reference_random(&random);
			shape.count = r % (sources < 10 ? 300 : 90);
			shape.sources = sources;
			shape.targets = 1 + (int)((r >> 40) % (sources % 3 ? 4 : 64));
			shape.nontemporal = r >> 48 & 1;
			shape.cached = r >> 49 & 1;
			shape.aligned = r >> 49 & 1;
			shape.in_place = r >> 50 & 1;
			shape.divisor = (uint32_t)(r >> 51) % 65;
			check(&shape, &random);
		}
	}
}

static void long_buffers(void **state)
{
	(void)state;
	uint64_t random = 815;
	for (int kind = 0; kind < KINDS; kind++) {
		struct shape shape = shape_of(kind);
		for (int variant = 0; variant < 4; variant++) {
			shape.count =
				LONG_BYTES / reference_bytes[shape.dtype] - (size_t)variant * 7;
			shape.sources = 2 + variant;
			shape.targets = 2;
			shape.nontemporal = variant % 2;
			shape.cached = variant / 2 % 2;
			shape.aligned = variant < 2;
			shape.in_place = variant % 2;
			shape.divisor = 3;
			check(&shape, &random);
		}
	}
}

/* Returns whether it can be looked up; if so the bits are those of kernel_reduce, also in place. */
static bool few_is_alike(ls_dtype dtype, ls_reduce_op op, int source_count, size_t count,
			 uint32_t divisor, uint64_t *random)
{
	enum { FEW_BYTES = 70 * 16 };
	_Alignas(64) unsigned char from[6][FEW_BYTES], wanted[FEW_BYTES];
	const void *sources[6];
	void *targets[1] = {wanted};
	struct kernel_few few;
	struct kernel_reduce reduce = {.dtype = dtype,
				       .op = op,
				       .source_count = source_count,
				       .target_count = 1,
				       .count = count,
				       .divisor = divisor};
	if (!kernel_few_find(&reduce, &few))
		return false;
	ls_dtype number = reference_number(dtype);
	for (int i = 0; i < source_count; i++) {
		fill(number, from[i], count * reference_bytes[dtype] / reference_bytes[number],
		     random);
		sources[i] = from[i];
	}
	reduce.sources = sources;
	reduce.targets = targets;
	kernel_reduce(&reduce);
	kernel_few_run(&few, from[source_count - 1], sources, source_count);
	assert_memory_equal(from[source_count - 1], wanted, count * reference_bytes[dtype]);
	return true;
}

static void few_elements_are_reduced_alike(void **state)
{
	(void)state;
	uint64_t random = 815;
	int found = 0;
	for (int kind = 0; kind < REFERENCE_DTYPES * REFERENCE_OPS; kind++)
		for (size_t count = 1; count <= 70; count += count < 20 ? 1 : 10) {
			ls_dtype dtype = (ls_dtype)(kind / REFERENCE_OPS);
			ls_reduce_op op = (ls_reduce_op)(kind % REFERENCE_OPS);
			if (!kernel_has(dtype, op))
				continue;
			for (int sources = 2; sources <= 4; sources++)
				found += few_is_alike(dtype, op, sources, count, 0, &random);
			assert_false(few_is_alike(dtype, op, 1, count, 0, &random));
			assert_false(few_is_alike(dtype, op, 5, count, 0, &random));
		}
	assert_true(found > 3000);
	assert_true(few_is_alike(LS_FLOAT32, LS_SUM, 2, 2, 0, &random));
	assert_true(few_is_alike(LS_COMPLEX64, LS_SUM, 3, 2, 0, &random));
	assert_false(few_is_alike(LS_FLOAT32, LS_AVERAGE, 2, 2, 2, &random));
	assert_false(few_is_alike(LS_BFLOAT16, LS_SUM, 2, 2, 0, &random));
}

static void averages_round_towards_zero(void **state)
{
	(void)state;
	const int32_t a[] = {7, -7, INT32_MAX, INT32_MIN, -1, 0}, zero[6] = {0};
	const int32_t thirds[] = {2, -2, INT32_MAX / 3, INT32_MIN / 3, 0, 0};
	int32_t out[6];
	struct kernel_reduce reduce = {.dtype = LS_INT32,
				       .op = LS_AVERAGE,
				       .source_count = 2,
				       .target_count = 1,
				       .sources = (const void *[]){a, zero},
				       .targets = (void *[]){out},
				       .count = 6,
				       .divisor = 3};
	kernel_reduce(&reduce);
	assert_memory_equal(out, thirds, sizeof out);
}

/* Next to every whole quotient, where a division that rounds would show. */
static void quotients_are_exact(void **state)
{
	(void)state;
	enum { VALUES = 64 };
	uint64_t random = 99, in[VALUES], out[VALUES], wanted;
	for (int i = 0; i < 20000; i++) {
		ls_dtype dtype = (ls_dtype)(i % (LS_UINT64 + 1));
		size_t bytes = reference_bytes[dtype];
		uint32_t divisor = (uint32_t)reference_random(&random);
		divisor >>= reference_random(&random) % 32;
		struct kernel_reduce reduce = {.dtype = dtype,
					       .op = LS_AVERAGE,
					       .source_count = 1,
					       .target_count = 1,
					       .sources = (const void *[]){in},
					       .targets = (void *[]){out},
					       .count = VALUES,
					       .divisor = divisor};
		for (size_t k = 0; k < VALUES; k++) {
			uint64_t value = reference_random(&random);
			value >>= reference_random(&random) % (8 * bytes);
			if (divisor)
				value = value / divisor * divisor - 1 + value % 3;
			memcpy((char *)in + k * bytes, &value, bytes);
		}
		const struct kernel_table *kernels =
			kernel_table_of((enum kernel_isa)(i / 16 % KERNEL_ISAS));
		if (kernels)
			reference_run(kernels, &reduce);
		for (size_t k = 0; kernels && k < VALUES; k++) {
			reference_reduce(&reduce, k, &wanted);
			assert_memory_equal((char *)out + k * bytes, &wanted, bytes);
		}
	}
}

static void nan_wins_and_order_is_kept(void **state)
{
	(void)state;
	const float nan_first[] = {NAN, NAN, -0.0f, 1e30f}, other[] = {1, INFINITY, 0.0f, 1.0f};
	const float last[] = {2, -INFINITY, -0.0f, -1e30f};
	const ls_reduce_op ops[] = {LS_SUM, LS_AVERAGE, LS_MIN, LS_MAX, LS_PRODUCT};
	float out[4];
	for (int i = 0; i < 5 * KERNEL_ISAS; i++) {
		const struct kernel_table *kernels = kernel_table_of((enum kernel_isa)(i / 5));
		struct kernel_reduce reduce = {.dtype = LS_FLOAT32,
					       .op = ops[i % 5],
					       .source_count = 3,
					       .target_count = 1,
					       .targets = (void *[]){out},
					       .count = 4,
					       .divisor = 1};
		const void *operands[] = {nan_first, other, last, nan_first, other};
		for (int turn = 2; kernels && turn >= 0; turn--) {
			reduce.sources = operands + turn;
			reference_run(kernels, &reduce);
			assert_true(isnan(out[0]) && isnan(out[1]));
		}
		if (!kernels)
			continue;
		/* (1e30 + 1) - 1e30 is 0, and would be 1 in another order. Of equals the last is
		 * taken. */
		assert_true(reduce.op != LS_SUM || out[3] == 0);
		assert_true(reduce.op != LS_MIN || signbit(out[2]));
	}
}

static void copies_are_exact(void **state)
{
	(void)state;
	uint64_t random = 7;
	unsigned char *from = memory[0], *to = memory[1];
	for (size_t i = 0; i < BUFFER_BYTES; i++)
		from[i] = (unsigned char)reference_random(&random);
	for (size_t bytes = 0; bytes < 400; bytes++) {
		for (int variant = 0; variant < 16; variant++) {
			size_t in = reference_random(&random) % 64;
			size_t shift = reference_random(&random) % 64;
			size_t length = variant == 15 ? bytes * 20 : bytes;
			unsigned char *target = to + GUARD + shift;
			memset(target - GUARD, 0xee, length + 2 * GUARD);
			kernel_copy(target, from + in, length, variant % 2);
			assert_memory_equal(target, from + in, length);
			assert_true(guards_stand(target, length));
		}
	}
	kernel_copy(NULL, NULL, 0, true);
	kernel_copy(NULL, NULL, 0, false);
}

/* The least address from `least` on that is at the same place of a page as `as`. */
static unsigned char *same_place(unsigned char *least, const unsigned char *as)
{
	enum { PAGE = 4096 };
	return least + ((uintptr_t)as - (uintptr_t)least) % PAGE;
}

/* A target that is just above its source, modulo a page, is copied by a loop of our own. */
static void copies_just_above_are_exact(void **state)
{
	(void)state;
	enum { MOST = 5000 };
	uint64_t random = 8;
	unsigned char *from = memory[0], *to = same_place(memory[1] + GUARD, from);
	for (size_t i = 0; i < BUFFER_BYTES; i++)
		from[i] = (unsigned char)reference_random(&random);
	for (size_t bytes = 2000; bytes < MOST; bytes += 61)
		for (int isa = 0; isa <= KERNEL_ISAS; isa++) {
			const struct kernel_table *table =
				isa < KERNEL_ISAS ? kernel_table_of((enum kernel_isa)isa) : NULL;
			unsigned char *target = to + bytes % 64;
			memset(target - GUARD, 0xee, bytes + 2 * GUARD);
			if (table)
				table->copy(target, from, bytes);
			else
				kernel_copy(target, from, bytes, false);
			assert_memory_equal(target, from, bytes);
			assert_true(guards_stand(target, bytes));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_small_count),
		cmocka_unit_test(every_number_of_operands),
		cmocka_unit_test(long_buffers),
		cmocka_unit_test(few_elements_are_reduced_alike),
		cmocka_unit_test(averages_round_towards_zero),
		cmocka_unit_test(quotients_are_exact),
		cmocka_unit_test(nan_wins_and_order_is_kept),
		cmocka_unit_test(copies_are_exact),
		cmocka_unit_test(copies_just_above_are_exact),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
