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

void kernel_copy(void *to, const void *from, size_t bytes, bool nontemporal)
{
	if (!bytes)
		return;
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
