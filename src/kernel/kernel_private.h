/* SPDX-License-Identifier: BSD-3-Clause
 * One table of kernels for each kind of processor, and what the files of this room share. A kernel
 * works on memory that is aligned to its numbers only, and its target may be equal to a source. */
#ifndef DEVICE_KERNEL_H
#define DEVICE_KERNEL_H

#include <stdint.h>

#include "kernel/kernel.h"

#define DEVICE_ONE(...) +1
enum {
	DEVICE_DTYPES = 0 LS_DTYPES(DEVICE_ONE),
	DEVICE_OPS = 0 LS_REDUCE_OPS(DEVICE_ONE),
	DEVICE_OPERANDS = 4, /* that a device_combine takes at most */
	DEVICE_LINE_BYTES = 64,
};

/* target = ((in0 op in1) op in2) op in3, for 2 to DEVICE_OPERANDS operands. `also`: NULL, or of two
 * operands a second target, which saves reading the first one again. */
typedef void device_combine(void *target, void *also, const void *const *sources, int operands,
			    size_t count);

/* The same for any number of operands from 1 on, in float32, divided if the divisor is above 1, and
 * then rounded to the nearest, of two the even one. */
typedef void device_combine_halves(void *target, const void *const *sources, int operands,
				   size_t count, uint32_t divisor);

typedef void device_divide(void *values, uint32_t divisor, size_t count);
typedef void device_multiply(void *to, const void *from, size_t count, double factor);

enum device_half { DEVICE_FLOAT16, DEVICE_BFLOAT16, DEVICE_HALVES };

/* What a type cannot do is NULL; of halves all but `halves` is. Complex numbers have no kernels:
 * they are two floats. AVERAGE is SUM, then divide. */
struct device_kernels {
	device_combine *combine[DEVICE_DTYPES][DEVICE_OPS];
	device_divide *divide[DEVICE_DTYPES];
	device_multiply *multiply[DEVICE_DTYPES];
	device_combine_halves *halves[DEVICE_HALVES][DEVICE_OPS];
	/* Copies past the cache if `to` begins a cache line, otherwise through it. Call
	 * device_stream_fence before a store that announces the copy. */
	void (*stream)(void *to, const void *from, size_t bytes);
};

extern const struct device_kernels device_kernels_portable;
#if defined(__x86_64__)
extern const struct device_kernels device_kernels_avx2, device_kernels_avx512;
#endif

void device_stream_fence(void);

#endif
