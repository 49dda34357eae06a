/* SPDX-License-Identifier: BSD-3-Clause
 * Regions: shared memory of the program (memfd, /dev/shm, a file) that peers map too, so that they
 * access buffers in it as those in the arena. Regions follow the arena in one space of offsets, so
 * a rank publishes an offset for either. The mapping belongs to the program, which may unmap it
 * without telling Lockstep; then the address means other memory than peers see. So each use first
 * checks whether the file is still mapped there. If not, the region ends. */
#ifndef MEMORY_REGION_H
#define MEMORY_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#include "base/ranks.h"
#include "memory/buffer.h"

enum {
	MEMORY_REGIONS = 64, /* of one rank, over the life of the world group */
	/* Before Linux 6.11 the check takes as long as a copy of this many bytes, in a program with
	 * a few hundred mappings; there shorter buffers are treated as plain. */
	MEMORY_LONG_LOOK_BYTES = 1 << 20,
};
#define MEMORY_REGION_CLOSED UINT32_MAX

/* What a peer needs to know to map a region. Fixed layout, because it is sent to peers. */
struct memory_region_name {
	uint64_t offset; /* in the space of offsets of its owner */
	uint64_t bytes;
	uint64_t file_offset;
	uint64_t device, inode; /* identify the file: its number may have passed to another one */
	int32_t pid, fd; /* /proc/PID/fd/FD is the file, as long as its owner is in the call */
};

/* A region of this rank. Written once, by the thread that registers it; read by any thread.
 * live_bytes > 0 only while the region is registered. The fields `registered` and live_bytes only
 * fall. Registered with live_bytes 0: a check has found the region unmapped. */
struct memory_region {
	/* The driver of the device whose memory this is; peers never see such memory. NULL: host
	 * memory. */
	struct driver *driver;
	/* Memory of a device: how many buffers of operations in flight lie in the region;
	 * MEMORY_REGION_CLOSED once it is removed. */
	_Atomic uint32_t users;
	_Atomic bool registered;   /* from memory_region_show to memory_region_remove */
	_Atomic size_t live_bytes; /* 0: buffers in it are plain */
	/* ranks_bit: that world rank has mapped it; all bits: all have */
	_Atomic uint64_t peers[RANKS_WORLD_WORDS];
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
struct driver;

/* Whether [address, address + bytes) is a shared mapping of this part of the file, readable and
 * writable; fills *name except its offset. Reads /proc/self/maps. Errors: LS_BAD_ARGUMENT,
 * LS_SYSTEM, with a message. */
LS_CHECKED ls_status memory_region_check(const void *address, size_t bytes, int fd,
					 uint64_t file_offset, struct memory_region_name *name);
/* The live region that was registered with exactly these values; NULL: none. */
struct memory_region *memory_region_find(struct memory *memory, const void *address,
					 const struct memory_region_name *name);
/* Reserves a range of offsets; buffers in the region count as registered only after
 * memory_region_show. NULL, with a message: this rank has had MEMORY_REGIONS regions. */
struct memory_region *memory_region_add(struct memory *memory, void *address,
					const struct memory_region_name *name);
/* Notes that these peers have mapped the region, too; NULL: all. */
void memory_region_show(struct memory_region *region, const struct ranks *peers);
/* The peers that have mapped it. */
struct ranks memory_region_peers(const struct memory_region *region);
/* Ends the registration at `address`, even if a check has found it unmapped before. False: nothing
 * was registered there; or, with a message, it is a device's memory on which an operation is in
 * flight, and stays registered. */
bool memory_region_remove(struct memory *memory, const void *address);

/* Registers memory of a device, which the processor never touches. From now on calls take buffers
 * that lie in it: collectives of any sort, and ls_send and ls_recv. Sends and receives that outlive
 * their call refuse such a buffer with LS_BAD_ARGUMENT. The caller neither frees the memory nor
 * closes the driver before memory_region_remove has returned true. NULL, with a message: this rank
 * has had MEMORY_REGIONS regions. */
struct memory_region *memory_region_add_device(struct memory *memory, void *address, size_t bytes,
					       struct driver *driver);
/* The region of a device in which all these bytes lie; nobody can remove it before
 * memory_region_release. NULL: host memory. Does not block; any thread. */
struct memory_region *memory_region_hold(struct memory *memory, const void *address, size_t bytes);
/* NULL: does nothing. */
void memory_region_release(struct memory_region *region);
/* Whether the processor must not touch some of these buffers: they have bytes in a device's
 * memory. */
bool memory_region_any_device(struct memory *memory, const struct buffer *a, const struct buffer *b);

/* How many regions of host memory are live, and their bytes. */
void memory_regions(struct memory *memory, uint64_t *count, uint64_t *bytes);
/* How many more regions this rank can have. */
int memory_regions_left(struct memory *memory);

/* Maps a peer's region, unless it is mapped already. Errors: LS_UNSUPPORTED (the system does not
 * let this process open the file), LS_OUT_OF_MEMORY, LS_SYSTEM, with a message that names the
 * rank. */
LS_CHECKED ls_status memory_view_add(struct memory_view *view, int rank,
				     const struct memory_region_name *name);
/* The parts of memory_offset, memory_view_at and memory_view_close for regions.
 * memory_region_offset ends a region that is no longer mapped, with a message, and returns
 * false. */
bool memory_region_offset(struct memory *memory, const void *address, size_t bytes,
			  const struct ranks *peers, uint64_t *offset);
void *memory_region_view_at(const struct memory_view *view, uint64_t offset, uint64_t bytes);
void memory_region_views_close(struct memory_view *view);

#endif
