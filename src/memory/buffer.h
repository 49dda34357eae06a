/* SPDX-License-Identifier: BSD-3-Clause
 * The memory of a payload. Public calls take an address; the rooms below them take a buffer, which
 * says whether the processor may touch the bytes. Passed by value; for host memory only address and
 * length are used. */
#ifndef MEMORY_BUFFER_H
#define MEMORY_BUFFER_H

#include <stddef.h>
#include <stdint.h>

struct memory_region;

struct buffer {
	void *address; /* NULL: there is none; the buffer of a send is not written to */
	uint64_t bytes;
	/* NULL: host memory of this process, shared or not. Otherwise memory of a device, which
	 * only its driver reads and writes; the region outlives the operation. */
	struct memory_region *region;
};

/* Host memory. */
static inline struct buffer buffer_host(const void *address, uint64_t bytes)
{
	return (struct buffer){.address = (void *)(uintptr_t)address, .bytes = bytes};
}

/* *buffer = buffer_host(address, bytes), each field by itself. gcc 12 copies a structure in pieces
 * of 16 bytes, and a piece that was just stored in halves waits until these are in the cache. */
static inline void buffer_set(struct buffer *buffer, const void *address, uint64_t bytes)
{
	buffer->address = (void *)(uintptr_t)address;
	buffer->bytes = bytes;
	buffer->region = NULL;
}

/* As buffer_host; the length is set later. */
static inline struct buffer buffer_at(const void *address)
{
	return buffer_host(address, 0);
}

#endif
