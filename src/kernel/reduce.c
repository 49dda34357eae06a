/* SPDX-License-Identifier: BSD-3-Clause
 * Reductions. Elements go from all sources to all targets in chunks that stay in the first-level
 * cache meanwhile. The order of operands is fixed and each element stands alone, so that the result
 * does not depend on the chunks. */
#include "kernel/kernel.h"

#include <string.h>

#include "kernel/kernel_private.h"

enum {
	CHUNK_BYTES = 4096,
	/* Shorter, so that the loads of one chunk overlap with the nontemporal stores of the one
	 * before. */
	NONTEMPORAL_CHUNK_BYTES = 512,
};

#define BIT(op) (1u << LS_##op)
#define INTEGER                                                                                \
	(BIT(SUM) | BIT(PRODUCT) | BIT(MIN) | BIT(MAX) | BIT(AVERAGE) | BIT(BAND) | BIT(BOR) | \
	 BIT(BXOR))
#define FLOAT (BIT(SUM) | BIT(PRODUCT) | BIT(MIN) | BIT(MAX) | BIT(AVERAGE) | BIT(PREMUL_SUM))
#define BOOLEAN (BIT(SUM) | BIT(PRODUCT) | BIT(MIN) | BIT(MAX) | BIT(BAND) | BIT(BOR) | BIT(BXOR))
#define COMPLEX (BIT(SUM) | BIT(AVERAGE) | BIT(PREMUL_SUM))

/* For each type: its operations, and the numbers that its elements are made of. */
static const struct dtype {
	uint16_t ops;
	uint8_t number, numbers, number_bytes;
} dtypes[KERNEL_DTYPES] = {
	[LS_INT8] = {INTEGER, LS_INT8, 1, 1},          [LS_INT16] = {INTEGER, LS_INT16, 1, 2},
	[LS_INT32] = {INTEGER, LS_INT32, 1, 4},        [LS_INT64] = {INTEGER, LS_INT64, 1, 8},
	[LS_UINT8] = {INTEGER, LS_UINT8, 1, 1},        [LS_UINT16] = {INTEGER, LS_UINT16, 1, 2},
	[LS_UINT32] = {INTEGER, LS_UINT32, 1, 4},      [LS_UINT64] = {INTEGER, LS_UINT64, 1, 8},
	[LS_FLOAT16] = {FLOAT, LS_FLOAT16, 1, 2},      [LS_BFLOAT16] = {FLOAT, LS_BFLOAT16, 1, 2},
	[LS_FLOAT32] = {FLOAT, LS_FLOAT32, 1, 4},      [LS_FLOAT64] = {FLOAT, LS_FLOAT64, 1, 8},
	[LS_BOOL] = {BOOLEAN, LS_BOOL, 1, 1},          [LS_COMPLEX64] = {COMPLEX, LS_FLOAT32, 2, 4},
	[LS_COMPLEX128] = {COMPLEX, LS_FLOAT64, 2, 8},
};

#define X(name, value, bytes, text) \
	_Static_assert((value) >= 0 && (value) < KERNEL_DTYPES, "dtypes are numbered without gaps");
LS_DTYPES(X)
#undef X

bool kernel_has(ls_dtype dtype, ls_reduce_op op)
{
	return (unsigned)dtype < KERNEL_DTYPES && (unsigned)op < KERNEL_OPS &&
	       dtypes[dtype].ops >> op & 1;
}

/* What all chunks of one reduction share. Exactly one of `combine` and `halves` is set; `divide`
 * only if there is something to divide. */
struct work {
	const struct kernel_table *kernels;
	const struct kernel_reduce *reduce;
	kernel_combine *combine;
	kernel_combine_halves *halves;
	kernel_divide *divide;
	ls_dtype number;
	size_t number_bytes;
	uint32_t divisor; /* at least 1 */
};

static struct work work_of(const struct kernel_reduce *reduce)
{
	const struct kernel_table *kernels = reduce->kernels ? reduce->kernels : kernel_table_best();
	ls_dtype number = (ls_dtype)dtypes[reduce->dtype].number;
	struct work work = {
		.kernels = kernels,
		.reduce = reduce,
		.combine = kernels->combine[number][reduce->op],
		.number = number,
		.number_bytes = dtypes[reduce->dtype].number_bytes,
		.divisor = reduce->op == LS_AVERAGE && reduce->divisor > 1 ? reduce->divisor : 1,
	};
	if (number == LS_FLOAT16)
		work.halves = kernels->halves[KERNEL_FLOAT16][reduce->op];
	if (number == LS_BFLOAT16)
		work.halves = kernels->halves[KERNEL_BFLOAT16][reduce->op];
	if (work.divisor > 1)
		work.divide = kernels->divide[number];
	return work;
}

/* Copies one operand. Bools become 0 or 1. */
static void take_operand(const struct work *work, void *out, const void *from, size_t count)
{
	const void *twice[] = {from, from};
	if (work->number == LS_BOOL)
		work->kernels->combine[LS_BOOL][LS_BOR](out, NULL, twice, 2, count);
	else
		memmove(out, from, count * work->number_bytes);
}

/* Combines the sources' numbers at byte `offset` into `out`. First combines a few of the sources,
 * then the result with the next few, and so on: out may be a source only if one pass takes all
 * sources. */
static void combine_sources(const struct work *work, size_t offset, void *out, size_t count)
{
	const struct kernel_reduce *reduce = work->reduce;
	const void *operands[KERNEL_OPERANDS];
	int taken = 0, held = 0;
	while (taken < reduce->source_count) {
		while (held < KERNEL_OPERANDS && taken < reduce->source_count)
			operands[held++] = (const char *)reduce->sources[taken++] + offset;
		if (held == 1)
			take_operand(work, out, operands[0], count);
		else
			work->combine(out, NULL, operands, held, count);
		operands[0] = out;
		held = 1;
	}
	if (work->divide)
		work->divide(out, work->divisor, count);
}

/* Combines two sources into two targets. */
static void combine_to_both(const struct work *work, size_t offset, size_t count)
{
	const struct kernel_reduce *reduce = work->reduce;
	const void *operands[] = {(const char *)reduce->sources[0] + offset,
				  (const char *)reduce->sources[1] + offset};
	work->combine((char *)reduce->targets[0] + offset, (char *)reduce->targets[1] + offset,
		      operands, 2, count);
}

/* As combine_to_both, for halves: one pass takes all sources, divides, and rounds once. */
static void combine_halves(const struct work *work, size_t offset, void *out, size_t count)
{
	const struct kernel_reduce *reduce = work->reduce;
	const void *operands[KERNEL_REDUCE_MAX];
	for (int i = 0; i < reduce->source_count; i++)
		operands[i] = (const char *)reduce->sources[i] + offset;
	if (reduce->source_count == 1 && work->divisor == 1)
		take_operand(work, out, operands[0], count);
	else
		work->halves(out, operands, reduce->source_count, count, work->divisor);
}

void kernel_reduce(const struct kernel_reduce *reduce)
{
	_Alignas(KERNEL_LINE_BYTES) unsigned char chunk[CHUNK_BYTES];
	struct work work = work_of(reduce);
	size_t bytes = work.number_bytes, total = reduce->count * dtypes[reduce->dtype].numbers;
	size_t step = (reduce->nontemporal ? NONTEMPORAL_CHUNK_BYTES : CHUNK_BYTES) / bytes;
	/* The result goes straight into the first target, unless a source that is needed later may
	 * lie there. */
	bool one_pass = work.halves || reduce->source_count <= KERNEL_OPERANDS;
	bool direct = !reduce->nontemporal && one_pass;
	bool both = reduce->cached && direct && !work.halves && !work.divide &&
		    reduce->source_count == 2 && reduce->target_count == 2;
	for (size_t first = 0; first < total; first += step) {
		size_t count = total - first < step ? total - first : step;
		size_t offset = first * bytes;
		void *out = direct ? (char *)reduce->targets[0] + offset : (void *)chunk;
		if (both) {
			combine_to_both(&work, offset, count);
			continue;
		}
		if (work.halves)
			combine_halves(&work, offset, out, count);
		else
			combine_sources(&work, offset, out, count);
		for (int i = direct; i < reduce->target_count; i++) {
			char *target = (char *)reduce->targets[i] + offset;
			if (reduce->nontemporal)
				work.kernels->nontemporal(target, out, count * bytes);
			else
				memcpy(target, out, count * bytes);
		}
	}
	if (reduce->nontemporal)
		kernel_nontemporal_fence();
}

bool kernel_few_find(const struct kernel_reduce *reduce, struct kernel_few *out)
{
	struct work work = work_of(reduce);
	bool fits = reduce->source_count >= 2 && reduce->source_count <= KERNEL_OPERANDS &&
		    reduce->target_count == 1;
	*out = (struct kernel_few){.combine = work.combine,
				   .numbers = reduce->count * dtypes[reduce->dtype].numbers};
	return fits && work.combine && !work.divide;
}

void kernel_scale_with(const struct kernel_table *kernels, void *to, const void *from,
		       ls_dtype dtype, size_t count, double factor)
{
	const struct dtype *d = &dtypes[dtype];
	kernels->multiply[d->number](to, from, count * d->numbers, factor);
}

void kernel_scale(void *to, const void *from, ls_dtype dtype, size_t count, double factor)
{
	kernel_scale_with(kernel_table_best(), to, from, dtype, count, factor);
}
