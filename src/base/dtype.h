/* SPDX-License-Identifier: BSD-3-Clause
 * Sizes of element types, without a call. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <lockstep/types.h>

/* As ls_dtype_bytes: 0 if it is none. */
static inline size_t dtype_bytes(ls_dtype dtype)
{
	static const uint8_t bytes[] = {
#define X(name, value, bytes, text) [value] = bytes,
		LS_DTYPES(X)
#undef X
	};
	return (unsigned)dtype < sizeof bytes ? bytes[dtype] : 0;
}

#endif
