/* SPDX-License-Identifier: BSD-3-Clause
 * Copies, also past the cache: streaming stores write whole cache lines without reading them first, which
 * saves a third of the traffic when the lines are not in this core's cache anyway. */
#include "device/device.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "device/kernel.h"

enum { LINE_BYTES = 64 };

#if defined(__x86_64__)

/* `to` begins a line, `bytes` are whole lines. */
static void stream_lines(unsigned char *to, const unsigned char *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += LINE_BYTES) {
		const __m128i *line = (const __m128i *)(const void *)(from + i);
		__m128i *target = (__m128i *)(void *)(to + i);
		__m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
		__m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
		_mm_stream_si128(target, a);
		_mm_stream_si128(target + 1, b);
		_mm_stream_si128(target + 2, c);
		_mm_stream_si128(target + 3, d);
	}
}

/* A line in one store, which is faster as long as the sources are in the cache. */
__attribute__((target("avx512f"))) static void stream_lines_avx512(unsigned char *to,
								   const unsigned char *from,
								   size_t bytes)
{
	for (size_t i = 0; i < bytes; i += LINE_BYTES)
		_mm512_stream_si512((void *)(to + i), _mm512_loadu_si512(from + i));
}

void device_stream_copy(void *to, const void *from, size_t bytes)
{
	size_t whole = (uintptr_t)to % LINE_BYTES ? 0 : bytes / LINE_BYTES * LINE_BYTES;
	/* Sanitizer builds test the narrow version. */
	if (!DEVICE_SANITIZED && __builtin_cpu_supports("avx512f"))
		stream_lines_avx512(to, from, whole);
	else
		stream_lines(to, from, whole);
	if (bytes > whole)
		memcpy((unsigned char *)to + whole, (const unsigned char *)from + whole,
		       bytes - whole);
}

void device_stream_fence(void)
{
	_mm_sfence();
}

#else

void device_stream_copy(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

void device_stream_fence(void)
{
}

#endif

void device_copy(void *to, const void *from, size_t bytes, bool stream)
{
	if (!bytes)
		return;
	if (!stream) {
		memcpy(to, from, bytes);
		return;
	}
	size_t head = (LINE_BYTES - (uintptr_t)to % LINE_BYTES) % LINE_BYTES;
	if (head > bytes)
		head = bytes;
	memcpy(to, from, head);
	device_stream_copy((unsigned char *)to + head, (const unsigned char *)from + head,
			   bytes - head);
	device_stream_fence();
}
