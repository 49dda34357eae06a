/* SPDX-License-Identifier: BSD-3-Clause
 * Sizes of element types. */
#include <lockstep/types.h>

static const uint8_t dtype_bytes[] = {
#define X(name, value, bytes, text) [value] = bytes,
	LS_DTYPES(X)
#undef X
};

size_t ls_dtype_bytes(ls_dtype dtype)
{
	return (unsigned)dtype < sizeof dtype_bytes ? dtype_bytes[dtype] : 0;
}
