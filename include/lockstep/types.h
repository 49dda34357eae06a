/* SPDX-License-Identifier: BSD-3-Clause
 * Elements of buffers, and how reductions combine them. Values are part of the ABI: append, never
 * renumber. */
#ifndef LOCKSTEP_TYPES_H
#define LOCKSTEP_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, value, bytes of one element, "name") */
#define LS_DTYPES(X)                     \
	X(INT8, 0, 1, "int8")            \
	X(INT16, 1, 2, "int16")          \
	X(INT32, 2, 4, "int32")          \
	X(INT64, 3, 8, "int64")          \
	X(UINT8, 4, 1, "uint8")          \
	X(UINT16, 5, 2, "uint16")        \
	X(UINT32, 6, 4, "uint32")        \
	X(UINT64, 7, 8, "uint64")        \
	X(FLOAT16, 8, 2, "float16")      \
	X(BFLOAT16, 9, 2, "bfloat16")    \
	X(FLOAT32, 10, 4, "float32")     \
	X(FLOAT64, 11, 8, "float64")     \
	X(BOOL, 12, 1, "bool")           \
	X(COMPLEX64, 13, 8, "complex64") \
	X(COMPLEX128, 14, 16, "complex128")

/* A bool is one byte, false if it is 0; results are 0 or 1. A complex number is its real part, then
 * its imaginary part. */
typedef enum ls_dtype {
#define X(name, value, bytes, text) LS_##name = (value),
	LS_DTYPES(X)
#undef X
} ls_dtype;

/* X(NAME, value, "name") */
#define LS_REDUCE_OPS(X)         \
	X(SUM, 0, "sum")         \
	X(AVERAGE, 1, "average") \
	X(MIN, 2, "min")         \
	X(MAX, 3, "max")         \
	X(PRODUCT, 4, "product") \
	X(BAND, 5, "band")       \
	X(BOR, 6, "bor")         \
	X(BXOR, 7, "bxor")       \
	X(PREMUL_SUM, 8, "premul-sum")

/* The order in which the elements of the ranks are combined depends on the algorithm, and may
 * differ between parts of a buffer. It is the same in each run with as many ranks, placed on hosts
 * in the same way, and with the same settings. Integer sums and products wrap around; an integer
 * average is wrong if the sum wraps. float16 and bfloat16 are combined in float32 and rounded once
 * per reduction step. So an average of float16 may be infinite, if a sum on the way is above the
 * largest float16. What is allowed:
 *
 *   dtype            sum  product  min max  average  band bor bxor  premul-sum
 *   integers         yes  yes      yes      yes 1    yes            no
 *   floats           yes  yes      yes 2    yes      no             yes
 *   bool             yes 3 yes 3   yes      no       yes            no
 *   complex          yes  no       no       yes      no             yes
 *
 * 1 rounded towards zero. 2 NaN if any operand is. 3 the sum is "or", the product is "and". */
typedef enum ls_reduce_op {
#define X(name, value, text) LS_##name = (value),
	LS_REDUCE_OPS(X)
#undef X
} ls_reduce_op;

/* Bytes of one element, 0 for a number that is no dtype. Any thread. */
LS_EXPORT size_t ls_dtype_bytes(ls_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
