/* SPDX-License-Identifier: BSD-3-Clause
 * The kernels for x86-64 with AVX2 and F16C. */
#include "kernel/kernel_private.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif

static void copy_lines_nontemporal(void *to, const void *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += KERNEL_LINE_BYTES) {
		const __m256i *line = (const void *)((const char *)from + i);
		__m256i *target = (void *)((char *)to + i);
		__m256i a = _mm256_loadu_si256(line), b = _mm256_loadu_si256(line + 1);
		_mm256_stream_si256(target, a);
		_mm256_stream_si256(target + 1, b);
	}
}

/* The lower half of each lane; the upper half must be zero. */
static inline __m128i narrow_lanes(__m256i lanes)
{
	__m256i packed = _mm256_packus_epi32(lanes, lanes);
	return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}

#define KERNELS kernel_table_avx2
#define VECTOR_BYTES 32
#define WIDEN_FLOAT16(h) ((floats)_mm256_cvtph_ps((__m128i)(h)))
#define NARROW_FLOAT16(f) ((halves)_mm256_cvtps_ph((__m256)(f), _MM_FROUND_TO_NEAREST_INT))
#define EXTEND(h) ((words)_mm256_cvtepu16_epi32((__m128i)(h)))
#define TRUNCATE(w) ((halves)narrow_lanes((__m256i)(w)))
#define CHOOSE(mask, yes, no) ((words)_mm256_blendv_ps((__m256)(no), (__m256)(yes), (__m256)(mask)))
#include "kernel/template.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
