/* SPDX-License-Identifier: BSD-3-Clause
 * How kernels are compiled, and what the files of this room share. */
#ifndef DEVICE_KERNEL_H
#define DEVICE_KERNEL_H

#include <stddef.h>

/* One version for each vector width, chosen when the library is loaded. Not under sanitizers, whose
 * runtimes are not up yet when the choice is made. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
	__has_feature(memory_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define DEVICE_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DEVICE_SANITIZED 1
#endif
#if !defined(DEVICE_SANITIZED)
#define DEVICE_SANITIZED 0
#endif
#if defined(__x86_64__) && defined(__GLIBC__) && !DEVICE_SANITIZED
#define DEVICE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DEVICE_CLONES
#endif

/* Copies past the cache if `to` begins a cache line, else through it. Needs device_stream_fence before
 * anybody is told. */
void device_stream_copy(void *to, const void *from, size_t bytes);
void device_stream_fence(void);

#endif
