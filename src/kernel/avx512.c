/* SPDX-License-Identifier: BSD-3-Clause
 * The kernels for x86-64 with AVX-512, as processors for servers have it since the first of
 * them. */
#include "kernel/kernel_private.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), \
			     apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

/* A line in one store, which is faster as long as the sources are in the cache. */
static void copy_lines_nontemporal(void *to, const void *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += KERNEL_LINE_BYTES)
		_mm512_stream_si512((void *)((char *)to + i),
				    _mm512_loadu_si512((const char *)from + i));
}

#define KERNELS kernel_table_avx512
#define VECTOR_BYTES 64
#define WIDEN_FLOAT16(h) ((floats)_mm512_cvtph_ps((__m256i)(h)))
#define NARROW_FLOAT16(f) ((halves)_mm512_cvtps_ph((__m512)(f), _MM_FROUND_TO_NEAREST_INT))
#define EXTEND(h) ((words)_mm512_cvtepu16_epi32((__m256i)(h)))
#define TRUNCATE(w) ((halves)_mm512_cvtepi32_epi16((__m512i)(w)))
#include "kernel/template.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
