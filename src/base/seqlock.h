/* SPDX-License-Identifier: BSD-3-Clause
 * Sequence locks for data with one writer that any number of readers, also in other processes, may
 * copy at any time. The data are moved as atomic 64-bit words, release by the writer and acquire by
 * the reader, so that there is no data race in the language's sense (nor in ThreadSanitizer's) and
 * no fence is needed; on x86 these are plain moves, on Arm stlr and ldar. Everything copied must be
 * 8-byte aligned and a multiple of 8 bytes long. */
#ifndef BASE_SEQLOCK_H
#define BASE_SEQLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A reader gives up after this many torn copies: the writer may be dead. */
enum { SEQLOCK_TRIES = 64 };

/* memcpy, and not a cast, on the private side: what is copied are structs with smaller fields. */
static inline void seqlock_store(void *to, const void *from, size_t bytes)
{
	_Atomic uint64_t *out = to;
	const unsigned char *in = from;
	for (size_t i = 0; i < bytes / 8; i++) {
		uint64_t word;
		memcpy(&word, in + 8 * i, 8);
		/* Release: a reader that sees this word also sees the odd epoch that was stored
		 * before. */
		atomic_store_explicit(out + i, word, memory_order_release);
	}
}

static inline void seqlock_load(void *to, const void *from, size_t bytes)
{
	unsigned char *out = to;
	const _Atomic uint64_t *in = from;
	for (size_t i = 0; i < bytes / 8; i++) {
		uint64_t word = atomic_load_explicit(in + i, memory_order_acquire);
		memcpy(out + 8 * i, &word, 8);
	}
}

/* Writer: epoch becomes odd. A plain store suffices because all data go through seqlock_store, and
 * a reader's acquire load of such a word takes this store along: its second look cannot miss it. */
static inline void seqlock_begin(_Atomic uint32_t *epoch)
{
	uint32_t old = atomic_load_explicit(epoch, memory_order_relaxed);
	atomic_store_explicit(epoch, old | 1u, memory_order_relaxed);
}

/* Writer: epoch becomes even again, and another one than before. */
static inline void seqlock_end(_Atomic uint32_t *epoch)
{
	uint32_t old = atomic_load_explicit(epoch, memory_order_relaxed);
	atomic_store_explicit(epoch, (old | 1u) + 1u, memory_order_release);
}

/* Reader: copies `bytes` once; true if the copy is whole. *seen is the epoch it belongs to. */
static inline bool seqlock_try_read(const _Atomic uint32_t *epoch, void *to, const void *from,
				    size_t bytes, uint32_t *seen)
{
	uint32_t before = atomic_load_explicit(epoch, memory_order_acquire);
	if (before & 1u)
		return false;
	/* acquire loads: the second look at epoch stays behind them */
	seqlock_load(to, from, bytes);
	*seen = before;
	return atomic_load_explicit(epoch, memory_order_relaxed) == before;
}

/* Reader: false after SEQLOCK_TRIES torn copies (a writer that died or stopped in the middle). */
static inline bool seqlock_read(const _Atomic uint32_t *epoch, void *to, const void *from,
				size_t bytes, uint32_t *seen)
{
	for (int i = 0; i < SEQLOCK_TRIES; i++)
		if (seqlock_try_read(epoch, to, from, bytes, seen))
			return true;
	return false;
}

#endif
