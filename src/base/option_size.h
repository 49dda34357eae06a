/* SPDX-License-Identifier: BSD-3-Clause
 * The size in a public struct of options. */
#ifndef BASE_OPTION_SIZE_H
#define BASE_OPTION_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether `size` is that of the struct, or of an older, shorter one: not a size that ends inside a
 * member, for half a pointer points anywhere. */
static inline bool option_size_is_right(uint32_t size, size_t newest)
{
	return size == newest || (size >= 8 && size < newest && size % 8 == 0);
}

#endif
