/* SPDX-License-Identifier: BSD-3-Clause
 * Copies, also past the cache: nontemporal stores write whole cache lines without reading them
 * first, which saves a third of the traffic when the lines are not in this core's cache anyway. */
#include "kernel/kernel.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernel/kernel_private.h"

void kernel_nontemporal_fence(void)
{
#if defined(__x86_64__)
	_mm_sfence();
#endif
}

/* For long copies the C library uses a string instruction (rep movsb, glibc 2.36). AMD's Zen 3
 * processors and later ones then take 12 times as long if the target, modulo a page, is less than a
 * cache line above the source. That is common: long memory of malloc begins 16 bytes after a page
 * boundary, and our blocks begin at one. */
static bool is_slow_by_string(const void *to, const void *from, size_t bytes)
{
	enum { PAGE = 4096 };
	size_t above = ((uintptr_t)to - (uintptr_t)from) % PAGE;
	return bytes >= KERNEL_LONG_COPY && above > 0 && above < KERNEL_LINE_BYTES;
}

void kernel_copy(void *to, const void *from, size_t bytes, bool nontemporal)
{
	if (!bytes)
		return;
	if (!nontemporal && is_slow_by_string(to, from, bytes)) {
		kernel_table_best()->copy(to, from, bytes);
		return;
	}
	if (!nontemporal) {
		memcpy(to, from, bytes);
		return;
	}
	size_t head = (KERNEL_LINE_BYTES - (uintptr_t)to % KERNEL_LINE_BYTES) % KERNEL_LINE_BYTES;
	if (head > bytes)
		head = bytes;
	memcpy(to, from, head);
	kernel_table_best()->nontemporal((char *)to + head, (const char *)from + head, bytes - head);
	kernel_nontemporal_fence();
}
