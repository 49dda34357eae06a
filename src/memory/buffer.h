/* SPDX-License-Identifier: BSD-3-Clause
 * What a payload lies in, below the public calls: they take an address, the rooms beneath them a
 * buffer. It says whether the processor may touch the bytes at all. Passed by value; of host memory
 * nothing but the address and the length is ever looked at. */
#ifndef MEMORY_BUFFER_H
#define MEMORY_BUFFER_H

#include <stddef.h>
#include <stdint.h>

struct memory_region;

struct buffer {
	void *address; /* NULL: there is none; of a send nobody writes to it */
	uint64_t bytes;
	/* NULL: host memory of this process, whoever else has it mapped. Else a device's, which is
	 * for its driver alone to read and write; it outlives the operation. */
	struct memory_region *region;
};

/* Host memory. */
static inline struct buffer buffer_host(const void *address, uint64_t bytes)
{
	return (struct buffer){.address = (void *)(uintptr_t)address, .bytes = bytes};
}

/* The same of a length that is found out later. */
static inline struct buffer buffer_at(const void *address)
{
	return buffer_host(address, 0);
}

#endif
