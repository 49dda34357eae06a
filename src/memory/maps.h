/* SPDX-License-Identifier: BSD-3-Clause
 * What this process has mapped where, as the system sees it now. For region.c alone. */
#ifndef MEMORY_MAPS_H
#define MEMORY_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Part of a file, and whether it matters that the mapping can be read and written. */
struct memory_maps_file {
	uint64_t device, inode, offset;
	bool writable;
};

/* A descriptor through which the system answers questions about this process's mappings (Linux
 * 6.11); -1: the system does not, and a look reads the whole list. */
int memory_maps_open(void);

/* Whether all of [address, address + bytes) is a shared mapping of this part of a file, in one
 * piece or in several. maps: of memory_maps_open. One system call for each piece, less than a
 * microsecond; with -1 the more time, the more mappings the process has. Any thread, does not
 * block. False also if the system does not say. */
bool memory_maps_show(int maps, const void *address, size_t bytes,
		      const struct memory_maps_file *file);

#endif
