/* SPDX-License-Identifier: BSD-3-Clause
 * The kernels for any processor; on x86-64 the compiler makes SSE2 of them. */
#include "kernel/kernel_private.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

static void copy_lines_nontemporal(void *to, const void *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += KERNEL_LINE_BYTES) {
		const __m128i *line = (const void *)((const char *)from + i);
		__m128i *target = (void *)((char *)to + i);
		__m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
		__m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
		_mm_stream_si128(target, a);
		_mm_stream_si128(target + 1, b);
		_mm_stream_si128(target + 2, c);
		_mm_stream_si128(target + 3, d);
	}
}

#else

static void copy_lines_nontemporal(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

#endif

#define KERNELS kernel_table_portable
#define VECTOR_BYTES 16
#include "kernel/template.h"
