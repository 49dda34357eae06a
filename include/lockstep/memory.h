/* SPDX-License-Identifier: BSD-3-Clause
 * Memory that the other ranks of this machine can reach without a copy. See ls_alloc(3). */
#ifndef LOCKSTEP_MEMORY_H
#define LOCKSTEP_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *out = at least `bytes` bytes, aligned to 64, content undefined. A freed block is kept warm and
 * handed out again, so that a training loop touches fresh pages only in its first step. bytes 0 gives
 * a valid block that holds nothing. Local, any thread, does not block. A forked child cannot see this
 * memory. Errors: LS_BAD_ARGUMENT, LS_OUT_OF_MEMORY (says what is in use), LS_FORKED; *out is NULL. */
LS_EXPORT LS_CHECKED ls_status ls_alloc(ls_group *group, size_t bytes, void **out);

/* Gives a block of ls_alloc back; NULL is allowed. The caller must not free a buffer that an
 * operation is using. In a forked child it does nothing and returns LS_OK. group NULL: a block that has outlived its
 * group, as keep_memory of struct ls_group_options says. Errors: LS_BAD_ARGUMENT for an address that is no live block
 * of this group. */
LS_EXPORT LS_CHECKED ls_status ls_free(ls_group *group, void *block);

/* Shows shared memory of the program's own to the other ranks, so that buffers in it are reached without a
 * copy as those of ls_alloc are: a memfd, a file in /dev/shm, a tensor in shared memory. `address` is where
 * this process has mapped `bytes` of `fd` from `offset` on, with MAP_SHARED, readable and writable; address
 * and offset are multiples of the page size. A rank that has none passes bytes 0 and takes part.
 * The descriptor may be closed when the call has returned. The same memory again registers nothing, which
 * registered_again of ls_memory_stats counts. At most 64 ranges of each rank, over the life of the group.
 * It ends with ls_deregister, with the groups, or with the mapping: a call that is given a buffer in the range
 * asks the system whether this part of the file is mapped there still. If other memory is, or none, the
 * registration has ended, which LS-MEMORY-GONE says once, and the buffer is plain like any other. As with any
 * buffer its memory must stay while an operation uses it; and the file must not be cut. Before Linux 6.11 the
 * question takes long: there buffers of less than 1 MiB stay plain.
 * After a failed operation such memory cannot be taken away from a peer that is stopped, as others share
 * it: then the call that failed says so (LS-MEMORY-DETACH).
 *
 * Collective and blocking, in the order of the group's collectives; either all ranks have registered, or
 * all return the same error, which a message explains: LS_BAD_ARGUMENT (some rank's memory is not what it
 * says), LS_UNSUPPORTED (the system keeps the ranks' files apart), LS_OUT_OF_MEMORY, LS_SYSTEM, or what a
 * collective ends with. */
LS_EXPORT LS_CHECKED ls_status ls_register(ls_group *group, void *address, size_t bytes, int fd,
					   uint64_t offset);

/* Buffers in the range that was registered at `address` are plain memory from now on; to be called before it is
 * unmapped. Local, any thread, does not block; what is under way goes on as it has begun. Peers keep their
 * mapping until they close the group. Errors: LS_BAD_ARGUMENT if this rank has registered no range that begins
 * at `address`, or ended that registration before. */
LS_EXPORT LS_CHECKED ls_status ls_deregister(ls_group *group, const void *address);

/* What a group has taken of memory. */
struct ls_memory_stats {
	size_t size;           /* sizeof(struct ls_memory_stats), set by the caller */
	uint64_t arena_bytes;  /* address space for ls_alloc */
	uint64_t live_bytes;   /* in blocks that are in use */
	uint64_t cached_bytes; /* in blocks that were freed and are kept warm */
	uint64_t hits, misses; /* calls of ls_alloc that reused a block, and that did not */
	/* Ranges of this rank that are registered, their bytes, and how often ls_register found its range
	 * registered already. */
	uint64_t registered, registered_bytes, registered_again;
};
/* Local, any thread. Errors: LS_BAD_ARGUMENT, LS_FORKED. */
LS_EXPORT LS_CHECKED ls_status ls_memory_stats(ls_group *group, struct ls_memory_stats *out);

#ifdef __cplusplus
}
#endif
#endif
