/* SPDX-License-Identifier: BSD-3-Clause
 * Shared memory of the program's own (memfd, /dev/shm, a file) that peers map too, so that buffers
 * in it are reached as those of the arena are. Regions follow the arena in one space of offsets:
 * what a rank publishes is an offset, whichever of the two it lies in. The mapping is the
 * program's, which may take it away and not say so: then its address means other memory than peers
 * see. So a buffer counts as the region's only after a look at what is mapped there, at each use;
 * what is not the file any more ends the region. */
#ifndef MEMORY_REGION_H
#define MEMORY_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

enum {
	MEMORY_REGIONS = 64, /* of one rank, over the life of a group */
	/* Before Linux 6.11 a look takes as long as a copy of this many bytes in a program with a
	 * few hundred mappings; there shorter buffers are plain. */
	MEMORY_LONG_LOOK_BYTES = 1 << 20,
};
#define MEMORY_ALL_PEERS UINT64_MAX

/* What a peer needs to know to map a region. Fixed layout: it travels. */
struct memory_region_name {
	uint64_t offset; /* in the space of offsets of its owner */
	uint64_t bytes;
	uint64_t file_offset;
	uint64_t device, inode; /* so that nobody maps another file that has got the same number */
	int32_t pid, fd; /* /proc/PID/fd/FD is the file, as long as its owner is in the call */
};

/* A region of this rank. Written once, by whoever registers; read by any thread. live_bytes > 0
 * only while it is registered; both fall once, and registered with 0 bytes is one that a look has
 * ended. */
struct memory_region {
	_Atomic bool registered;   /* from memory_region_show to memory_region_remove */
	_Atomic size_t live_bytes; /* 0: buffers in it are plain */
	_Atomic uint64_t peers; /* bit q: world rank q has mapped it; MEMORY_ALL_PEERS: all have */
	unsigned char *address;
	struct memory_region_name name;
};

/* A region of a peer, as this process sees it. */
struct memory_region_view {
	unsigned char *base;
	uint64_t offset;
	size_t bytes;
};

struct memory;
struct memory_view;

/* Whether [address, address + bytes) is a shared mapping of this part of the file, that can be read
 * and written; fills *name but for its offset. Reads /proc/self/maps. Errors: LS_BAD_ARGUMENT,
 * LS_SYSTEM, with a message that says what is wrong. */
LS_CHECKED ls_status memory_region_check(const void *address, size_t bytes, int fd,
					 uint64_t file_offset, struct memory_region_name *name);
/* The live region that was registered with exactly this; NULL: there is none. */
struct memory_region *memory_region_find(struct memory *memory, const void *address,
					 const struct memory_region_name *name);
/* Takes a place in the space of offsets; buffers in it are not found before memory_region_show.
 * NULL, with a message: there have been too many. */
struct memory_region *memory_region_add(struct memory *memory, void *address,
					const struct memory_region_name *name);
/* These too have mapped it. */
void memory_region_show(struct memory_region *region, uint64_t peers);
/* What was registered at `address` is so no more, also if a look has ended it before. False:
 * nothing was. */
bool memory_region_remove(struct memory *memory, const void *address);

/* How many regions are live, and their bytes. */
void memory_regions(struct memory *memory, uint64_t *count, uint64_t *bytes);

/* Maps a peer's region, unless that is done already; it is found from now on. Errors:
 * LS_UNSUPPORTED (the system does not let this process have it), LS_OUT_OF_MEMORY, LS_SYSTEM, with
 * a message that names the rank. */
LS_CHECKED ls_status memory_view_add(struct memory_view *view, int rank,
				     const struct memory_region_name *name);
/* The parts of memory_offset, memory_view_at and memory_view_close that concern regions. The first
 * ends a region that turns out to be mapped there no more, with a message, and is false. */
bool memory_region_offset(struct memory *memory, const void *address, size_t bytes, uint64_t peers,
			  uint64_t *offset);
void *memory_region_view_at(const struct memory_view *view, uint64_t offset, uint64_t bytes);
void memory_region_views_close(struct memory_view *view);

#endif
