/* SPDX-License-Identifier: BSD-3-Clause
 * Reduction and copy kernels of the processor, for host memory. Pure functions, any thread, no
 * allocation. Element order is defined: out[i] = (((in0 op in1) op in2) …), so that results do not
 * depend on vector width, machine or how a buffer is cut into pieces. */
#ifndef KERNEL_KERNEL_H
#define KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/types.h>

enum { KERNEL_REDUCE_MAX = 64 }; /* sources and destinations of one call */

struct kernel_table;

struct kernel_reduce {
	ls_dtype dtype;
	ls_reduce_op op;
	int source_count;           /* 1 to KERNEL_REDUCE_MAX, combined in this order */
	int target_count;           /* 1 to KERNEL_REDUCE_MAX, each gets the result */
	const void *const *sources; /* aligned to the numbers in their elements, as are targets */
	void *const *targets;       /* a target may be equal to a source */
	size_t count;               /* elements */
	uint32_t divisor;           /* LS_AVERAGE only: the result is divided by it; 0 or 1: not */
	bool nontemporal;           /* write targets past the cache, with a fence at the end */
	/* the whole payload stays in the cache, so that it is best to write two targets at once */
	bool cached;
	const struct kernel_table *kernels; /* NULL: the best of this processor, see below */
};

/* Whether elements of this type can be combined by this operation; invalid values are allowed.
 * LS_PREMUL_SUM: each rank scales by kernel_scale, then the operation is LS_SUM. */
bool kernel_has(ls_dtype dtype, ls_reduce_op op);

/* Runs the reduction. The caller has checked the arguments, also by kernel_has. float16 and
 * bfloat16 are rounded once, at the end of the call; all other types at each step. LS_PREMUL_SUM is
 * LS_SUM of elements that were scaled before. */
void kernel_reduce(const struct kernel_reduce *reduce);

/* As kernel_reduce, for a reduction that is repeated on few elements: the caller looks the kernel
 * up once and keeps it. The result is bitwise that of kernel_reduce. */
struct kernel_few {
	void (*combine)(void *target, void *also, const void *const *sources, int operands,
			size_t count);
	size_t numbers; /* of all elements: a complex one has two */
};
/* Whether the reduction can run this way: it has 2 to 4 sources and one target, divides nothing,
 * and rounds nothing at the end. Does not look at reduce->sources and targets. */
bool kernel_few_find(const struct kernel_reduce *reduce, struct kernel_few *out);
static inline void kernel_few_run(const struct kernel_few *few, void *target,
				  const void *const *sources, int source_count)
{
	few->combine(target, NULL, sources, source_count, few->numbers);
}

/* to[i] = from[i] * factor, for floats and complex numbers. The factor is first rounded to the type
 * of the computation: float64 for float64 and complex128, else float32. `to` may be equal to
 * `from`. */
void kernel_scale(void *to, const void *from, ls_dtype dtype, size_t count, double factor);

/* For fewer bytes memcpy is as fast as kernel_copy. */
enum { KERNEL_LONG_COPY = 2048 };
/* memcpy; nontemporal: past the cache, with a fence at the end. */
void kernel_copy(void *to, const void *from, size_t bytes, bool nontemporal);

/* The kernels exist once for each kind of processor; all give the same bits. The calls above take
 * the best ones that this processor has; tests and benches name one kind, in struct kernel_reduce
 * or by kernel_scale_with. */
enum kernel_isa { KERNEL_PORTABLE, KERNEL_AVX2, KERNEL_AVX512, KERNEL_ISAS };

/* NULL if this processor cannot run them. KERNEL_PORTABLE is always there. */
const struct kernel_table *kernel_table_of(enum kernel_isa isa);
const struct kernel_table *kernel_table_best(void);

void kernel_scale_with(const struct kernel_table *kernels, void *to, const void *from,
		       ls_dtype dtype, size_t count, double factor);

#endif
