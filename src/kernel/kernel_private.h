/* SPDX-License-Identifier: BSD-3-Clause
 * One table of kernels for each kind of processor, and what the files of this room share. A kernel
 * works on memory that is aligned to its numbers only, and its target may be equal to a source. */
#ifndef KERNEL_PRIVATE_H
#define KERNEL_PRIVATE_H

#include <stdint.h>

#include "kernel/kernel.h"

#define KERNEL_ONE(...) +1
enum {
	KERNEL_DTYPES = 0 LS_DTYPES(KERNEL_ONE),
	KERNEL_OPS = 0 LS_REDUCE_OPS(KERNEL_ONE),
	KERNEL_OPERANDS = 4, /* that a kernel_combine takes at most */
	KERNEL_LINE_BYTES = 64,
};

/* target = ((in0 op in1) op in2) op in3, for 2 to KERNEL_OPERANDS operands. `also`: NULL, or with
 * two operands a second target, which saves reading the first target again. */
typedef void kernel_combine(void *target, void *also, const void *const *sources, int operands,
			    size_t count);

/* The same for any number of operands from 1 on, in float32, divided if the divisor is above 1, and
 * then rounded to nearest, ties to even. */
typedef void kernel_combine_halves(void *target, const void *const *sources, int operands,
				   size_t count, uint32_t divisor);

typedef void kernel_divide(void *values, uint32_t divisor, size_t count);
typedef void kernel_multiply(void *to, const void *from, size_t count, double factor);

enum kernel_half { KERNEL_FLOAT16, KERNEL_BFLOAT16, KERNEL_HALVES };

/* Kernels that a type does not have are NULL; float16 and bfloat16 have only those in `halves` and
 * `multiply`. Complex numbers have no kernels: they are two floats. AVERAGE is SUM, then divide. */
struct kernel_table {
	kernel_combine *combine[KERNEL_DTYPES][KERNEL_OPS];
	kernel_divide *divide[KERNEL_DTYPES];
	kernel_multiply *multiply[KERNEL_DTYPES];
	kernel_combine_halves *halves[KERNEL_HALVES][KERNEL_OPS];
	/* Copies past the cache if `to` begins a cache line, otherwise through it. Call
	 * kernel_nontemporal_fence before a store that announces the copy. */
	void (*nontemporal)(void *to, const void *from, size_t bytes);
	/* Copies by loads and stores, never by a string instruction. */
	void (*copy)(void *to, const void *from, size_t bytes);
};

extern const struct kernel_table kernel_table_portable;
#if defined(__x86_64__)
extern const struct kernel_table kernel_table_avx2, kernel_table_avx512;
#endif

void kernel_nontemporal_fence(void);

#endif
