/* SPDX-License-Identifier: BSD-3-Clause
 * Sizes of element types, for users. */
#include "base/dtype.h"

size_t ls_dtype_bytes(ls_dtype dtype)
{
	return dtype_bytes(dtype);
}
